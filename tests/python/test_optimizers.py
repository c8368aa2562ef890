# SPDX-License-Identifier: Apache-2.0
"""ckpress.torch.Adam, SGD and Lion: in the place of torch's (Lion: of the paper's program), at 8 bits near it, their state through every door."""

from __future__ import annotations

import copy
import io
import warnings

import ckpress
import ckpress.torch
import pytest
import torch
from ckpress import errors
from ckpress.torch import SGD, Adam, Lion
from test_adamw import clipped, net, same, train, weights
from torch import nn


class PlainLion(torch.optim.Optimizer):
    """Chen et al., Symbolic discovery of optimization algorithms (2302.06675), program 1."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                g = -p.grad if group["maximize"] else p.grad
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * (b1 * m + (1 - b1) * g).sign())
                m.mul_(b2).add_((1 - b2) * g)


CASES = [
    (Adam, torch.optim.Adam, {"lr": 3e-3, "weight_decay": 0.01}),
    (SGD, torch.optim.SGD, {"lr": 0.5, "momentum": 0.9, "weight_decay": 1e-3}),
    (SGD, torch.optim.SGD, {"lr": 0.5, "momentum": 0.9, "nesterov": True}),
    (SGD, torch.optim.SGD, {"lr": 0.5, "momentum": 0.8, "dampening": 0.5, "weight_decay": 1e-3}),
    (Lion, PlainLion, {"lr": 1e-3, "weight_decay": 0.1}),
]
ONE_EACH = [CASES[0], CASES[1], CASES[4]]


@pytest.mark.parametrize("ours,other,options", CASES)
def test_first_step_is_torchs(ours, other, options):
    for maximize in (False, True):
        a, b = net(), net()
        train(a, ours(a.parameters(), state_bits=8, maximize=maximize, **options), 1)
        train(b, other(b.parameters(), maximize=maximize, **options), 1)
        # Lion's sign of a gradient that is next to 0 is that of the last bit.
        torch.testing.assert_close(weights(a), weights(b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits,limit", [(8, 0.3), (5, 0.6), (4, 0.8)])
@pytest.mark.parametrize("ours,other,options", CASES)
def test_near_torch(ours, other, options, bits, limit):
    a, b = net(), net()
    start = weights(a)
    la = train(a, ours(a.parameters(), state_bits=bits, small=0, **options), 60)
    lb = train(b, other(b.parameters(), **options), 60)
    assert (weights(a) - weights(b)).norm() < limit * (weights(b) - start).norm()
    assert la < 1.5 * lb + 0.1


@pytest.mark.parametrize("ours,other,options", CASES)
@pytest.mark.parametrize("bits", [32, None])
def test_f32_state_is_torchs(ours, other, options, bits):
    a, b = net(), net()
    opt = ours(a.parameters(), state_bits=bits, **options)
    train(a, opt, 20)
    train(b, other(b.parameters(), **options), 20)
    torch.testing.assert_close(weights(a), weights(b), rtol=1e-4, atol=1e-5)
    assert {r["bits"] for r in opt.report()["parameters"]} == {(32,) * (2 if ours is Adam else 1)}


@pytest.mark.parametrize("ours,other,options", ONE_EACH)
def test_some_parameters_in_f32(ours, other, options):
    """Groups of both kinds side by side, their state out and in."""
    a = net()
    parts = [p for p in a.parameters() if p.dim() > 1], [p for p in a.parameters() if p.dim() < 2]

    def groups(model):
        own = list(model.parameters())
        return [{"params": [p for p in own if p.dim() > 1], "state_bits": 5}, {"params": [p for p in own if p.dim() < 2], "state_bits": 32}]

    opt = ours(groups(a), small=0, **options)
    first = train(a, opt, 1)
    assert train(a, opt, 30, 1) < first
    assert all("packed" in opt.state[p] for p in parts[0]) and not any("packed" in opt.state[p] for p in parts[1])
    b = copy.deepcopy(a)
    other_opt = ours(groups(b), small=0, **options)
    other_opt.load_state_dict(opt.state_dict())
    train(a, opt, 5, 31)
    train(b, other_opt, 5, 31)
    assert same(a, b)


@pytest.mark.parametrize("door", ["state_dict", "torch.save", "deepcopy", "ckpress"])
@pytest.mark.parametrize("ours,other,options", ONE_EACH)
def test_state_goes_on_exactly(ours, other, options, door, tmp_path):
    a = net()
    opt_a = ours(a.parameters(), seed=7, small=1000, **options)
    train(a, opt_a, 12)
    b = copy.deepcopy(a)
    if door == "deepcopy":
        b, opt_b = copy.deepcopy((a, opt_a))
    else:
        opt_b = ours(b.parameters(), **{**options, "lr": 1.0}, state_bits=8)
        if door == "torch.save":
            file = io.BytesIO()
            torch.save(opt_a.state_dict(), file)
            file.seek(0)
            opt_b.load_state_dict(torch.load(file, weights_only=True))
        elif door == "ckpress":
            with ckpress.Checkpointer(tmp_path / "run") as ck:
                ck.save(12, model=a, optimizer=opt_a)
            with ckpress.Checkpointer(tmp_path / "run") as ck:
                train(b, opt_b, 1)  # a restore needs state to write into, as with any optimizer
                assert ck.restore(model=b, optimizer=opt_b) == 12
            saved, live = (o.state_dict()["state"] for o in (opt_b, opt_a))
            assert all(torch.equal(v, saved[k][name]) for k in live for name, v in live[k].items())
        else:
            opt_b.load_state_dict(opt_a.state_dict())
    assert opt_b.param_groups[0]["seed"] == 7 and opt_b.param_groups[0]["lr"] == options["lr"]
    train(a, opt_a, 8, 12)
    train(b, opt_b, 8, 12)
    assert same(a, b)


@pytest.mark.parametrize("ours,other,options", CASES)
def test_to_and_from_torch(ours, other, options):
    a = net()
    torchs = other(a.parameters(), **options)
    train(a, torchs, 30)
    b, c = copy.deepcopy(a), copy.deepcopy(a)
    opt = ours(b.parameters(), lr=1.0, state_bits=8, small=0)
    opt.load_state_dict(torchs.state_dict())
    assert opt.param_groups[0]["lr"] == options["lr"] and opt.param_groups[0]["state_bits"] == 8
    back = other(c.parameters(), lr=1.0)
    back.load_state_dict(opt.torch_state_dict())
    for p, q in zip(a.parameters(), c.parameters(), strict=True):
        for key, was in torchs.state[p].items():
            now = back.state[q][key]
            assert now.dtype == was.dtype and (now - was).norm() <= 0.06 * was.norm()
    train(a, torchs, 5, 30)
    train(b, opt, 5, 30)
    train(c, back, 5, 30)
    moved = (weights(a) - weights(net())).norm()
    assert (weights(a) - weights(b)).norm() < 0.1 * moved and (weights(a) - weights(c)).norm() < 0.1 * moved


def test_sgd_without_momentum_keeps_nothing():
    a, b = net(), net()
    opt, torchs = SGD(a.parameters(), lr=0.5, weight_decay=1e-3), torch.optim.SGD(b.parameters(), lr=0.5, weight_decay=1e-3)
    train(a, opt, 10)
    train(b, torchs, 10)
    assert same(a, b) and not any(opt.state.values()) and opt.report()["bytes"] == 0
    opt.load_state_dict(torchs.state_dict())
    # A schedule may bring a momentum, and take it away.
    opt.param_groups[0]["momentum"] = torchs.param_groups[0]["momentum"] = 0.9
    train(a, opt, 3, 10)
    train(b, torchs, 3, 10)
    torch.testing.assert_close(weights(a), weights(b), rtol=0.1, atol=0.05)
    opt.param_groups[0]["momentum"] = 0.0
    train(a, opt, 1, 13)


@pytest.mark.parametrize("ours,other,options", ONE_EACH)
def test_schedulers_closures_and_clipping(ours, other, options):
    model = net()
    opt = ours(model.parameters(), **options)
    cycle = ours is not Lion  # OneCycleLR wants to turn a momentum or betas of its own names
    scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=options["lr"], total_steps=60, cycle_momentum=cycle)
    first = train(model, opt, 1, scheduler=scheduler)
    assert train(model, opt, 50, 1, scheduler) < 0.7 * first
    assert opt.step(clipped(model, opt)).item() > 0


@pytest.mark.parametrize("ours,other,options", ONE_EACH)
def test_grad_scaler_and_bad_gradients(ours, other, options):
    model = net()
    opt = ours(model.parameters(), **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x = torch.arange(10)
    for bad in (False, True, False):
        before = weights(model)
        opt.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), x)).backward()
        if bad:
            next(model.parameters()).grad[0, 0] = float("inf")
        scaler.step(opt)
        scaler.update()
        assert torch.equal(before, weights(model)) == bad
    w = model[1].weight
    before = w.detach().clone()
    w.grad = torch.ones_like(w)
    w.grad[1, 2] = float("nan")
    with pytest.warns(UserWarning, match="NaN"):
        opt.step()
    assert opt.skipped == 1 and w[1, 2] == before[1, 2] and not torch.equal(w, before) and torch.isfinite(weights(model)).all()


@pytest.mark.parametrize("ours,other,options", ONE_EACH)
def test_odd_shapes_and_halves(ours, other, options):
    shapes = [(), (1,), (0,), (0, 5), (1, 1), (300,), (5, 0), (17, 33), (3, 3, 3, 3), (70, 3, 5, 7)]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        params = [nn.Parameter(torch.ones(s, dtype=dtype)) for s in shapes] + [nn.Parameter(torch.ones(40, 60, dtype=dtype).t())]
        opt = ours(params, small=0, **{**options, "lr": 0.05})
        late = nn.Parameter(torch.ones(64, 64, dtype=dtype))
        for i in range(3):
            if i == 1:
                opt.add_param_group({"params": [late]})
            for p in params:
                p.grad = torch.ones_like(p)
            opt.step()
        assert late not in opt.state and (late == 1).all()
        for p in params:
            assert p.dtype == dtype and torch.isfinite(p).all() and (p < 0.95).all()
        again = ours([{"params": params}, {"params": [late]}], small=0, **options)
        again.load_state_dict(opt.state_dict())
        assert again.state_dict()["state"].keys() == opt.state_dict()["state"].keys()


def slow_regression(make, dtype):
    """Distance to the optimum after steps that are each far below half of bf16's last place."""
    torch.manual_seed(0)
    x, target = torch.randn(256, 40), torch.randn(40, 30)
    w = nn.Parameter((target + 0.02 * torch.randn(40, 30)).to(dtype))
    opt = make([w])
    for i in range(300):
        rows = torch.randint(256, (64,), generator=torch.Generator().manual_seed(i))
        w.grad = (2 / 64 * x[rows].t() @ (x[rows] @ (w.detach().float() - target))).to(dtype)
        opt.step()
    return (w.detach().float() - target).pow(2).mean().sqrt().item()


