# SPDX-License-Identifier: Apache-2.0
"""Copies of runs: restored, pruned, continued, cut short, taken beside a training."""

from __future__ import annotations

import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ckpress

torch = pytest.importorskip("torch")
helpers = pytest.importorskip("helpers")


def steps(run: Path) -> list[int]:
    return [e.step for e in ckpress.list_run(run) if e.health == "ok"]


def fresh() -> tuple[Any, Any]:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.Tanh(), torch.nn.Linear(96, 48))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(run: Path, profile: str, first: int, last: int, **options: Any) -> tuple[Any, Any]:
    """Goes on from the newest; saves each step."""
    model, optimizer = fresh()
    with ckpress.Checkpointer(run, profile, key_every=4, **options) as ck:
        assert (ck.restore(model=model, optimizer=optimizer) or 0) == first
        for step in range(first + 1, last + 1):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(16, 48, generator=generator)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ck.save(step)
            ck.wait()
    return model, optimizer


def trees(run: Path) -> dict[str, bytes]:
    """Every file of every checkpoint."""
    return {str(f.relative_to(run)): f.read_bytes() for f in sorted(run.glob("step-*/*"))}


@pytest.mark.parametrize("profile", ["lossless", "resume"])
def test_a_copy_is_the_run(tmp_path: Path, profile: str) -> None:
    run, copy, part = tmp_path / "run", tmp_path / "copy", tmp_path / "part"
    train(run, profile, 0, 10)
    planned = ckpress.copy_run(run, copy, dry_run=True)
    assert not copy.exists() and planned.copied == len(steps(run))
    said: list[tuple[int, int]] = []
    done = ckpress.copy_run(run, copy, progress=lambda a, b: said.append((a, b)))
    assert done == planned and said[-1][0] == said[-1][1] == done.bytes
    assert trees(copy) == trees(run) and ckpress.verify(copy, level="decode") is not None
    for step in steps(run):
        assert helpers.same(ckpress.load(f"{copy}@{step}"), ckpress.load(f"{run}@{step}"))
    assert ckpress.copy_run(run, copy).there == len(steps(run))

    # one delta, with what it needs, and nothing else
    some = ckpress.copy_run(run, part, steps=[7])
    assert [c.step for c in some.checkpoints] == steps(part) and steps(part)[-1] == 7 and len(steps(part)) < 7
    assert helpers.same(ckpress.load(part), ckpress.load(f"{run}@7"))
    ckpress.copy_run(run, part, newest=True)
    assert steps(part)[-1] == steps(run)[-1]

    # pruned, it restores still
    ckpress.prune(copy, keep_last=1)
    assert helpers.same(ckpress.load(copy), ckpress.load(run))

    # both go on from the same state, to the same bits; then they are two runs, whatever they hold
    a = train(run, profile, 10, 13)
    b = train(copy, profile, 10, 13)
    assert all(helpers.same(x, y) for x, y in zip(a[0].state_dict().values(), b[0].state_dict().values()))
    ckpress.verify(copy, level="decode")
    for source, dest in ((run, copy), (copy, run)):
        with pytest.raises(ckpress.MismatchError, match="gone on by itself"):
            ckpress.copy_run(source, dest)


