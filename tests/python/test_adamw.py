# SPDX-License-Identifier: Apache-2.0
"""ckpress.torch.AdamW: in the place of torch's, at 8 bits near it, its state through every door."""

from __future__ import annotations

import copy
import io
import os
import sys
import warnings

import ckpress
import ckpress.torch
import pytest
import torch
from ckpress import errors
from torch import nn

AdamW = ckpress.torch.AdamW


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(50, 96), nn.Linear(96, 64), nn.LayerNorm(64), nn.Linear(64, 50))


def train(model, optimizer, steps, first=0, scheduler=None):
    for i in range(first, first + steps):
        g = torch.Generator().manual_seed(i)
        x = torch.randint(0, 40, (32,), generator=g)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), (x * 7 + 3) % 50)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return loss.item()


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def clipped(model, opt):
    """A closure whose gradients are clipped."""
    x = torch.arange(10)

    def closure():
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    return closure


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("bits,limit", [(8, 0.25), (5, 0.5), ((4, 4), 0.7), ((3, 4), 0.9)])
def test_near_torch(bits, limit):
    a, b = net(), net()
    start = weights(a)
    la = train(a, AdamW(a.parameters(), lr=3e-3, state_bits=bits, small=0), 60)
    lb = train(b, torch.optim.AdamW(b.parameters(), lr=3e-3), 60)
    assert (weights(a) - weights(b)).norm() < limit * (weights(b) - start).norm()
    assert la < 1.5 * lb + 0.05


def test_first_step_is_torchs():
    for maximize in (False, True):
        a, b = net(), net()
        options = {"lr": 1e-2, "weight_decay": 0.3, "eps": 1e-6, "betas": (0.8, 0.95), "maximize": maximize}
        train(a, AdamW(a.parameters(), state_bits=8, **options), 1)
        train(b, torch.optim.AdamW(b.parameters(), **options), 1)
        torch.testing.assert_close(weights(a), weights(b), rtol=1e-5, atol=1e-7)


def test_threads_do_not_matter():
    torch_threads = torch.get_num_threads()
    out = []
    for threads in (1, 3):
        model = net()
        opt = AdamW(model.parameters(), lr=1e-2)
        g = torch.Generator().manual_seed(1)
        grads = [torch.randn(p.shape, generator=g) for p in model.parameters()]
        torch.set_num_threads(threads)
        for _ in range(10):
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad.clone()
            opt.step()
        out.append(model)
    torch.set_num_threads(torch_threads)
    assert same(*out)


def test_groups_schedulers_closures_and_clipping():
    model = net()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    opt = AdamW([{"params": matrices, "state_bits": (3, 4)}, {"params": rest, "weight_decay": 0.0, "state_bits": 32}], lr=1e-2, small=0)
    # Its cycle changes lr and b1 at every step, as torch's optimizers let it.
    scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=60)
    first = train(model, opt, 1, scheduler=scheduler)
    assert train(model, opt, 50, 1, scheduler) < 0.5 * first

    assert opt.step(clipped(model, opt)).item() > 0
    report = opt.report()
    bits = {tuple(r["bits"]) for r in report["parameters"]}
    assert bits == {(3, 4), (32, 32)}
    assert 3.5 < report["bits"] < 6


def test_changing_betas_follows_torch():
    a, b = net(), net()
    x, y = AdamW(a.parameters(), lr=3e-3, state_bits=8), torch.optim.AdamW(b.parameters(), lr=3e-3)
    for i in range(20):
        for opt in (x, y):
            opt.param_groups[0]["betas"] = (0.95 - 0.01 * i, 0.99)
        train(a, x, 1, i)
        train(b, y, 1, i)
    assert (weights(a) - weights(b)).norm() < 0.2 * (weights(b) - weights(net())).norm()


def test_average_bits_count_everything():
    p = nn.Parameter(torch.zeros(1024, 1024))
    opt = AdamW([p])
    p.grad = torch.randn_like(p)
    opt.step()
    report = opt.report()
    assert report["bytes"] == opt.state[p]["packed"].nbytes == 1024 * 1024 + 2 * 1024 + 24
    assert 4.0 < report["bits"] < 4.01