@pytest.mark.parametrize("master", ["split8", "split16"])
@pytest.mark.parametrize("ours,other,options", [(ckpress.torch.AdamW, torch.optim.AdamW, {"lr": 1e-4, "weight_decay": 0.0}), (SGD, torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9})])
def test_split_masters_follow_f32_where_bf16_stalls(ours, other, options, master):
    exact = slow_regression(lambda ps: other(ps, **options), torch.float32)
    stalled = slow_regression(lambda ps: other(ps, **options), torch.bfloat16)
    split = slow_regression(lambda ps: ours(ps, state_bits=8, master=master, **options), torch.bfloat16)
    start = slow_regression(lambda ps: other(ps, **{**options, "lr": 0.0}), torch.float32)
    assert stalled - exact > 0.4 * (start - exact)
    assert split - exact < 0.1 * (start - exact)


def rest_of(opt, p):
    return opt.state[p]["packed"].rest if p.dim() > 1 else opt.state[p].get("master_rest")


@pytest.mark.parametrize("master", ["split8", "split16"])
@pytest.mark.parametrize("door", ["state_dict", "torch.save", "ckpress"])
def test_masters_go_on_exactly(master, door, tmp_path):
    a = net().to(torch.bfloat16)
    a[2].float()  # a norm in f32 has nothing to keep
    a.forward = lambda x: a[3](a[2](a[1](a[0](x)).float()).bfloat16())
    opt_a = Lion(a.parameters(), lr=1e-4, master=master, small=1000)
    train(a, opt_a, 5)
    kept = [rest_of(opt_a, p) for p in a.parameters()]
    assert [None if r is None else r.dtype for r in kept] == [torch.int8 if master == "split8" else torch.int16] * 3 + [None] * 2 + [torch.int8 if master == "split8" else torch.int16] * 2
    b = copy.deepcopy(a)
    b.forward = lambda x: b[3](b[2](b[1](b[0](x)).float()).bfloat16())
    opt_b = Lion(b.parameters(), lr=1.0, master=master)
    if door == "ckpress":
        with ckpress.Checkpointer(tmp_path / "run") as ck:
            ck.save(5, model=a, optimizer=opt_a)
        with ckpress.Checkpointer(tmp_path / "run") as ck:
            train(b, opt_b, 1)
            assert ck.restore(model=b, optimizer=opt_b) == 5
    elif door == "torch.save":
        file = io.BytesIO()
        torch.save(opt_a.state_dict(), file)
        file.seek(0)
        opt_b.load_state_dict(torch.load(file, weights_only=True))
    else:
        opt_b.load_state_dict(opt_a.state_dict())
    train(a, opt_a, 5, 5)
    train(b, opt_b, 5, 5)
    assert same(a, b)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        x, y = rest_of(opt_a, p), rest_of(opt_b, q)
        assert (x is None and y is None) or torch.equal(x, y)


