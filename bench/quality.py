# SPDX-License-Identifier: Apache-2.0
"""Quality bench: what lossy checkpoints cost a training, in pairs of one seed with and without restores (docs/quality.md).

Rows are appended to bench/results/quality.csv (QUICK=1: build/bench/quality-quick.csv); a run that stands there for the same commit is
skipped, and after BUDGET minutes (55) no run is begun, so that the bench goes on where it stopped. TASK= takes one task.
"""

from __future__ import annotations

import csv
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time
from typing import Any

import quality_gpt
import torch
from quality_report import musts, report
from quality_systems import ALL, arrays, open_system

ROOT = pathlib.Path(__file__).resolve().parent.parent
TASKS = {"gpt": quality_gpt.Task}
FIELDS = ("commit", "seed", "machine", "compiler", "task", "system", "setting", "restores", "steps", "saves", "params", "bits", "bits_w",
          "loss", "loss_plain", "gap", "slope", "saved_gap", "step_s", "stall_s", "restore_s", "run_s")  # fmt: skip
Row = dict[str, Any]


CODE = ("src", "include", "python", "demo", "bench", ":!bench/results")


def commit() -> str:
    """The last commit of what is measured, so that committing results makes none of them stale; with a + when files differ from it."""

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *args, "--", *CODE], capture_output=True, text=True, check=False).stdout.strip()

    return (git("log", "-1", "--format=%h", "--abbrev=12") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")


def machine() -> tuple[str, str]:
    """The processor and the compiler of the build."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    cc = subprocess.run([os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return f"{cpu} x{os.cpu_count()}", cc


def plain(task: Any) -> Row:
    """The uninterrupted run: end loss, slope of its last quarter (a step), seconds a step."""
    model, optimizer = task.build()
    curve, began, spent = [], time.perf_counter(), 0.0
    for n in range(task.steps):
        started = time.perf_counter()
        task.step(model, optimizer, n)
        spent += time.perf_counter() - started
        if n + 1 >= task.steps * 3 // 4 and (n + 1) % task.every == 0:
            curve.append((n + 1, task.evaluate(model, final=False)))
    loss = task.evaluate(model)
    return {"loss": loss, "slope": statistics.linear_regression(*zip(*curve)).slope, "step_s": spent / task.steps, "restores": 0,
            "run_s": time.perf_counter() - began}  # fmt: skip


def interrupted(task: Any, system: str, setting: str, restores: int, reference: Row) -> Row:
    """The same seed and batches with real restores: the system is closed and opened, model and optimizer are new objects."""
    model, optimizer = task.build()
    saves = task.steps // task.every
    at = {round(i * saves / (restores + 1)) * task.every for i in range(1, restores + 1)}
    if len(at) != restores:
        raise ValueError(f"{restores} restores do not fit {saves} saves")
    stalls, waits, began = [], [], time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        store = open_system(system, setting, pathlib.Path(place), arrays(model, optimizer))
        n = 0
        while n < task.steps:
            task.step(model, optimizer, n)
            n += 1
            if n % task.every == 0:
                stalls.append(store.save(n, model, optimizer))
            if n in at:
                model, optimizer = task.build(seed=task.seed + 10_000)
                started = time.perf_counter()
                if store.restore(model, optimizer) != n:
                    raise RuntimeError(f"{system} {setting}: restored another step than {n}")
                waits.append(time.perf_counter() - started)
        loss = task.evaluate(model)
        copy, state = task.build(seed=task.seed + 10_000)
        store.restore(copy, state)
        saved = task.evaluate(copy)
        store.close()
        total, weights = store.bytes()
    params = sum(p.numel() for p in model.parameters())
    return {"restores": restores, "saves": saves, "params": params, "bits": total * 8 / params / saves, "bits_w": weights * 8 / params / saves,
            "loss": loss, "loss_plain": reference["loss"], "gap": loss - float(reference["loss"]), "slope": reference["slope"],
            "saved_gap": saved / loss - 1, "step_s": reference["step_s"], "stall_s": statistics.mean(stalls),
            "restore_s": statistics.mean(waits), "run_s": time.perf_counter() - began}  # fmt: skip


class Results:
    """The CSV; rows of any commit are kept."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = list(csv.DictReader(path.open())) if path.exists() else []

    def find(self, **key: Any) -> Row | None:
        return next((r for r in self.rows if all(r[k] == str(v) for k, v in key.items())), None)

    def add(self, row: Row) -> None:
        empty = not self.path.exists()
        with self.path.open("a", newline="") as f:
            out = csv.DictWriter(f, FIELDS, lineterminator="\n")
            if empty:
                out.writeheader()
            text = {k: f"{v:.7g}" if isinstance(v, float) else str(v) for k, v in row.items()}
            out.writerow(text)
        self.rows.append({k: text.get(k, "") for k in FIELDS})


def jobs(quick: bool) -> list[tuple[str, str, int, int]]:
    """(system, setting, restores, seed): the noise floor first, then seed by seed, so that an early stop leaves whole seeds."""
    seeds, floor = (2, 2) if quick else (3, 6)
    out = [("plain", "", 0, seed) for seed in range(1, floor + 1)]
    for seed in range(1, seeds + 1 if not quick else 2):
        out += [(system, setting, 10, seed) for system, setting in ALL]
        out += [("ckpress", setting, 20, seed) for setting in ("resume", "small") if not quick]
    return out


def main() -> None:
    quick = os.environ.get("QUICK", "") not in ("", "0")
    torch.set_num_threads(int(os.environ.get("THREADS", "0")) or os.cpu_count() or 1)
    default = ROOT / "build/bench/quality-quick.csv" if quick else ROOT / "bench/results/quality.csv"
    results = Results(pathlib.Path(os.environ.get("QUALITY_CSV", default)))
    until = time.monotonic() + 60 * float(os.environ.get("BUDGET", "55"))
    known, left = {"commit": commit()}, 0
    known["machine"], known["compiler"] = machine()
    for name in [os.environ["TASK"]] if os.environ.get("TASK") else list(TASKS):
        for system, setting, restores, seed in jobs(quick):
            key = {"commit": known["commit"], "task": name, "system": system, "setting": setting, "restores": restores, "seed": seed}
            if results.find(**key):
                continue
            if time.monotonic() > until:
                left += 1
                continue
            task = TASKS[name](seed, quick)
            reference = results.find(commit=known["commit"], task=name, system="plain", seed=seed)
            row = plain(task) if system == "plain" else interrupted(task, system, setting, restores, reference or {})
            results.add({**known, **key, "steps": task.steps, **row})
            print(f"{name} {system} {setting} restores {restores} seed {seed}: loss {row['loss']:.4f} bits {row.get('bits', 0):.3f} "
                  f"{row['run_s']:.0f} s", flush=True)  # fmt: skip
    if left:
        print(f"{left} runs are left: run it again")
    rows = [r for r in results.rows if r["commit"] == known["commit"]]
    report(rows, ROOT / "build/bench")
    for must in musts(rows):
        print(must)


if __name__ == "__main__":
    main()
