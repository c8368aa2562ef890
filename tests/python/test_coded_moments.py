# SPDX-License-Identifier: Apache-2.0
"""Moments that ckpress.torch keeps as codes, in the profiles that round moments: they are what the codes stand for, and coded as torch's own."""

import copy

import ckpress
import ckpress.torch
import pytest
import torch
import torch.distributed.checkpoint
from ckpress.torch import SGD, AdamW, Lion
from ckpress.torch._optim_state import Packed
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

ROLES = ("weight", "m", "v", "momentum")


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(48, 300), nn.Tanh(), nn.Linear(300, 70), nn.Tanh(), nn.Conv1d(1, 20, 7), nn.Flatten(), nn.Linear(20 * 64, 5))


def train(model, opt, steps, start=0):
    for i in range(start, start + steps):
        x = torch.randn(16, 48, generator=torch.Generator().manual_seed(i))
        h = model[:4](x).unsqueeze(1)
        loss = (model[4:](h) - x[:, :5]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def bits_of(states):
    return {(k, name): t.view(torch.int32).clone() for k, state in states.items() for name, t in state.items() if name != "step" and t is not None and t.is_floating_point()}


def run(path, profile="resume", **how):
    return ckpress.Checkpointer(path, profile, rng=False, final_on_close=False, **how)


CASES = [
    (AdamW, lambda ps: torch.optim.AdamW(ps, lr=1.0), {"lr": 1e-3}, 4),
    (AdamW, lambda ps: torch.optim.AdamW(ps, lr=1.0), {"lr": 1e-3, "betas": (0.9, 0.95)}, (3, 5)),
    (SGD, lambda ps: torch.optim.SGD(ps, lr=1.0, momentum=0.9), {"lr": 1e-2, "momentum": 0.9}, 5),
]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("profile", ["resume", "small"])
@pytest.mark.parametrize("ours,torchs,options,bits", CASES)
def test_stored_as_torchs_would_be(ours, torchs, options, bits, profile, threads, tmp_path):
    """Moments of keys and deltas are as large, and give the same bits, as those of torch's optimizer in f32. (Weights are rounded by a key that each run draws.)"""
    model = net()
    opt, other = ours(model.parameters(), state_bits=bits, small=0, **options), torchs(model.parameters())
    with run(tmp_path / "ours", profile, threads=threads) as a, run(tmp_path / "torchs", profile) as b:
        for step in (10, 20, 30):
            train(model, opt, 10, step - 10)
            other.load_state_dict(opt.torch_state_dict())
            a.save(step, wait=True, model=model, optimizer=opt)
            b.save(step, wait=True, model=model, optimizer=other)
            for role in ROLES:
                one, other_one = (ck.stats["stored_by_role"].get(role) for ck in (a, b))
                assert one == other_one if role != "weight" else one == pytest.approx(other_one, rel=0.15), (step, role)
            assert a.stats["is_key"] == b.stats["is_key"] == (step == 10)
    back = [bits_of(ckpress.load(tmp_path / path)["optimizer"]["state"]) for path in ("ours", "torchs")]
    assert len(back[0]) >= 8 and back[0].keys() == back[1].keys()
    assert all(torch.equal(t, back[1][k]) for k, t in back[0].items())


@pytest.mark.parametrize("ours,options", [(AdamW, {"lr": 1e-3}), (SGD, {"lr": 1e-2, "momentum": 0.9}), (Lion, {"lr": 1e-4})])
def test_restored_into_codes(ours, options, tmp_path):
    """The widths are the optimizer's, steps count on, and the training goes on as from the moments in f32."""
    model = net()
    opt = ours(model.parameters(), state_bits=4, small=0, **options)
    train(model, opt, 40)
    with run(tmp_path) as ck:
        ck.save(40, wait=True, model=model, optimizer=opt)
        stored = ck.stats["stored_bytes"]
    again = net()
    back = ours(again.parameters(), state_bits=8, small=0, **options)
    with run(tmp_path) as ck:
        assert ck.restore(model=again, optimizer=back) == 40
    assert back.param_groups[0]["state_bits"] == 4
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        one, other = opt.state[p], back.state[q]
        if p.dim() < 2:
            assert one["step"] == other["step"] or ours is not AdamW
            continue
        assert one["packed"].bits == other["packed"].aim and one["packed"].step == other["packed"].step == 40
        for s, t in zip(one["packed"].moments(), other["packed"].moments(), strict=True):
            assert 0 < float((s * t).sum() / (s.norm() * t.norm()))
    assert stored < 0.2 * 8 * sum(p.numel() for p in model.parameters())
    train(again, back, 3, 40)


def progress(one, other):
    """What `other`'s first moments have of `one`'s way, by the step's own measure."""
    (m, v), (n, _) = one.moments(), other.moments()
    k = v > 0
    return float((m * n / v)[k].sum() / (m * m / v)[k].sum())


def large(model):
    return [p for p in model.parameters() if p.numel() >= 10_000]


@pytest.mark.parametrize("state_bits", [4, 3, "auto"])
def test_room_for_first_moments(state_bits, tmp_path):
    """A lossy checkpoint keeps m's way in few large values, which codes of few bits would cut off: m is wider for some steps, and then what it was."""
    model = net()
    how = {"lr": 1e-3, "state_bits": state_bits, "every": 1000, "small": 0}
    opt = AdamW(model.parameters(), **how)
    train(model, opt, 60)
    with run(tmp_path) as ck:
        ck.save(60, wait=True, model=model, optimizer=opt)

    def restored():
        m = net()
        o = AdamW(m.parameters(), **how)
        with run(tmp_path) as ck:
            assert ck.restore(model=m, optimizer=o) == 60
        return m, o

    again, back = restored()
    for p, q in zip(large(model), large(again), strict=True):
        one, other = opt.state[p]["packed"], back.state[q]["packed"]
        assert other.bits == (8, one.bits[1]) and other.settle == (*one.bits, 92) and back.report()["bits"] > opt.report()["bits"]
        cut = Packed.from_moments(other.part, None, one.bits, other.moments(), 60, (other.m_corr, other.v_corr), 0, 0, "p")
        assert progress(one, cut) < 0.5 < 0.6 < progress(one, other) < 1.2
    twin = net()
    twins = AdamW(twin.parameters(), **how)
    train(again, back, 10, 60)
    twin.load_state_dict(again.state_dict())
    twins.load_state_dict(copy.deepcopy(back.state_dict()))
    for m, o in ((again, back), (twin, twins)):
        train(m, o, 22, 70)
        assert all(o.state[p]["packed"].settle is not None for p in large(m))
        train(m, o, 1, 92)
        assert [o.state[p]["packed"].bits for p in large(m)] == [opt.state[p]["packed"].bits for p in large(model)]
    assert all(torch.equal(p, q) for p, q in zip(again.parameters(), twin.parameters(), strict=True))
    train(again, back, 3, 93)


def in_room(path, steps=60):
    """A training that has just been restored from a lossy checkpoint."""
    model = net()
    opt = AdamW(model.parameters(), lr=1e-3, small=0)
    train(model, opt, steps)
    with run(path) as ck:
        ck.save(steps, wait=True, model=model, optimizer=opt)
    again = net()
    back = AdamW(again.parameters(), lr=1e-3, small=0)
    with run(path) as ck:
        assert ck.restore(model=again, optimizer=back) == steps
    assert all(back.state[p]["packed"].settle == (4, 4, steps + 32) for p in large(again))
    return again, back


@pytest.mark.parametrize("first", [4 * 33 + 16 + 33, 15, 1, 255])
def test_room_that_is_no_such(first):
    model = net()
    opt = AdamW(model.parameters(), lr=1e-3, small=0)
    train(model, opt, 5)
    saved = opt.state_dict()
    saved["state"][0]["bits"][0] = first
    with pytest.raises(ckpress.Error, match="widths of"):
        opt.load_state_dict(saved)


@pytest.mark.parametrize("asked,now,then", [(4, (8, 4), (4, 4)), ((8, 4), (8, 4), (8, 4)), (3, (3, 3), (3, 3)), ((8, 8), (8, 8), (8, 8))])
def test_widths_asked_for_while_there_is_room(asked, now, then, tmp_path):
    """They are what the group has in the end; those that it is to have anyway cut nothing off."""
    model, opt = in_room(tmp_path)
    opt.set_state_bits(asked)
    assert all(opt.state[p]["packed"].bits == now for p in large(model))
    train(model, opt, 34, 60)
    assert all(opt.state[p]["packed"].bits == then for p in large(model))


def test_room_through_distributed_checkpoints(tmp_path):
    """A state has the same tensors with room and without: room is not lost, and goes."""
    model, opt = in_room(tmp_path / "run")
    train(model, opt, 3, 60)
    torch.distributed.checkpoint.save(get_optimizer_state_dict(model, opt), checkpoint_id=tmp_path / "room")

    def read(path, into, optimizer):
        state = get_optimizer_state_dict(into, optimizer)
        torch.distributed.checkpoint.load(state, checkpoint_id=path)
        set_optimizer_state_dict(into, optimizer, state)

    again = net()
    back = AdamW(again.parameters(), lr=1e-3, small=0)
    read(tmp_path / "room", again, back)
    again.load_state_dict(model.state_dict())
    assert all(back.state[p]["packed"].settle == (4, 4, 92) for p in large(again))
    for m, o in ((model, opt), (again, back)):
        train(m, o, 33, 63)
        assert all(o.state[p]["packed"].bits == (4, 4) for p in large(m))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))
    torch.distributed.checkpoint.save(get_optimizer_state_dict(model, opt), checkpoint_id=tmp_path / "none")
    other, has = in_room(tmp_path / "other")
    read(tmp_path / "none", other, has)
    assert all(has.state[p]["packed"].settle is None and has.state[p]["packed"].bits == (4, 4) for p in large(other))