def test_masters_change_and_are_checked():
    p = nn.Parameter(torch.ones(64, 64, dtype=torch.bfloat16))
    opt = SGD([p], lr=1e-4, master="split16")  # without momentum too
    p.grad = torch.ones_like(p)
    opt.step()
    assert (opt.state[p]["packed"].rest != 0).all() and opt.report()["bytes"] > 2 * 64 * 64
    good = opt.state_dict()
    for master, dtype in (("split8", torch.int8), ("split16", torch.int16), (None, None)):
        opt.param_groups[0]["master"] = master
        opt.step()
        rest = opt.state[p]["packed"].rest
        assert (rest is None) == (dtype is None) and (rest is None or rest.dtype == dtype)
    for bad in (good["state"][0]["master_rest"].float(), good["state"][0]["master_rest"][1:]):
        with pytest.raises(errors.InvalidError, match="master_rest"):
            opt.load_state_dict({**good, "state": {0: {**good["state"][0], "master_rest": bad}}})
    for options in ({"master": "split4"}, {"master": "split8", "state_bits": 32}):
        with pytest.raises(errors.InvalidError, match="master"):
            SGD([p], momentum=0.9, **options)


@pytest.mark.parametrize("ours,other,options", ONE_EACH)
def test_threads_do_not_matter(ours, other, options):
    threads, out = torch.get_num_threads(), []
    for n in (1, 3):
        torch.set_num_threads(n)
        p = nn.Parameter(torch.ones(700, 500))
        opt = ours([p], **options)
        for i in range(5):
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
            opt.step()
        out.append(p.detach())
    torch.set_num_threads(threads)
    assert torch.equal(*out)