@pytest.mark.parametrize("door", ["state_dict", "torch.save", "deepcopy", "ckpress", "pickle"])
def test_state_goes_on_exactly(door, tmp_path):
    a = net()
    opt_a = AdamW(a.parameters(), lr=3e-3, seed=7)
    train(a, opt_a, 12)
    b = copy.deepcopy(a)
    if door == "deepcopy":
        b, opt_b = copy.deepcopy((a, opt_a))
    elif door == "pickle":
        file = io.BytesIO()
        torch.save((a, opt_a), file)
        file.seek(0)
        b, opt_b = torch.load(file, weights_only=False)
    else:
        opt_b = AdamW(b.parameters(), lr=1.0, state_bits=8)
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
        else:
            opt_b.load_state_dict(opt_a.state_dict())
    assert opt_b.param_groups[0]["seed"] == 7 and opt_b.param_groups[0]["lr"] == 3e-3
    train(a, opt_a, 8, 12)
    train(b, opt_b, 8, 12)
    assert same(a, b)


def test_through_a_distributed_checkpoint(tmp_path):
    """DCP asks an optimizer without state for its state by a step with lr 0, and gives each tensor back in place."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    a, b = net(), net(1)
    opt_a, opt_b = AdamW(a.parameters(), lr=3e-3, small=0), AdamW(b.parameters(), lr=1e-3, small=0)
    train(a, opt_a, 5)
    model, optim = get_state_dict(a, opt_a)
    dcp.save({"model": model, "optim": optim}, checkpoint_id=tmp_path, no_dist=True)
    model, optim = get_state_dict(b, opt_b)
    dcp.load({"model": model, "optim": optim}, checkpoint_id=tmp_path, no_dist=True)
    set_state_dict(b, opt_b, model_state_dict=model, optim_state_dict=optim)
    train(a, opt_a, 5, 5)
    train(b, opt_b, 5, 5)
    assert same(a, b) and opt_b.param_groups[0]["lr"] == 3e-3


def test_state_dict_has_codes_of_the_parameters_shape():
    model = net()
    opt = AdamW(model.parameters(), small=0)
    train(model, opt, 3)
    state = opt.state_dict()["state"][0]
    assert state["exp_avg_code"].shape == state["exp_avg_sq_code"].shape == (50, 96)
    assert state["exp_avg_code"].dtype == state["exp_avg_sq_code"].dtype == torch.uint8
    assert state["exp_avg_sq_code"].max() < 16 and state["bits"].tolist() == [4, 4]


def test_to_and_from_torch():
    a = net()
    torchs = torch.optim.AdamW(a.parameters(), lr=3e-3)
    train(a, torchs, 30)
    b, c = copy.deepcopy(a), copy.deepcopy(a)
    opt = AdamW(b.parameters(), lr=1.0, state_bits=8, small=0)
    opt.load_state_dict(torchs.state_dict())
    assert opt.param_groups[0]["lr"] == 3e-3 and opt.param_groups[0]["state_bits"] == 8
    back = torch.optim.AdamW(c.parameters(), lr=1.0)
    back.load_state_dict(opt.torch_state_dict())
    for p, q in zip(a.parameters(), c.parameters(), strict=True):
        was, now = torchs.state[p], back.state[q]
        assert now["step"] == 30 and now["exp_avg"].dtype == torch.float32
        torch.testing.assert_close(now["exp_avg_sq"], was["exp_avg_sq"], rtol=0.13, atol=1e-12)
        scale = was["exp_avg_sq"].sqrt() / (1 - 0.999**30) ** 0.5
        assert ((now["exp_avg"] - was["exp_avg"]).abs() <= 0.06 * scale + 1e-12).all()
    train(a, torchs, 10, 30)
    train(b, opt, 10, 30)
    assert (weights(a) - weights(b)).norm() < 0.3 * (weights(a) - weights(c)).norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(dtype):
    model = net().to(dtype)
    opt = AdamW(model.parameters(), lr=1e-3)
    first = train(model, opt, 1)
    assert train(model, opt, 60, 1) < 0.7 * first
    assert all(p.dtype == dtype for p in model.parameters())


def test_grad_scaler():
    model = net()
    opt = AdamW(model.parameters(), lr=1e-3)
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


def test_bad_gradients():
    model = net()
    opt = AdamW(model.parameters(), lr=1e-2)
    train(model, opt, 3)
    w = model[1].weight
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            before = w.detach().clone()
            w.grad = torch.ones_like(w)
            w.grad[1, 2] = float("nan")
            opt.step()
            assert w[1, 2] == before[1, 2] and not torch.equal(w, before)
    assert opt.skipped == 2 and len(seen) == 1 and "NaN" in str(seen[0].message)
    assert torch.isfinite(weights(model)).all()


def test_odd_shapes():
    shapes = [(), (1,), (0,), (0, 5), (1, 1), (300,), (5, 0), (17, 33), (3, 3, 3, 3), (70, 3, 5, 7)]
    params = [nn.Parameter(torch.ones(s)) for s in shapes]
    turned = nn.Parameter(torch.ones(40, 60).t())
    opt = AdamW([*params, turned], lr=0.1, weight_decay=0.0, small=0)
    for _ in range(3):
        for p in [*params, turned]:
            p.grad = torch.ones(p.shape)
        opt.step()
    for p in [*params, turned]:
        torch.testing.assert_close(p.detach(), torch.full(p.shape, 0.7), atol=0.1, rtol=0)
    other = AdamW([*params, turned], small=0)
    other.load_state_dict(opt.state_dict())
    assert other.state_dict()["state"].keys() == opt.state_dict()["state"].keys()


def test_parameters_added_later_and_without_gradients():
    a, b = nn.Parameter(torch.ones(64, 64)), nn.Parameter(torch.ones(64, 64))
    opt = AdamW([a], lr=0.1)
    a.grad = torch.ones_like(a)
    opt.step()
    opt.add_param_group({"params": [b], "state_bits": (8, 8)})
    opt.step()
    assert torch.equal(b, torch.ones(64, 64)) and b not in opt.state
    b.grad = torch.ones_like(b)
    opt.step()
    assert (b < 1).all() and opt.state[b]["packed"].bits == (8, 8)


def test_a_forked_child_steps():
    p = nn.Parameter(torch.ones(64, 64))
    opt = AdamW([p])
    p.grad = torch.ones_like(p)
    opt.step()
    pid = os.fork()
    if pid == 0:
        try:
            opt.step()
            os._exit(0)
        except BaseException as e:
            print(e, file=sys.stderr)
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    opt.step()


def test_refusals():
    p = nn.Parameter(torch.ones(4, 4))
    for options, cls in (
        ({"amsgrad": True}, errors.UnsupportedError),
        ({"capturable": True}, errors.UnsupportedError),
        ({"differentiable": True}, errors.UnsupportedError),
        ({"state_bits": 7}, errors.InvalidError),
        ({"state_bits": (4, 4, 4)}, errors.InvalidError),
        ({"lr": -1.0}, errors.InvalidError),
        ({"betas": (1.0, 0.9)}, errors.InvalidError),
        ({"state_bits": "auto", "budget_bits": None}, errors.InvalidError),
    ):
        with pytest.raises(cls):
            AdamW([p], **options)
    with pytest.raises(errors.UnsupportedError, match="float64"):
        AdamW([nn.Parameter(torch.ones(4, dtype=torch.float64))])
    with pytest.raises(errors.UnsupportedError, match="parameter 0 of group 0 is expanded"):
        AdamW([nn.Parameter(torch.ones(4, 1).expand(4, 8))])
    with pytest.raises(errors.UnsupportedError, match="meta"):
        AdamW([nn.Parameter(torch.ones(4, device="meta"))])
    AdamW([nn.Parameter(torch.ones(4, dtype=torch.float64))], state_bits=32)
    sparse = nn.Embedding(10, 4, sparse=True)
    opt = AdamW(sparse.parameters())
    sparse(torch.tensor([1])).sum().backward()
    with pytest.raises(errors.UnsupportedError, match="sparse"):
        opt.step()


def test_a_bad_state_changes_nothing():
    model = net()
    opt = AdamW(model.parameters(), small=0)
    train(model, opt, 3)
    good = opt.state_dict()

    def changed(key, value, at=1):
        bad = copy.deepcopy(good)
        bad["state"][at][key] = value
        return bad

    codes = good["state"][1]["exp_avg_sq_code"]
    cases = [
        changed("exp_avg_code", codes.float()),
        changed("exp_avg_sq_code", codes[1:]),
        changed("exp_avg_sq_code", codes + 16),
        changed("exp_avg_code", torch.full_like(codes, 8)),
        changed("row_factor", good["state"][1]["row_factor"] * 0 + 250),
        changed("bits", torch.tensor([7, 4], dtype=torch.uint8)),
        changed("correction", torch.tensor([2.0, 0.5], dtype=torch.float64)),
        changed("step", torch.tensor(-1.0)),
        *(changed("step", torch.tensor(step), at) for step in (1e30, float("nan"), float("inf"), 2.5) for at in (1, 2)),  # 2: one that has no codes
        changed("step", None),
        {**good, "param_groups": []},
    ]
    for bad in cases:
        with pytest.raises(errors.InvalidError):
            opt.load_state_dict(bad)
    missing = copy.deepcopy(good)
    missing["state"][3] = {"momentum_buffer": torch.zeros(3)}
    with pytest.raises(errors.InvalidError, match="neither"):
        opt.load_state_dict(missing)
    amsgrad = torch.optim.AdamW(model.parameters(), amsgrad=True).state_dict()
    with pytest.raises(errors.UnsupportedError, match="amsgrad"):
        opt.load_state_dict(amsgrad)
    now = opt.state_dict()
    for k, state in good["state"].items():
        assert all(torch.equal(v, now["state"][k][name]) for name, v in state.items())


def test_in_a_program_with_compile():
    model = net()
    opt = AdamW(model.parameters(), lr=1e-3)

    @torch.compile(backend="eager")
    def one(x):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x)
        loss.backward()
        opt.step()
        return loss

    assert torch.isfinite(one(torch.arange(10))) and torch.isfinite(one(torch.arange(10)))


def test_widths_change_on_the_way():
    model, exact = net(), net()
    opt, torchs = AdamW(model.parameters(), lr=3e-3, state_bits=(3, 3), small=0), torch.optim.AdamW(exact.parameters(), lr=3e-3)
    for first, bits in ((0, 8), (10, (5, 4)), (20, 8), (30, (4, 4))):
        opt.set_state_bits(bits)
        train(model, opt, 10, first)
        train(exact, torchs, 10, first)
    assert {tuple(r["bits"]) for r in opt.report()["parameters"]} == {(4, 4), (32, 32)}
    assert (weights(model) - weights(exact)).norm() < 0.6 * (weights(exact) - weights(net())).norm()
    with pytest.raises(errors.InvalidError):
        opt.set_state_bits(32)


def test_weight_decay_without_moments():
    """Rows that never had a gradient decay, as torch's do, and keep no moments; lr = 0 changes nothing but moments."""
    p = nn.Parameter(torch.ones(64, 64))
    opt = AdamW([p], lr=0.1, weight_decay=0.5, small=0)
    p.grad = torch.zeros_like(p)
    p.grad[0] = 1.0
    opt.step()
    torch.testing.assert_close(p[1:].detach(), torch.full((63, 64), 0.95))
    m, v = opt.state[p]["packed"].moments()
    assert not m[1:].any() and not v[1:].any() and v[0].all()
    before = p.detach().clone()
    opt.param_groups[0]["lr"] = 0.0
    opt.step()
    assert torch.equal(p, before)


