# SPDX-License-Identifier: Apache-2.0
"""What the demo's runs came to: sizes over every checkpoint written, losses, times."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any, NamedTuple

import ckpress

ROLES = {"weights": "weight", "m": "m", "v": "v"}


def sizes(run: pathlib.Path) -> dict[str, Any]:
    """Bytes of every file of the run, and of each role, checkpoint by checkpoint.

    The demo deletes none, so what lies there is all that was written; files of saves that a kill cut off are no checkpoints.
    """
    rows = []
    for entry in ckpress.list_run(run):
        if entry.health != "ok":
            continue
        with ckpress.open(f"{run}@{entry.step}") as f:
            info = f.info
        files = sum(p.stat().st_size for p in (run / entry.dir).iterdir())
        rows.append({"step": entry.step, "key": not entry.is_delta, "bytes": files, "raw": info["raw_bytes"],
                     "by_role": info["stored_by_role"], "params": info["params_by_role"]["weight"]})  # fmt: skip
    shared = (run / "run.json").stat().st_size
    return {"checkpoints": rows, "bytes": shared + sum(r["bytes"] for r in rows), "raw": sum(r["raw"] for r in rows)}


def bits(size: dict[str, Any]) -> dict[str, float]:
    """Bits a parameter (of the weights), mean over the checkpoints."""
    params = sum(r["params"] for r in size["checkpoints"])
    out = {name: sum(r["by_role"].get(role, 0) for r in size["checkpoints"]) * 8 / params for name, role in ROLES.items()}
    out["total"] = size["bytes"] * 8 / params
    return out


def slope(events: list[dict[str, Any]], steps: int) -> float:
    """Held-out loss a step over the last quarter of the run, by least squares; negative while it learns."""
    points = [(e["step"], e["loss"]) for e in events if e["event"] == "held_out" and e["step"] >= steps * 3 // 4]
    return statistics.linear_regression(*zip(*points)).slope


def result(plain: Any, broken: Any, run: pathlib.Path, steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of result.json, and more for the report."""
    size = sizes(run)
    end_plain, end_broken = plain.events[-1], broken.events[-1]
    gap = end_broken["loss"] - end_plain["loss"]
    learning = slope(plain.events, steps)
    saved = [e for e in broken.events if e["event"] == "saved"]
    stalls = [e["stall"] * 1e3 for e in saved]
    figures = {
        "kills": len(broken.kills),
        "kills_during_save": sum(k["during_save"] for k in broken.kills),
        "restores_from_lossy": sum(bool(r["lossy"]) for r in broken.restores),
        "checkpoints": len(size["checkpoints"]),
        "keys": sum(r["key"] for r in size["checkpoints"]),
        "bits_per_param": {k: round(v, 4) for k, v in bits(size).items()},
        "ratio": round(size["raw"] / size["bytes"], 2),
        "loss_uninterrupted": round(end_plain["loss"], 5),
        "loss_interrupted": round(end_broken["loss"], 5),
        "steps_lost_per_restore": round(gap / -learning / max(1, len(broken.restores)), 3),
        "stall_ms": round(statistics.mean(stalls), 3),
        "identical_weights": end_plain["weights"] == end_broken["weights"],
    }
    more = {
        "size": size,
        "slope": learning,
        "stalls": [(e["step"], e["stall"] * 1e3) for e in saved],
        "save_ms": statistics.mean(e["total"] for e in saved) * 1e3,
        "restore_ms": statistics.mean([r["seconds"] for r in broken.restores] or [0.0]) * 1e3,
    }
    return figures, more


class Must(NamedTuple):
    """One promise: its name, the value found, the bar, and whether the value has to reach the bar or stay below it."""

    name: str
    value: float
    bar: float
    at_least: bool

    @property
    def holds(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def __str__(self) -> str:
        return f"MUST {self.name} {self.value:.4g} {self.bar:g} {'ok' if self.holds else 'short'}"


def musts(figures: dict[str, Any], profile: str) -> list[Must]:
    """What has to hold."""
    out = [
        Must("kills_survived", figures["kills"], 10, True),
        Must("kills_during_save", figures["kills_during_save"], 3, True),
    ]
    if profile == "lossless":
        return [*out, Must("identical_weights", float(figures["identical_weights"]), 1, True)]
    most_bits, most_lost = {"resume": (0.75, 5.0), "small": (0.55, 12.0)}[profile]
    out.append(Must("bits_per_param", figures["bits_per_param"]["total"], most_bits, False))
    if profile == "resume":
        out.append(Must("loss_gap", figures["loss_interrupted"] - figures["loss_uninterrupted"], 0.03, False))
    out.append(Must("steps_lost_per_restore", figures["steps_lost_per_restore"], most_lost, False))
    out.append(Must("restores_from_lossy", figures["restores_from_lossy"], 10, True))
    return out
