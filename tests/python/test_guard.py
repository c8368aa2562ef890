# SPDX-License-Identifier: Apache-2.0
"""A budget for the loss: what eval_fn is asked, and what its answers do to a save."""

import math
import random
import warnings

import numpy as np
import pytest

import ckpress

torch = pytest.importorskip("torch")


def training(seed=0, steps=60):
    """A small regression that learns fast: coarse steps hurt it."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64))
    teacher = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x = torch.randn(512, 64)
    y = teacher(x).detach()

    def loss(m):
        return torch.nn.functional.mse_loss(m(x), y)

    def step():
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    for _ in range(steps):
        step()
    return model, optimizer, loss, step


def restored_loss(dir, loss, step=None):
    model, optimizer, _, _ = training(1, 1)
    with ckpress.Checkpointer(dir, profile="resume", final_on_close=False) as ck:
        ck.restore(model=model, optimizer=optimizer, step=step)
        return float(loss(model).detach()), ck.restored


def test_the_budget_is_met_by_what_comes_back(tmp_path):
    model, optimizer, loss, step = training()
    with ckpress.Checkpointer(tmp_path / "free", profile="resume", final_on_close=False) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
    live = float(loss(model).detach())
    free, _ = restored_loss(tmp_path / "free", loss)
    with ckpress.Checkpointer(tmp_path / "held", profile="resume", final_on_close=False, eval_fn=loss, max_loss_increase=0.02, eval_every=1) as ck:
        assert ck.measured is None
        for done in range(1, 5):
            live = float(loss(model).detach())
            ck.save(done, model=model, optimizer=optimizer, wait=True, metrics={"mine": 3})
            m = ck.measured
            assert m.step == done and m.loss_live == pytest.approx(live) and not m.lossless and m.seconds > 0
            assert m.loss_decoded <= live * 1.02 and 1 <= m.evaluations <= 4 and m.quality < 1
            for _ in range(5):
                step()
    first, info = restored_loss(tmp_path / "held", loss, 1)
    assert first <= info["metrics"]["ckpress.loss_live"] * 1.02 < free
    back, info = restored_loss(tmp_path / "held", loss)
    assert back == pytest.approx(m.loss_decoded, rel=1e-6)  # what was measured is what comes back
    assert info["metrics"] == {"mine": 3.0, **m.metrics()}


def test_an_eval_that_fails_makes_weights_lossless(tmp_path):
    model, optimizer, loss, _ = training(steps=3)
    bits = [p.detach().clone() for p in model.parameters()]
    answers = {"raises": lambda m: 1 / 0, "nan": lambda m: math.nan, "text": lambda m: "no", "many": lambda m: m[0].weight}
    for name, answer in answers.items():
        with ckpress.Checkpointer(tmp_path / name, profile="resume", final_on_close=False, eval_fn=answer) as ck:
            with pytest.warns(RuntimeWarning, match="losslessly: eval_fn"):
                assert ck.save(1, model=model, optimizer=optimizer, wait=True)
            assert ck.measured.lossless
        other, optimizer2, _, _ = training(5, 1)
        with ckpress.Checkpointer(tmp_path / name, profile="resume", final_on_close=False) as ck:
            assert ck.restore(model=other, optimizer=optimizer2) == 1
        assert all(torch.equal(a, b) for a, b in zip(bits, other.parameters()))


def test_a_budget_out_of_reach_says_what_was_reached(tmp_path):
    model, optimizer, loss, _ = training()
    calls = []

    def fussy(m):
        calls.append(1)
        return float(len(calls) > 1)  # every decoded one is worse

    with ckpress.Checkpointer(tmp_path / "run", profile="small", final_on_close=False, eval_fn=fussy) as ck:
        with pytest.warns(RuntimeWarning, match="1 decoded at quality"):
            ck.save(1, model=model, optimizer=optimizer, wait=True)
        assert ck.measured.lossless and ck.measured.evaluations == 4 and len(calls) == 5
    other, optimizer2, _, _ = training(5, 1)
    with ckpress.Checkpointer(tmp_path / "run", profile="small", final_on_close=False) as ck:
        ck.restore(model=other, optimizer=optimizer2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))


def test_the_live_model_and_random_states_are_left_alone(tmp_path):
    model, optimizer, loss, _ = training(steps=5)
    before = [p.detach().clone() for p in model.parameters()]
    grads = [p.grad.clone() for p in model.parameters()]
    seen = []

    def nosy(m):
        assert m is not model and not torch.is_grad_enabled()
        seen.append([p.detach().clone() for p in m.parameters()])
        torch.rand(7), np.random.rand(), random.random()
        m.eval()
        with torch.no_grad():
            value = loss(m)
            for p in m.parameters():
                p.zero_()
        return value

    states = torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate()
    with ckpress.Checkpointer(tmp_path / "run", profile="resume", final_on_close=False, eval_fn=nosy, max_loss_increase=100.0) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
    assert torch.equal(states[0], torch.get_rng_state()) and random.getstate() == states[2]
    assert np.array_equal(states[1]["state"]["key"], np.random.get_state(legacy=False)["state"]["key"])
    assert model.training and all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert all(torch.equal(a, p.grad) for a, p in zip(grads, model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(before, seen[0]))  # the first question is about the live weights
    assert not all(torch.equal(a, b) for a, b in zip(before, seen[1]))


def test_when_it_is_asked(tmp_path):
    model, optimizer, loss, step = training(steps=5)
    asked = []

    def count(m):
        asked.append(1)
        return 1.0

    def saves(ck, n):
        out = []
        for k in range(n):
            asked.clear()
            ck.save(k + 1, model=model, optimizer=optimizer, wait=True)
            out.append(len(asked) // 2)
        return out

    with ckpress.Checkpointer(tmp_path / "a", profile="resume", key_every=4, final_on_close=False, eval_fn=count, eval_every=3) as ck:
        assert saves(ck, 9) == [1, 1, 1, 0, 1, 1, 0, 0, 1]  # the first, each third, keys (the first, fifth and ninth), the first delta after each
    with ckpress.Checkpointer(tmp_path / "b", eval_fn=count) as ck:
        assert saves(ck, 2) == [0, 0] and ck.measured is None  # lossless: nothing to ask
    with ckpress.Checkpointer(tmp_path / "c", profile="resume", eval_fn=count) as ck:
        asked.clear()
        ck.save(1, model=model, optimizer=optimizer, final=True)
        assert not asked


def test_after_a_miss_every_save_is_measured(tmp_path):
    model, optimizer, loss, step = training(steps=5)
    broken = [True]

    def sometimes(m):
        if broken[0]:
            raise ZeroDivisionError("not today")
        return 1.0

    with ckpress.Checkpointer(tmp_path / "run", profile="resume", final_on_close=False, eval_fn=sometimes) as ck:
        for done in range(1, 8):
            broken[0] = done < 5
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ck.save(done, model=model, optimizer=optimizer, wait=True)
            assert ck.measured.step == min(done, 5)
            assert ck.measured.lossless == (done < 5)
    assert [row.settings["step"] == 0 for row in ckpress.list_run(tmp_path / "run")] == [True] * 4 + [False] * 3


def test_quality_goes_on_after_a_restore(tmp_path):
    model, optimizer, loss, step = training()
    how = dict(profile="resume", final_on_close=False, eval_fn=loss, max_loss_increase=0.02, eval_every=1)
    with ckpress.Checkpointer(tmp_path / "run", **how) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
        first = ck.measured
    assert first.evaluations > 1
    with ckpress.Checkpointer(tmp_path / "run", **how) as ck:
        ck.restore(model=model, optimizer=optimizer)
        step()
        ck.save(2, wait=True)
        assert ck.measured.evaluations < first.evaluations or ck.measured.quality <= first.quality


def test_several_modules_by_name(tmp_path):
    a, optimizer, loss, _ = training(steps=3)
    b = torch.nn.Linear(64, 64)
    seen = {}

    def both(*, first, second):
        seen.update(first=first, second=second)
        return 1.0

    with ckpress.Checkpointer(tmp_path / "run", profile="resume", final_on_close=False, eval_fn=both) as ck:
        ck.save(1, first=a, second=b, optimizer=optimizer, wait=True)
    assert type(seen["first"]) is torch.nn.Sequential and type(seen["second"]) is torch.nn.Linear


def test_half_precision_and_tied_weights(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)).to(torch.bfloat16)
    model[1].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(32, 64, dtype=torch.bfloat16)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).float().pow(2).mean().backward()
        optimizer.step()
    decoded = []

    def keep(m):
        assert m[0].weight is m[1].weight
        decoded.append(m[0].weight.detach().clone())
        return 1.0

    with ckpress.Checkpointer(tmp_path / "run", profile="resume", final_on_close=False, eval_fn=keep) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
        ck.restore(model=model, optimizer=optimizer)
    assert torch.equal(model[0].weight, decoded[-1])


@pytest.mark.parametrize("planner", ["rd", "guided"])
def test_what_is_measured_is_what_comes_back(tmp_path, planner):
    """Also of weights that no optimizer of the save trains: copies of masters, averages."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)).to(torch.bfloat16)
    masters = torch.nn.ParameterList(p.detach().float() + 1e-6 for p in model.parameters())
    optimizer = torch.optim.AdamW(masters, lr=1e-3)
    for _ in range(3):
        for p in masters:
            p.grad = torch.randn_like(p)
        optimizer.step()
    with torch.no_grad():
        for p, m in zip(model.parameters(), masters):
            p.copy_(m)
    ema = torch.nn.Linear(64, 128).requires_grad_(False)
    seen = {}

    def keep(*, model, ema, masters):
        seen.update(model=model[0].weight.clone(), ema=ema.weight.clone(), masters=masters[0].detach().clone())
        return 1.0

    live = {"model": model, "ema": ema, "masters": masters, "optimizer": optimizer}
    with ckpress.Checkpointer(tmp_path / "run", profile="resume", averages=("ema",), final_on_close=False, eval_fn=keep, planner=planner) as ck:
        ck.save(1, **live, wait=True)
        was = model[0].weight.detach().clone(), ema.weight.detach().clone()
        ck.restore(**live)
    assert not torch.equal(seen["model"], was[0]) and not torch.equal(seen["ema"], was[1])
    if planner == "rd":  # a search's last candidate need not be its choice
        assert torch.equal(seen["model"], model[0].weight) and torch.equal(seen["ema"], ema.weight) and torch.equal(seen["masters"], masters[0])


