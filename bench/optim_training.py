# SPDX-License-Identifier: Apache-2.0
"""What coded moments do to training: the demo's GPT by SGD, Lion and Adam, and by AdamW on bf16 weights, each beside f32 state.

    python bench/optim_training.py [--seeds 3] [--only sgd,lion] [--steps 200]

124,672 parameters, 8 windows a step, one thread; lr rises for 20 steps and falls to 5 % of its peak. A row each: held-out loss by seed, and the mean's distance
to that of f32. docs/decisions/0021 has a run's table.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
from typing import Any

import ckpress.torch as resident
import quality_data
import torch
from optimizers import Lion as PlainLion

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "demo"))
import model as demo

WINDOWS, BATCH, WARM = 60, 8, 20
SGD, LION = {"lr": 0.1, "momentum": 0.9}, {"lr": 3e-4, "weight_decay": 0.3}
ADAM, ADAMW = {"lr": 1e-3, "betas": (0.9, 0.99)}, {"lr": 1e-3, "weight_decay": 0.1}


def cases(reference: Any, ours: Any, options: dict[str, Any], widths: tuple[int, ...]) -> dict[str, Any]:
    return {"f32": lambda ps: reference(ps, **options), **{f"{b} bits": lambda ps, b=b: ours(ps, state_bits=b, small=0, **options) for b in widths}}


def masters() -> dict[str, Any]:
    made = {"f32": lambda ps: torch.optim.AdamW(ps, **ADAMW), "bf16: torch": lambda ps: torch.optim.AdamW(ps, **ADAMW)}
    for master in (None, "split8", "split16"):
        made[f"bf16: {master or 'rounded without bias'}"] = lambda ps, master=master: resident.AdamW(ps, master=master, **ADAMW)
    return made


TASKS: dict[str, Any] = {
    "sgd": cases(torch.optim.SGD, resident.SGD, SGD, (8, 5, 4, 3)),
    "lion": cases(PlainLion, resident.Lion, LION, (8, 4, 3)),
    "adam": cases(torch.optim.Adam, resident.Adam, ADAM, (4,)),
    "masters": masters(),
}


def held_out(net: Any, text: torch.Tensor) -> float:
    size = demo.CONTEXT
    stride = (len(text) - size - 1) // WINDOWS
    rows = torch.stack([text[i * stride : i * stride + size + 1] for i in range(WINDOWS)])
    with torch.no_grad():
        return sum(float(net(r[:, :-1], r[:, 1:])) for r in rows.split(20)) / (WINDOWS / 20)


def run(make: Any, half: bool, seed: int, steps: int, tokens: tuple[torch.Tensor, torch.Tensor]) -> float:
    torch.manual_seed(seed)
    net = demo.GPT(64, 2, 2)
    if half:
        net = net.bfloat16()
    optimizer = make(list(net.parameters()))
    peak = optimizer.param_groups[0]["lr"]
    for n in range(steps):
        optimizer.param_groups[0]["lr"] = peak * min(1.0, (n + 1) / WARM) * (0.05 + 0.475 * (1 + math.cos(math.pi * n / steps)))
        optimizer.zero_grad()
        net(*demo.Sampler(tokens[0], BATCH, seed * 1_000_003 + n).next()).backward()
        optimizer.step()
    return held_out(net.float(), tokens[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default=",".join(TASKS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokens = demo.split(quality_data.prose())
    for task in args.only.split(","):
        exact = 0.0
        for name, make in TASKS[task].items():
            losses = [run(make, name.startswith("bf16"), seed, args.steps, tokens) for seed in range(1, args.seeds + 1)]
            mean = sum(losses) / len(losses)
            exact = mean if name == "f32" else exact
            print(f"| {task} | {name} | {', '.join(f'{x:.3f}' for x in losses)} | {mean - exact:+.3f} |", flush=True)


if __name__ == "__main__":
    main()
