# SPDX-License-Identifier: Apache-2.0
"""What all tests share. Run with the built module on PYTHONPATH, e.g. ``PYTHONPATH=build/release/python pytest tests/python``."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(pathlib.Path(__file__).parent))

# A shared machine: no deadlines; the seed of a failure is printed by hypothesis itself.
# CKP_SEED: as for the C tests (scripts/test.sh).
settings.register_profile("ckpress", deadline=None, derandomize=bool(os.environ.get("CKP_SEED")), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.load_profile("ckpress")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.ckp"


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


@pytest.fixture(scope="session")
def root_only():
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def faults():
    """Of the object store in memory that tests of URLs run on (object_fs.py)."""
    from object_fs import Faults, ObjectFS

    ObjectFS.faults = Faults()
    yield ObjectFS.faults
    ObjectFS.faults.release.set()
    ObjectFS.faults = Faults()
