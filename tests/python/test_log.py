# SPDX-License-Identifier: Apache-2.0
"""`ckpress log`: restores, rollbacks, fresh starts, measured losses and last saves of real trainings are told as they were."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import ckpress
import pytest
import torch
from helpers import steps, training
from safetensors.torch import save_file

COMMAND = shutil.which("ckpress")
pytestmark = pytest.mark.skipif(COMMAND is None, reason="no ckpress command in the path")


def log(run: pathlib.Path, *args: str) -> str:
    done = subprocess.run([COMMAND, "log", str(run), *args], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    return done.stdout


def entries(run: pathlib.Path) -> list[dict[str, Any]]:
    return json.loads(log(run, "--json"))["checkpoints"]


def notes(run: pathlib.Path) -> list[tuple[int, list[str]]]:
    """Of each entry its step and the lines below it."""
    out: list[tuple[int, list[str]]] = []
    for line in log(run).splitlines()[1:]:
        if re.match(r" *\d+  (key|delta)", line):
            out.append((int(line.split()[0]), []))
        else:
            out[-1][1].append(line.strip())
    return out


def train(run: pathlib.Path, saves: list[int], restore: int | None = None, **how: Any) -> None:
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(run, **{"final_on_close": False, **how}) as ck:
        if restore is not None:
            ck.restore(step=restore, model=model, optimizer=optimizer, scheduler=scheduler)
        for step in saves:
            steps(model, optimizer, scheduler, 1)
            ck.save(step, model=model, optimizer=optimizer, scheduler=scheduler, metrics={"loss": step / 8}, wait=True)


def test_a_rollback(run):
    train(run, [1, 2, 3])
    train(run, [2, 3, 4], restore=1)
    train(run, [5], restore=4)
    got = notes(run)
    assert [s for s, _ in got] == [1, 2, 3, 2, 3, 4, 5]
    assert got[0][1] == ["profile lossless", "loss 0.125"]
    assert got[3][1] == ["restored from step 1 (restore 1): steps 2 to 3 were given up", "loss 0.25"]
    assert got[4][1] == ["loss 0.375"]
    assert got[6][1] == ["restored from step 4 (restore 2)", "loss 0.625"]
    told = entries(run)
    assert [e["restored"] for e in told] == [False, False, False, True, False, False, True]
    assert [e["back"] for e in told] == [False, False, False, True, False, False, False]
    assert not any(e["anew"] for e in told) and [e["gone_before"] for e in told] == [0] * 7


def test_the_restored_checkpoint_is_gone(run):
    """What is told of a restore stands in manifests, whichever of them are left."""
    train(run, [1, 2, 3])
    train(run, [2, 3], restore=1, key_every=1)
    assert notes(run)[3][1][0] == "restored from step 1 (restore 1): steps 2 to 3 were given up"
    shutil.rmtree(*run.glob("step-00000001-*"))
    assert notes(run)[2][1][0] == "restored from step 1 (restore 1): steps 2 to 3 were given up" and entries(run)[2]["restored"]
    for old in run.glob("step-00000002-*"):
        shutil.rmtree(old)
    got = notes(run)
    assert [s for s, _ in got] == [3, 3] and got[0][1][1] == "2 saves before it are no longer there"
    assert got[1][1] == ["1 save before it is no longer there", "restored in between (restore 1), for a save that is no longer there", "loss 0.375"]


def test_a_start_that_restores_nothing(run):
    train(run, [1, 2])
    train(run, [1])
    assert notes(run)[2][1][0] == "begins anew: it goes on from no checkpoint of this run; step 1 comes after step 2"
    assert [e["anew"] for e in entries(run)] == [False, False, True]


def test_lossy_saves(run):
    """Measured losses, a change of profile, and the last save, whose weights are exact."""
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(run, profile="resume", eval_fn=lambda _: 2.0, max_loss_increase=0.5) as ck:
        for step in (1, 2):
            steps(model, optimizer, scheduler, 1)
            ck.save(step, model=model, optimizer=optimizer, scheduler=scheduler, metrics={"loss": 1.5, "odd \x1b[31mname": 1.0})
    train(run, [3], restore=2, profile="lossless")
    got = notes(run)
    assert got[0][1] == ["profile resume", "loss 1.5, odd ?[31mname 1", "measured loss: 2 of the live weights, 2 decoded (+0.00 %)"]
    exact = [e for e in entries(run) if e["exact"]]
    assert [e["step"] for e in exact] == [2] and "exact" in log(run) and not exact[0]["back"]
    assert got[-2][1] == ["loss 1.5, odd ?[31mname 1"]
    assert got[-1][1][0] == "profile lossless"
    assert got[-1][1][1] == "restored from step 2 (restore 1)"


def test_a_base_model(run, tmp_path):
    model = training()[0]
    save_file({k: v.clone() for k, v in model.state_dict().items()}, tmp_path / "base.safetensors")
    train(run, [1, 2], profile="resume", base=tmp_path / "base.safetensors")
    told = entries(run)
    assert told[0]["base_model"].endswith("base.safetensors") and told[0]["base"] is None
    assert told[1]["base"] == told[0]["dir"] and told[1]["base_model"] is None
    assert re.search(r"^ *1  key .* model  20", log(run), re.M)


def test_times_are_as_saved(run):
    train(run, [1, 2])
    a, b = entries(run)
    assert a["seconds_after"] is None and b["seconds_after"] == b["saved_unix"] - a["saved_unix"]
    assert torch.is_tensor(ckpress.load(run)["model"]["frozen"])     # reading changed nothing