@pytest.mark.parametrize("reads_the_file", [False, True])
def test_torchs_state_put_among_codes_is_refused(reads_the_file):
    """torch's helper for whole states puts them into a state that no step has written, key by key: zeros were taken for the moments (all of it: test_sharded)."""
    model = net()
    torchs = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, torchs, 5)
    saved, opt = torchs.state_dict(), AdamW(model.parameters(), lr=0.0, small=0)
    model.zero_grad()
    put = get_optimizer_state_dict(model, opt)["state"]  # by a step that counts for nothing
    for own, theirs in zip(put.values(), saved["state"].values(), strict=True):
        own.update({k: t for k, t in theirs.items() if reads_the_file or k in own})
    with pytest.raises(ckpress.Error, match="parameter 0 of group 0: a state of torch's class"):
        opt.load_state_dict({"state": dict(enumerate(put.values())), "param_groups": saved["param_groups"]})
    assert not opt.state[model[0].weight]["packed"].m.any()
    opt.load_state_dict(saved)
    assert all(t["step"] == 5 for t in opt.state_dict()["state"].values()) and opt.state[model[0].weight]["packed"].m.any()


def test_room_ends_on_the_parameters_device(tmp_path, monkeypatch):
    """Codes are made anew on the CPU: they are moved after that."""
    model, opt = in_room(tmp_path)
    moved = []
    to = Packed.to
    monkeypatch.setattr(Packed, "to", lambda self, device: moved.append(self) or to(self, device))
    train(model, opt, 33, 60)
    assert all(any(opt.state[p]["packed"] is packed for packed in moved) for p in large(model))


