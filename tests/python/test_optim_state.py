# SPDX-License-Identifier: Apache-2.0
"""States of ckpress.torch's optimizers, out and in: whatever the memory of what comes in looks like."""

from __future__ import annotations

import copy
import types
import weakref

import ckpress
import ckpress.torch
import pytest
import torch
from ckpress.torch import _optim_state
from torch import nn

AdamW = ckpress.torch.AdamW


def transposed(t):
    return t.t().contiguous().t() if t.dim() == 2 else t.contiguous(memory_format=torch.channels_last)


def strided(dtype=torch.float32):
    """A model whose parameters do not lie row by row."""
    torch.manual_seed(1)
    return nn.ParameterList([nn.Parameter(transposed(torch.randn(s).to(dtype))) for s in ((20, 40), (24, 8, 3, 3))])


def step(params, optimizer, steps, first=0):
    for i in range(first, first + steps):
        g = torch.Generator().manual_seed(i)
        for p in params:
            p.grad = torch.randn(p.shape, generator=g).to(p.dtype)
        optimizer.step()


def equal(a, b):
    return all(torch.equal(t, b[k][name]) for k, state in a.items() for name, t in state.items())


def test_codes_are_read_before_their_copy_is_gone(monkeypatch):
    """C was given the address of a copy that nobody held."""
    params = strided()
    opt = AdamW(params, small=0)
    step(params, opt, 3)
    saved = copy.deepcopy(opt.state_dict())
    for state in saved["state"].values():
        state.update({k: transposed(t) for k, t in state.items() if k.endswith("_code")})
    real, contiguous = _optim_state._core.Optim, torch.Tensor.contiguous
    gone, seen = set(), []

    def watched(t, *args, **how):
        out = contiguous(t, *args, **how)
        if out is not t:
            gone.discard(out.data_ptr())
            weakref.finalize(out, gone.add, out.data_ptr())
        return out

    def pack(to, code, *rest):
        seen.append(code not in gone)
        real.pack(to, code, *rest)

    monkeypatch.setattr(torch.Tensor, "contiguous", watched)
    monkeypatch.setattr(_optim_state, "_core", types.SimpleNamespace(Optim=types.SimpleNamespace(pack=pack, state_bytes=real.state_bytes)))
    again = AdamW(params, small=0)
    again.load_state_dict(saved)
    monkeypatch.undo()
    assert seen == [True] * 4
    assert equal(opt.state_dict()["state"], again.state_dict()["state"])


@pytest.mark.parametrize("door", ["state_dict", "ckpress"])
@pytest.mark.parametrize("master", ["split8", "split16"])
def test_further_bits_of_weights_stay_where_they_are(master, door, tmp_path):
    """A restore gives states the strides of their parameters; C goes by rows."""
    a = strided(torch.bfloat16)
    opt_a = AdamW(a, lr=1e-3, small=0, master=master)
    step(a, opt_a, 4)
    b = copy.deepcopy(a)
    opt_b = AdamW(b, lr=1e-3, small=0, master=master)
    if door == "ckpress":
        with ckpress.Checkpointer(tmp_path, rng=False) as ck:
            ck.save(4, wait=True, model=a, optimizer=opt_a)
            assert ck.restore(model=b, optimizer=opt_b) == 4
    else:
        saved = copy.deepcopy(opt_a.state_dict())
        for state in saved["state"].values():
            state.update({k: transposed(t) for k, t in state.items() if k.endswith("_code") or k == "master_rest"})
        opt_b.load_state_dict(saved)
    assert all(opt_b.state[p]["packed"].rest.is_contiguous() for p in b)
    assert equal(opt_a.state_dict()["state"], opt_b.state_dict()["state"])
    step(a, opt_a, 4, 4)
    step(b, opt_b, 4, 4)
    assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    assert equal(opt_a.state_dict()["state"], opt_b.state_dict()["state"])
