# SPDX-License-Identifier: Apache-2.0
"""What the demo's runs came to: sizes over every checkpoint written, losses, times."""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

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


def musts(figures: dict[str, Any], profile: str) -> list[tuple[str, bool]]:
    """What has to hold, in words, and whether it does."""
    total, gap = figures["bits_per_param"]["total"], figures["loss_interrupted"] - figures["loss_uninterrupted"]
    lost = figures["steps_lost_per_restore"]
    out = [
        (f"kills survived: {figures['kills']}, wanted 10", figures["kills"] == 10),
        (f"kills 5 to 50 ms after a call of save(): {figures['kills_during_save']}, wanted 3", figures["kills_during_save"] >= 3),
    ]
    if profile == "lossless":
        return [*out, (f"final weights bit-identical: {figures['identical_weights']}", figures["identical_weights"])]
    most_bits, most_lost = {"resume": (0.85, 5.0), "small": (0.65, 12.0)}[profile]
    out.append((f"bits a parameter, everything counted: {total:.3f}, at most {most_bits}", total <= most_bits))
    if profile == "resume":
        out.append((f"loss gap: {gap:+.4f}, at most 0.03", gap <= 0.03))
    out.append((f"steps lost per restore: {lost:.2f}, at most {most_lost:g}", lost <= most_lost))
    out.append((f"restores from a lossy checkpoint: {figures['restores_from_lossy']}, wanted 10", figures["restores_from_lossy"] == 10))
    return out
