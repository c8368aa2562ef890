# SPDX-License-Identifier: Apache-2.0
"""A disk that fails in the middle of a restore: at every read, once or for good."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent

SCRIPT = """
import ctypes, sys, warnings
import ckpress
from ckpress import _plan
from helpers import snapshot, steps, training

lib = ctypes.CDLL(sys.argv[1])
left, fail_on, failed = (ctypes.c_int.in_dll(lib, name) for name in ("reads_left", "fail_on", "failed"))
warnings.simplefilter("ignore")
if sys.argv[2] == "files":
    _plan.HOLD_MAX = 0
model, optimizer, scheduler = training(seed=1)
with ckpress.Checkpointer("run", profile=sys.argv[3], final_on_close=False) as ck:
    for step in (2, 4):
        steps(model, optimizer, scheduler, 2)
        ck.save(step, model=model, optimizer=optimizer, scheduler=scheduler, wait=True)
    want = ckpress.load("run")
    model, optimizer, scheduler = training(seed=2)
    steps(model, optimizer, scheduler, 1)
    live = dict(model=model, optimizer=optimizer, scheduler=scheduler)
    before = snapshot(model, optimizer)
    raws = [t for t in (*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values()))]
    keep = [t.clone() for t in raws]
    left.value = 1 << 30
    ck.restore(step=4, **live)
    total, after = (1 << 30) - left.value, snapshot(model, optimizer)
    counts = {"same": 0, "restored": 0, "partly": 0}
    for forever in (0, 1):
        for n in range(total + 1):
            for t, old in zip(raws, keep):
                t.detach().copy_(old)
            assert snapshot(model, optimizer) == before
            left.value, fail_on.value, failed.value = n, forever, 0
            try:
                ck.restore(step=4, **live)
                assert snapshot(model, optimizer) == after
                counts["restored"] += 1
            except ckpress.PartlyWrittenError as e:
                assert forever and "model/up.weight" in e.tensors and "neither the old nor the new" in str(e), e
                counts["partly"] += 1
            except ckpress.Error as e:
                assert failed.value and snapshot(model, optimizer) == before, (n, e)
                counts["same"] += 1
            left.value = 1 << 30
    left.value, fail_on.value = 1 << 30, 0
    ck.save(5, wait=True)
    assert not [row for row in ckpress.list_run("run") if row.health != "ok"]
    print(counts, file=sys.stderr)
    assert counts["same"] > 4 and counts["restored"] >= 2
    assert (counts["partly"] > 0) == (sys.argv[2] == "files"), counts
"""


@pytest.mark.parametrize("profile", ["lossless", "resume"])
@pytest.mark.parametrize("where", ["memory", "files"])
def test_every_read_fails(tmp_path, where, profile):
    """Nothing live changes; without room for the files in memory a failure for good in the last pass is told as what it is."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    shim = tmp_path / "failing.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, HERE / "failing_reads.c", "-ldl"], check=True)
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD", ""), str(shim)]))
    path = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(shim), where, profile],
        cwd=tmp_path,
        env={**os.environ, "LD_PRELOAD": preload, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
