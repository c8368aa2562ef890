# SPDX-License-Identifier: Apache-2.0
"""Plots of the quality bench: bits against loss gap, every system a line, an SVG a task."""

from __future__ import annotations

import math
import pathlib
from collections import defaultdict
from typing import Any

from baselines import CODERS, WEIGHTS_ONLY
from quality_figures import Group, Plain

RESTORES = 10  # the plots' rows
COLOURS = {system: f"C{i}" for i, system in enumerate(("ckpress", "dynaquant", *CODERS))}


def figures() -> Any:
    """matplotlib's pyplot, to write files; None: it is not here."""
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no plots")
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ckpress"  # the same figures give the same file
    import matplotlib.pyplot as plt

    return plt


def plot(groups: list[Group], plains: dict[str, Plain], out: pathlib.Path, prefix: str) -> None:
    """Nothing without matplotlib."""
    plt = figures()
    if plt is None:
        return
    for task, plain in plains.items():
        own = [g for g in groups if g.task == task and g.restores == RESTORES]
        if not own:
            continue
        figure, axes = plt.subplots(1, 2, figsize=(13, 5.5), sharey=True)
        whole = [g for g in own if g.system not in WEIGHTS_ONLY]
        panel(axes[0], whole, plain, "bits", "bits a parameter: weights, moments, all overhead")
        panel(axes[1], own, plain, "bits_w", "bits a parameter: without moments")
        axes[0].set_ylabel("loss gap after 10 restores")
        figure.suptitle(f"{task}: {plain.params / 1e6:.1f} million parameters, uninterrupted loss {plain.loss:.3f}")
        figure.tight_layout()
        figure.savefig(out / f"{prefix}-{task}.svg", metadata={"Date": None})
        plt.close(figure)


def panel(axes: object, groups: list[Group], plain: Plain, field: str, label: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    series = defaultdict(list)
    for g in groups:
        # Whole-state coders do not say what their moments took.
        if getattr(g, field) > 0 and "+" not in g.setting:
            series[g.system].append((getattr(g, field), g.gap, g.setting))
    for system, points in series.items():
        points.sort()
        axes.plot([p[0] for p in points], [p[1] for p in points], "o-", color=COLOURS[system], label=system)
        for x, y, setting in points:
            axes.annotate(setting, (x, y), fontsize=7, xytext=(3, 3), textcoords="offset points")
    if not math.isnan(plain.sd):
        axes.axhspan(-2 * plain.sd, 2 * plain.sd, alpha=0.15, label="2 noise standard deviations")
        axes.set_yscale("symlog", linthresh=4 * plain.sd)
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.legend(fontsize=8)
