# SPDX-License-Identifier: Apache-2.0
"""Live tensors several of whose elements lie in one place, as expand() makes them."""

import pytest
import torch

import ckpress


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_elements_that_share_memory(run):
    with ckpress.Checkpointer(run, rng=False) as ck:
        live = torch.zeros(1).expand(5)
        other = torch.zeros(5)
        ck.save(1, x=torch.arange(5.0), y=torch.ones(5))
        with pytest.raises(ckpress.MismatchError, match="x .elements share memory here, .*were saved as different ones"):
            ck.restore(x=live, y=other)
        assert live.tolist() == [0] * 5
        assert other.tolist() == [0] * 5


@pytest.mark.parametrize("was", [torch.tensor([[1.5], [float("nan")], [-0.0]]).expand(3, 7), torch.tensor([True, False]).expand(4, 2), torch.ones(()).expand(5)])
def test_what_expand_made_comes_back_in_place(run, was):
    with ckpress.Checkpointer(run, profile="resume", rng=False) as ck:
        ck.save(1, x=was)
        base = torch.zeros_like(was[tuple(slice(0, 1) if s == 0 else slice(None) for s in was.stride())])
        live = base.expand(was.shape)
        ck.restore(x=live)
        assert live.data_ptr() == base.data_ptr()
        assert torch.equal(live.contiguous().view(torch.uint8), was.contiguous().view(torch.uint8))


def test_a_buffer_that_expand_made(run):
    """torch's own load_state_dict refuses it."""
    def model() -> torch.nn.Module:
        m = torch.nn.Linear(3, 3)
        m.register_buffer("mask", torch.rand(4, 1).expand(4, 7))
        return m

    a, b = model(), model()
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=a)
        ck.restore(model=b)
    assert torch.equal(a.mask, b.mask)
    assert torch.equal(a.weight, b.weight)
