# SPDX-License-Identifier: Apache-2.0
"""ckpress.torch.AdamW with state_bits="auto" where groups have learning rates of their own, and where not all parameters have a state (decision 28)."""

from __future__ import annotations

import copy
import pickle

import ckpress.torch
import pytest
import torch
from ckpress import errors
from torch import nn

AdamW = ckpress.torch.AdamW


def widths(optimizer):
    return [r["bits"] for r in optimizer.report()["parameters"]]


@pytest.mark.parametrize("warm", [False, True])
def test_more_bits_where_the_learning_rate_is_high(warm):
    """Gradients alike; from the first step on, and where the rate comes to be high later."""
    params = [nn.Parameter(torch.zeros(64, 128)) for _ in range(12)]
    opt = AdamW([{"params": params[:5]}, {"params": params[5:6]}, {"params": params[6:]}], lr=1e-4, state_bits="auto", budget_bits=4.0, every=3)
    high = opt.param_groups[1]
    assert len(opt.param_groups) == 3
    for step in range(60):
        high["lr"] = 1e-3 if step >= (30 if warm else 0) else 0.0
        g = torch.Generator().manual_seed(step)
        for p in params:
            p.grad = torch.randn(p.shape, generator=g)
        opt.step()
        assert opt.report()["bits"] <= 1.002 * 4.0
        own, others = widths(opt)[5], widths(opt)[:5] + widths(opt)[6:]
        if step == 0:
            assert all(own[i] > max(b[i] for b in others) for i in (0, 1)) is not warm
    assert all(own[i] > max(b[i] for b in others) for i in (0, 1))


def test_rates_that_are_the_same_change_nothing():
    """One group or several: the same widths and weights, whatever the rate."""
    ends = []
    for cut in (0, 4):
        params = [nn.Parameter(torch.zeros(64, 128)) for _ in range(8)]
        groups = [{"params": params}] if not cut else [{"params": params[:cut]}, {"params": params[cut:]}]
        opt = AdamW(groups, lr=1e-3, state_bits="auto", budget_bits=3.4, every=3)
        for step in range(30):
            for group in opt.param_groups:
                group["lr"] = 1e-3 * (step + 1) / 30
            g = torch.Generator().manual_seed(step)
            for i, p in enumerate(params):
                p.grad = torch.randn(p.shape, generator=g) * 2.0**-i
            opt.step()
        ends.append((widths(opt), params))
    assert ends[0][0] == ends[1][0] and all(torch.equal(a, b) for a, b in zip(ends[0][1], ends[1][1], strict=True))


def two_rates(low=1e-4, high=1e-3, rows=512, **options):
    """A large group, and a small one of a higher rate."""
    large, small = ([nn.Parameter(torch.zeros(n, 128)) for _ in range(2)] for n in (rows, 64))
    groups = [{"params": large, "lr": low}, {"params": small, "lr": high}]
    return large, small, AdamW(groups, **{"state_bits": "auto", "budget_bits": 4.0, "every": 4, **options})


def aims(optimizer):
    """Rounded moments that were loaded have more for some steps."""
    return [optimizer.state[p]["packed"].aim for g in optimizer.param_groups for p in g["params"]]


def noise(params, step):
    g = torch.Generator().manual_seed(step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=g)


@pytest.mark.parametrize("by_torch", [False, True])
def test_what_has_no_gradient_yet_lends_no_room(by_torch):
    """A published part that is thawed later: the budget is that of what has a state."""
    large, small, opt = two_rates()
    opt._by_torch = by_torch
    for step in range(12):
        noise(small if step < 6 else large + small, step)
        opt.step()
        assert opt.report()["bits"] <= 1.002 * 4.0


def test_a_loaded_state_starts_by_its_own_groups():
    large, small, plain = two_rates(state_bits=32)
    noise(large + small, 0)
    plain.step()
    saved = plain.state_dict()
    for group in saved["param_groups"]:
        group["state_bits"] = "auto"
    *_, opt = two_rates(1e-2, 1e-2, state_bits=32)
    opt.load_state_dict(saved)
    bits = aims(opt)
    assert all(a > b for a, b in zip(bits[2], bits[0], strict=True)) and bits[0][0] <= 4
    *_, other = two_rates(1e-2, 1e-2)
    bad = copy.deepcopy(saved)
    bad["state"][0]["exp_avg"] = torch.zeros(3)
    with pytest.raises(errors.InvalidError):
        other.load_state_dict(bad)
    again = copy.deepcopy(other)
    again.load_state_dict(saved)
    assert aims(again) == bits


def test_a_copy_after_a_step_that_failed():
    large, small, opt = two_rates()
    noise(large, 0)
    small[0].grad = torch.sparse_coo_tensor(torch.tensor([[0], [0]]), torch.tensor([1.0]), small[0].shape)
    with pytest.raises(errors.UnsupportedError):
        opt.step()
    again = pickle.loads(pickle.dumps(opt))
    for other in (copy.deepcopy(opt), again):
        noise([p for g in other.param_groups for p in g["params"]], 1)
        other.step()
        assert widths(other)[2] > widths(other)[0]


def test_groups_that_are_changed_by_hand():
    large, small, opt = two_rates(every=2)
    noise(large + small, 0)
    opt.step()
    opt.param_groups.append({**opt.param_groups[0], "params": [large.pop()], "policy": None})
    opt.param_groups[0]["params"].pop()
    more = nn.Parameter(torch.zeros(64, 128))
    opt.param_groups.append({**opt.param_groups[0], "params": [more], "policy": None})
    for step in range(1, 6):
        noise([*large, *small], step)
        opt.step()
    opt.param_groups.pop()
    for step in range(6, 9):
        noise([*large, *small], step)
        opt.step()


def test_rates_of_nothing():
    """A warm-up from 0 starts by the rates that it leads to; a group at 0 takes no bits from those that learn."""
    large, small, opt = two_rates()
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: step / 10)
    noise(large + small, 0)
    opt.step()
    schedule.step()
    bits = widths(opt)
    assert all(a > b for a, b in zip(bits[2], bits[0], strict=True))
    large, small, opt = two_rates(0.0, 1e-3)
    for step in range(60):
        noise(large + small, step)
        opt.step()
    bits = widths(opt)
    assert all(a > b for a, b in zip(bits[2], bits[0], strict=True)) and bits[0][0] <= 4
