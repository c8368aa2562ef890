# SPDX-License-Identifier: Apache-2.0
"""Tables, plot and MUST lines of the quality bench of resident optimizers.

A gap is the end loss above that of fp32 at the same seed; noise is the standard deviation of fp32's end loss over its seeds. Two systems are
compared by the differences of their losses at the same seeds.
"""

from __future__ import annotations

import math
import pathlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from quality_figures import Plain, interval, mean, numbers, plains, with_interval
from quality_plot import figures
from quality_report import line, put

Row = dict[str, Any]
BEGIN, END = "<!-- bench-quality-optim: begin -->", "<!-- bench-quality-optim: end -->"
GAP = 2.0  # noise standard deviations that the policy may cost
RIVAL = ("policy 3.4", "torchao 4")
PAIRS = (RIVAL, ("policy 3.4", "fixed 4"), ("policy 4.0", "fixed 4"), *((f"policy 4.0-{what}", "policy 4.0") for what in ("layer", "state", "time")))


@dataclass
class Group:
    """Runs of a task by one optimizer that differ in their seed only. ``*_half``: half widths of 95 % intervals, nan for one seed.

    Attributes:
        bits: of a moment: mean over steps and seeds. ``bits_worst``: the largest mean over steps; ``bits_end``: after the last step;
            ``bits_most``: at any step.
        noise: standard deviation of fp32's end loss.
        losses: by seed.
    """

    task: str
    name: str
    bits: float
    bits_worst: float
    bits_end: float
    bits_most: float
    gap: float
    gap_half: float
    noise: float
    run_s: float
    losses: dict[str, float]

    @property
    def sd(self) -> float:
        """The gap in standard deviations of the noise."""
        return self.gap / self.noise


@dataclass
class Difference:
    """Loss of one optimizer less another's at the same seeds, in standard deviations of the noise."""

    task: str
    name: str
    other: str
    seeds: int
    mean: float
    half: float


def group(rows: list[Row], plain: Plain) -> Group:
    first = rows[0]
    gap, half = interval(numbers(rows, "gap"))
    return Group(first["task"], f"{first['system']} {first['setting']}", mean(rows, "bits"), max(numbers(rows, "bits")), mean(rows, "bits_end"),
                 max(numbers(rows, "bits_most")), gap, half, plain.sd, mean(rows, "run_s"), {r["seed"]: float(r["loss"]) for r in rows})  # fmt: skip


def tell(floor: list[Row], rows: list[Row]) -> list[Group]:
    """What rows came to, beside uninterrupted fp32 runs; in their order, task by task."""
    known, members = plains(floor), defaultdict(list)
    for r in rows:
        members[r["task"], r["system"], r["setting"]].append(r)
    found = [group(m, known[key[0]]) for key, m in members.items() if key[0] in known]
    return sorted(found, key=lambda g: list(known).index(g.task))


def difference(found: list[Group], task: str, name: str, other: str) -> Difference | None:
    """None: no seed has both."""
    of = {g.name: g for g in found if g.task == task}
    if name not in of or other not in of:
        return None
    one, two = of[name], of[other]
    pairs = [(one.losses[seed] - two.losses[seed]) / one.noise for seed in one.losses if seed in two.losses]
    return Difference(task, name, other, len(pairs), *interval(pairs)) if pairs else None


def floor_table(floor: list[Row]) -> list[str]:
    lines = ["| task | parameters | steps | fp32 seeds | end loss | noise: standard deviation |", "|---" * 6 + "|"]
    for p in plains(floor).values():
        lines.append(f"| {p.task} | {p.params / 1e6:.2f} M | {p.steps} | {p.seeds} | {p.loss:.4f} | {p.sd:.4f} |")
    return lines


def main_table(found: list[Group]) -> list[str]:
    lines = ["| task | optimizer | seeds | bits: mean over steps | at the end | most | loss gap (95 %) | in noise sd (95 %) | s |", "|---" * 9 + "|"]
    for g in found:
        lines.append(f"| {g.task} | {g.name} | {len(g.losses)} | {g.bits:.3f} | {g.bits_end:.3f} | {g.bits_most:.3f} | {with_interval(g.gap, g.gap_half, 4)} "
                     f"| {with_interval(g.sd, g.gap_half / g.noise, 2)} | {g.run_s:.0f} |")  # fmt: skip
    return lines