def test_wrappers_are_taken_off(tmp_path):
    for wrap in (torch.nn.DataParallel, torch.compile, lambda m: torch.compile(torch.nn.DataParallel(m))):
        model, optimizer, loss, _ = training(steps=3)
        seen = []

        def look(m):
            seen.append(m)
            return loss(m)

        with ckpress.Checkpointer(tmp_path / str(id(wrap)), profile="resume", final_on_close=False, eval_fn=look, max_loss_increase=0.02) as ck:
            ck.save(1, model=wrap(model), optimizer=optimizer, wait=True)
            assert not ck.measured.lossless and ck.measured.loss_decoded <= ck.measured.loss_live * 1.02
        assert all(type(m) is torch.nn.Sequential and m is not model for m in seen)


def test_no_module_no_measure(tmp_path):
    with ckpress.Checkpointer(tmp_path / "run", profile="resume", final_on_close=False, eval_fn=lambda m: 1.0) as ck:
        with pytest.warns(RuntimeWarning, match="no module"):
            ck.save(1, x=torch.ones(3), wait=True)


def test_what_does_not_fit_the_budget_is_lossless(tmp_path):
    model, optimizer, _, _ = training(steps=3)
    how = dict(profile="resume", final_on_close=False, memory_budget=4096)
    with ckpress.Checkpointer(tmp_path / "run", eval_fn=lambda m: 1.0, **how) as ck:
        with pytest.warns(RuntimeWarning, match="losslessly: .*memory budget of 4096 bytes"):
            assert ck.save(1, model=model, optimizer=optimizer, wait=True)
    other, optimizer2, _, _ = training(5, 1)
    with ckpress.Checkpointer(tmp_path / "run", **how) as ck:
        ck.restore(model=other, optimizer=optimizer2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))


@pytest.mark.parametrize("bad", [dict(eval_fn=3), dict(max_loss_increase=0), dict(max_loss_increase=math.nan), dict(max_loss_increase="1"), dict(eval_every=0)])
def test_bad_arguments(tmp_path, bad):
    with pytest.raises(ckpress.InvalidError):
        ckpress.Checkpointer(tmp_path / "run", profile="resume", **{"eval_fn": lambda m: 1.0, **bad})
    assert not (tmp_path / "run").exists()


def test_what_is_refused_leaves_nothing_staged(tmp_path):
    model, optimizer, loss, _ = training(steps=3)

    class Stop(BaseException):
        pass

    def stop(m):
        raise Stop

    with ckpress.Checkpointer(tmp_path / "run", profile="resume", final_on_close=False, eval_fn=stop) as ck:
        with pytest.raises(Stop):
            ck.save(1, model=model, optimizer=optimizer)
        ck.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ck.save(1, final=True, wait=True)
    assert [row.step for row in ckpress.list_run(tmp_path / "run")] == [1]
