# SPDX-License-Identifier: Apache-2.0
"""States of ckpress.torch's optimizers, out and in: whatever the memory of what comes in looks like."""

from __future__ import annotations

import copy
import types
import weakref

import ckpress.torch
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