def pairs_table(found: list[Group]) -> list[str]:
    lines = ["| task | optimizer | beside | seeds | difference in noise sd (95 %) |", "|---" * 5 + "|"]
    for task in dict.fromkeys(g.task for g in found):
        for pair in PAIRS:
            d = difference(found, task, *pair)
            if d is not None:
                lines.append(f"| {task} | {d.name} | {d.other} | {d.seeds} | {with_interval(d.mean, d.half, 2)} |")
    return lines


def page(floor: list[Row], rows: list[Row], found: list[Group]) -> str:
    def once(values: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    where = once(f"{r['machine']}, {r['compiler']}" for r in [*floor, *rows])
    return "\n".join([
        "fp32, torch's AdamW:", "", *floor_table(floor), "",
        "Resident optimizers:", "", *main_table(found), "",
        "Beside each other, loss at the same seed; below 0 the first is better:", "", *pairs_table(found), "",
        f"Measured at {once(r['commit'] for r in rows)}, fp32 at {once(r['commit'] for r in floor)}; {where}; one thread a run.", ""])  # fmt: skip


def report(floor: list[Row], rows: list[Row], found: list[Group], out: pathlib.Path, prefix: str, document: pathlib.Path | None) -> None:
    """Writes the tables to ``document`` between its markers (None: to PREFIX.md in ``out``) and the plot to ``out``."""
    if not found:
        print("no rows: no report")
        return
    text = page(floor, rows, found)
    if document is None:
        (out / f"{prefix}.md").write_text(text)
    else:
        put(document, BEGIN, END, text)
    plot(found, out / f"{prefix}.svg")


def plot(found: list[Group], path: pathlib.Path) -> None:
    """Bits against the gap, a panel a task. Nothing without matplotlib."""
    plt = figures()
    if plt is None:
        return
    tasks = list(dict.fromkeys(g.task for g in found))
    figure, panels = plt.subplots(1, len(tasks), figsize=(5.5 * len(tasks), 5), squeeze=False)
    for task, axes in zip(tasks, panels[0], strict=True):
        own = [g for g in found if g.task == task]
        for i, system in enumerate(("policy", "fixed", "torchao")):
            some = [g for g in own if g.name.startswith(system)]
            halves = [0.0 if math.isnan(g.gap_half) else g.gap_half for g in some]
            axes.errorbar([g.bits for g in some], [g.gap for g in some], halves, fmt="o", capsize=3, color=f"C{i}", label=system)
            for g in some:
                axes.annotate(g.name.partition(" ")[2], (g.bits, g.gap), fontsize=7, xytext=(3, 3), textcoords="offset points")
        axes.axhspan(-GAP * own[0].noise, GAP * own[0].noise, alpha=0.15, label=f"{GAP:g} noise standard deviations")
        axes.set_title(task)
        axes.set_xlabel("bits a moment, everything counted")
        axes.legend(fontsize=8)
    panels[0][0].set_ylabel("end loss above fp32's")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def policy_musts(found: list[Group], task: str, budget: str) -> list[str]:
    of = next((g for g in found if g.task == task and g.name == f"policy {budget}"), None)
    bits = of.bits_worst if of is not None else math.nan
    out = [line(f"optim_{task}_policy_{budget}_bits", bits, float(budget))]
    if budget == "4.0":
        out.append(line(f"optim_{task}_policy_{budget}_gap_sd", of.sd if of is not None else math.nan, GAP))
    return out


def musts(found: list[Group], tasks: Iterable[str]) -> list[str]:
    """No worse than a rival: the mean difference at the same seeds is at most the standard error that two means of so many seeds have of noise alone."""
    out = []
    for task in tasks:
        out += policy_musts(found, task, "4.0") + policy_musts(found, task, "3.4")
        d = difference(found, task, *RIVAL)
        value, bar = (d.mean, math.sqrt(2 / d.seeds)) if d is not None else (math.nan, 0.0)
        out.append(line(f"optim_{task}_policy_3.4_above_torchao_4_sd", value, bar))
    return out