def test_widths_change_on_the_way():
    model, exact = net(), net()
    options = {"lr": 0.5, "momentum": 0.9}
    opt, torchs = SGD(model.parameters(), state_bits=5, small=0, **options), torch.optim.SGD(exact.parameters(), **options)
    for first, bits in ((0, 8), (10, 5), (20, 8)):
        opt.set_state_bits(bits)
        train(model, opt, 10, first)
        train(exact, torchs, 10, first)
    assert {r["bits"] for r in opt.report()["parameters"]} == {(8,), (32,)}
    assert (weights(model) - weights(exact)).norm() < 0.6 * (weights(exact) - weights(net())).norm()


def test_average_bits_count_everything():
    p = nn.Parameter(torch.zeros(1024, 1024))
    opt = SGD([p], momentum=0.9)
    p.grad = torch.randn_like(p)
    opt.step()
    report = opt.report()
    assert report["bytes"] == opt.state[p]["packed"].nbytes == 1024 * 512 + 1024 * 16 + 24
    assert 4.1 < report["bits"] < 4.13 and report["parameters"][0]["bits"] == (4,)


@pytest.mark.parametrize("make", [lambda ps: SGD(ps, momentum=0.9), Lion, lambda ps: Lion(ps, state_bits=32), Adam])
def test_reports_print(make):
    model = net()
    opt = make(model.parameters())
    for _ in range(2):  # also before there is a state
        text = str(opt.report())
        train(model, opt, 1)
    assert "of the momentum" in text or isinstance(opt, Adam) or opt.report()["parameters"] == []
    assert "0.0" in str(opt.report()) and ("m and v" in str(opt.report())) == isinstance(opt, Adam)