def test_a_gradient_of_another_shape_is_refused():
    p = nn.Parameter(torch.zeros(8, 64))
    optimizer = AdamW([p], lr=1e-2, small=0)
    p.sum().backward()
    p.data = torch.zeros(1000, 64)
    with pytest.raises(errors.InvalidError, match="gradient"):
        optimizer.step()
    assert not p.any()


@pytest.mark.parametrize("ours,torchs", [(AdamW, "adamw"), (ckpress.torch.Adam, "adam")])
def test_f32_state_is_torchs_by_what_every_version_of_it_takes(ours, torchs, monkeypatch):
    """Before 2.7 adam() knew nothing of decoupled_weight_decay."""
    from ckpress.torch import _adamw

    known = {"foreach", "amsgrad", "beta1", "beta2", "lr", "weight_decay", "eps", "maximize"}
    real, called = getattr(_adamw, f"torch_{torchs}"), []
    monkeypatch.setattr(_adamw, f"torch_{torchs}", lambda *args, **how: called.append(how.keys()) or real(*args, **how))
    a, b = net(), net()
    train(a, ours(a.parameters(), lr=1e-2, weight_decay=0.3, state_bits=32), 3)
    train(b, getattr(torch.optim, ours.__name__)(b.parameters(), lr=1e-2, weight_decay=0.3), 3)
    torch.testing.assert_close(weights(a), weights(b), rtol=1e-5, atol=1e-7)
    assert called == [known] * 3


