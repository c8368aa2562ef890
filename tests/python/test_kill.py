# SPDX-License-Identifier: Apache-2.0
"""The process dies at any moment; the run goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import ckpress
import pytest

TRAINER = pathlib.Path(__file__).parent / "trainer.py"
KILLS = pathlib.Path(__file__).parents[1] / "crash" / "kills.py"


def start(folder, steps):
    return subprocess.Popen([sys.executable, str(TRAINER), str(folder), str(steps)], stdout=subprocess.PIPE, text=True)


def end(folder):
    return json.loads(pathlib.Path(str(folder) + ".json").read_text())


def test_killed_again_and_again(tmp_path):
    """SIGKILL from the call of save() up to 20 ms after it: every restore finds the newest commit, the end is bit-identical."""
    whole = tmp_path / "whole"
    assert start(whole, 30).wait() == 0
    broken, chance = tmp_path / "broken", random.Random(3)
    kills = 0
    while True:
        process = start(broken, 30)
        first = process.stdout.readline()
        committed = [r.step for r in ckpress.list_run(broken) if r.health == "ok"]
        assert first.startswith("restored ") and int(first.split()[1]) == max(committed, default=0)
        target = f"save {int(first.split()[1]) + chance.randint(2, 4)}\n"
        for line in process.stdout:
            if line == target and kills < 10:
                time.sleep(chance.uniform(0, 0.02))
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
        if process.wait() == 0:
            break
        process.stdout.close()
    assert kills >= 6 and end(broken) == end(whole)
    assert [r.step for r in ckpress.list_run(broken)] == sorted({r.step for r in ckpress.list_run(broken)})
    ckpress.verify(broken, level="decode")


def test_stopped_for_a_while(tmp_path):
    """A writer that was only paused goes on; meanwhile nobody else gets in."""
    process = start(tmp_path / "run", 60)
    assert process.stdout.readline() == "restored 0\n" and process.stdout.readline() == "save 1\n"
    process.send_signal(signal.SIGSTOP)
    try:
        try:
            ckpress.Checkpointer(tmp_path / "run").close()
        except ckpress.BusyError as e:
            assert str(process.pid) in str(e)
        else:
            raise AssertionError("two writers")
    finally:
        process.send_signal(signal.SIGCONT)
        process.stdout.read()
    assert process.wait() == 0 and end(tmp_path / "run")["step"] == 60


def test_killed_at_random(tmp_path):
    """tests/crash/kills.py, which `make test-crash` runs a thousand times: torch's AdamW, lives that check what the last one left."""
    pytest.importorskip("torch")
    command = [sys.executable, str(KILLS), "--kills", os.environ.get("CKP_KILLS", "25"), "--work", str(tmp_path / "kills")]
    got = subprocess.run(command, capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stdout + got.stderr
    assert re.search(r"MUST kills_in_a_save \d+ \d+ ok", got.stdout), got.stdout


ONE_OF_FOUR = """
import sys, ckpress, numpy as np
try:
    with ckpress.Checkpointer(sys.argv[1], rng=False) as ck:
        ck.save(50, w=np.full(1000, int(sys.argv[2])), wait=True)
        print("saved", flush=True)
        sys.stdin.readline()
except ckpress.BusyError as e:
    print("busy", e, flush=True)
"""


def test_four_processes_want_one_run(tmp_path):
    """Row 2: one gets it; the others are told whose it is, and nothing of theirs is there."""
    run = tmp_path / "run"
    four = [subprocess.Popen([sys.executable, "-c", ONE_OF_FOUR, str(run), str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for i in range(4)]
    said = [p.stdout.readline() for p in four]
    winner = said.index("saved\n")
    assert sum(s.startswith("busy") and str(four[winner].pid) in s for s in said) == 3, said
    for p in four:
        p.communicate("\n")
    assert [r.health for r in ckpress.list_run(run)] == ["ok"] and (ckpress.load(run)["w"] == winner).all()
    assert len(list(run.glob("step-*"))) == 1 and not list(run.glob(".tmp-*"))
