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


def test_moments_in_f32_follow_their_parameter(monkeypatch):
    """A model that moves leaves its optimizer's state where it was; C takes addresses on the CPU alone."""
    p = nn.Parameter(torch.ones(300, dtype=torch.bfloat16))
    opt = AdamW([p], lr=1e-3, master="split8")
    step([p], opt, 2)
    state, to = opt.state[p], torch.Tensor.to
    stays = {k: state[k] for k in ("exp_avg", "exp_avg_sq", "master_rest")}
    for k, t in stays.items():
        state[k] = t.to("meta")
    there = iter(stays.values())
    monkeypatch.setattr(torch.Tensor, "to", lambda t, *how, **more: next(there).clone() if t.is_meta else to(t, *how, **more))
    twin = nn.Parameter(p.detach().clone())
    other = AdamW([twin], lr=1e-3, master="split8")
    other.state[twin] = {"step": state["step"].clone(), **{k: t.clone() for k, t in stays.items()}}
    step([p], opt, 2, 2)
    step([twin], other, 2, 2)
    assert all(t.device.type == "cpu" for t in state.values())
    assert torch.equal(p, twin) and equal({0: state}, {0: other.state[twin]})


def test_a_state_is_where_its_parameter_is():
    """torch's helpers refuse a state of tensors on several devices, but for numbers."""
    p = nn.Parameter(torch.ones(20, 40))
    opt = AdamW([p], small=0, state_bits="auto")
    step([p], opt, 2)
    out = opt._out(opt.state[p], torch.empty_like(p, device="meta"), 0)
    assert {"bits", "correction", "policy", "row_factor"} < out.keys()
    assert {k for k, t in out.items() if t.device.type != "meta"} == {"step"}


@pytest.mark.parametrize("ours", [AdamW, ckpress.torch.SGD])
def test_a_state_dict_is_of_one_step(ours):
    """Codes are copies: so is what has none."""
    params = [nn.Parameter(torch.ones(s)) for s in ((20, 40), (30,), (5, 6))]
    opt = ours([{"params": params[:2]}, {"params": params[2:], "state_bits": 32}], lr=0.1, **({"momentum": 0.9} if ours is not AdamW else {}))
    step(params, opt, 2)
    now = [opt.state_dict()["state"], opt.torch_state_dict()["state"]]
    was = copy.deepcopy(now)
    step(params, opt, 1, 2)
    assert all(equal(a, b) for a, b in zip(now, was, strict=True))
    taken = torch.optim.AdamW(params) if ours is AdamW else torch.optim.SGD(params, momentum=0.9)
    taken.param_groups[:] = [{**taken.param_groups[0], "params": g["params"]} for g in opt.param_groups]
    taken.load_state_dict(opt.torch_state_dict())
    after = copy.deepcopy(taken.state_dict()["state"])
    step(params, opt, 1, 3)
    assert equal(after, taken.state_dict()["state"])


def test_a_state_dict_of_32_bits_is_torchs():
    """Without a copy of all moments."""
    params = [nn.Parameter(torch.ones(s)) for s in ((20, 40), (30,))]
    opt = AdamW(params, lr=0.1, state_bits=32)
    step(params, opt, 2)
    assert all(t is opt.state[p][k] for p, state in zip(params, opt.state_dict()["state"].values()) for k, t in state.items())
