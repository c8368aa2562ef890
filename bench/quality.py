# SPDX-License-Identifier: Apache-2.0
"""Quality bench: what lossy checkpoints cost a training, in pairs of one seed with and without restores (docs/quality.md).

    make bench-quality TASK=a          (a) GPT on text, also with b2 = 0.999; (b) ViT; (c) ResNet with BatchNorm and SGD; (d) fine-tuned MiniLM

Every finished run is a row of bench/results/quality-TASK.csv (QUICK=1: of build/bench/quality-quick-TASK.csv). A run that stands there,
measured with the same sources (ckpress: the same coding), is skipped, and after BUDGET minutes (55) none is begun: the bench goes on where
it stopped when it is called again. ONLY=plain, baseline or ckpress runs just those. JOBS (2) runs go side by side, a thread each. At the
end, and with REPORT=1 alone: the table in docs/quality.md, plots and MUST lines (QUICK=1: below build/bench).
"""

from __future__ import annotations

import concurrent.futures
import csv
import multiprocessing
import os
import pathlib
import platform
import subprocess
import sys
import time
from typing import Any

import quality_data
import quality_report
import torch
from baselines import CODERS, SETTINGS
from quality_coding import PROFILES, fingerprint
from quality_runs import TASKS, chain, interrupted, plain
from quality_systems import DYNAQUANT, options, unavailable

ROOT = pathlib.Path(__file__).resolve().parent.parent
LETTERS = {"a": ("gpt", "gpt-b2-0.999"), "b": ("vit",), "c": ("resnet",), "d": ("minilm",)}
FILES = {"a": "gpt", "b": "vit", "c": "resnet", "d": "minilm"}
FIELDS = ("commit", "coding", "seed", "machine", "compiler", "task", "system", "setting", "restores", "steps", "saves", "params", "bits", "bits_w",
          "loss", "loss_plain", "gap", "slope", "saved_gap", "final_gap", "step_s", "stall_s", "save_s", "eval_s", "evaluations", "restore_s",
          "run_s")  # fmt: skip
KEY = ("task", "system", "setting", "restores", "seed")
LOADED = ("minilm",)  # tasks that go on from somebody's weights: they are the base model of its runs
SWEEP = ("small:5", "small:2", "resume:0.3", "resume:0.1")  # ckpress's curve, with resume and small; rivals reach gaps that need the coarsest
FLOOR, SEEDS = 6, 3  # uninterrupted runs; runs of everything else
Row = dict[str, Any]
Job = tuple[str, str, int, int]  # system, setting, restores, seed

# What a row depends on: after a change of the library, trainings left alone and rivals need not run again, nor does ckpress while what it
# codes is the same (quality_coding.py).
TRAINING = ("demo/model.py", *(f"bench/quality_{part}.py" for part in ("task", "data", "gpt", "images", "minilm", "runs")))
SOURCES = {"plain": TRAINING, "baseline": (*TRAINING, "bench/quality_rivals.py", "bench/baselines"), "ckpress": (*TRAINING, "bench/quality_systems.py", "src", "include", "python")}  # fmt: skip


