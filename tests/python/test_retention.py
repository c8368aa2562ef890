# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints stay, while training and afterwards."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import ckpress
from ckpress._coding import size

torch = pytest.importorskip("torch")


def steps(run: Path) -> list[int]:
    return [e.step for e in ckpress.list_run(run)]


def train(run: Path, losses: list[float], **rules: Any) -> None:
    weights = torch.zeros(64, 64)
    with ckpress.Checkpointer(run, key_every=1, **rules) as ck:
        for i, loss in enumerate(losses):
            weights += i
            ck.save(10 * (i + 1), metrics={"val_loss": loss, "accuracy": -loss}, weights=weights)
            ck.wait()


def test_a_training_keeps_to_its_rules(tmp_path: Path) -> None:
    losses = [5.0, 1.0, 4.0, 3.0, 2.0, 2.5]
    train(tmp_path / "last", losses, keep_last=2)
    assert steps(tmp_path / "last") == [50, 60]
    train(tmp_path / "best", losses, keep_best="val_loss")
    assert steps(tmp_path / "best") == [20, 60]
    train(tmp_path / "highest", losses, keep_best="accuracy:max:2")
    assert steps(tmp_path / "highest") == [20, 50, 60]
    train(tmp_path / "every", losses, keep_last=1, keep_every=30)
    assert steps(tmp_path / "every") == [10, 30, 60]
    train(tmp_path / "bytes", losses, max_bytes=1)
    assert steps(tmp_path / "bytes") == [60]
    train(tmp_path / "text", losses, max_bytes="1B")
    assert steps(tmp_path / "text") == [60]


@pytest.mark.parametrize(("text", "number"), [("512MB", 512 * 10**6), ("2.5 GiB", 5 << 29), ("10g", 10**10), ("7", 7), (9, 9), ("9223372036854775807", 2**63 - 1), ("9007199254740993B", 2**53 + 1)])
def test_sizes(text: object, number: int) -> None:
    assert size("max_bytes", text) == number


@pytest.mark.parametrize("wrong", [0, -1, "0GB", "-1MB", "50 gigabytes", "", "1e9", "9999999TB", "9" * 400, "9" * 20 + "TiB", "10i", 1.5, True, None, [1]])
def test_sizes_that_are_none(wrong: object) -> None:
    with pytest.raises(ckpress.InvalidError, match="max_bytes must be a number of bytes"):
        size("max_bytes", wrong)


def test_a_training_gone_wrong_pushes_nothing_good_out(tmp_path: Path) -> None:
    train(tmp_path / "run", [3.0, 2.0, float("nan"), float("nan"), float("nan")], keep_last=2)
    assert steps(tmp_path / "run") == [20, 40, 50]


def test_prune(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, [5.0, 1.0, 4.0, 3.0, 2.0])
    planned = ckpress.prune(run, keep_best="val_loss", keep_last=1, dry_run=True)
    assert [(f.step, f.fate) for f in planned.checkpoints] == [(10, "deleted"), (20, "kept"), (30, "deleted"), (40, "deleted"), (50, "kept")]
    assert planned.deleted == 3 and planned.kept == 2 and planned.freed_bytes > 0 and len(steps(run)) == 5
    done = ckpress.prune(run, keep_best="val_loss", keep_last=1)
    assert done == planned and steps(run) == [20, 50]
    assert ckpress.prune(run, keep_last=7).deleted == 0
    for rules in ({}, {"keep_last": 0}, {"keep_best": ":max"}, {"max_bytes": 0}, {"max_bytes": "many"}, {"keep_every": 1.5}):
        with pytest.raises(ckpress.InvalidError):
            ckpress.prune(run, **rules)
    with ckpress.Checkpointer(run), pytest.raises(ckpress.BusyError):
        ckpress.prune(run, keep_last=1)
    with pytest.raises(ckpress.NotFoundError):
        ckpress.prune(tmp_path / "no", keep_last=1)
    assert not (tmp_path / "no").exists()


def test_nothing_goes_beside_damage(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, [3.0, 2.0, 1.0])
    next(run.glob("step-00000020-*/shard*")).unlink()
    with pytest.raises(ckpress.CorruptError, match="missing"):
        ckpress.prune(run, keep_last=1)
    assert len(list(run.glob("step-*"))) == 3


def test_modification_times_do_not_matter(run):
    """Row 22: shuffled, equal, and in the future."""
    with ckpress.Checkpointer(run, rng=False, key_every=1, keep_last=5) as ck:
        for step in range(9000, 9005):
            ck.save(step, w=torch.full((100,), step), wait=True)
    for where in sorted(run.rglob("*"), reverse=True):
        step = int(where.relative_to(run).parts[0].split("-")[1]) if where.relative_to(run).parts[0].startswith("step-") else 0
        os.utime(where, (4_000_000_000 - 1000 * (step % 7),) * 2)
    assert ckpress.load(run)["w"][0] == 9004
    ckpress.prune(run, keep_last=2)
    assert [r.step for r in ckpress.list_run(run)] == [9003, 9004]


def test_a_metric_that_no_checkpoint_has_deletes_nothing(run):
    """A misspelt name must not leave the newest alone."""
    with pytest.warns(RuntimeWarning, match="no checkpoint has a metric 'val_los'"):
        train(run, [3.0, 2.0, 1.0, 2.5], keep_best="val_los")
    assert steps(run) == [10, 20, 30, 40]
    for dry_run in (True, False):
        with pytest.raises(ckpress.NotFoundError, match="'acc'"):
            ckpress.prune(run, keep_best="acc:max", dry_run=dry_run)
    assert steps(run) == [10, 20, 30, 40]
    ckpress.prune(run, keep_best="val_loss")
    assert steps(run) == [30, 40]


def test_a_limit_that_bases_exceed_is_told_once(tmp_path):
    """The newest stays, and with it the whole chain: whoever set a limit hears that it is not met."""
    with ckpress.Checkpointer(tmp_path / "run", rng=False, max_bytes="10kB", final_on_close=False) as ck, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(1, 5):
            ck.save(step, state={"w": torch.randn(5000)}, wait=True)
    assert [str(w.message) for w in told if "max_bytes (10000)" in str(w.message)] == [str(w.message) for w in told] and len(told) == 1
