# SPDX-License-Identifier: Apache-2.0
"""What the rows of the quality bench came to: a Markdown table with 95 % intervals, a plot, MUST lines."""

from __future__ import annotations

import math
import pathlib
import statistics
from collections import defaultdict
from typing import Any

Row = dict[str, Any]
T95 = (math.nan, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # Student's t, two-sided, by degrees of freedom
BITS = {"resume": 0.80, "small": 0.45}
BITS_LARGE = {"resume": 0.64, "small": 0.45}  # 8 million parameters or more


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval; nan for a single value."""
    n = len(values)
    half = T95[min(n - 1, len(T95) - 1)] * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.nan
    return statistics.mean(values), half


def groups(rows: list[Row]) -> dict[tuple[str, str, str, int], list[Row]]:
    out = defaultdict(list)
    for r in rows:
        if r["system"] != "plain":
            out[r["task"], r["system"], r["setting"], int(r["restores"])].append(r)
    return dict(out)


def noise(rows: list[Row], task: str) -> float:
    """Standard deviation of the uninterrupted runs' end loss over seeds."""
    losses = [float(r["loss"]) for r in rows if r["task"] == task and r["system"] == "plain"]
    return statistics.stdev(losses) if len(losses) > 1 else math.nan


def figures(rows: list[Row], task: str, members: list[Row]) -> Row:
    gap, half = interval([float(r["gap"]) for r in members])
    lost, lost_half = interval([float(r["gap"]) / -float(r["slope"]) / int(r["restores"]) for r in members])
    sd = noise(rows, task)
    return {"bits": statistics.mean(float(r["bits"]) for r in members), "bits_w": statistics.mean(float(r["bits_w"]) for r in members),
            "gap": gap, "gap_half": half, "sd": gap / sd, "lost": lost, "lost_half": lost_half, "seeds": len(members),
            "saved": max(float(r["saved_gap"]) for r in members), "params": float(members[0]["params"]),
            "stall": statistics.mean(float(r["stall_s"]) / float(r["step_s"]) for r in members),
            "restore": statistics.mean(float(r["restore_s"]) for r in members)}  # fmt: skip


def table(rows: list[Row]) -> str:
    lines = ["| task | system | setting | restores | seeds | bits: all | of it w | loss gap (95 %) | in noise sd | steps lost a restore (95 %) "
             "| saved model's loss | stall, steps | restore, s |", "|---" * 13 + "|"]  # fmt: skip
    for (task, system, setting, restores), members in groups(rows).items():
        f = figures(rows, task, members)
        weights = f"{f['bits_w']:.3f}" if f["bits_w"] else ""
        lines.append(f"| {task} | {system} | {setting} | {restores} | {f['seeds']} | {f['bits']:.3f} | {weights} | {f['gap']:+.4f} ± {f['gap_half']:.4f} "
                     f"| {f['sd']:.2f} | {f['lost']:.2f} ± {f['lost_half']:.2f} | {f['saved']:+.2%} | {f['stall']:.2f} | {f['restore']:.2f} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def plot(rows: list[Row], out: pathlib.Path) -> None:
    """Bits against loss gap; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no plot")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for task in sorted({r["task"] for r in rows}):
        figure, axes = plt.subplots(figsize=(7, 5))
        series = defaultdict(list)
        for (name, system, setting, restores), members in groups(rows).items():
            if name == task and restores == 10:
                f = figures(rows, task, members)
                series[system].append((f["bits"], f["gap"], setting))
        for system, points in series.items():
            points.sort()
            axes.plot([p[0] for p in points], [p[1] for p in points], "o-", label=system)
            for x, y, setting in points:
                axes.annotate(setting, (x, y), fontsize=7)
        axes.set_xscale("log")
        axes.axhspan(0, 2 * noise(rows, task), alpha=0.15, label="2 noise standard deviations")
        axes.set(title=f"{task}: 10 restores", xlabel="bits a parameter, w + m + v, everything counted", ylabel="loss gap")
        axes.legend()
        figure.savefig(out / f"quality-{task}.svg")
        plt.close(figure)


def report(rows: list[Row], out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "quality.md").write_text(table(rows))
    plot(rows, out)


def musts(rows: list[Row]) -> list[str]:
    """Bars of `resume` and `small`; a figure that cannot be told (too few seeds) is short."""
    out = []

    def must(name: str, value: float, bar: float) -> None:
        out.append(f"MUST {name} {value:.4g} {bar:g} {'ok' if value <= bar else 'short'}")

    for (task, system, setting, restores), members in groups(rows).items():
        if system != "ckpress" or setting not in BITS:
            continue
        f, name = figures(rows, task, members), f"{task}_{setting}_{restores}"
        must(f"{name}_bits", f["bits"], (BITS_LARGE if f["params"] >= 8e6 else BITS)[setting])
        must(f"{name}_saved_gap", f["saved"], 0.002)
        must(f"{name}_stall_steps", f["stall"], 3)
        if setting == "resume":
            must(f"{name}_gap_sd", f["sd"], 2)
        else:
            must(f"{name}_steps_lost", f["lost"] - f["lost_half"], 10)
    return out