def commit(kind: str) -> str:
    """The last commit of what is measured, so that committing results makes none of them stale; with a + when files differ from it."""

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *args, "--", *SOURCES[kind]], capture_output=True, text=True, check=False).stdout.strip()

    return (git("log", "-1", "--format=%h", "--abbrev=12") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")


def kind_of(system: str) -> str:
    return "plain" if system == "plain" else "baseline" if system in CODERS else "ckpress"


def machine() -> tuple[str, str]:
    """The processor and the compiler of the build."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    cc = subprocess.run([os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return f"{cpu} x{os.cpu_count()}", cc


class Results:
    """The CSV of a task; rows of any commit are kept."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = list(csv.DictReader(path.open())) if path.exists() else []

    def find(self, **key: Any) -> Row | None:
        return next((r for r in self.rows if all(r[k] == str(v) for k, v in key.items())), None)

    def add(self, row: Row) -> None:
        empty = not self.path.exists()
        text = {k: f"{v:.9g}" if isinstance(v, float) else str(v) for k, v in row.items()}
        with self.path.open("a", newline="") as f:
            out = csv.DictWriter(f, FIELDS, lineterminator="\n")
            if empty:
                out.writeheader()
            out.writerow(text)
        self.rows.append({k: text.get(k, "") for k in FIELDS})

    def newest(self) -> list[Row]:
        """The last row of each run, whatever its commit."""
        return list({tuple(r[k] for k in KEY): r for r in self.rows}.values())


def jobs(task: str, quick: bool) -> list[Job]:
    """In an order that makes a bench cut short useful: noise floor, both profiles, ckpress's curve, then everything else."""
    if quick:
        some = [("ckpress", s) for s in ("resume", "small", "resume:0.3")] + [(name, settings[1]) for name, settings in SETTINGS.items()]
        last = [("ckpress", "resume+eval"), ("dynaquant", "16"), ("dynaquant", "search:0.05")]
        return [("plain", "", 0, 1), ("plain", "", 0, 2), ("chain", "resume", 0, 1)] + [(*s, 10, 1) for s in [*some, *last]]
    seeds = range(1, SEEDS + 1)
    first = [("plain", "", 0, seed) for seed in range(1, FLOOR + 1)]
    first += [("ckpress", profile, restores, seed) for profile in ("resume", "small") for restores in (10, 20) for seed in seeds]
    rivals = [(name, setting) for name, settings in SETTINGS.items() for setting in settings]
    if task == "gpt-b2-0.999":
        return first + [(*s, 10, seed) for seed in seeds for s in [("excp", "4:cap"), ("rounding", "4")]]
    curve = [("ckpress", s, 10, seed) for s in SWEEP for seed in seeds]
    rest = [("ckpress", "resume+key"), ("ckpress", "resume+eval")] + [("dynaquant", s) for s in (*DYNAQUANT, "search:0.01", "search:0.05")]
    return [*first, ("chain", "resume", 0, 1), *curve, *((*s, 10, seed) for seed in seeds for s in [*rest, *rivals])]


def work(task_name: str, job: Job, quick: bool, reference: Row) -> list[Row]:
    """One job in a process of its own: rows without what they have in common."""
    torch.set_num_threads(1)
    system, setting, restores, seed = job
    task = TASKS[task_name](seed, quick)
    common = {"task": task_name, "system": system, "setting": setting, "restores": restores, "seed": seed, "steps": task.steps}
    if system == "plain":
        rows = [plain(task)]
    elif system == "chain":
        rows = chain(task, setting, reference)
    else:
        rows = [interrupted(task, system, setting, restores, reference)]
    return [{**common, **row} for row in rows]


class Bench:
    """Runs what a task lacks, JOBS at a time."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.until = time.monotonic() + 60 * float(os.environ.get("BUDGET", "55"))
        self.only = os.environ.get("ONLY", "")
        self.width = int(os.environ.get("JOBS", "2"))
        self.commits = {kind: commit(kind) for kind in SOURCES}
        self.codings = {(profile, base): fingerprint(profile, base) for profile in PROFILES for base in (False, True)} if self.only in ("", "ckpress") else {}
        self.machine, self.compiler = machine()
        self.failed, self.left = 0, 0

    def coding(self, task: str, system: str, setting: str) -> str:
        """What stands for the library that a row of it was measured with."""
        profile, _ = options("ckpress" if system == "chain" else system, setting.split()[0])
        return self.codings[profile, task in LOADED]

    def _missing(self, task: str, results: Results) -> list[Job]:
        out, told = [], set()
        for job in jobs(task, self.quick):
            system, setting, restores, seed = job
            if self.only not in ("", kind_of(system)):
                continue
            why = "" if system in ("plain", "chain") else unavailable(system, setting)
            if why and (system, setting) not in told:
                told.add((system, setting))
                print(f"{task} {system} {setting}: skipped, {why}", flush=True)
            name = f"{setting} 32" if system == "chain" else setting  # the last row of a chain
            same = {"coding": self.coding(task, system, setting)} if kind_of(system) == "ckpress" else {"commit": self.commits[kind_of(system)]}
            key = {**same, "task": task, "system": system, "setting": name, "restores": restores, "seed": seed}
            if not why and not results.find(**key):
                out.append(job)
        return out

    def run(self, task: str, results: Results) -> None:
        todo = self._missing(task, results)
        # All uninterrupted runs first: each pair needs its own.
        for batch in ([j for j in todo if j[0] == "plain"], [j for j in todo if j[0] != "plain"]):
            self._run(task, results, batch)

    def _run(self, task: str, results: Results, todo: list[Job]) -> None:
        context = multiprocessing.get_context("spawn")
        running: dict[concurrent.futures.Future[list[Row]], Job] = {}
        with concurrent.futures.ProcessPoolExecutor(self.width, mp_context=context) as pool:
            while todo or running:
                while todo and len(running) < self.width:
                    if time.monotonic() > self.until:
                        self.left += len(todo)
                        todo = []
                        break
                    job, todo = todo[0], todo[1:]
                    reference = results.find(commit=self.commits["plain"], task=task, system="plain", seed=job[3]) or {}
                    running[pool.submit(work, task, job, self.quick, reference)] = job
                for future in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
                    self._take(results, running.pop(future), future)

    def _take(self, results: Results, job: Job, future: Any) -> None:
        try:
            rows = future.result()
        except Exception as e:  # the other runs are still worth having
            self.failed += 1
            print(f"{job}: {type(e).__name__}: {e}", flush=True)
            return
        for row in rows:
            kind = kind_of(row["system"])
            coding = self.coding(row["task"], row["system"], row["setting"]) if kind == "ckpress" else ""
            results.add({"commit": self.commits[kind], "coding": coding, "machine": self.machine, "compiler": self.compiler, **row})
            print(" ".join(f"{k} {row[k]:.4g}" if isinstance(row[k], float) else str(row[k])
                           for k in (*KEY, "loss", "gap", "bits", "run_s") if k in row), flush=True)  # fmt: skip


def main() -> int:
    quick = os.environ.get("QUICK", "") not in ("", "0")
    only_report = os.environ.get("REPORT", "") not in ("", "0")
    wanted = os.environ.get("TASK", "").lower()
    letters = [k for k in LETTERS if not wanted or wanted == k or wanted in LETTERS[k]]
    if not letters:
        print(f"TASK={wanted}: one of {', '.join(LETTERS)}", file=sys.stderr)
        return 2
    place, prefix = (ROOT / "build/bench", "quality-quick") if quick else (ROOT / "bench/results", "quality")
    results = {letter: Results(place / f"{prefix}-{FILES[letter]}.csv") for letter in LETTERS}
    bench = Bench(quick)
    if not only_report:
        quality_data.prepare()
        for letter in letters:
            for task in LETTERS[letter]:
                if wanted in ("", letter, task):
                    bench.run(task, results[letter])
    if bench.left:
        print(f"{bench.left} runs are left: run it again")
    rows = [row for letter in (LETTERS if not quick else letters) for row in results[letter].newest()]
    quality_report.report(rows, place, prefix, None if quick else ROOT / "docs/quality.md")
    for must in quality_report.musts([r for letter in letters for r in results[letter].newest()]):
        print(must)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
