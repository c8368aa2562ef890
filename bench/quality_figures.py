# SPDX-License-Identifier: Apache-2.0
"""What the rows of the quality bench came to, group by group: means over seeds with 95 % intervals."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
T95 = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # Student's t, two-sided, by degrees of freedom
UNPAIRED = ("plain", "chain")


@dataclass
class Group:
    """Runs that differ in their seed only. ``*_half``: half widths of 95 % intervals, nan for one seed.

    Attributes:
        bits, bits_w: a parameter, over all saves: everything written; without what moments took.
        gap: end loss above the uninterrupted run's.
        noise: standard deviation of uninterrupted runs' end loss.
        lost: steps lost per restore.
        saved, final: loss of the last lossy checkpoint, and of the lossless last one, as a share above the live model's; the worst seed.
        stall, cost, evaluating: of a save, in training steps: save()'s own time; processor time of all threads until the commit;
            eval_fn's part of it.
        restore: seconds.
    """

    task: str
    system: str
    setting: str
    restores: int
    seeds: int
    params: float
    bits: float
    bits_w: float
    gap: float
    gap_half: float
    noise: float
    lost: float
    lost_half: float
    saved: float
    final: float
    stall: float
    cost: float
    evaluating: float
    evaluations: float
    restore: float

    @property
    def sd(self) -> float:
        """The gap in standard deviations of the noise."""
        return self.gap / self.noise


@dataclass
class Plain:
    """Uninterrupted runs of a task. ``sd``: standard deviation of the end loss over seeds; ``slope``: mean, a step."""

    task: str
    seeds: int
    params: float
    steps: int
    loss: float
    sd: float
    slope: float
    step_s: float


def with_interval(value: float, half: float, digits: int) -> str:
    """``+0.0123 ± 0.0045``; without the interval of a single seed, which has none."""
    return f"{value:+.{digits}f}" + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval; nan for a single value."""
    n = len(values)
    half = T95[min(n - 1, len(T95) - 1)] * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.nan
    return statistics.mean(values), half


def numbers(rows: list[Row], field: str) -> list[float]:
    return [float(r[field]) for r in rows if r.get(field) not in ("", None)]


def mean(rows: list[Row], field: str) -> float:
    return statistics.mean(numbers(rows, field) or [math.nan])


def plains(rows: list[Row]) -> dict[str, Plain]:
    out = {}
    for task in dict.fromkeys(r["task"] for r in rows):
        own = [r for r in rows if r["task"] == task and r["system"] == "plain"]
        losses = numbers(own, "loss")
        if own:
            sd = statistics.stdev(losses) if len(losses) > 1 else math.nan
            out[task] = Plain(task, len(own), mean(own, "params"), int(own[0]["steps"]), statistics.mean(losses), sd, mean(own, "slope"), mean(own, "step_s"))
    return out


def group(members: list[Row], plain: Plain) -> Group:
    first = members[0]
    gap, half = interval(numbers(members, "gap"))
    restores = int(first["restores"])
    lost, lost_half = interval([float(r["gap"]) / -float(r["slope"]) / restores for r in members])

    def steps(field: str) -> float:
        return statistics.mean(float(r[field]) / float(r["step_s"]) for r in members)

    return Group(first["task"], first["system"], first["setting"], restores, len(members), float(first["params"]), mean(members, "bits"),
                 mean(members, "bits_w"), gap, half, plain.sd, lost, lost_half, max(numbers(members, "saved_gap")),
                 max(numbers(members, "final_gap"), default=math.nan), steps("stall_s"), steps("save_s"), steps("eval_s"),
                 mean(members, "evaluations"), mean(members, "restore_s"))  # fmt: skip


def groups(rows: list[Row]) -> list[Group]:
    """In the rows' order; those of a task without uninterrupted runs are left out."""
    known, members = plains(rows), defaultdict(list)
    for r in rows:
        if r["system"] not in UNPAIRED and r["task"] in known:
            members[r["task"], r["system"], r["setting"], r["restores"]].append(r)
    return [group(m, known[key[0]]) for key, m in members.items()]