def test_moments_that_are_none():
    p = nn.Parameter(torch.ones(20, 40))
    groups = torch.optim.AdamW([p]).state_dict()["param_groups"]
    for v, match in ((torch.ones(7, 3), "of shape"), (torch.ones(800), "of shape"), ([1.0], "tensors"), (None, "tensors")):
        state = {"step": torch.tensor(3.0), "exp_avg": torch.ones(20, 40), "exp_avg_sq": v}
        with pytest.raises(ckpress.Error, match=match):
            AdamW([p], lr=1e-3).load_state_dict({"state": {0: state}, "param_groups": groups})


@pytest.mark.parametrize("why", ["no module", "frozen", "step 0", "another optimizer"])
def test_what_is_not_rounded_stays_as_codes(why, tmp_path):
    """Floats that a profile keeps exactly would take more than the codes that they stand for, and be rounded when they are read."""
    model = net()
    opt = AdamW(model.parameters(), lr=1e-3, small=0)
    train(model, opt, 10)
    objects = {"model": model.state_dict() if why == "no module" else model, "optimizer": opt}
    steps = {f"model/{n}": 0.0 for n, _ in model.named_parameters()} if why == "step 0" else None
    if why == "frozen":
        model.requires_grad_(False)
    elif why == "another optimizer":
        objects = {"model": model, "first": copy.deepcopy(opt), "optimizer": opt}
        objects["first"].param_groups[0]["params"] = opt.param_groups[0]["params"]
        objects["first"].state.update({p: copy.deepcopy(opt.state[p]) for p in model.parameters()})
    with run(tmp_path, steps=steps) as ck:
        ck.save(10, wait=True, **objects)
    with ckpress.open(tmp_path) as f:
        assert any(name.startswith("optimizer/") and name.endswith("exp_avg_code") for name in f)
    again = net()
    back = AdamW(again.parameters(), lr=1e-3, small=0)
    with run(tmp_path, steps=steps) as ck:
        assert ck.restore(optimizer=back, model=again.state_dict() if why == "no module" else again, strict=False) == 10
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        if p.dim() > 1:
            assert all(torch.equal(s, t) for s, t in zip(opt.state[p]["packed"].moments(), back.state[q]["packed"].moments(), strict=True))


