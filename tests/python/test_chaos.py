# SPDX-License-Identifier: Apache-2.0
"""An outside judge of crash safety: ckpt-chaos kills a training at file operations of its saves and says what came back."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
POINTS = int(os.environ.get("CKP_CHAOS_POINTS", "30"))  # 0: all of them (about 45)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """ckpt-chaos listens to CPython's audit events; the library's file operations are C and need this to raise some."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    out = tmp_path_factory.mktemp("shim") / "audit.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(out), str(HERE / "audit_shim.c"), "-ldl"], check=True)
    return out


def test_every_kill_point_resumes_clean(tmp_path, shim):
    pytest.importorskip("ckpt_chaos")
    command = [sys.executable, "-m", "ckpt_chaos", "run", "--step-regex", r"restored (\d+)", "--result-file", "{out}/run.json"]
    command += ["--max-points", str(POINTS)] if POINTS else []
    command += ["--", sys.executable, str(HERE / "trainer.py"), "{out}/run", "4"]
    preload = " ".join(filter(None, [str(shim), os.environ.get("LD_PRELOAD", "")]))
    got = subprocess.run(command, cwd=tmp_path, env={**os.environ, "LD_PRELOAD": preload}, capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stdout + got.stderr
    passed = len(re.findall(r"\bPASS\b", got.stdout))
    assert passed >= 10, got.stdout
    assert "HARD_FAIL" not in re.sub(r"0 HARD_FAIL", "", got.stdout)
