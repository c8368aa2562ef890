# SPDX-License-Identifier: Apache-2.0
"""torch's ZeroRedundancyOptimizer: each rank has a part of the moments, in an optimizer inside it."""

import pytest

import ckpress

torch = pytest.importorskip("torch")

from ranks import run, train  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.is_gloo_available(), reason="needs gloo")

RANKS = 2


def training(seed=1):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.Linear(24, 48), torch.nn.Linear(48, 8))
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def went_on(model, optimizer):
    train(model, optimizer, steps=2, seed=5)
    return weights(model)


def unsaved(rank, dir):
    model, optimizer = training()
    train(model, optimizer)
    assert not optimizer.state and optimizer.optim.state  # where nobody looks, and only a part of it
    with pytest.raises(ckpress.UnsupportedError, match=r"optimizer.*: cannot save a ZeroRedundancyOptimizer in there: its state_dict\(\) has 'state' of its own"):
        ckpress.save(f"{dir}/{rank}.ckp", {"model": model, "optimizer": optimizer})
    with ckpress.Checkpointer(f"{dir}/run{rank}") as ck, pytest.raises(RuntimeError, match="consolidate_state_dict"):
        ck.save(1, model=model, optimizer=optimizer)
    return [row.step for row in ckpress.list_run(f"{dir}/run{rank}")]


def test_what_other_ranks_have_is_not_left_out(tmp_path):
    assert run(unsaved, tmp_path, world=RANKS) == [("ok", [])] * RANKS


def consolidated(rank, dir):
    model, optimizer = training()
    train(model, optimizer, steps=3)
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        with ckpress.Checkpointer(f"{dir}/run", profile="lossless") as ck:
            ck.save(3, model=model, optimizer=optimizer, wait=True)
    expected = went_on(model, optimizer)
    model, optimizer = training(seed=2)
    for turn in range(RANKS):  # a run has one writer
        torch.distributed.barrier()
        if rank == turn:
            with ckpress.Checkpointer(f"{dir}/run", profile="lossless") as ck:
                assert ck.restore(model=model, optimizer=optimizer) == 3
    torch.distributed.barrier()
    return torch.equal(went_on(model, optimizer), expected)


def test_one_rank_saves_what_all_have_given_it(tmp_path):
    assert run(consolidated, tmp_path, world=RANKS) == [("ok", True)] * RANKS


def each_its_part(rank, dir, profile):
    how = {"group": "world", "divide": False, "threads": 1, "profile": profile}
    model, optimizer = training()
    train(model, optimizer, steps=3)
    with ckpress.Checkpointer(f"{dir}/run", **how) as ck:
        ck.save(3, model=model, optimizer=optimizer.optim, wait=True)
    expected = went_on(model, optimizer)
    model, optimizer = training(seed=2)
    with ckpress.Checkpointer(f"{dir}/run", **how) as ck:
        assert ck.restore(model=model, optimizer=optimizer.optim) == 3
    return (went_on(model, optimizer) - expected).abs().max().item()


@pytest.mark.parametrize("profile", ["lossless", "resume"])
def test_each_rank_saves_its_part(tmp_path, profile):
    found = run(each_its_part, tmp_path, profile, world=RANKS)
    assert [kind for kind, _ in found] == ["ok"] * RANKS
    far = [value for _, value in found]
    assert far == [0.0] * RANKS if profile == "lossless" else all(0 < v < 0.02 for v in far), far