def test_what_is_refused(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    train(run, "lossless", 0, 3)
    train(other, "lossless", 0, 3)
    with pytest.raises(ckpress.MismatchError, match="another run"):
        ckpress.copy_run(run, other)
    for inside in (run, run / "copy", tmp_path / "other" / ".." / "run"):
        with pytest.raises(ckpress.InvalidError, match="lies in it"):
            ckpress.copy_run(run, inside)
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(ckpress.InvalidError, match="lies in it"):
        ckpress.copy_run(run, tmp_path / "link" / "x" / "y")
    assert not (run / "copy").exists() and not (run / "x").exists()
    for bad in (tmp_path / "no", tmp_path):
        with pytest.raises(ckpress.NotFoundError):
            ckpress.copy_run(bad, tmp_path / "dest")
    with pytest.raises(ckpress.NotFoundError, match="step 9"):
        ckpress.copy_run(run, tmp_path / "dest", steps=[2, 9])
    assert not (tmp_path / "dest").exists()
    for steps_given in ([-1], [1.5], [1 << 63]):
        with pytest.raises(ckpress.InvalidError):
            ckpress.copy_run(run, tmp_path / "dest", steps=steps_given)
    ckpress.copy_run(run, tmp_path / "dest")
    with ckpress.Checkpointer(tmp_path / "dest"), pytest.raises(ckpress.BusyError):
        ckpress.copy_run(run, tmp_path / "dest")
    lost = next(run.glob("step-00000002-*/shard*"))
    data = bytearray(lost.read_bytes())
    data[len(data) // 2] ^= 4
    lost.write_bytes(data)
    with pytest.raises(ckpress.CorruptError, match="step-00000002"):
        ckpress.copy_run(run, tmp_path / "again")
    assert steps(tmp_path / "again") == [1]


def test_stopped_by_the_caller(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, "lossless", 0, 6)

    def stop(done: int, total: int) -> None:
        if done * 2 > total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ckpress.copy_run(run, tmp_path / "copy", progress=stop)
    assert 0 < len(steps(tmp_path / "copy")) < len(steps(run))
    ckpress.copy_run(run, tmp_path / "copy")
    assert trees(tmp_path / "copy") == trees(run)


def test_a_base_model_in_the_run_goes_along(tmp_path: Path) -> None:
    safetensors_torch = pytest.importorskip("safetensors.torch")
    torch.manual_seed(5)
    base = tmp_path / "base.safetensors"
    safetensors_torch.save_file({k: v.clone() for k, v in fresh()[0].state_dict().items()}, str(base))
    run, copy = tmp_path / "run", tmp_path / "copy"
    train(run, "lossless", 0, 5, base=base)
    assert ckpress.copy_run(run, tmp_path / "without").models_outside == 2
    shutil.move(base, run / base.name)
    assert ckpress.copy_run(run, copy).models_outside == 0
    assert (copy / base.name).read_bytes() == (run / base.name).read_bytes()
    shutil.rmtree(run)
    assert helpers.same(ckpress.load(copy)["model"], ckpress.load(f"{copy}@5")["model"])
    ckpress.verify(copy, level="decode")


def test_killed_again_and_again(tmp_path: Path) -> None:
    """SIGKILL of the command at any moment; what is there is whole, and in the end all is."""
    run, command = tmp_path / "run", shutil.which("ckpress")
    if command is None:
        pytest.skip("no command in the path")
    train(run, "resume", 0, 24)
    chance, kills, ends = random.Random(7), 0, 0
    started = time.monotonic()
    subprocess.run([command, "cp", "-q", run, tmp_path / "whole"], check=True)
    whole = time.monotonic() - started
    want = trees(run)
    while kills < 20 or ends < 2:
        copy = tmp_path / f"copy{ends}"
        process = subprocess.Popen([command, "cp", "-q", str(run), str(copy)])
        time.sleep(chance.uniform(0, whole / 3 if kills < 20 else 2 * whole))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            assert trees(copy) == want
            ends += 1
            continue
        kills += 1
        if not (copy / "run.json").exists():
            continue
        whole_ones = steps(copy)
        assert whole_ones == steps(run)[: len(whole_ones)]
        if whole_ones:
            ckpress.verify(copy)
        for name, data in trees(copy).items():
            if pathlib.Path(name).name == "manifest.json":
                assert want[name] == data
    ckpress.verify(tmp_path / f"copy{ends - 1}", level="decode")


def test_beside_a_training(tmp_path: Path) -> None:
    """Copied again and again while a training saves and deletes: each copy is whole, and the last is the run's newest."""
    run, copy = tmp_path / "run", tmp_path / "copy"
    train(run, "lossless", 0, 2)
    over = threading.Event()

    def go_on() -> None:
        try:
            train(run, "lossless", 2, 40, keep_last=2)
        finally:
            over.set()

    trainer = threading.Thread(target=go_on)
    trainer.start()
    copies = 0
    while not over.is_set():
        done = ckpress.copy_run(run, copy)
        copies += 1
        assert steps(copy)[-1] >= max(c.step for c in done.checkpoints)
        ckpress.verify(copy)
    trainer.join()
    ckpress.copy_run(run, copy)
    assert copies >= 2 and steps(copy)[-1] == 40
    assert helpers.same(ckpress.load(copy), ckpress.load(run))
    ckpress.verify(copy, level="decode")


def test_urls_are_refused_by_name(tmp_path):
    with pytest.raises(ckpress.UnsupportedError, match="memory://run: runs are copied from directory to directory"):
        ckpress.copy_run("memory://run", tmp_path / "copy")
    with pytest.raises(ckpress.UnsupportedError, match="s3://"):
        ckpress.copy_run(tmp_path, "s3://bucket/run")
    assert not (tmp_path / "copy").exists()