@pytest.mark.parametrize("wanted", [32, 8, "auto"])
def test_a_restore_keeps_the_widths_that_were_saved(wanted, tmp_path):
    a, b = net(), net(seed=9)
    opt, other = Adam(a.parameters(), small=0), Adam(b.parameters(), state_bits=wanted, small=0)
    train(a, opt, 3)
    train(b, other, 2)
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        ck.save(1, model=a, optimizer=opt, wait=True)
        ck.restore(model=b, optimizer=other)
    assert [r["bits"] for r in other.report()["parameters"]] == [r["bits"] for r in opt.report()["parameters"]]
    train(a, opt, 2, 3)
    train(b, other, 2, 3)
    assert torch.equal(weights(a), weights(b))


def test_refusals():
    p = nn.Parameter(torch.ones(4, 4))
    for make in (
        lambda: Adam([p], amsgrad=True),
        lambda: SGD([p], differentiable=True),
        lambda: Lion([nn.Parameter(torch.ones(4, dtype=torch.float64))]),
        lambda: SGD([nn.Parameter(torch.ones(4, device="meta"))], momentum=0.9),
    ):
        with pytest.raises(errors.UnsupportedError):
            make()
    for make in (
        lambda: Adam([p], state_bits=7),
        lambda: Adam([p], decoupled_weight_decay=True),
        lambda: SGD([p], state_bits=(4, 4)),
        lambda: SGD([p], lr=-1.0),
        lambda: SGD([p], momentum=1.5),
        lambda: SGD([p], momentum=0.9, dampening=2.0),
        lambda: SGD([p], nesterov=True),
        lambda: Lion([p], betas=(0.9, -1.0)),
        lambda: Lion([p], lr=float("nan")),
    ):
        with pytest.raises(errors.InvalidError):
            make()
    sparse = nn.Embedding(10, 4, sparse=True)
    opt = SGD(sparse.parameters(), momentum=0.9)
    sparse(torch.tensor([1])).sum().backward()
    with pytest.raises(errors.UnsupportedError, match="sparse"):
        opt.step()


def test_a_bad_state_changes_nothing():
    model = net()
    opt = SGD(model.parameters(), lr=0.1, momentum=0.9, small=0)
    train(model, opt, 3)
    good = opt.state_dict()
    code = good["state"][1]["momentum_buffer_code"]
    for key, value in (
        ("momentum_buffer_code", code.float()),
        ("momentum_buffer_code", code[1:]),
        ("momentum_buffer_code", torch.full_like(code, 8)),
        ("row_factor", good["state"][1]["row_factor"] * 0 + 201),
        ("bits", torch.tensor([4, 4], dtype=torch.uint8)),
        ("correction", torch.tensor([2.0, 0.0], dtype=torch.float64)),
    ):
        bad = copy.deepcopy(good)
        bad["state"][1][key] = value
        with pytest.raises(errors.InvalidError):
            opt.load_state_dict(bad)
    with pytest.raises(errors.InvalidError, match="neither"):
        opt.load_state_dict({**good, "state": {0: {"exp_avg": torch.zeros(50, 96)}}})
    now = opt.state_dict()
    for k, state in good["state"].items():
        assert all(torch.equal(v, now["state"][k][name]) for name, v in state.items())


