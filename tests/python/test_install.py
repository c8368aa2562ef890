# SPDX-License-Identifier: Apache-2.0
"""What ``pip install .`` brings, built as pyproject.toml says but without the build backend, which would have to be downloaded."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tomllib

import ckpress
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("ninja") is None, reason="needs cmake and ninja")
def test_a_wheel_has_module_and_command(tmp_path):
    how = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]
    build, scripts, platlib = tmp_path / "build", tmp_path / "scripts", tmp_path / "platlib"
    defines = {**how["cmake"]["define"], "CMAKE_BUILD_TYPE": "Release", "SKBUILD": "2", "SKBUILD_SCRIPTS_DIR": str(scripts)}
    defined = [f"-D{name}={value}" for name, value in defines.items()]
    for command in (
        ["-S", str(ROOT), "-B", str(build), "-G", "Ninja", *defined],
        ["--build", str(build), "--target", *how["build"]["targets"]],
        *(["--install", str(build), "--prefix", str(platlib), "--component", c] for c in how["install"]["components"]),
    ):
        done = subprocess.run(["cmake", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.run([scripts / "ckpress", "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == ckpress.__version__
    kernel = (build / "python" / "ckpress" / "_cuda.so").exists()  # where nvcc is
    assert sorted(p.name for p in (platlib / "ckpress").iterdir()) == ["_core.abi3.so", *["_cuda.so"] * kernel]
    # Else a wheel made from the sdist would lack the command.
    assert {"src", "include", "cmake", "cli", "python"} <= set(how["sdist"]["include"])
