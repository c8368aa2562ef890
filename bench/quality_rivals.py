# SPDX-License-Identifier: Apache-2.0
"""Rivals behind the interface of quality_systems, what a save costs, and live objects as named arrays."""

from __future__ import annotations

import copy
import pathlib
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from baselines import CODERS
from baselines.pack import State

Model = torch.nn.Module
Optimizer = torch.optim.Optimizer
ROLES = {"exp_avg": "m", "exp_avg_sq": "v", "momentum_buffer": "m"}


@dataclass
class Cost:
    """Of one save.

    Attributes:
        stall: seconds that save() took.
        cpu: processor seconds of all threads until the save was committed: what it takes from a training that leaves no core idle.
        evaluations, eval_cpu: of eval_fn, and their part of ``cpu``.
    """

    stall: float
    cpu: float
    evaluations: int = 0
    eval_cpu: float = 0.0


class Timer:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def wall(self) -> float:
        return time.perf_counter() - self._wall

    def cpu(self) -> float:
        return time.process_time() - self._cpu


def arrays(model: Model, optimizer: Optimizer) -> State:
    """Copies: weights with their moments (zero before the first step), then buffers."""
    out: State = {}
    for name, p in model.named_parameters():
        names = [k for k in ROLES if k in optimizer.state.get(p, {})] or default_moments(optimizer)
        moments = {ROLES[k]: optimizer.state.get(p, {}).get(k, torch.zeros_like(p)) for k in names}
        out[name] = {role: t.detach().numpy().copy() for role, t in {"w": p, **moments}.items()}
    return out | {name: {"w": b.numpy().copy()} for name, b in model.named_buffers()}


def default_moments(optimizer: Optimizer) -> list[str]:
    return ["momentum_buffer"] if isinstance(optimizer, torch.optim.SGD) else ["exp_avg", "exp_avg_sq"]


def put(state: State, step: int, model: Model, optimizer: Optimizer) -> None:
    """The other way, into fresh objects."""
    with torch.no_grad():
        for name, b in model.named_buffers():
            b.copy_(torch.from_numpy(np.array(state[name]["w"])))
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(np.array(state[name]["w"])))
            moments = {k: torch.from_numpy(np.array(state[name][ROLES[k]])) for k in default_moments(optimizer)}
            optimizer.state[p] = moments if "momentum_buffer" in moments else {"step": torch.tensor(float(step)), **moments}


class Baseline:
    """A coder of bench/baselines with a file a save; a reader that has seen nothing but the files restores."""

    def __init__(self, name: str, setting: str, place: pathlib.Path, task: Any) -> None:
        init = arrays(*task.build())
        self.coder, self.reader = (CODERS[name](setting, copy.deepcopy(init)) for _ in range(2))
        self.place, self.files, self.read, self.weights = place, 0, 0, 0
        self.last: tuple[int, State] = (0, init)

    def _file(self, i: int) -> pathlib.Path:
        return self.place / f"{i:04}.bin"

    def save(self, step: int, model: Model, optimizer: Optimizer, halfway: bool = False) -> Cost:
        timer = Timer()
        raw = self.coder.encode(arrays(model, optimizer))
        self._file(self.files).write_bytes(step.to_bytes(8, "little") + raw)
        self.files += 1
        self.weights += getattr(self.coder, "weight_bytes", 0)
        return Cost(timer.wall(), timer.cpu())

    def restore(self, model: Model, optimizer: Optimizer) -> int:
        """Reads each file once, in order; the next encoder goes on from what was decoded."""
        for i in range(self.read, self.files):
            raw = self._file(i).read_bytes()
            self.last = int.from_bytes(raw[:8], "little"), self.reader.decode(raw[8:])
        self.read = self.files
        self.coder = copy.deepcopy(self.reader)
        put(self.last[1], self.last[0], model, optimizer)
        return self.last[0]

    def close(self) -> None:
        pass

    def bytes(self) -> tuple[int, int]:
        return sum(p.stat().st_size for p in self.place.iterdir()), self.weights
