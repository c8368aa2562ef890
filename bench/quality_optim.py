# SPDX-License-Identifier: Apache-2.0
"""What the resident optimizer costs in final loss: trainings of the quality bench, uninterrupted, without checkpoints (docs/quality.md).

    make bench-quality TASK=optim      (a) GPT on text, also with b2 = 0.999; (b) ViT; (d) fine-tuned MiniLM

Beside torch's AdamW in fp32, whose runs are the uninterrupted ones of the other tasks' results, at the same seed: AdamW with state of fixed widths, the
policy of widths at two budgets, and with one of its liberties switched off (bench/optim_without.py), and torchao's 8-bit and 4-bit AdamW. Rows are those of
bench/results/quality-optim.csv, kept and skipped as quality.py's; BUDGET, JOBS, QUICK=1 and REPORT=1 are its too. ONLY=plain, policy, fixed or torchao.
"""

from __future__ import annotations

import functools
import pathlib
import subprocess
from typing import Any

import optim
import quality_bench
import quality_data
import quality_optim_report
import torch
from quality_bench import ROOT, TRAINING, Row, commit
from quality_optim_runs import run
from quality_runs import TASKS

FIELDS = ("commit", "seed", "machine", "compiler", "task", "system", "setting", "steps", "params", "bits", "bits_end", "bits_most", "loss", "loss_plain", "gap",
          "run_s")  # fmt: skip
KEY = ("task", "system", "setting", "seed")
TRAINED = ("gpt", "gpt-b2-0.999", "vit", "minilm")
FIRST = (("policy", "4.0"), ("policy", "3.4"), ("torchao", "4"), ("fixed", "4"))  # what MUST lines need
REST = (("policy", "4.0-layer"), ("policy", "4.0-state"), ("policy", "4.0-time"), ("fixed", "3"), ("fixed", "8"), ("torchao", "8"))
FEW = ("gpt-b2-0.999",)  # tasks with the first alone
SEEDS, FLOOR, FLOOR_QUICK = 3, 6, 2
Job = tuple[str, str, int]  # system, setting, seed

# What a row depends on, beside the training.
_RUN = (*TRAINING, "bench/quality_optim_runs.py")
_LIBRARY = ("src/optim", "include/ckpress/optim.h", "python/_core/optim.c", *(f"python/ckpress/torch/{name}.py" for name in ("_adamw", "_optim_state")))
_POLICY = ("include/ckpress/optim_policy.h", "python/_core/policy.c", "python/ckpress/torch/_policy.py")
SOURCES = {"torchao": _RUN, "fixed": (*_RUN, *_LIBRARY), "policy": (*_RUN, *_LIBRARY, *_POLICY), "without": (*_RUN, *_LIBRARY, *_POLICY, "bench/optim_without.py")}


def kind_of(system: str, setting: str) -> str:
    return "without" if "-" in setting else system


class Results(quality_bench.Results):
    fields, key = FIELDS, KEY


def jobs(task: str, quick: bool) -> list[Job]:
    """In an order that makes a bench cut short useful. Quick: one seed; everything for the first task, no torchao, which is slow, for the others."""
    if quick:
        return [(*s, 1) for s in ((*FIRST, *REST) if task == TRAINED[0] else FIRST) if task == TRAINED[0] or s[0] != "torchao"]
    return [(*s, seed) for some in (FIRST, () if task in FEW else REST) for seed in range(1, SEEDS + 1) for s in some]


@functools.cache
def unavailable() -> str:
    """Why torchao does not run here; "": it does."""
    optim.environment()
    done = subprocess.run([str(optim.VENV / "bin/python"), "-c", "import torchao.optim"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"torchao: {done.stderr.strip().splitlines()[-1]}"


def work(task_name: str, job: Job, quick: bool, reference: Row) -> list[Row]:
    """One job in a process of its own."""
    torch.set_num_threads(1)
    system, setting, seed = job
    row = run(TASKS[task_name](seed, quick), system, setting)
    plain = float(reference["loss"])
    return [{"task": task_name, "system": system, "setting": setting, "seed": seed, **row, "loss_plain": plain, "gap": row["loss"] - plain}]


class Bench(quality_bench.Runs):
    """Runs what is missing of all tasks. ``plain``: the bench of uninterrupted runs in fp32; ``alone``: its results by task."""

    def __init__(self, quick: bool, only: str, plain: Any, alone: dict[str, Any]) -> None:
        super().__init__()
        self.quick, self.only, self.plain, self.alone = quick, only, plain, alone
        self.commits = {kind: commit(sources) for kind, sources in SOURCES.items()}

    def reference(self, task: str, seed: int) -> Row | None:
        row: Row | None = self.alone[task].find(commit=self.plain.commits["plain"], task=task, system="plain", seed=seed)
        return row

    def missing_plain(self, task: str) -> list[tuple[str, str, int, int]]:
        return [("plain", "", 0, seed) for seed in range(1, (FLOOR_QUICK if self.quick else FLOOR) + 1) if self.reference(task, seed) is None]

    def missing(self, task: str, results: Results) -> list[Job]:
        out = []
        for job in jobs(task, self.quick):
            system, setting, seed = job
            if self.only not in ("", system) or results.find(commit=self.commits[kind_of(system, setting)], task=task, system=system, setting=setting, seed=seed):
                continue
            if system == "torchao" and unavailable():
                print(f"{task} {system} {setting} {seed}: skipped, {unavailable()}", flush=True)
            else:
                out.append(job)
        return out

    def run(self, task: str, results: Results) -> None:
        if self.only in ("", "plain"):
            self.plain.start(task, self.alone[task], self.missing_plain(task))
        todo = self.missing(task, results)
        ready = [job for job in todo if self.reference(task, job[2]) is not None]
        self.left += len(todo) - len(ready)  # no time was left for what they are compared with
        self.side_by_side(ready, lambda job: (work, task, job, self.quick, self.reference(task, job[2])), lambda rows: self._keep(results, rows))

    def _keep(self, results: Results, rows: list[Row]) -> None:
        for row in rows:
            results.add({"commit": self.commits[kind_of(row["system"], row["setting"])], "machine": self.machine, "compiler": self.compiler, **row})
            quality_bench.show(row, (*KEY, "loss", "gap", "bits", "run_s"))


def main(quick: bool, only_report: bool, only: str, place: pathlib.Path, prefix: str, plain: Any, alone: dict[str, Any]) -> int:
    results = Results(place / f"{prefix}-optim.csv")
    bench = Bench(quick, only, plain, alone)
    if not only_report:
        quality_data.prepare()
        for task in TRAINED:
            bench.run(task, results)
    if bench.left + plain.left:
        print(f"{bench.left + plain.left} runs are left: run it again")
    floor = [row for task in TRAINED for row in alone[task].newest() if row["task"] == task and row["system"] == "plain"]
    found = quality_optim_report.tell(floor, results.newest())
    quality_optim_report.report(floor, results.newest(), found, place, f"{prefix}-optim", None if quick else ROOT / "docs/quality.md")
    for must in quality_optim_report.musts(found, TRAINED):
        print(must)
    return 1 if bench.failed + plain.failed else 0