def test_steps_are_counted_whatever_the_default_dtype():
    torch.set_default_dtype(torch.bfloat16)
    try:
        for bits in (32, (4, 4)):
            p = nn.Parameter(torch.zeros(8, 64, dtype=torch.float32))
            optimizer = AdamW([p], state_bits=bits, small=0)
            p.grad = torch.ones_like(p)
            for _ in range(259):
                optimizer.step()
            again = AdamW([p], state_bits=bits, small=0)
            again.load_state_dict(optimizer.state_dict())
            assert float(again.state_dict()["state"][0]["step"]) == 259
            assert float(again.torch_state_dict()["state"][0]["step"]) == 259
    finally:
        torch.set_default_dtype(torch.float32)


def test_autograd_sees_the_step():
    w = nn.Parameter(torch.randn(64, 64))
    optimizer, loss = AdamW([w], small=0), (w * w).sum()
    w.grad = torch.ones_like(w)
    optimizer.step()
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_a_code_that_is_none_is_refused(bits):
    model = net()
    optimizer = AdamW(model.parameters(), state_bits=bits, small=0)
    train(model, optimizer, 2)
    saved = optimizer.state_dict()
    saved["state"][0]["exp_avg_code"].fill_(0x80)
    with pytest.raises(errors.InvalidError):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize(
    "frozen,match", [(torch.ones(4, 8, dtype=torch.float64), "float64"), (torch.ones(4, 1).expand(4, 8), "expanded"), (torch.ones(4, 8, dtype=torch.int8), None)]
)
def test_frozen_parameters_may_be_of_any_kind(frozen, match):
    """A model whose base is quantized and frozen has its optimizer replaced by one line; what gets a gradient later is refused then."""
    p, q = nn.Parameter(torch.ones(20, 40)), nn.Parameter(frozen, requires_grad=False)
    opt = AdamW([p, q], lr=0.1)
    p.grad = torch.ones_like(p)
    opt.step()
    opt.load_state_dict(opt.state_dict())
    assert (p != 1).all() and (q == 1).all() and len(opt.report()["parameters"]) == 1
    if match is not None:
        q.requires_grad_()
        q.grad = torch.ones(q.shape, dtype=q.dtype)
        with pytest.raises(errors.UnsupportedError, match=f"parameter 1 of group 0 is .*{match}"):
            opt.step()


