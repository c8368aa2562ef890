# SPDX-License-Identifier: Apache-2.0
"""No space, no permission: a typed error, the earlier checkpoint stays whole, the run goes on when there is room again."""

from __future__ import annotations

import errno
import os
import subprocess

import ckpress
import pytest
import torch
from helpers import same


@pytest.fixture
def small_disk(tmp_path, root_only):
    """A file system of 3 MB."""
    at = tmp_path / "disk"
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(at)], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount here")
    yield at
    subprocess.run(["umount", str(at)], check=True)


def test_disk_full(small_disk):
    t = torch.randn(200_000)  # 0.8 MB
    filler = small_disk / "filler"
    with ckpress.Checkpointer(small_disk / "run", rng=False, key_every=1) as ck:
        ck.save(1, t=t, wait=True)
        room = os.statvfs(small_disk)
        filler.write_bytes(b"x" * (room.f_bavail * room.f_bsize - 200_000))
        with pytest.raises(ckpress.NoSpaceError) as caught:
            ck.save(2, t=t + 1, wait=True)
        assert caught.value.errno == errno.ENOSPC and isinstance(caught.value, OSError) and caught.value.file
        assert same(ckpress.load(small_disk / "run")["t"], t)
        filler.unlink()
        ck.save(3, t=t + 2, wait=True)
    assert same(ckpress.load(small_disk / "run")["t"], t + 2)
    assert [r.step for r in ckpress.list_run(small_disk / "run") if r.health == "ok"] == [1, 3]


def test_disk_full_is_told_by_the_next_call(small_disk):
    with ckpress.Checkpointer(small_disk / "run", rng=False) as ck:
        ck.save(1, t=torch.randn(2_000_000))
        with pytest.raises(ckpress.NoSpaceError):
            ck.wait()
        ck.save(2, t=torch.zeros(10), wait=True)
    assert ckpress.load(small_disk / "run")["step"] == 2


def fill(at):
    with open(at / "filler", "wb", buffering=0) as f, pytest.raises(OSError):
        while True:
            f.write(b"x" * 4096)


def test_close_and_prune_on_a_full_disk(small_disk):
    with ckpress.Checkpointer(small_disk / "run", rng=False, key_every=1) as ck:
        for step in (1, 2):
            ck.save(step, t=torch.randn(100_000), wait=True)
        fill(small_disk)
    assert ckpress.prune(small_disk / "run", keep_last=1).deleted == 1
    with ckpress.Checkpointer(small_disk / "run", rng=False) as ck:  # it was closed, in this process
        ck.save(3, t=torch.zeros(10), wait=True)


def test_file_on_a_full_disk(small_disk):
    path = small_disk / "x.ckp"
    ckpress.save(path, {"a": 1})
    with pytest.raises(ckpress.NoSpaceError):
        ckpress.save(path, {"t": torch.randn(2_000_000)})
    assert ckpress.load(path) == {"a": 1} and os.listdir(small_disk) == ["x.ckp"]


def test_read_only(small_disk):
    with ckpress.Checkpointer(small_disk / "run") as ck:
        ck.save(1, t=torch.ones(3))
    ckpress.save(small_disk / "x.ckp", {"a": 1})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(ckpress.AccessError) as caught:
        ckpress.Checkpointer(small_disk / "run")
    assert isinstance(caught.value, PermissionError)
    with pytest.raises(ckpress.AccessError):
        ckpress.save(small_disk / "x.ckp", {"a": 2})
    assert ckpress.load(small_disk / "run")["step"] == 1 and ckpress.load(small_disk / "x.ckp") == {"a": 1}
