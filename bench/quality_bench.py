# SPDX-License-Identifier: Apache-2.0
"""What the quality benches share: rows of a CSV that stay, the commit of what they were measured with, runs side by side until time is up."""

from __future__ import annotations

import concurrent.futures
import csv
import multiprocessing
import os
import pathlib
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

ROOT = pathlib.Path(__file__).resolve().parent.parent
Row = dict[str, Any]

# What the trainings themselves are made of: every row depends on it.
TRAINING = ("demo/model.py", *(f"bench/quality_{part}.py" for part in ("task", "data", "gpt", "images", "minilm", "runs")))


def commit(sources: Iterable[str]) -> str:
    """The last commit of what is measured, so that committing results makes none of them stale; with a + when files differ from it."""

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *args, "--", *sources], capture_output=True, text=True, check=False).stdout.strip()

    return (git("log", "-1", "--format=%h", "--abbrev=12") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")


def machine() -> tuple[str, str]:
    """The processor and the compiler of the build."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    cc = subprocess.run([os.environ.get("CC", "cc"), "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return f"{cpu} x{os.cpu_count()}", cc


class Results:
    """A CSV of runs; rows of any commit are kept. ``key``: the fields that name a run."""

    fields: ClassVar[tuple[str, ...]]
    key: ClassVar[tuple[str, ...]]

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
            out = csv.DictWriter(f, self.fields, lineterminator="\n")
            if empty:
                out.writeheader()
            out.writerow(text)
        self.rows.append({k: text.get(k, "") for k in self.fields})

    def newest(self) -> list[Row]:
        """The last row of each run, whatever its commit."""
        return list({tuple(r[k] for k in self.key): r for r in self.rows}.values())


class Runs:
    """Runs what is missing, JOBS at a time, each in a process; after BUDGET minutes none is begun."""

    def __init__(self) -> None:
        self.until = time.monotonic() + 60 * float(os.environ.get("BUDGET", "55"))
        self.width = int(os.environ.get("JOBS", "2"))
        self.machine, self.compiler = machine()
        self.failed, self.left = 0, 0

    def side_by_side(self, todo: list[Any], call: Callable[[Any], tuple[Any, ...]], take: Callable[[list[Row]], None]) -> None:
        """``call(job)``: a function and its arguments, asked for when the job begins; ``take``: gets the rows that it returned."""
        context = multiprocessing.get_context("spawn")
        running: dict[concurrent.futures.Future[list[Row]], Any] = {}
        with concurrent.futures.ProcessPoolExecutor(self.width, mp_context=context) as pool:
            while todo or running:
                while todo and len(running) < self.width:
                    if time.monotonic() > self.until:
                        self.left += len(todo)
                        todo = []
                        break
                    job, todo = todo[0], todo[1:]
                    running[pool.submit(*call(job))] = job
                for future in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
                    self._take(running.pop(future), future, take)

    def _take(self, job: Any, future: Any, take: Callable[[list[Row]], None]) -> None:
        try:
            rows = future.result()
        except Exception as e:  # the other runs are still worth having
            self.failed += 1
            print(f"{job}: {type(e).__name__}: {e}", flush=True)
            return
        take(rows)


def show(row: Row, fields: Iterable[str]) -> None:
    print(" ".join(f"{k} {row[k]:.4g}" if isinstance(row[k], float) else str(row[k]) for k in fields if k in row), flush=True)
