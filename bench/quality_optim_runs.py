# SPDX-License-Identifier: Apache-2.0
"""One run of the quality bench of resident optimizers: a task's training as it is, with another optimizer in the place of torch's AdamW."""

from __future__ import annotations

import os
import statistics
import sys
from typing import Any

import ckpress.torch
import torch
from optim import TORCHAO, packages
from optim_without import Without
from quality_rivals import Timer
from torch import Tensor

Row = dict[str, Any]
ROUNDS = 14  # of the policy in a training: widths settle in some six
OPTIONS = ("params", "lr", "betas", "eps", "weight_decay", "scale")  # of a group; the last one is the task's own


def make(system: str, setting: str, groups: list[dict[str, Any]], steps: int, seed: int) -> torch.optim.Optimizer:
    """The optimizer of these groups.

    Args:
        setting: fixed: a width; torchao: one of its classes' widths; policy: BUDGET, or BUDGET-LIBERTY without one of optim_without.py's.
    """
    own = [{k: g[k] for k in OPTIONS if k in g} for g in groups]
    if system == "torchao":
        return torchao(int(setting), own)
    if system == "fixed":
        return ckpress.torch.AdamW(own, state_bits=(int(setting),) * 2, seed=seed)
    budget, _, without = setting.partition("-")
    every = max(1, steps // ROUNDS)
    optimizer = ckpress.torch.AdamW(own, state_bits="auto", budget_bits=float(budget), every=every, seed=seed)
    if without:
        optimizer.policy = Without(without, float(budget), every, optimizer.small)
    return optimizer


def torchao(bits: int, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """torchao lives in an environment of its own (bench/optim.py), whose other packages come after the project's."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a run has one thread
    if str(packages()) not in sys.path:
        sys.path.append(str(packages()))
    from torchao import optim

    made: torch.optim.Optimizer = getattr(optim, TORCHAO[bits])(groups)
    rates = [g["lr"] for g in made.param_groups]

    def keep_tensors(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """A task writes learning rates as floats, torchao wants its tensors filled."""
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate.fill_(float(group["lr"]))

    made.register_step_pre_hook(keep_tensors)
    return made


def nbytes(x: Any) -> int:
    """Of a tensor, or of all that a tensor of codes is made of."""
    if not isinstance(x, Tensor):
        return 0
    if hasattr(x, "__tensor_flatten__"):
        return sum(nbytes(getattr(x, name)) for name in x.__tensor_flatten__()[0])
    return x.nbytes


def bits(optimizer: Any) -> float:
    """Of a moment on average, with everything that is kept for them: codes, factors, maps, statistics, moments that stay fp32, steps."""
    if hasattr(optimizer, "report"):
        return float(optimizer.report()["bits"])
    states = optimizer.state
    return 8 * sum(nbytes(x) for state in states.values() for x in state.values()) / sum(2 * p.numel() for p in states)


def run(task: Any, system: str, setting: str) -> Row:
    """End loss, and bits: mean over the steps, at the end, the most."""
    if task.quick and system == "torchao":
        torch.compiler.set_stance("force_eager")  # compiling takes longer than such a training
    model, reference = task.build()
    optimizer = make(system, setting, reference.param_groups, task.steps, task.seed)
    held, whole = [], Timer()
    for n in range(task.steps):
        task.step(model, optimizer, n)
        held.append(bits(optimizer))
    return {"steps": task.steps, "params": sum(p.numel() for p in model.parameters()), "bits": statistics.mean(held), "bits_end": held[-1],
            "bits_most": max(held), "loss": task.evaluate(model), "run_s": whole.wall()}  # fmt: skip