def test_what_is_one_in_memory_is_refused():
    """Threads would write it at once. Parts of one storage are not one; nor are parameters without elements, or frozen."""
    p = nn.Parameter(torch.ones(20, 40))
    tied = nn.Parameter(p.detach()[:10])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of the first case
        for params in ([p, p], [p, tied], [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4)), p, tied]):
            n = len(params)
            with pytest.raises(ValueError, match=f"parameter {n - 2} of group 0 and parameter {n - 1} of group 0 are one"):
                AdamW(params)
    opt = AdamW([p])
    with pytest.raises(errors.InvalidError, match="parameter 0 of group 0 and parameter 0 of group 1 are one"):
        opt.add_param_group({"params": [tied]})
    flat, empty = torch.ones(800), torch.ones(0, 5)
    AdamW([nn.Parameter(flat[:400].view(10, 40)), nn.Parameter(flat[400:].view(10, 40)), nn.Parameter(empty), nn.Parameter(empty[:]), p, nn.Parameter(p.detach(), requires_grad=False)])


def test_many_groups_are_compared_once(monkeypatch):
    """A group for each parameter, as for rates by layer."""
    from ckpress.torch import _optim_state

    looked, real = [], _optim_state._address
    monkeypatch.setattr(_optim_state, "_address", lambda p: looked.append(p) or real(p))
    AdamW([{"params": [nn.Parameter(torch.ones(2, 3))]} for _ in range(50)])
    assert len(looked) == 50


def test_a_group_that_is_refused_is_not_there():
    p = nn.Parameter(torch.ones(20, 40))
    opt = AdamW([p], lr=0.1)
    with pytest.raises(errors.UnsupportedError, match="parameter 0 of group 1 is torch.float64"):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(20, 40, dtype=torch.float64))]})
    assert len(opt.param_groups) == 1
    p.grad = torch.ones_like(p)
    opt.step()
    assert (p != 1).all()


@pytest.mark.parametrize("by_torch", [False, True])
def test_the_default_device_does_not_matter(by_torch):
    """Memory that C writes into is on the CPU, whatever torch makes by default."""
    made = []
    for default in ("cpu", "meta"):
        params = [nn.Parameter(torch.ones(20, 40)), nn.Parameter(torch.ones(30))]
        opt = AdamW(params, lr=0.1, seed=1)
        opt._by_torch = by_torch
        for _ in range(3):
            for p in params:
                p.grad = torch.full_like(p, 0.5)
            with torch.device(default):
                opt.step()
        with torch.device(default):
            state = opt.state_dict()
            opt.load_state_dict(state)
            opt.load_state_dict(opt.torch_state_dict())
        made.append([p.detach() for p in params] + [t for s in state["state"].values() for t in s.values()])
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))
