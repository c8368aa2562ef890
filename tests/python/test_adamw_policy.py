# SPDX-License-Identifier: Apache-2.0
"""ckpress.torch.AdamW with state_bits="auto": the budget is kept, decisions go on exactly through every door, nothing grows with a tensor."""

from __future__ import annotations

import copy
import io
import sys
import warnings

import ckpress
import ckpress.torch
import pytest
import torch
from ckpress import _core, errors
from torch import nn

AdamW = ckpress.torch.AdamW


def net(seed=0, layers=6):
    """Layers whose gradients differ by their size."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Embedding(50, 96), *(nn.Linear(96, 96) for _ in range(layers)), nn.LayerNorm(96), nn.Linear(96, 50))
    with torch.no_grad():
        for i in range(1, layers + 1):
            made[i].weight.mul_(2.0 if i % 2 else 0.7)
    return made


def train(model, optimizer, steps, first=0):
    for i in range(first, first + steps):
        g = torch.Generator().manual_seed(i)
        x = torch.randint(0, 40, (32,), generator=g)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), (x * 7 + 3) % 50)
        loss.backward()
        optimizer.step()
    return loss.item()


def auto(model, **options):
    return AdamW(model.parameters(), **{"lr": 3e-3, "state_bits": "auto", "budget_bits": 4.0, "every": 4, **options})


def widths(optimizer):
    return [r["bits"] for r in optimizer.report()["parameters"]]


def same(a, b, opt_a, opt_b):
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    one, two = opt_a.state_dict(), opt_b.state_dict()
    assert one["param_groups"] == two["param_groups"]
    for k, state in one["state"].items():
        assert state.keys() == two["state"][k].keys()
        assert all(torch.equal(v, two["state"][k][name]) for name, v in state.items())
    return True


@pytest.mark.parametrize("budget", [3.0, 3.4, 4.0, 4.5, 6.0])
def test_the_budget_is_kept(budget):
    model = net()
    opt = auto(model, budget_bits=budget)
    total = sum(p.numel() for p in model.parameters())
    for i in range(80):
        loss = train(model, opt, 1, i)
        assert opt.report()["bits"] <= 1.002 * budget
    report = opt.report()
    assert report["bits"] > 0.98 * budget and loss < 1.5
    # by hand: every tensor, every number that is kept beside them
    coded = [s["packed"] for s in opt.state.values() if "packed" in s]
    kept = sum(t.nbytes for c in coded for t in (c.m, c.v, c.row, c.col) if t is not None) + len(coded) * 3 * 8
    kept += sum(8 * p.numel() + 4 for p in model.parameters() if p.dim() == 1)  # moments in f32, and a step
    kept += len(opt.state) * opt.policy.item_bytes + opt.policy.shared_bytes
    assert report["bytes"] == kept and report["bits"] == 4.0 * kept / total
    assert report["policy"]["bits"] == pytest.approx(report["bits"])
    assert report["policy"]["rounds"] == 20 and report["policy"]["raised"] + report["policy"]["lowered"] > 0


def test_more_bits_where_gradients_are_large():
    params = [nn.Parameter(torch.zeros(64, 128)) for _ in range(12)]
    opt = AdamW(params, lr=1e-4, state_bits="auto", budget_bits=4.0, every=3)
    for step in range(60):
        g = torch.Generator().manual_seed(step)
        for i, p in enumerate(params):
            p.grad = torch.randn(p.shape, generator=g) * 10.0 ** (-i / 2)
        opt.step()
    bits = [sum(b) for b in widths(opt)]
    assert bits == sorted(bits, reverse=True) and bits[0] > bits[-1]


def test_a_change_keeps_what_m_and_v_say():
    p = nn.Parameter(torch.zeros(40, 130))
    opt = AdamW([p], state_bits=(8, 8), small=0)
    for i in range(5):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
        opt.step()
    packed = opt.state[p]["packed"]
    m, v = packed.moments()
    settings = [(1e-3, 0.9, 0.999, 1e-8, 0.0, False, False, 0)]
    view = (packed.view("w"), 0, 0, packed.step, 0, "f32", "f32", p.data_ptr(), p.grad.data_ptr(), 0, 0, 0)
    before = packed.row.data_ptr(), packed.col.data_ptr()
    ckpress.torch._optim_state.recode(packed, (4, 6), settings, view)
    m2, v2 = packed.moments()
    assert packed.bits == (4, 6) and (packed.row.data_ptr(), packed.col.data_ptr()) == before
    assert ((v2 - v).abs() <= 0.26 * v).all()
    assert ((m2 - m).abs() <= 0.5 * (1 - 0.9**5) * (v2 / (1 - 0.999**5)).sqrt() + (m.abs() > 0) * m.abs()).all()
    assert abs(float(v2.mean() / v.mean()) - 1) < 0.02


@pytest.mark.parametrize("door", ["state_dict", "torch.save", "deepcopy", "pickle", "ckpress", "dcp"])
@pytest.mark.parametrize("steps", [3, 11, 24])
def test_decisions_go_on_exactly(door, steps, tmp_path):
    """In the middle of a round, with votes given: the same widths at the same steps, the same bits in the end."""
    a = net()
    opt_a = auto(a, seed=7)
    train(a, opt_a, steps)
    b = copy.deepcopy(a)
    other = {"lr": 1.0, "budget_bits": 3.0, "every": 100}
    if door == "deepcopy":
        b, opt_b = copy.deepcopy((a, opt_a))
    elif door == "pickle":
        file = io.BytesIO()
        torch.save((a, opt_a), file)
        file.seek(0)
        b, opt_b = torch.load(file, weights_only=False)
    elif door == "torch.save":
        opt_b = auto(b, **other)
        file = io.BytesIO()
        torch.save(opt_a.state_dict(), file)
        file.seek(0)
        opt_b.load_state_dict(torch.load(file, weights_only=True))
    elif door == "ckpress":
        opt_b = auto(b, **other)
        with ckpress.Checkpointer(tmp_path / "run") as ck:
            ck.save(steps, model=a, optimizer=opt_a)
        with ckpress.Checkpointer(tmp_path / "run") as ck:
            train(b, opt_b, 1)
            assert ck.restore(model=b, optimizer=opt_b) == steps
    elif door == "dcp":
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        opt_b = auto(b, **other)
        model, optim = get_state_dict(a, opt_a)
        dcp.save({"model": model, "optim": optim}, checkpoint_id=tmp_path, no_dist=True)
        model, optim = get_state_dict(b, opt_b)
        dcp.load({"model": model, "optim": optim}, checkpoint_id=tmp_path, no_dist=True)
        set_state_dict(b, opt_b, model_state_dict=model, optim_state_dict=optim)
    else:
        opt_b = AdamW(b.parameters(), lr=1.0, state_bits=8)
        opt_b.load_state_dict(opt_a.state_dict())
    assert widths(opt_a) == widths(opt_b)
    raised = opt_a.report()["policy"]["raised"]
    train(a, opt_a, 20, steps)
    train(b, opt_b, 20, steps)
    assert same(a, b, opt_a, opt_b)
    assert steps == 24 or opt_a.report()["policy"]["raised"] > raised  # something was decided on the way


def test_looking_does_not_change_decisions():
    """state_dict(), report(), deepcopy and pickling in between leave all as it is."""
    a, b = net(), net()
    opt_a, opt_b = auto(a), auto(b)
    for i in range(24):
        train(a, opt_a, 1, i)
        train(b, opt_b, 1, i)
        str(opt_b.report())
        opt_b.state_dict()
        copy.deepcopy(opt_b)
        opt_b.policy.forget(opt_b)
    assert same(a, b, opt_a, opt_b)


def test_threads_do_not_matter():
    torch_threads = torch.get_num_threads()
    shapes = [(64, 128), (300, 70), (96, 96), (4097,), (128, 512)]
    out = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        params = [nn.Parameter(torch.ones(s)) for s in shapes]
        opt = AdamW(params, lr=1e-3, state_bits="auto", budget_bits=4.4, every=2)
        for step in range(24):
            g = torch.Generator().manual_seed(step)
            for i, p in enumerate(params):
                p.grad = torch.randn(p.shape, generator=g) * 4.0 ** -i
            opt.step()
        out.append((params, opt))
    torch.set_num_threads(torch_threads)
    (a, opt_a), (b, opt_b) = out
    assert opt_a.report()["policy"]["raised"] > 0
    assert same(nn.ParameterList(a), nn.ParameterList(b), opt_a, opt_b)


def test_statistics_may_be_added_up_by_others():
    """The place of an all-reduce sees each visit's integers, and what it makes of them decides."""
    a, b, c = net(), net(), net()
    opt_a, opt_b, opt_c = auto(a), auto(b), auto(c)
    seen = []

    def twice(stats):
        seen.append(stats.shape)
        stats.mul_(2)  # two ranks that saw the same

    def none(stats):
        stats.zero_()

    opt_b.policy.reduce, opt_c.policy.reduce = twice, none
    for opt, model in ((opt_a, a), (opt_b, b), (opt_c, c)):
        train(model, opt, 12)
    # logarithms of twice as many differ in their last digit from those of as many: not what was decided
    assert widths(opt_a) == widths(opt_b) and all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert seen and all(len(s) == 2 and s[1] == 48 for s in seen)
    assert opt_c.report()["policy"]["visits"] == 0 and opt_c.report()["policy"]["raised"] == 0


