# SPDX-License-Identifier: Apache-2.0
"""What is compared, behind one interface: save(), restore() into fresh objects from nothing but files, and bytes written."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import ckpress
import numpy as np
import torch
from baselines import CODERS, SETTINGS
from baselines.pack import State

Model, Optimizer = torch.nn.Module, torch.optim.Optimizer
CKPRESS = ("resume", "small", "resume:0.5", "resume:0.3", "small:2")
ALL = [("ckpress", s) for s in CKPRESS] + [(name, s) for name, settings in SETTINGS.items() for s in settings]


class Ckpress:
    """Setting: profile, or profile:quality. No lossless save at the end: what a run in the middle of training writes is counted."""

    def __init__(self, setting: str, place: pathlib.Path, init: State) -> None:
        self.profile, _, quality = setting.partition(":")
        self.quality = float(quality or 1)
        self.place = place / "run"
        self._open()

    def _open(self) -> None:
        self.checkpointer = ckpress.Checkpointer(self.place, self.profile, quality=self.quality, threads=1, final_on_close=False)
        self.fresh = True

    def save(self, step: int, model: Model, optimizer: Optimizer) -> float:
        """Seconds that the training stood still."""
        if self.fresh:
            self.checkpointer.register(model=model, optimizer=optimizer)
            self.fresh = False
        started = time.perf_counter()
        self.checkpointer.save(step)
        stall = time.perf_counter() - started
        self.checkpointer.wait()
        return stall

    def restore(self, model: Model, optimizer: Optimizer) -> int:
        self.checkpointer.close()
        self._open()
        self.fresh = False
        return int(self.checkpointer.restore(model=model, optimizer=optimizer) or 0)

    def close(self) -> None:
        self.checkpointer.close()

    def bytes(self) -> tuple[int, int]:
        """Everything written, and the weights' part of it."""
        total = sum(p.stat().st_size for p in self.place.rglob("*") if p.is_file())
        weights = 0
        for entry in ckpress.list_run(self.place):
            with ckpress.open(f"{self.place}@{entry.step}") as f:
                weights += f.info["stored_by_role"].get("weight", 0)
        return total, weights


def arrays(model: Model, optimizer: Optimizer) -> State:
    out: State = {}
    for name, p in model.named_parameters():
        moments = optimizer.state.get(p, {})
        zero = torch.zeros_like(p)
        out[name] = {"w": p.detach().numpy().copy(), "m": moments.get("exp_avg", zero).detach().numpy().copy(),
                     "v": moments.get("exp_avg_sq", zero).detach().numpy().copy()}  # fmt: skip
    return out


class Baseline:
    """A coder of bench/baselines with a file a save; a restore replays the files through a new coder."""

    def __init__(self, name: str, setting: str, place: pathlib.Path, init: State) -> None:
        self.make = lambda: CODERS[name](setting, init)
        self.place, self.coder, self.files, self.steps = place, self.make(), 0, 0
        self.weights = 0

    def save(self, step: int, model: Model, optimizer: Optimizer) -> float:
        started = time.perf_counter()
        raw = self.coder.encode(arrays(model, optimizer))
        (self.place / f"{self.files:04}.bin").write_bytes(step.to_bytes(8, "little") + raw)
        self.files += 1
        self.weights += getattr(self.coder, "weight_bytes", 0)
        return time.perf_counter() - started

    def restore(self, model: Model, optimizer: Optimizer) -> int:
        self.coder = self.make()
        step = 0
        for i in range(self.files):
            raw = (self.place / f"{i:04}.bin").read_bytes()
            step, state = int.from_bytes(raw[:8], "little"), self.coder.decode(raw[8:])
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(torch.from_numpy(np.ascontiguousarray(state[name]["w"])))
                optimizer.state[p] = {"step": torch.tensor(float(step)), "exp_avg": torch.from_numpy(state[name]["m"]).float().clone(),
                                      "exp_avg_sq": torch.from_numpy(state[name]["v"]).float().clone()}  # fmt: skip
        return step

    def close(self) -> None:
        pass

    def bytes(self) -> tuple[int, int]:
        return sum(p.stat().st_size for p in self.place.iterdir()), self.weights


def open_system(name: str, setting: str, place: pathlib.Path, init: State) -> Any:
    return Ckpress(setting, place, init) if name == "ckpress" else Baseline(name, setting, place, init)
