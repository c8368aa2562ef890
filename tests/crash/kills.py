# SPDX-License-Identifier: Apache-2.0
"""A real training, killed again and again at random moments; nothing that was committed may be lost.

    python tests/crash/kills.py [--kills 1000] [--seed 1] [--work build/crash]

A life trains a small network with AdamW, saves after every step and says which saves are committed; SIGKILL comes between 0 and 300 ms after its
start, so also while it opens, restores, writes, commits and deletes. The next life must find no attempt of a save that died, restore a step no
older than the last that was said to be committed, and (four runs of five are lossless) find weights and moments that are bit for bit those of the
same training without kills; one in ten decodes all that is there first. Lives are forked from a process that has torch in memory.
Ends with lines `MUST name value bar ok|short`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import ckpress
import torch
from torch import Tensor, nn

STEPS = 2000  # of a run; then the next begins
LIFE = 0.3  # seconds at most, from the first word of the checkpointer


class Training:
    """A step is a function of its number and of the state alone, so that any life can take it."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 32))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, number: int) -> None:
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(number))
        self.optimizer.zero_grad()
        (self.model(x) - x.roll(1, 1)).square().mean().backward()
        self.optimizer.step()

    def tensors(self) -> list[Tensor]:
        moments = [self.optimizer.state[p][k] for p in self.model.parameters() for k in ("exp_avg", "exp_avg_sq") if p in self.optimizer.state]
        return [*self.model.state_dict().values(), *moments]

    def digest(self) -> str:
        sha = hashlib.sha256()
        for t in self.tensors():
            sha.update(t.detach().contiguous().numpy().tobytes())
        return sha.hexdigest()[:16]


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """Runs work(fd of a pipe) in a child; its pid and the pipe's other end."""
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return pid, out
    _child(work, into)


def _child(work: Callable[[int], None], into: int) -> NoReturn:
    code = 1
    try:
        work(into)
        code = 0
    except BaseException as e:  # noqa: BLE001  whatever it is, the parent must hear of it
        os.write(into, f"failed {type(e).__name__}: {e}\n".encode())
    os._exit(code)


def read_all(fd: int) -> list[str]:
    with os.fdopen(fd) as f:
        return f.read().splitlines()


def reference() -> list[str]:
    """Digests after each step of the training that nobody kills."""

    def work(into: int) -> None:
        t = Training()
        lines = [t.digest()]
        for number in range(1, STEPS + 1):
            t.step(number)
            lines.append(t.digest())
        with os.fdopen(into, "w") as f:
            f.write("\n".join(lines))

    pid, fd = forked(work)
    lines = read_all(fd)
    assert os.waitpid(pid, 0)[1] == 0, lines[-1:]
    return lines


def attempts(run: pathlib.Path) -> list[str]:
    """Directories of saves that never became checkpoints."""
    return sorted(p.name for p in run.glob("step-*") if p.is_dir() and not (p / "manifest.json").exists())


def life(run: pathlib.Path, profile: str, truth: list[str], check: bool, into: int) -> None:
    def say(text: str) -> None:
        os.write(into, (text + "\n").encode())

    if check and any(run.glob("step-*/manifest.json")):  # a run without a checkpoint is none to verify
        ckpress.verify(run, level="decode")
    t = Training()
    say("began")
    with ckpress.Checkpointer(run, profile, threads=1, rng=False, key_every=5, keep_last=4, final_on_close=False) as ck:
        # A whole shard stays while the run has no checkpoint at all: it may be all that is left of one (src/store/sweep.c).
        if any(run.glob("step-*/manifest.json")) and (left := attempts(run)):
            say(f"problem left: {left} after a start")
        done = ck.restore(model=t.model, optimizer=t.optimizer) or 0
        say(f"restored {done}")
        if profile == "lossless" and t.digest() != truth[done]:
            say(f"problem divergent: step {done} is not what it was")
        while done < STEPS:
            done += 1
            t.step(done)
            ck.save(done)
            if done % 3 == 0:
                ck.wait()
                say(f"committed {done}")
    say("finished")


class Run:
    """One training, from life to life."""

    def __init__(self, folder: pathlib.Path, profile: str, truth: list[str]) -> None:
        self.folder, self.profile, self.truth = folder, profile, truth
        self.committed, self.finished = 0, False
        self.problems: list[str] = []

    def live(self, seconds: float, check: bool) -> tuple[bool, bool]:
        """One life of so many seconds; whether it was killed, and whether in a save."""
        before = set(attempts(self.folder))
        pid, fd = forked(lambda into: life(self.folder, self.profile, self.truth, check, into))
        select.select([fd], [], [])  # "began"
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        said = read_all(fd)
        killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        for line in said:
            self._hear(line)
        return killed, killed and bool(set(attempts(self.folder)) - before)

    def _hear(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        if what == "problem" or what == "failed":
            self.problems.append(f"{self.folder.name}: {rest}")
        elif what == "restored" and int(rest) < self.committed:
            self.problems.append(f"{self.folder.name}: lost: step {self.committed} was committed, {rest} came back")
        elif what == "committed":
            self.committed = max(self.committed, int(rest))
        elif what == "finished":
            self.finished = True


def must(name: str, value: int, bar: int, most: bool) -> None:
    print(f"MUST {name} {value} {bar} {'ok' if (value <= bar if most else value >= bar) else 'short'}")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kills", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/crash"))
    o = p.parse_args()
    torch.set_num_threads(1)  # a process without threads may fork
    chance, truth = random.Random(o.seed), reference()
    shutil.rmtree(o.work, ignore_errors=True)
    o.work.mkdir(parents=True)
    runs: list[Run] = []
    kills = in_save = 0
    while kills < o.kills:
        if not runs or runs[-1].finished:
            n = len(runs)
            runs.append(Run(o.work / f"run-{n}", "resume" if n % 5 == 4 else "lossless", truth))
        killed, saving = runs[-1].live(chance.uniform(0, LIFE), chance.random() < 0.1)
        kills, in_save = kills + killed, in_save + saving
        if killed and kills % 100 == 0:
            print(f"  {kills} kills, {in_save} in a save, {runs[-1].folder.name} at step {runs[-1].committed}", flush=True)
    found = [text for run in runs for text in run.problems]
    print("\n".join(found[:20]))
    must("kills", kills, o.kills, False)
    must("kills_in_a_save", in_save, o.kills // 10, False)
    must("commits_lost", sum(" lost: " in f for f in found), 0, True)
    must("states_that_differ", sum(" divergent: " in f for f in found), 0, True)
    must("starts_that_left_attempts", sum(" left: " in f for f in found), 0, True)
    must("problems", len(found), 0, True)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