def test_memory_beside_codes_does_not_grow_with_tensors():
    """What a policy keeps of a parameter is counted for small and large ones; and no step's temporary is a tensor's."""
    kept = []
    for side in (64, 512):
        params = [nn.Parameter(torch.zeros(side, side)) for _ in range(10)]
        opt = AdamW(params, state_bits="auto", every=1)
        for step in range(6):
            for i, p in enumerate(params):
                p.grad = torch.full(p.shape, 2.0**-i)
            opt.step()
        extra = opt.report()["bytes"] - sum(s["packed"].nbytes for s in opt.state.values())
        kept.append(extra)
        known = {"policy", "packed"}
        assert all(set(opt.state[p]) <= known for p in params)
        own = [x for x in opt.policy.__dict__.values() if isinstance(x, (list, dict))]
        assert sum(len(x) for x in own) <= 3 * len(params) + 2 * len(opt.param_groups)  # numbers of items and of groups, nothing else
    assert kept[0] == kept[1] == opt.policy.shared_bytes + 10 * opt.policy.item_bytes
    assert opt.policy.item_bytes <= 40 and opt.policy.shared_bytes <= 256
    assert sys.getsizeof(opt.policy.history) < 8192 and opt.policy.history.maxlen == 256


@pytest.mark.parametrize("bits", [4, 32, "auto"])
def test_a_save_looks_at_all_parameters_a_few_times(bits, monkeypatch):
    """Not once for each of them."""
    params = [nn.Parameter(torch.ones(64, 64)) for _ in range(30)]
    opt = AdamW(params, state_bits=bits)
    for p in params:
        p.grad = torch.ones_like(p)
    opt.step()
    looks, all_of = [], ckpress.torch._policy.Policy._all
    monkeypatch.setattr(ckpress.torch._policy.Policy, "_all", staticmethod(lambda groups: looks.append(1) or all_of(groups)))
    for lossy in (False, True, False):
        for p in params:
            opt.ckpress_state(p, lossy)
    assert len(looks) <= 2


