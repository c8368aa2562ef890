# SPDX-License-Identifier: Apache-2.0
"""What is compared, behind one interface: save(), restore() into fresh objects from nothing but files, and bytes written."""

from __future__ import annotations

import inspect
import json
import pathlib
from typing import Any

import ckpress
import safetensors.torch
import xxhash
from baselines import CODERS
from quality_rivals import Baseline, Cost, Model, Optimizer, Timer

BUDGET = 0.01  # of the rows with eval_fn: docs/quality.md, "A budget for the loss"
# Finer to coarser, within the paper's grid (2306.11800, "configuration search").
DYNAQUANT = {
    "32": {"bins": 32, "bins_embedding": 32, "prune": 0.0, "prune_by": "magnitude", "protect": 0.01},
    "16": {"bins": 16, "bins_embedding": 32, "prune": 0.1, "prune_by": "magnitude", "protect": 0.005},
    "8": {"bins": 8, "bins_embedding": 16, "prune": 0.3, "prune_by": "magnitude", "protect": 0.0005},
}
MOMENTS = ("m", "v", "momentum")  # ckpress's names of roles


class Ckpress:
    """Setting: a profile, with :QUALITY (steps of weights), +key (a key between every two restores) or +eval (a budget of the loss).

    What training starts from, where that is loaded, is the run's base model: a file beside it, whose bytes are not counted.
    System dynaquant: the same with weights coded as DynaQuant does, by a setting of DYNAQUANT or search:EPSILON. No lossless save at the
    end: what a run in the middle of training writes is counted.
    """

    def __init__(self, system: str, setting: str, place: pathlib.Path, task: Any) -> None:
        self.system, self.task, self.place = system, task, place / "run"
        self.profile, self.options = options(system, setting)
        if self.options.get("eval_fn"):
            self.options["eval_fn"] = self._validate
        loaded = task.loaded()
        if loaded:
            self.options["base"] = place / "base.safetensors"
            safetensors.torch.save_file(loaded, self.options["base"])
        self.keys = setting.endswith("+key")
        self._evaluated = 0.0
        make_run(self.place, task.seed)
        self._open()

    def _validate(self, model: Model) -> float:
        timer = Timer()
        loss = self.task.validate(model)
        self._evaluated += timer.cpu()
        return float(loss)

    def _open(self) -> None:
        self.checkpointer = ckpress.Checkpointer(self.place, self.profile, threads=1, final_on_close=False, **self.options)
        self.fresh = True

    def save(self, step: int, model: Model, optimizer: Optimizer, halfway: bool = False) -> Cost:
        """``halfway``: between two restores, where +key asks for a key."""
        if self.fresh:
            self.checkpointer.register(model=model, optimizer=optimizer)
            self.fresh = False
        self._evaluated, timer = 0.0, Timer()
        self.checkpointer.save(step, key=halfway and self.keys)
        stall = timer.wall()
        self.checkpointer.wait()
        measured = self.checkpointer.measured
        tries = measured.evaluations if measured is not None and measured.step == step else 0
        return Cost(stall, timer.cpu(), tries, self._evaluated)

    def restore(self, model: Model, optimizer: Optimizer) -> int:
        self.checkpointer.close()
        self._open()
        self.fresh = False
        return int(self.checkpointer.restore(model=model, optimizer=optimizer) or 0)

    def finish(self, step: int, model: Model, optimizer: Optimizer) -> None:
        """The last save of a run, as close() makes it by default."""
        self.checkpointer.save(step, final=True, wait=True, model=model, optimizer=optimizer)

    def close(self) -> None:
        self.checkpointer.close()

    def bytes(self) -> tuple[int, int]:
        """Everything written; without what moments took: weights, buffers, random states and all overhead."""
        total = sum(p.stat().st_size for p in self.place.rglob("*") if p.is_file())
        moments = 0
        for entry in ckpress.list_run(self.place):
            with ckpress.open(f"{self.place}@{entry.step}") as f:
                moments += sum(f.info["stored_by_role"].get(role, 0) for role in MOMENTS)
        return total, total - moments


def make_run(place: pathlib.Path, seed: int) -> None:
    """An empty run whose random phases follow from the seed, where a run draws them otherwise: docs/format.md, run.json."""
    place.mkdir()
    text = json.dumps({"ckpress_run": 1, "features": [], "run": f"{seed:032x}", "created": 0, "library": ""}, indent=1)[:-2]
    (place / "run.json").write_text(f'{text},\n "hash": "{xxhash.xxh3_128_hexdigest(text.encode())}"\n}}\n')


def options(system: str, setting: str) -> tuple[Any, dict[str, Any]]:
    """Profile and keyword arguments of a Checkpointer; an eval_fn that is True stands for the task's."""
    body, _, extra = setting.partition("+")
    first, _, second = body.partition(":")
    if system == "dynaquant":
        if first == "search":
            return "resume", {"planner": "neighbourhood", "eval_fn": True, "max_loss_increase": float(second)}
        return "resume", {"dynaquant": DYNAQUANT[first]}
    out: dict[str, Any] = {"quality": float(second or 1)}
    if extra == "eval":
        out |= {"eval_fn": True, "max_loss_increase": BUDGET}
    return first, out


def unavailable(system: str, setting: str) -> str:
    """Why this build cannot run a setting; empty when it can."""
    if system in CODERS:
        return ""
    return missing(options(system, setting)[1])


def missing(wanted: dict[str, Any]) -> str:
    known = inspect.signature(ckpress.Checkpointer).parameters
    return next((f"Checkpointer has no {name}=" for name in wanted if name not in known), "")


def open_system(name: str, setting: str, place: pathlib.Path, task: Any) -> Any:
    return Baseline(name, setting, place, task) if name in CODERS else Ckpress(name, setting, place, task)
