# SPDX-License-Identifier: Apache-2.0
"""ckpress.verify(): how much it looked at, samples that come again with their seed, and what is told of damage."""

import glob
import os

import pytest
import torch

import ckpress


@pytest.fixture
def run(tmp_path):
    path = str(tmp_path / "run")
    model = torch.nn.Linear(64, 64)
    with ckpress.Checkpointer(path, key_every=3) as ck:
        for step in range(1, 5):
            with torch.no_grad():
                model.weight.add_(torch.randn(64, 64) * 1e-3)
            ck.save(step, model=model)
            ck.wait()
    return path


def test_all(run):
    done = ckpress.verify(run)
    assert done == [] and done.checkpoints == done.looked_at == done.whole == 4 and not done.out_of_time
    assert 0 < done.chunks and 0 < done.bytes < done.stored_bytes
    assert ckpress.verify(run, level="structure").chunks == 0
    assert ckpress.verify(run, level="decode").bytes == done.bytes


def test_sample(run):
    whole = ckpress.verify(run)
    first = ckpress.verify(run, share=0.5)
    again = ckpress.verify(run, share=0.5, seed=first.seed)
    assert vars(first) == vars(again) and 0 < first.chunks < whole.chunks
    assert len({ckpress.verify(run, share=0.2).seed for _ in range(3)}) > 1
    for bad in (0.0, 1.1, -1):
        with pytest.raises(ckpress.InvalidError):
            ckpress.verify(run, share=bad)


def test_time_and_stop(run):
    done = ckpress.verify(run, max_seconds=1e-9)
    assert done.out_of_time and done.looked_at == 0 and done.checkpoints == 4

    def stop(bytes_done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ckpress.verify(run, progress=stop)


def test_damage(run):
    shard = glob.glob(run + "/step-00000001-*/*.ckp")[0]
    with open(shard, "r+b") as f:
        f.seek(os.path.getsize(shard) // 2)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 1]))
    ckpress.verify(run, level="structure")
    with pytest.raises(ckpress.CorruptError) as e:
        ckpress.verify(run)
    assert len(e.value.findings) == 1 and "weight" in e.value.findings[0].error