EVERY = [(AdamW, {}), (AdamW, {"state_bits": "auto"}), (SGD, {"momentum": 0.9}), (SGD, {}), (Lion, {})]


@pytest.mark.parametrize("profile", ["lossless", "resume"])
@pytest.mark.parametrize("ours,options", EVERY)
def test_parameters_of_no_elements_and_optimizers_without_state(ours, options, profile, tmp_path):
    model = nn.ParameterDict({"none": nn.Parameter(torch.zeros(0, 5)), "nor": nn.Parameter(torch.zeros(5, 0)), "some": nn.Parameter(torch.ones(20, 40)), "idle": nn.Parameter(torch.ones(20, 40))})
    opt = ours(model.parameters(), lr=1e-3, small=0, **options)
    for k, p in model.items():
        p.grad = None if k == "idle" else torch.ones_like(p)
    for step in (1, 2):
        opt.step()
        with run(tmp_path, profile) as ck:
            ck.save(step, wait=True, model=model, optimizer=opt)
    back = ours(model.parameters(), lr=1e-3, small=0, **options)
    with run(tmp_path, profile) as ck:
        assert ck.restore(model=model, optimizer=back) == 2
    assert {k for k, p in model.items() if back.state.get(p)} == {k for k, p in model.items() if opt.state.get(p) and any(v is not None for v in opt.state[p].values())}
    back.step()


def test_widths_that_a_policy_chose(tmp_path):
    model = net()
    opt = AdamW(model.parameters(), lr=1e-3, state_bits="auto", budget_bits=3.5, every=4, small=0)
    train(model, opt, 30)
    with run(tmp_path) as ck:
        ck.save(30, wait=True, model=model, optimizer=opt)
    again = net()
    back = AdamW(again.parameters(), lr=1e-3, state_bits="auto", small=0)
    with run(tmp_path) as ck:
        assert ck.restore(model=again, optimizer=back) == 30

    def widths(m, o):
        return [o.state[p]["packed"].aim for p in m.parameters() if p.dim() > 1]

    assert widths(model, opt) == widths(again, back) and len(set(widths(model, opt))) > 1
    train(again, back, 8, 30)


