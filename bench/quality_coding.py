# SPDX-License-Identifier: Apache-2.0
"""What the library makes of a fixed training, as a number: a row of the quality bench stands for as long as this stays the same.

A change of the command or of the store alters no code and no decoded value, and needs no run again; a change of any step, threshold or
rounding does. Only products, sums, quotients and roots of single elements in fp32, each rounded as IEEE 754 says, and integers: the same on every machine.
"""

from __future__ import annotations

import hashlib
import pathlib
import random
import tempfile
from typing import Any

import ckpress
import numpy
import safetensors.torch
import torch
from quality_systems import make_run, options
from torch import Tensor, nn

SAVES, STEPS = 5, 2  # saves; steps between them
# System, setting, Adam (else SGD with momentum), with a base model.
RUNS = (("ckpress", "resume", True, False), ("ckpress", "resume", True, True), ("ckpress", "resume", False, False), ("ckpress", "small", True, False),
        ("ckpress", "small", True, True), ("ckpress", "small", False, False), ("ckpress", "resume:0.3+key", True, False), ("dynaquant", "16", True, False),
        ("ckpress", "resume:0.1", True, False), ("ckpress", "resume:0.1", True, True), ("ckpress", "resume:0.1", False, False))  # fmt: skip
KINDS = ("resume", "small", "fine")
FINE = 0.2  # qualities of `resume` from here on have moments of another kind (src/run/profile.c); a budget of the loss may ask for them
ROLES = ("weight", "m", "v", "momentum")
SHAPES = {"embedding": (512, 96), "inner": (320, 192), "convolution": (64, 16, 3, 3), "bias": (192,), "scale": (1,)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))


class Training:
    """Gradients with a direction of their own and noise, some rows asleep; weights follow their moments."""

    def __init__(self, adam: bool) -> None:
        self.adam, self.draw = adam, random.Random(1)
        self.net = Net()
        self.optimizer: torch.optim.Optimizer
        if adam:
            self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=2.0**-9)
        else:
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=2.0**-5, momentum=0.9)
        self.n = 0
        for p in self.net.parameters():
            p.data = self._noise(p.shape) * 2.0**-4
            state: dict[str, Any] = {"momentum_buffer": torch.zeros_like(p.data)}
            if adam:
                state = {"step": torch.zeros(()), "exp_avg": torch.zeros_like(p.data), "exp_avg_sq": torch.zeros_like(p.data)}
            self.optimizer.state[p] = state

    def _noise(self, shape: Any) -> Tensor:
        count = torch.Size(shape).numel()
        data = bytearray(self.draw.randbytes(8 * count))
        return (torch.frombuffer(data, dtype=torch.uint8).view(count, 8).to(torch.int32).sum(1) - 1020).view(shape).float() * 2.0**-8

    def _gradient(self, p: Tensor) -> Tensor:
        g = self._noise(p.shape)
        if p.ndim > 1:
            rows = p.shape[0]
            g = g + self._noise((rows,)).view(rows, *(1,) * (p.ndim - 1)) * self._noise(p.shape[1:])
            g[self.n % 5 :: 5] *= 2.0**-6
            g[rows // 2 + self.n * 4 :] = 0.0
        return g

    def step(self) -> None:
        self.n += 1
        for p in self.net.parameters():
            g, s = self._gradient(p.data), self.optimizer.state[p]
            if not self.adam:
                s["momentum_buffer"].mul_(0.9).add_(g)
                p.data -= s["momentum_buffer"] * 2.0**-9
                continue
            s["step"] += 1
            s["exp_avg"].mul_(0.9).add_(g * 0.1)
            s["exp_avg_sq"].mul_(0.95).add_(g * g * 0.05)
            root = torch.from_numpy(numpy.sqrt(s["exp_avg_sq"].numpy()))  # torch's own differs in last bits from one processor to another
            p.data -= s["exp_avg"] / (root + 2.0**-20) * 2.0**-9


def _run(place: pathlib.Path, system: str, setting: str, adam: bool, base: bool) -> list[bytes]:
    training = Training(adam)
    profile, wanted = options(system, setting)
    if base:
        wanted["base"] = place / "base.safetensors"
        safetensors.torch.save_file(training.net.state_dict(), wanted["base"])
    seen = []
    run = place / "run"
    make_run(run, 1)
    with ckpress.Checkpointer(run, profile, threads=1, final_on_close=False, **wanted) as ck:
        ck.register(model=training.net, optimizer=training.optimizer)
        for n in range(1, SAVES + 1):
            for _ in range(STEPS):
                training.step()
            ck.save(n, key=setting.endswith("+key") and n % 3 == 0, wait=True)
    for n in range(1, SAVES + 1):
        with ckpress.open(f"{run}@{n}") as f:
            seen.append(repr([f.info["stored_by_role"].get(role) for role in ROLES]).encode())
            seen += [x[:].contiguous().view(-1).view(torch.uint8).numpy().tobytes() for _, x in sorted(f.items()) if x.role in ROLES]
    return seen


def coding_kind(system: str, setting: str) -> str:
    """What changes together."""
    profile, wanted = options(system, setting)
    return "fine" if profile == "resume" and (wanted.get("quality", 1) <= FINE or ("eval_fn" in wanted and "planner" not in wanted)) else profile


def fingerprint(of: str, base: bool) -> str:
    """Twelve hexadecimal digits of every decoded element and of the bytes by role, for a training on a base model, or else for Adam and SGD."""
    all_of = hashlib.sha256()
    for run in (r for r in RUNS if coding_kind(*r[:2]) == of and r[3] == base):
        with tempfile.TemporaryDirectory() as place:
            for part in _run(pathlib.Path(place), *run):
                all_of.update(part)
    return all_of.hexdigest()[:12]


if __name__ == "__main__":
    print(*(f"{of} {base} {fingerprint(of, base)}" for of in KINDS for base in (False, True)), sep="\n")
