# SPDX-License-Identifier: Apache-2.0
"""ckpress.thin() and rebase(): trainings go on from what is left, and are told what is not."""

import warnings

import pytest
import torch

import ckpress


def train(path, profile="lossless", steps=6):
    torch.manual_seed(3)
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with ckpress.Checkpointer(path, profile=profile, key_every=4) as ck:
        for step in range(1, steps + 1):
            model(torch.randn(8, 32)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            ck.save(step, model=model, optimizer=optimizer)
            ck.wait()
    return model, optimizer


@pytest.mark.parametrize("profile", ["lossless", "resume"])
def test_thin(tmp_path, profile):
    path = str(tmp_path / "run")
    model, optimizer = train(path, profile)
    before = {e.step: ckpress.load(f"{path}@{e.step}") for e in ckpress.list_run(path)}
    steps = [e.step for e in ckpress.list_run(path)]  # the last one twice, where close() has made it lossless
    plan = ckpress.thin(path, older_than=2, dry_run=True)
    assert plan.deleted == 0 and plan.freed_bytes > 0
    done = ckpress.thin(path, older_than=2)
    assert (done.done, done.moved) == (plan.done, plan.moved) and done.done >= 3 and done.new_bytes < done.freed_bytes
    assert [e.step for e in ckpress.list_run(path)] == steps
    assert [e.dropped is not None for e in ckpress.list_run(path)].count(True) == done.done
    thinned = {c.step for c in done.checkpoints if c.fate == "done"}
    for step, was in before.items():
        now = ckpress.load(f"{path}@{step}")
        assert all(torch.equal(was["model"][k], now["model"][k]) for k in was["model"])
        for i, s in was["optimizer"]["state"].items():
            t = now["optimizer"]["state"][i]
            assert torch.equal(s["exp_avg_sq"], t["exp_avg_sq"]) and torch.equal(s["step"], t["step"])
            assert torch.equal(t["exp_avg"], torch.zeros_like(s["exp_avg"]) if step in thinned else s["exp_avg"])
    ckpress.verify(path, level="decode")
    with ckpress.Checkpointer(path, profile=profile, key_every=4) as ck:
        with pytest.warns(RuntimeWarning, match="first moments were dropped"):
            assert ck.restore(step=min(thinned), model=model, optimizer=optimizer) == min(thinned)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ck.restore(model=model, optimizer=optimizer) == max(before)
        ck.save(99, model=model, optimizer=optimizer)
    assert ckpress.thin(path, older_than=100).done == 0


def test_rebase(tmp_path):
    path = str(tmp_path / "run")
    train(path)
    before = {e.step: ckpress.load(f"{path}@{e.step}") for e in ckpress.list_run(path)}
    delta = next(e.step for e in ckpress.list_run(path) if e.is_delta)
    done = ckpress.rebase(path, delta)
    assert done.done == 1 and done.deleted == 1 + done.moved
    assert not next(e for e in ckpress.list_run(path) if e.step == delta).is_delta
    for step, was in before.items():
        now = ckpress.load(f"{path}@{step}")
        assert all(torch.equal(was["model"][k], now["model"][k]) for k in was["model"])
    ckpress.verify(path, level="decode")
    with pytest.raises(ckpress.NotFoundError):
        ckpress.rebase(path, 4711)


def test_rebase_is_for_lossless_runs(tmp_path):
    path = str(tmp_path / "run")
    train(path, "resume")
    with pytest.raises(ckpress.UnsupportedError, match="lossily"):
        ckpress.rebase(path, 3)
    with pytest.raises(ckpress.InvalidError):
        ckpress.thin(path, older_than=0)
