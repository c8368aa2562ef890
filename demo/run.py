# SPDX-License-Identifier: Apache-2.0
"""The demo: one training run is killed ten times and goes on from its checkpoints, another of the same seed is left alone.

Trains both side by side, prints a table, writes result.json and report.html, and says which promises hold.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import sys
import time
from typing import Any

import measure
import report
from model import text
from process import Interrupted, Plain, run_all


def commits(run: pathlib.Path) -> int:
    """Committed checkpoints, as any reader counts them: directories with a manifest."""
    return len(list(run.glob("step-*/manifest.json")))


class Progress:
    """A bar on a terminal, else a line now and then."""

    def __init__(self, plain: Any, broken: Any, steps: int, kills: int) -> None:
        self._plain, self._broken, self._steps, self._kills = plain, broken, steps, kills
        self._started = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._shown = -1

    def __call__(self) -> None:
        done = self._plain.step + self._broken.step
        part = int(done * 200 / (2 * self._steps))
        if part == self._shown or (not self._terminal and part < self._shown + 20):
            return
        self._shown = part
        width = shutil.get_terminal_size().columns
        filled = part * 30 // 200
        line = (
            f"[{'#' * filled}{'.' * (30 - filled)}] uninterrupted {self._plain.step}/{self._steps}, interrupted "
            f"{self._broken.step}/{self._steps}, kills {len(self._broken.kills)}/{self._kills}, {time.monotonic() - self._started:.0f} s"
        )
        print("\r" + line[: width - 1].ljust(width - 1) if self._terminal else line, end="" if self._terminal else "\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default=os.environ.get("PROFILE", "resume"), choices=("lossless", "resume", "small"))
    parser.add_argument("--state-bits", default="32", help="of the moments of the run that is killed, 2 to 8, or auto: ckpress.torch.AdamW")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/demo"), help="directory for everything")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=25, help="steps between checkpoints")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    run = args.out / "run"
    print(f"Training a small GPT twice on: {text()[0]}; profile {args.profile}, {args.steps} steps, a checkpoint every {args.every}.")
    common = [
        "--run",
        str(run),
        "--profile",
        args.profile,
        "--steps",
        str(args.steps),
        "--every",
        str(args.every),
        "--seed",
        str(args.seed),
        "--state-bits",
        args.state_bits,
    ]
    plain = Plain(common, args.out / "uninterrupted.log")
    broken = Interrupted(common, args.out / "interrupted.log", kills=args.kills, steps=args.steps, committed=lambda: commits(run))
    try:
        run_all([plain, broken], Progress(plain, broken, args.steps, args.kills))
    finally:
        for each in (plain, broken):
            if each.process.process.poll() is None:
                each.process.kill()
    print()

    figures, more = measure.result(plain, broken, run, args.steps)
    verdicts = measure.musts(figures, args.profile)
    (args.out / "result.json").write_text(json.dumps(figures, indent=2) + "\n")
    (args.out / "report.html").write_text(report.page(args.profile, plain, broken, figures, more, verdicts))
    print(report.table(figures, more))
    print(f"Report: {args.out / 'report.html'}; figures: {args.out / 'result.json'}")
    for verdict in verdicts:
        print(verdict)
    return 0 if all(v.holds for v in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