def test_history_is_bounded():
    opt = auto(net())
    for i in range(1000):
        opt.policy.history.append({"step": i, "parameter": 0, "from": (3, 3), "to": (4, 4)})
    assert len(opt.policy.history) == 256


def test_rounds_look_at_all_and_no_more():
    params = [nn.Parameter(torch.zeros(64, 64)) for _ in range(7)]
    for every in (1, 3, 7, 10):
        opt = AdamW(params, state_bits="auto", every=every)
        counts = []
        for step in range(2 * every):
            for p in params:
                p.grad = torch.ones_like(p) * (step + 1)
            before = opt.report().get("policy", {"visits": 0})["visits"]
            opt.step()
            counts.append(opt.report()["policy"]["visits"] - before)
        assert sum(counts[:every]) == sum(counts[every:]) == 7
        assert max(counts) <= -(-7 // every)
        assert opt.report()["policy"]["rounds"] == 2


def test_parameters_without_gradients_wait():
    params = [nn.Parameter(torch.zeros(64, 64)) for _ in range(4)]
    opt = AdamW(params, state_bits="auto", every=1)
    for p in params[:2]:
        p.grad = torch.ones_like(p)
    opt.step()
    assert len(widths(opt)) == 2
    for p in params[2:]:
        p.grad = torch.ones_like(p)
    params[0].grad = None
    for _ in range(5):
        opt.step()
    report = opt.report()
    assert len(report["parameters"]) == 4 and report["bits"] <= 4.0
    assert opt.policy.core.item(0)[6] == 1 and opt.policy.core.item(3)[6] == 1


def test_groups_join_and_leave():
    model = net()
    ps = list(model.parameters())
    opt = AdamW([{"params": ps[:4], "state_bits": "auto"}, {"params": ps[4:8]}, {"params": ps[8:], "state_bits": 32}], lr=3e-3, every=3)
    train(model, opt, 10)
    assert [r["bits"] for r in opt.report()["parameters"] if r["group"] == 2] == [(32, 32)] * len(ps[8:])
    mine = [r for r in opt.report()["parameters"] if r["group"] == 0]
    average = 4.0 * (sum(r["bytes"] for r in mine) + opt.policy.nbytes()) / sum(p.numel() for p in ps[:4])
    assert average == pytest.approx(opt.report()["policy"]["bits"]) and average <= 4.01
    opt.set_state_bits("auto", 1)
    train(model, opt, 10, 10)
    assert len(opt.policy.numbers) == 8
    opt.set_state_bits(8, 0)
    train(model, opt, 10, 20)
    assert opt.policy.numbers == [4, 5, 6, 7] and {r["bits"] for r in opt.report()["parameters"] if r["group"] == 0} == {(8, 8), (32, 32)}
    opt.add_param_group({"params": [nn.Parameter(torch.ones(64, 64))], "state_bits": "auto"})
    train(model, opt, 10, 30)
    opt.param_groups[-1]["params"][0].grad = torch.ones(64, 64)
    opt.step()
    assert opt.policy.numbers == [4, 5, 6, 7, len(ps)]


def test_another_budget_on_the_way():
    model = net()
    opt = auto(model, budget_bits=5.0)
    train(model, opt, 40)
    assert 4.9 < opt.report()["policy"]["bits"] <= 5.0
    opt.set_budget(3.5)
    train(model, opt, 80, 40)
    assert 3.43 < opt.report()["policy"]["bits"] <= 3.5
    opt.set_budget(4.5)
    train(model, opt, 40, 120)
    assert 4.41 < opt.report()["policy"]["bits"] <= 4.5


@pytest.mark.parametrize("how", ["load", "restore", "deepcopy", "pickle", "group"])
def test_another_budget_after_a_state_came_in(how, tmp_path):
    """What was saved holds until another is asked for; it was taken for the one that is asked for."""
    model = net()
    opt = auto(model, budget_bits=5.0)
    train(model, opt, 6)
    if how == "deepcopy":
        model, opt = copy.deepcopy((model, opt))
    elif how == "pickle":
        file = io.BytesIO()
        torch.save((model, opt), file)
        file.seek(0)
        model, opt = torch.load(file, weights_only=False)
    elif how == "group":
        opt.add_param_group({"params": [nn.Parameter(torch.ones(64, 64))]})
    else:
        saved, opt = opt, auto(model, budget_bits=3.0)
        if how == "load":
            opt.load_state_dict(saved.state_dict())
        else:
            with ckpress.Checkpointer(tmp_path, rng=False) as ck:
                ck.save(6, wait=True, model=model, optimizer=saved)
                assert ck.restore(model=model, optimizer=opt) == 6
        assert copy.deepcopy(opt).report()["policy"]["budget_bits"] == 5.0
    opt.set_budget(3.5)
    assert opt.report()["policy"]["budget_bits"] == 3.5 and opt.param_groups[0]["policy"][0] == 3.5 * 1024
    assert copy.deepcopy(opt).report()["policy"]["budget_bits"] == 3.5
    train(model, opt, 80, 6)
    assert 3.43 < opt.report()["policy"]["bits"] <= 3.5


def test_from_fixed_widths_and_from_torch():
    a = net()
    fixed = AdamW(a.parameters(), lr=3e-3, state_bits=(4, 4))
    train(a, fixed, 5)
    saved = fixed.state_dict()
    for group in saved["param_groups"]:
        del group["policy"]  # as states were before
        group["state_bits"] = "auto"
    opt = auto(a)
    opt.load_state_dict(saved)
    train(a, opt, 40, 5)
    assert 3.9 < opt.report()["policy"]["bits"] <= 4.0
    b = net()
    torchs = torch.optim.AdamW(b.parameters(), lr=3e-3)
    train(b, torchs, 5)
    opt = auto(b)
    opt.load_state_dict(torchs.state_dict())
    assert opt.report()["policy"]["bits"] <= 4.0 and opt.param_groups[0]["state_bits"] == "auto"
    train(b, opt, 40, 5)
    assert 3.9 < opt.report()["policy"]["bits"] <= 4.0
    back = torch.optim.AdamW(b.parameters(), lr=3e-3)
    back.load_state_dict(opt.torch_state_dict())
    assert "policy" not in back.param_groups[0]
    # and an old state of fixed widths into an optimizer that had a policy
    opt.load_state_dict(AdamW(b.parameters(), state_bits=4).state_dict())
    assert opt.param_groups[0]["policy"] is None


def test_parameters_without_elements():
    params = [nn.Parameter(torch.ones(s)) for s in ((0, 5), (20, 0), (0,))]
    opt = AdamW(params, state_bits="auto", every=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            for p in params:
                p.grad = torch.ones_like(p)
            opt.step()
    assert str(opt.report()) and opt.report()["bits"] == 0
    other = AdamW(params, state_bits="auto")
    other.load_state_dict(opt.state_dict())
    assert other.report()["policy"]["rounds"] == 1


def test_report_reads_well():
    model = net()
    opt = auto(model)
    assert "policy" not in AdamW(net().parameters()).report()
    train(model, opt, 40)
    text = str(opt.report())
    assert "widths by a budget of 4.00 bits: now 3.9" in text or "now 4.0" in text
    assert "96x96" in text and "last changes:" in text and "parameter number" in text
    last = opt.report()["policy"]["history"][-1]
    assert last["from"] != last["to"] and 1 <= last["step"] <= 40
    assert all(abs(a - b) <= 2 for h in opt.report()["policy"]["history"] for a, b in zip(h["from"], h["to"], strict=True))


def test_refusals_change_nothing():
    p = nn.Parameter(torch.ones(64, 64))
    for options in ({"budget_bits": 1.9}, {"budget_bits": 17}, {"every": 0}, {"every": 1.5}, {"state_bits": "some"}):
        with pytest.raises(errors.InvalidError):
            AdamW([p], **{"state_bits": "auto", **options})
    with pytest.raises(errors.UnsupportedError, match="float64"):
        AdamW([nn.Parameter(torch.ones(4, dtype=torch.float64))], state_bits="auto")
    model = net()
    opt = auto(model)
    train(model, opt, 6)
    good = opt.state_dict()

    def of_group(value):
        bad = copy.deepcopy(good)
        bad["param_groups"][0]["policy"] = value
        return bad

    def of_item(value):
        bad = copy.deepcopy(good)
        bad["state"][0]["policy"] = value
        return bad

    shared = good["param_groups"][0]["policy"]
    cases = [
        of_group([1]), of_group("x"), of_group([*shared[:-1], 0.5]), of_group([*shared, 0]), of_group([0, *shared[1:]]), of_group([shared[0], 4, 4, *shared[3:]]),
        of_group([*shared[:4], -1, *shared[5:]]), of_group([*shared[:-1], 1 << 60]), of_group([*shared[:-1], 1 << 80]),
        of_item(torch.zeros(6, dtype=torch.int32)), of_item(torch.zeros(7)), of_item(torch.tensor([0, 0, 7, 4, 0, 0, 1], dtype=torch.int32)),
        of_item(torch.tensor([0, 0, 4, 4, 9, 0, 1], dtype=torch.int32)), of_item(torch.tensor([1 << 30, 0, 4, 4, 0, 0, 1], dtype=torch.int32)),
        of_item(torch.tensor([0, 0, -1, 4, 0, 0, 1], dtype=torch.int32)),
    ]
    for bad in cases:
        with pytest.raises(errors.InvalidError):
            opt.load_state_dict(bad)
    now = opt.state_dict()
    assert now["param_groups"] == good["param_groups"]
    for k, state in good["state"].items():
        assert all(torch.equal(v, now["state"][k][name]) for name, v in state.items())


def test_core_refuses_what_is_none():
    core = _core.Policy([(4096, 64, 0, 4, 4, True, 0)])
    for call in (
        lambda: _core.Policy([(1, 2)]), lambda: _core.Policy([3]), lambda: _core.Policy([(4096, 64, 0, 7, 4, True, 0)]), lambda: core.item(1), lambda: core.item(-1),
        lambda: core.visit(0, b"", 0, 1e-3, 1e-3, 1), lambda: core.visit(0, bytes(384), 1, 1e-3, 1e-3, 1), lambda: core.visit(1, bytes(384), 0, 1e-3, 1e-3, 1),
        lambda: core.moved(0, 7, 4), lambda: core.moved(3, 4, 4), lambda: core.set_state([1]), lambda: core.set_item(0, (1,)), lambda: core.factors(b"", 1e-3, 1),
        lambda: _core.Optim.look([], [()]), lambda: _core.Optim.look([], [5]), lambda: _core.Optim.look([], [], [1]), lambda: _core.Optim(1).sums([], [(1,)]),
        lambda: _core.Optim(1).recode([], (1,) * 12, 4, 4, 0, 0),
    ):
        with pytest.raises((TypeError, ValueError, IndexError, errors.Error)):
            call()
    assert core.visit(0, bytes(384), 0, 1e-3, 1e-3, 1) is None and core.factors(bytes(384), 1e-3, 1) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(dtype):
    params = [nn.Parameter(torch.zeros(64, 128, dtype=dtype)) for _ in range(12)]
    opt = AdamW(params, lr=1e-3, state_bits="auto", every=2)
    for step in range(20):
        g = torch.Generator().manual_seed(step)
        for i, p in enumerate(params):
            p.grad = (torch.randn(p.shape, generator=g) * 2.0**-i).to(dtype)
        opt.step()
    bits = [sum(b) for b in widths(opt)]
    assert bits[0] > bits[-1] and 3.9 < opt.report()["bits"] <= 4.0


def test_a_report_goes_to_a_log():
    model, seen = net(), {}

    class Writer:
        def add_scalar(self, name, value, step):
            seen[name, step] = value

    opt = auto(model)
    for i in range(8):
        train(model, opt, 1, i)
    report = opt.report()
    report.log_to(Writer(), 8)
    assert seen["ckpress/optimizer/bits", 8] == report["bits"] and seen["ckpress/optimizer/raised", 8] == report["policy"]["raised"]
    for r in report["parameters"]:
        assert [seen[f"ckpress/moment_bits/{r['group']}.{r['index']}/{moment}", 8] for moment in "mv"] == list(r["bits"])
    assert len(seen) == 5 + 2 * len(report["parameters"])
    one = torch.nn.Parameter(torch.zeros(64, 64))
    one.grad = torch.ones_like(one)
    sgd = ckpress.torch.SGD([one], lr=0.1, momentum=0.9, state_bits=4)
    sgd.step()
    seen.clear()
    sgd.report().log_to(Writer(), 1)
    assert seen["ckpress/moment_bits/0.0/momentum", 1] == 4 and len(seen) == 4
