# SPDX-License-Identifier: Apache-2.0
"""The newest checkpoint in shared memory, and figures of saves."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import uuid

import ckpress
import numpy as np
import pytest
import torch
from ckpress._stats import memory_of
from helpers import same, steps, training

pytest.importorskip("fsspec", reason="URLs need fsspec")
import object_fs  # noqa: E402, F401

SHM = pathlib.Path("/dev/shm")
SIZE = 32 << 20
needs_room = pytest.mark.skipif(not SHM.is_dir() or os.statvfs(SHM).f_bavail * os.statvfs(SHM).f_frsize < 4 * SIZE, reason="little shared memory")

FORK = multiprocessing.get_context("fork")


def train(where, last, wait, told):
    """Until it is killed, by itself after the last step. Tells what it restored, how much of that came from memory, and each return of save()."""
    model, optimizer, scheduler = training()
    ck = ckpress.Checkpointer(where, key_every=4, keep_last=3, memory=SIZE, threads=1)
    done = ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) or 0
    told.send((done, 0 if ck.restored is None else ck.restored["memory_bytes"]))
    while done < last:
        steps(model, optimizer, scheduler, 1)
        done += 1
        ck.save(done, wait=wait)
        told.send(done)
    os.kill(os.getpid(), signal.SIGKILL)


def start(where, last=10**9, wait=False):
    told, child = FORK.Pipe(duplex=False)
    process = FORK.Process(target=train, args=(where, last, wait, child))
    process.start()
    child.close()
    return process, told


def killed(where):
    """A run of six steps that are committed, and then SIGKILL."""
    process, told = start(where, last=6, wait=True)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    told.close()


def copies():
    return set(SHM.glob(f"ckpress-{os.geteuid()}-*"))


@pytest.fixture
def mine():
    """Directories in shared memory that the test made."""
    before = copies()
    yield lambda: copies() - before
    for left in copies() - before:
        for file in left.iterdir():
            file.unlink()
        left.rmdir()


def restored(where, memory=SIZE):
    """A restore beside what the store alone gives; bytes that came from memory, and the handle."""
    model, optimizer, scheduler = training(seed=3)
    ck = ckpress.Checkpointer(where, memory=memory, key_every=4)
    assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == ckpress.load(str(where))["step"]
    assert same(dict(model.state_dict()), dict(ckpress.load(str(where))["model"]))
    return ck.restored["memory_bytes"], ck, (model, optimizer, scheduler)


@needs_room
@pytest.mark.parametrize("kind", ["url", "directory"])
def test_killed(tmp_path, mine, kind):
    """SIGKILL after the last commit: all comes from memory, and training goes on from there with a delta."""
    where = f"objects://{tmp_path}/run" if kind == "url" else tmp_path / "run"
    killed(where)
    (directory,) = mine()
    assert directory.stat().st_mode & 0o777 == 0o700
    files = sorted(directory.iterdir())
    assert [f.name[:13] for f in files] == ["step-00000005", "step-00000006"]  # the chain since the key, compressed as in the store
    assert all(f.stat().st_mode & 0o777 == 0o600 for f in files)
    n, ck, (model, optimizer, scheduler) = restored(where)
    assert n == sum(f.stat().st_size for f in files)
    steps(model, optimizer, scheduler, 1)
    ck.save(7, wait=True)
    assert not ck.stats["is_key"] and ck.stats["copy_note"] == ""
    assert [f.name[:13] for f in sorted(directory.iterdir())] == ["step-00000005", "step-00000006", "step-00000007"]
    ck.close()
    assert mine() == set()  # ended in order
    ckpress.verify(str(where), level="decode")


@needs_room
def test_damaged(tmp_path, mine):
    """Whatever has become of a copy, the store's bytes count."""
    where = f"objects://{tmp_path}/run"
    killed(where)
    (directory,) = mine()
    key, delta = sorted(directory.iterdir())
    was, size = {f: f.read_bytes() for f in (key, delta)}, delta.stat().st_size

    def bit():
        data = bytearray(was[key])
        data[len(data) // 2] ^= 1
        key.write_bytes(data)

    def link():
        key.unlink()
        key.symlink_to(delta)

    damages = [
        bit,
        lambda: key.write_bytes(was[key][:-1]),
        key.unlink,
        lambda: key.write_bytes(was[delta]),
        lambda: key.chmod(0o644),  # somebody else could have written it
        link,
    ]
    for damage in damages:
        directory.mkdir(0o700, exist_ok=True)
        for file, data in was.items():
            file.unlink(missing_ok=True)
            file.write_bytes(data)
            file.chmod(0o600)
        damage()
        n, ck, _ = restored(where)
        assert n == size
        ck.close()
    assert mine() == set()


@needs_room
def test_killed_at_random(tmp_path, mine):
    """Kill after kill, in the middle of saves: what is restored is what the store says; memory holds one chain and little more, and lends a hand."""
    where = f"objects://{tmp_path}/run"
    chance = random.Random(int(os.environ.get("CKP_SEED", "1")))
    helped, last = 0, 0
    for _ in range(12):
        process, told = start(where)
        done, from_memory = told.recv()
        assert done >= last
        helped += from_memory > 0
        assert [told.recv(), told.recv()] == [done + 1, done + 2]  # the second save begins when the first is committed
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.join(60)
        told.close()
        last = ckpress.load(where)["step"]
        held = sum(f.stat().st_size for d in mine() for f in d.iterdir())
        assert len(mine()) == 1 and held <= SIZE
    assert helped >= 8
    _, ck, _ = restored(where)
    ck.close()
    assert mine() == set()
    ckpress.verify(where, level="decode")


@needs_room
def test_two_runs_at_once(tmp_path, mine):
    """Of different runs, and of one run's copy in another place."""
    a, b = tmp_path / "a", tmp_path / "b"
    with ckpress.Checkpointer(a) as ck:
        ck.save(1, t=np.ones(1000))
    ckpress.copy_run(a, b)
    cks = [ckpress.Checkpointer(where, memory=SIZE) for where in (a, b, f"objects://{tmp_path}/c")]
    for step in range(2, 8):
        for i, ck in enumerate(cks):
            ck.save(step, t=np.full(1000, 10.0 * step + i))
    for ck in cks:
        ck.wait()
    assert len(mine()) == 3
    for i, ck in enumerate(cks):
        t = np.zeros(1000)
        ck.restore(t=t)
        assert (t == 70 + i).all() and ck.restored["memory_bytes"] > 0
        ck.close()
        assert len(mine()) == 2 - i


@needs_room
def test_exceptions_and_forgotten_handles_keep_it(tmp_path, mine):
    where = tmp_path / "run"
    with pytest.raises(RuntimeError, match="training"), ckpress.Checkpointer(where, memory=SIZE) as ck:
        ck.save(1, t=np.ones(1000), wait=True)
        raise RuntimeError("training failed")
    assert len(mine()) == 1
    ck = ckpress.Checkpointer(where, memory=SIZE)
    assert ck.restore(t=np.zeros(1000)) == 1 and ck.restored["memory_bytes"] > 0
    del ck
    assert len(mine()) == 1
    done = subprocess.run([sys.executable, "-c", f"import ckpress; ck = ckpress.Checkpointer({str(where)!r}, memory={SIZE}); raise SystemExit(3)"], timeout=60)
    assert done.returncode == 3 and len(mine()) == 1
    ckpress.Checkpointer(where, memory=SIZE).close()
    assert mine() == set()


@needs_room
def test_claimed_while_it_lives(tmp_path, mine):
    """So that no other run takes it for a dead one's."""
    ck = ckpress.Checkpointer(tmp_path / "run", memory=SIZE)
    (directory,) = mine()
    fd = os.open(directory, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ck.close()
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)


def test_too_small(tmp_path, mine):
    """Shared memory with no room to spare: none, which is no failure, and a word about it."""
    with ckpress.Checkpointer(tmp_path / "run", memory="100TB") as ck:
        assert "left" in ck.stats["copy_note"] and ck.stats["copy_bytes"] == 0
        ck.save(1, t=np.ones(1000), wait=True)
        assert "left" in ck.stats["copy_note"] and mine() == set()
    assert ckpress.load(tmp_path / "run")["step"] == 1


@needs_room
def test_larger_than_its_budget(tmp_path, mine):
    with ckpress.Checkpointer(tmp_path / "run", memory="1MB", rng=False) as ck:
        ck.save(1, t=torch.randn(1000), wait=True)
        assert ck.stats["copy_bytes"] > 0 and ck.stats["copy_note"] == ""
        ck.save(2, t=torch.randn(1_000_000), wait=True)
        assert ck.stats["copy_bytes"] == 0 and "more than" in ck.stats["copy_note"]
        ck.save(3, key=True, t=torch.randn(1000), wait=True)
        assert ck.stats["copy_bytes"] > 0 and ck.stats["copy_note"] == ""


@pytest.mark.parametrize("memory", [0, False, None])
def test_a_directory_has_none_unless_asked(tmp_path, mine, memory):
    with ckpress.Checkpointer(tmp_path / "run", memory=memory) as ck:
        ck.save(1, t=np.ones(1000), wait=True)
        assert (ck.stats["copy_bytes"], ck.stats["copy_note"]) == (0, "")
        assert mine() == set()


def test_default_behind_a_url(mine):
    """Where four times 512 MB is left; else a note."""
    with ckpress.Checkpointer(f"memory://{uuid.uuid4().hex}/run") as ck:
        ck.save(1, t=np.ones(1000), wait=True)
        assert (ck.stats["copy_bytes"] > 0) != (ck.stats["copy_note"] != "")
    with ckpress.Checkpointer(f"memory://{uuid.uuid4().hex}/run", memory=0) as ck:
        ck.save(1, t=np.ones(1000), wait=True)
        assert (ck.stats["copy_bytes"], ck.stats["copy_note"]) == (0, "")
    assert mine() == set()


def test_sizes():
    assert [memory_of(x) for x in (None, True, False, 0, 10, "10", "512MB", "1.5 GiB", "2k", "1TB")] == [
        -1, -1, 0, 0, 10, 10, 512_000_000, 3 << 29, 2000, 10**12,
    ]  # fmt: skip
    for bad in (-1, "", "MB", "1 XB", 1.5, "1e9", 1 << 62, b"1"):
        with pytest.raises(ckpress.InvalidError, match="memory"):
            memory_of(bad)


# ---- figures --------------------------------------------------------------------------------------------------------------


class Writer:
    def __init__(self):
        self.told = []

    def add_scalar(self, name, value, step):
        self.told.append((name, value, step))


def test_stats(run):
    with ckpress.Checkpointer(run, rng=False) as ck:
        assert ck.stats["totals"]["saves"] == 0 and ck.stats["ratio"] == 0.0
        for step in range(1, 4):
            ck.save(step, model=torch.nn.Linear(300, 300), wait=True)
            s = ck.stats
            for name in ("stall", "encode", "write"):
                assert s[f"{name}_ms"] == pytest.approx(1e3 * s[name]) and s[f"{name}_ms"] > 0
            assert s["bytes_written"] == s["stored_bytes"] == sum(f.stat().st_size for f in run.glob(f"step-{step:08}-*/*"))
            assert s["ratio"] == pytest.approx(s["raw_bytes"] / s["bytes_written"])
            assert s["bits_per_param"] == pytest.approx(8 * s["bytes_written"] / 90_300)
            assert s["memory_peak"] >= s["memory_bytes"] > 0
        t = s["totals"]
        assert (t["saves"], t["failed"], t["skipped"], t["raw_bytes"]) == (3, 0, 0, 3 * s["raw_bytes"])
        assert t["bytes_written"] == sum(f.stat().st_size for f in run.glob("step-*/*"))
        assert t["encode_ms"] > s["encode_ms"] and t["stall_ms"] > s["stall_ms"] and t["write_ms"] > s["write_ms"]


@pytest.mark.parametrize("profile", ["lossless", "resume"])
def test_stats_outlive_the_run(run, profile):
    """Those of a save that close() waited for, or made itself, included."""
    with ckpress.Checkpointer(run, rng=False, profile=profile) as ck:
        for step in (1, 2):
            ck.save(step, model=torch.nn.Linear(300, 300))
    s = ck.stats
    assert (s["step"], s["committed"], s["memory_bytes"]) == (2, True, 0)
    assert s["totals"]["saves"] == (2 if profile == "lossless" else 3)
    newest = max(ckpress.list_run(run), key=lambda e: e.sequence)
    assert s["bytes_written"] == sum(f.stat().st_size for f in (run / newest.dir).iterdir())


def test_totals_of_saves_within_the_budget(run):
    """Those whose pass is part of the encoding, too."""
    with ckpress.Checkpointer(run, rng=False, memory_budget=1 << 20, profile="resume", final_on_close=False) as ck:
        ck.save(1, model=torch.nn.Linear(1000, 1000), wait=True)
        s = ck.stats
        assert s["totals"]["stall"] == pytest.approx(s["stall"]) and s["stall"] > 0


def test_scalars(run):
    """Each committed save once, with the step that it is of; the last one at the end."""
    writer = Writer()
    with ckpress.Checkpointer(run) as ck:
        ck.log_to(writer)
        for step in (10, 20, 30):
            ck.save(step, t=torch.randn(10_000))
        assert {s for _, _, s in writer.told} == {10, 20}
        ck.wait()
        ck.wait()
        ck.save(40, t=torch.randn(10_000))
    names = ["stall_ms", "encode_ms", "write_ms", "bits_per_param", "ratio", "memory_bytes"]
    assert [(name, step) for name, _, step in writer.told] == [(f"ckpress/{name}", step) for step in (10, 20, 30, 40) for name in names]
    assert all(value >= 0 for _, value, _ in writer.told)


def test_scalars_of_failed_and_skipped_saves(run, monkeypatch):
    writer = Writer()
    with ckpress.Checkpointer(run, when_busy="skip") as ck:
        ck.log_to(writer)
        taken = [ck.save(step, t=torch.randn(1_000_000)) for step in range(6)]
        ck.wait()
        assert {s for _, _, s in writer.told} <= {i for i, was in enumerate(taken) if was}
        ck.log_to(None)
        n = len(writer.told)
        ck.save(7, t=torch.ones(1), wait=True)
        assert len(writer.told) == n
        with pytest.raises(ckpress.InvalidError, match="add_scalar"):
            ck.log_to(object())


class Broken:
    def add_scalar(self, name, value, step):
        raise OSError("the disk of the log is full")


def test_a_log_that_fails_costs_no_checkpoint(tmp_path):
    with pytest.warns(RuntimeWarning, match="log_to: the writer has failed.*disk of the log") as caught, ckpress.Checkpointer(tmp_path / "run") as ck:
        ck.log_to(Broken())
        for step in (1, 2, 3):
            ck.save(step, w=np.arange(step))
    assert len([w for w in caught if "log_to" in str(w.message)]) == 1
    assert [row.step for row in ckpress.list_run(tmp_path / "run")] == [1, 2, 3]