def test_nothing_to_do_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SGD([nn.Parameter(torch.ones(3))], momentum=0.9).step()


# ---- what has no rows ----


def test_what_has_no_rows_keeps_f32():
    """At every width: torch's steps, torch's names, and counted."""
    for ours, other, options in ONE_EACH:
        a, b = [nn.Parameter(torch.linspace(-1, 1, n)) for n in (5000, 7)], [nn.Parameter(torch.linspace(-1, 1, n)) for n in (5000, 7)]
        x, y = ours(a, state_bits=2 if ours is Adam else 3, **options), other(b, **options)
        for i in range(30):
            for ps in (a, b):
                for p in ps:
                    p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i)) + 0.1
            x.step()
            y.step()
        for p, q in zip(a, b, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
            for k in x._moments:
                torch.testing.assert_close(x.state[p][k], y.state[q][k], rtol=1e-4, atol=1e-6)
                assert x.state_dict()["state"][0][k].dtype == torch.float32
        report, moments = x.report(), len(x._moments)
        assert {r["bits"] for r in report["parameters"]} == {(32,) * moments} and report["bytes"] == 5007 * 4 * moments + 2 * 4
        other(b, **options).load_state_dict(x.torch_state_dict())


def in_blocks(opt, p, seed=0):
    """A state as it was when parameters without whole rows had codes: blocks of 256 elements, over all of them."""
    from ckpress.torch._optim_state import Part, blocks, factors

    shape, alone = tuple(p.shape), len(opt._moments) == 1
    generator, n, cols = torch.Generator().manual_seed(seed), p.numel(), blocks(tuple(p.shape))
    state = {f"{k}_code": torch.randint(0, 7, shape, generator=generator, dtype=torch.uint8) + 1 for k in opt._moments}
    state["row_factor"] = torch.randint(60, 90, (factors(n, cols, alone),), generator=generator, dtype=torch.uint8)
    state |= {"bits": torch.tensor([4, 0 if alone else 4], dtype=torch.uint8), "step": torch.tensor(9.0), "master_rest": torch.ones(shape, dtype=torch.int8)}
    state["correction"] = torch.tensor([1.0, 0.0] if alone else [1 - 0.9**9, 1 - 0.999**9], dtype=torch.float64)
    packed = ckpress.torch._optim_state.Packed._from_codes(Part.all_of(shape), state, opt._moments, "w", cols)
    return state, packed.moments()


@pytest.mark.parametrize("ours", [ckpress.torch.AdamW, SGD, Lion])
def test_states_of_before_load(ours):
    """What has no rows gets its moments exactly; rows that had no factors of their own get codes for them, m and v near what they were."""
    options = {"momentum": 0.9} if ours is SGD else {}
    params = [nn.Parameter(torch.ones(s, dtype=torch.bfloat16)) for s in ((300,), (), (8, 250), (70, 9), (5, 7))]
    opt = ours(params, lr=1e-4, master="split8", **options)
    states, moments = zip(*(in_blocks(opt, p, i) for i, p in enumerate(params)), strict=True)
    saved = opt.state_dict()
    saved["state"] = dict(enumerate(states))
    opt.load_state_dict(saved)
    now = opt.torch_state_dict()["state"]
    for i, (p, was) in enumerate(zip(params, moments, strict=True)):
        state = opt.state[p]
        rest = state["packed"].rest if p.dim() > 1 else state["master_rest"]
        assert torch.equal(rest, torch.ones(p.shape, dtype=torch.int8))
        for k, t in zip(opt._moments, was, strict=True):
            if p.dim() < 2:
                assert torch.equal(state[k], t) and float(state["step"]) == 9
            else:
                near = now[i][k].float()
                assert (near.sign() == t.sign()).float().mean() > 0.5 and abs(float(near.abs().sum() / t.abs().sum()) - 1) < 0.3, (k, tuple(p.shape))
        p.grad = torch.ones_like(p)
    opt.step()
    again = ours(params, lr=1e-4, master="split8", **options)
    again.load_state_dict(opt.state_dict())
    for p in params:
        assert all(torch.equal(t, again.ckpress_state(p)[0][k]) for k, t in opt.ckpress_state(p)[0].items())


def test_pickles_of_before_load():
    from ckpress.torch._optim_state import Packed, Part

    p = nn.Parameter(torch.ones(300))
    opt = ckpress.torch.AdamW([p], lr=1e-3)
    now = Packed._from_codes(Part.all_of((300,)), in_blocks(opt, p)[0], opt._moments, "w", 256)
    old = Packed.__new__(Packed)
    old.__setstate__({"shape": (300,), **{k: v for k, v in now.__dict__.items() if k not in ("part", "cols")}})
    opt.state[p] = {"packed": old}
    again = copy.deepcopy(opt)
    (state,) = again.state.values()
    assert torch.equal(state["exp_avg"], now.moments()[0]) and torch.equal(state["exp_avg_sq"], now.moments()[1])


# ---- torch's operations in the place of the kernels ----

SHAPES = [(40, 100), (16, 32), (300,), (5, 7), (), (0, 4), (70, 3, 5, 7), (33, 64)]
RULES = [
    (ckpress.torch.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    (ckpress.torch.AdamW, {"lr": 0.0, "eps": 0.0}),
    (Adam, {"lr": 1e-2, "weight_decay": 0.1, "maximize": True, "betas": (0.8, 0.95)}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (SGD, {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}),
    (Lion, {"lr": 1e-2, "weight_decay": 0.1}),
]


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # many small operations: threads only wait for each other
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("ours,options", RULES)
def test_torchs_operations_give_the_kernels_bits(ours, options, bits):
    """Weights, codes, factors and counts, through rising and falling factors, refits of columns, and gradients of no use."""
    dtype, master = [(torch.float32, None), (torch.bfloat16, None), (torch.float16, None), (torch.bfloat16, "split8"), (torch.bfloat16, "split16")][bits % 5]
    made = []
    for by_torch in (False, True):
        params = [nn.Parameter(torch.ones(s).to(dtype)) for s in SHAPES]
        opt = ours(params, state_bits=bits, small=0, seed=3, master=master, **options)
        opt._by_torch = by_torch
        made.append((params, opt))
    for i in range(17):
        size = {5: 1e3, 8: 0.0}.get(i, 1e-2)
        for params, opt in made:
            g = torch.Generator().manual_seed(i)
            for p in params:
                p.grad = (torch.randn(p.shape, generator=g) * size * torch.randn(p.shape[-1:], generator=g).exp()).to(dtype)
                if p.dim() > 1 and p.shape[0] > 16:
                    p.grad[1] *= 2.0**-52  # a row whose factor cannot follow all that columns do
                if i == 14 and p.numel() > 200:
                    p.grad.view(-1)[[3, 150]] = torch.tensor([float("nan"), float("-inf")], dtype=dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opt.step()
        (a, x), (b, y) = made
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True)), i
        assert (x.skipped, x.rows_raised) == (y.skipped, y.rows_raised)
        for p, q in zip(a, b, strict=True):
            one, other = x.ckpress_state(p)[0], y.ckpress_state(q)[0]
            assert one.keys() == other.keys()
            assert all(torch.equal(one[k], other[k]) for k in one), (i, tuple(p.shape))
    assert x.skipped and x.rows_raised


def test_torchs_operations_by_parts(monkeypatch):
    from ckpress.torch import _torch_step

    monkeypatch.setattr(_torch_step, "PART", 1000)
    for ours, options in RULES[:4:3]:
        out = []
        for by_torch in (False, True):
            params = [nn.Parameter(torch.ones(s)) for s in ((70, 90), (3000,))]
            opt = ours(params, small=0, **options)
            opt._by_torch = by_torch
            for i in range(9):
                for p in params:
                    p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
                opt.step()
            out.append((params, opt.state_dict()["state"]))
        assert all(torch.equal(p, q) for p, q in zip(out[0][0], out[1][0], strict=True))
        assert all(torch.equal(out[0][1][k][n], out[1][1][k][n]) for k in (0, 1) for n in out[0][1][k])