@pytest.mark.parametrize("how", [{"master": "split8"}, {"state_bits": 32}])
def test_what_stays_as_it_is(how, tmp_path):
    """Codes beside further bits of weights are exact whatever the profile; a group of 32 bits is coded as torch's own."""
    model = net().bfloat16() if "master" in how else net()
    opt = AdamW(model.parameters(), lr=1e-3, small=0, **how)
    for i in range(5):
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).to(p.dtype)
        opt.step()
    with run(tmp_path) as ck:
        ck.save(5, wait=True, model=model, optimizer=opt)
        assert ("m" in ck.stats["params_by_role"]) == ("state_bits" in how)
    again = copy.deepcopy(model)
    back = AdamW(again.parameters(), lr=1e-3, small=0, **how)
    with run(tmp_path) as ck:
        assert ck.restore(model=again, optimizer=back) == 5
    if "master" in how:
        for p, q in zip(model.parameters(), again.parameters(), strict=True):
            one, other = opt.ckpress_state(p)[0], back.ckpress_state(q)[0]
            assert torch.equal(p, q) and all(torch.equal(t, other[k]) for k, t in one.items())


def test_a_final_save_has_exact_weights(tmp_path):
    model = net()
    opt = AdamW(model.parameters(), lr=1e-3, small=0)
    train(model, opt, 20)
    with ckpress.Checkpointer(tmp_path, "resume") as ck:
        ck.save(20, wait=True, model=model, optimizer=opt)
        train(model, opt, 5, 20)
        ck.save(25, final=True, wait=True)
        assert not ck.stats["is_key"]
    again = net()
    with ckpress.Checkpointer(tmp_path, "resume") as ck:
        assert ck.restore(model=again, optimizer=AdamW(again.parameters(), lr=1e-3, small=0)) == 25
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))


def test_codes_and_shape_must_fit():
    state = ckpress._core.State()
    packed = AdamW([p := nn.Parameter(torch.ones(20, 40))], lr=1e-3)
    p.grad = torch.ones_like(p)
    packed.step()
    held = packed.state[p]["packed"]
    with pytest.raises(ValueError, match="do not fit"):
        state.add_coded("m", ckpress._core.M, (20, 41), held.view(), False, None, held)
    with pytest.raises(ValueError, match="do not fit"):
        state.add_coded("m", ckpress._core.M, (1 << 40, 1 << 40), held.view(), False, None, held)
    assert state.add_coded("m", ckpress._core.M, (40, 20), held.view(), False, None, held) == 0


@pytest.mark.parametrize("profile", ["resume", "small"])
@pytest.mark.parametrize("make", [lambda ps: torch.optim.AdamW(ps, lr=1e-3), lambda ps: torch.optim.SGD(ps, lr=1e-2, momentum=0.9)])
def test_fine_qualities_round_moments_evenly(make, profile, tmp_path):
    """Three values are as far off at any quality; at 0.2 and below moments come nearer with it, and nothing is told of a share."""
    model = net()
    opt = make(model.parameters())
    train(model, opt, 60)
    apart = {}
    for quality in (1.0, 0.3, 0.2, 0.05):
        path = tmp_path / str(quality)
        with run(path, profile, quality=quality) as ck:
            ck.save(60, wait=True, model=model, optimizer=opt)
        state = ckpress.load(path)["optimizer"]["state"]
        key = "exp_avg" if "exp_avg" in state["2.weight"] else "momentum_buffer"
        was = opt.state[model[2].weight][key]
        apart[quality] = float((state["2.weight"][key] - was).norm() / was.norm())
        with ckpress.open(path) as f:
            assert ("m_share" in f.info["settings"]) == (quality > 0.2)
    assert apart[0.3] == pytest.approx(apart[1.0], rel=0.05) and apart[0.3] > 0.5
    assert apart[0.2] < 0.65 * apart[0.3] and apart[0.05] < 0.4 * apart[0.2], apart
