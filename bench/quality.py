# SPDX-License-Identifier: Apache-2.0
"""Quality bench: what lossy checkpoints cost a training, in pairs of one seed with and without restores (docs/quality.md).

    make bench-quality TASK=a          (a) GPT on text, also with b2 = 0.999; (b) ViT; (c) ResNet with BatchNorm and SGD; (d) fine-tuned MiniLM
    make bench-quality TASK=optim      what resident optimizers cost, without restores (quality_optim.py)

Every finished run is a row of bench/results/quality-TASK.csv (QUICK=1: of build/bench/quality-quick-TASK.csv). A run that stands there,
measured with the same sources (ckpress: the same coding), is skipped, and after BUDGET minutes (55) none is begun: the bench goes on where
it stopped when it is called again. ONLY=plain, baseline or ckpress runs just those. JOBS (2) runs go side by side, a thread each. At the
end, and with REPORT=1 alone: the table in docs/quality.md, plots and MUST lines (QUICK=1: below build/bench).
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

import quality_bench
import quality_data
import quality_optim
import quality_report
import torch
from baselines import CODERS, SETTINGS
from quality_bench import ROOT, TRAINING, Row, commit
from quality_coding import KINDS, coding_kind, fingerprint
from quality_runs import TASKS, chain, interrupted, plain
from quality_systems import DYNAQUANT, unavailable

LETTERS = {"a": ("gpt", "gpt-b2-0.999"), "b": ("vit",), "c": ("resnet",), "d": ("minilm",)}
FILES = {"a": "gpt", "b": "vit", "c": "resnet", "d": "minilm"}
FIELDS = ("commit", "coding", "seed", "machine", "compiler", "task", "system", "setting", "restores", "steps", "saves", "params", "bits", "bits_w",
          "loss", "loss_plain", "gap", "slope", "saved_gap", "final_gap", "step_s", "stall_s", "save_s", "eval_s", "evaluations", "restore_s",
          "run_s")  # fmt: skip
KEY = ("task", "system", "setting", "restores", "seed")
LOADED = ("minilm",)  # tasks that go on from somebody's weights: they are the base model of its runs
SWEEP = ("small:5", "small:2", "resume:0.3", "resume:0.1", "resume:0.02")  # ckpress's curve, with resume and small; rivals reach gaps that need the coarsest and the finest
FLOOR, SEEDS = 6, 3  # uninterrupted runs; runs of everything else
Job = tuple[str, str, int, int]  # system, setting, restores, seed

# What a row depends on: after a change of the library, trainings left alone and rivals need not run again, nor does ckpress while what it
# codes is the same (quality_coding.py).
SOURCES = {"plain": TRAINING, "baseline": (*TRAINING, "bench/quality_rivals.py", "bench/baselines"), "ckpress": (*TRAINING, "bench/quality_systems.py", "src", "include", "python")}  # fmt: skip


def kind_of(system: str) -> str:
    return "plain" if system == "plain" else "baseline" if system in CODERS else "ckpress"


class Results(quality_bench.Results):
    fields, key = FIELDS, KEY


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


class Bench(quality_bench.Runs):
    """Runs what a task lacks. ``only``: a kind of runs; "": all."""

    def __init__(self, quick: bool, only: str) -> None:
        super().__init__()
        self.quick, self.only = quick, only
        self.commits = {kind: commit(sources) for kind, sources in SOURCES.items()}
        self.codings = {(of, base): fingerprint(of, base) for of in KINDS for base in (False, True)} if only in ("", "ckpress") else {}

    def coding(self, task: str, system: str, setting: str) -> str:
        """What stands for the library that a row of it was measured with."""
        return self.codings[coding_kind("ckpress" if system == "chain" else system, setting.split()[0]), task in LOADED]

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
            self.start(task, results, batch)

    def start(self, task: str, results: Results, todo: list[Job]) -> None:
        def call(job: Job) -> tuple[Any, ...]:
            reference = results.find(commit=self.commits["plain"], task=task, system="plain", seed=job[3]) or {}
            return work, task, job, self.quick, reference

        self.side_by_side(todo, call, lambda rows: self._keep(results, rows))

    def _keep(self, results: Results, rows: list[Row]) -> None:
        for row in rows:
            kind = kind_of(row["system"])
            coding = self.coding(row["task"], row["system"], row["setting"]) if kind == "ckpress" else ""
            results.add({"commit": self.commits[kind], "coding": coding, "machine": self.machine, "compiler": self.compiler, **row})
            quality_bench.show(row, (*KEY, "loss", "gap", "bits", "run_s"))


def main() -> int:
    quick = os.environ.get("QUICK", "") not in ("", "0")
    only_report = os.environ.get("REPORT", "") not in ("", "0")
    wanted, only = os.environ.get("TASK", "").lower(), os.environ.get("ONLY", "")
    place, prefix = (ROOT / "build/bench", "quality-quick") if quick else (ROOT / "bench/results", "quality")
    results = {letter: Results(place / f"{prefix}-{FILES[letter]}.csv") for letter in LETTERS}
    if wanted == "optim":
        alone = {task: results[letter] for letter in LETTERS for task in LETTERS[letter]}
        return quality_optim.main(quick, only_report, only, place, prefix, Bench(quick, "plain"), alone)
    letters = [k for k in LETTERS if not wanted or wanted == k or wanted in LETTERS[k]]
    if not letters:
        print(f"TASK={wanted}: one of {', '.join(LETTERS)}, optim", file=sys.stderr)
        return 2
    bench = Bench(quick, only)
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
