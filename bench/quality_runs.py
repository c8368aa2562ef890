# SPDX-License-Identifier: Apache-2.0
"""One run of the quality bench: left alone, with real restores, or a chain whose restores are timed."""

from __future__ import annotations

import pathlib
import statistics
import tempfile
from typing import Any

import quality_gpt
import quality_images
import quality_minilm
from quality_rivals import Timer
from quality_systems import open_system

Row = dict[str, Any]
TASKS = {t.name: t for t in (quality_gpt.Task, quality_gpt.Slow, quality_images.VisionTransformer, quality_images.Residuals, quality_minilm.Task)}
SLOPE_POINTS, SLOPE_SHARE = 6, 4  # evaluations in the last quarter, each of a quarter of the held-out set
OTHER_SEED = 10_000
CHAINS = (1, 8, 32)  # checkpoints that a restore reads: a key and its deltas


def plain(task: Any) -> Row:
    """The uninterrupted run: end loss, slope of its last quarter (a step), processor seconds a step."""
    model, optimizer = task.build()
    curve, spent, whole = [], 0.0, Timer()
    first = task.steps * 3 // 4
    points = {first + round(i * (task.steps - first) / (SLOPE_POINTS - 1)) for i in range(SLOPE_POINTS)}
    for n in range(1, task.steps + 1):
        timer = Timer()
        task.step(model, optimizer, n - 1)
        spent += timer.cpu()
        if n in points:
            curve.append((n, task.evaluate(model, SLOPE_SHARE)))
    return {"loss": task.evaluate(model), "slope": statistics.linear_regression(*zip(*curve)).slope, "step_s": spent / task.steps,
            "params": sum(p.numel() for p in model.parameters()), "run_s": whole.wall()}  # fmt: skip


def places(saves: int, restores: int) -> tuple[set[int], set[int]]:
    """Saves (from 1) after which a restore comes, evenly spaced; saves halfway between two of them."""
    at = [round(i * saves / (restores + 1)) for i in range(restores + 2)]
    inside = set(at[1:-1])
    if len(inside) != restores:
        raise ValueError(f"{restores} restores do not fit {saves} saves")
    return inside, {(a + b + 1) // 2 for a, b in zip(at[1:], at[2:])} - inside


def interrupted(task: Any, system: str, setting: str, restores: int, reference: Row) -> Row:
    """The same seed and batches with real restores: the system is closed and opened, model and optimizer are new objects."""
    model, optimizer = task.build()
    saves = task.steps // task.every
    at, halfway = places(saves, restores)
    costs, waits, whole = [], [], Timer()
    with tempfile.TemporaryDirectory() as place:
        store = open_system(system, setting, pathlib.Path(place), task)
        for n in range(1, task.steps + 1):
            task.step(model, optimizer, n - 1)
            if n % task.every:
                continue
            costs.append(store.save(n, model, optimizer, n // task.every in halfway))
            if n // task.every in at:
                model, optimizer = task.build(seed=task.seed + OTHER_SEED)
                timer = Timer()
                if store.restore(model, optimizer) != n:
                    raise RuntimeError(f"{system} {setting}: restored another step than {n}")
                waits.append(timer.wall())
        total, weights = store.bytes()
        ends = last_saves(task, store, model, optimizer)
        store.close()
    params, loss = sum(p.numel() for p in model.parameters()), task.evaluate(model)
    return {"saves": saves, "params": params, "bits": total * 8 / params / saves, "bits_w": weights * 8 / params / saves, "loss": loss,
            "loss_plain": reference["loss"], "gap": loss - float(reference["loss"]), "slope": reference["slope"], **ends,
            "step_s": reference["step_s"], "stall_s": statistics.mean(c.stall for c in costs),
            "save_s": statistics.mean(c.cpu for c in costs), "eval_s": statistics.mean(c.eval_cpu for c in costs),
            "evaluations": sum(c.evaluations for c in costs), "restore_s": statistics.mean(waits), "run_s": whole.wall()}  # fmt: skip


def last_saves(task: Any, store: Any, model: Any, optimizer: Any) -> Row:
    """Loss of what the files give back after the last step, as a share above the live model's: the last lossy save, the final one."""
    live = task.evaluate(model, 2)

    def above() -> float:
        copy, state = task.build(seed=task.seed + OTHER_SEED)
        store.restore(copy, state)
        return float(task.evaluate(copy, 2) / live - 1)

    out: Row = {"saved_gap": above()}
    if hasattr(store, "finish"):
        store.finish(task.steps, model, optimizer)
        out["final_gap"] = above()
    return out


def chain(task: Any, setting: str, reference: Row) -> list[Row]:
    """Seconds of a restore from a key and its deltas, a checkpoint after each step; a row a length of CHAINS."""
    model, optimizer = task.build()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        store = open_system("ckpress", setting, pathlib.Path(place), task)
        for n in range(1, max(CHAINS) + 1):
            task.step(model, optimizer, n - 1)
            store.save(n, model, optimizer)
            if n in CHAINS:
                fresh, state = task.build(seed=task.seed + OTHER_SEED)
                timer = Timer()
                store.restore(fresh, state)
                rows.append({"setting": f"{setting} {n}", "restore_s": timer.cpu(), "step_s": reference["step_s"], "run_s": timer.wall()})
                store.checkpointer.register(model=model, optimizer=optimizer)
        store.close()
    return rows
