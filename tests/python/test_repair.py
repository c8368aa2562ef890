# SPDX-License-Identifier: Apache-2.0
"""ckpress.repair(): a training goes on after damage, with nothing deleted that was not asked for."""

import glob
import os

import pytest
import torch

import ckpress


@pytest.fixture
def run(tmp_path):
    path = str(tmp_path / "run")
    model = torch.nn.Linear(16, 16)
    with ckpress.Checkpointer(path, key_every=2) as ck:
        for step in range(1, 6):
            with torch.no_grad():
                model.weight.add_(1e-3)
            ck.save(step, model=model)
            ck.wait()
    return path


def test_repair(run):
    before = ckpress.load(run + "@2")["model"]["weight"]
    os.remove(glob.glob(run + "/step-00000003-*/*.ckp")[0])
    os.remove(run + "/run.json")
    with pytest.raises(ckpress.Error):
        ckpress.Checkpointer(run)
    plan = ckpress.repair(run, dry_run=True)
    assert not os.path.exists(run + "/run.json")
    done = ckpress.repair(run)
    assert plan == done
    assert (done.set_aside, done.restorable, done.newest_step, done.identity) == (2, 3, 5, True)
    assert [(c.step, c.fate) for c in done.checkpoints] == [(4, "set aside"), (3, "set aside")]
    assert all(c.reason for c in done.checkpoints)
    assert len(glob.glob(run + "/set-aside-step-*")) == 2
    assert torch.equal(ckpress.load(run + "@2")["model"]["weight"], before)
    assert [e.step for e in ckpress.list_run(run)] == [1, 2, 5]
    model = torch.nn.Linear(16, 16)
    with ckpress.Checkpointer(run, key_every=2, keep_last=2) as ck:
        assert ck.restore(model=model) == 5
        ck.save(6, model=model)
    assert ckpress.list_run(run)[-1].step == 6


def test_data_and_delete(run):
    shard = glob.glob(run + "/step-00000001-*/*.ckp")[0]
    with open(shard, "r+b") as f:
        f.seek(os.path.getsize(shard) // 2)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 1]))
    assert ckpress.repair(run).checkpoints == []
    done = ckpress.repair(run, data=True, delete=True, progress=lambda a, b: None)
    assert (done.deleted, done.restorable) == (2, 3)
    ckpress.verify(run, level="decode")


def test_nothing_left(run):
    for shard in glob.glob(run + "/step-*/*.ckp"):
        os.remove(shard)
    with pytest.raises(ckpress.NotFoundError):
        ckpress.repair(run, delete=True)
    assert len(glob.glob(run + "/set-aside-step-*/manifest.json")) == 5


def test_busy(run):
    with ckpress.Checkpointer(run):
        with pytest.raises(ckpress.BusyError):
            ckpress.repair(run)


def test_a_base_without_its_manifest_stays(run):
    """What a delta names as its base was a checkpoint: no start and no repair sweeps it, and salvage still reads the delta with it."""
    base = glob.glob(run + "/step-00000003-*")[0]
    os.remove(base + "/manifest.json")
    shards = [glob.glob(f"{run}/step-0000000{n}-*/*.ckp")[0] for n in (4, 3)]
    for _ in range(2):
        ckpress.Checkpointer(run).close()
        assert os.path.exists(shards[1])
    assert [c.step for c in ckpress.repair(run).checkpoints if c.fate == "set aside"] == [4, 3]
    ckpress.Checkpointer(run).close()
    delta = glob.glob(run + "/set-aside-step-00000004-*/*.ckp")[0]
    salvaged = ckpress.salvage(delta, run + "/../out", base=glob.glob(run + "/set-aside-step-00000003-*/*.ckp")[0])
    assert any("weight" in one.tensor and one.have == one.of for one in salvaged)


def test_all_set_aside_is_no_new_run(run):
    for shard in glob.glob(run + "/step-*/*.ckp"):
        os.remove(shard)
    with pytest.raises(ckpress.NotFoundError):
        ckpress.repair(run)
    with ckpress.Checkpointer(run) as ck, pytest.raises(ckpress.NotFoundError, match="set aside"):
        ck.restore(model=torch.nn.Linear(16, 16))
