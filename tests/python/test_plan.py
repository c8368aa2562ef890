# SPDX-License-Identifier: Apache-2.0
"""Plans: steps for a budget, of objects and of files."""

from __future__ import annotations

import ckpress
import pytest
import torch
from helpers import steps as train, training


def state_dict(seed=0):
    g = torch.Generator().manual_seed(seed)
    sizes = {"wte": ((900, 100), 0.05), "up": ((300, 100), 0.02), "down": ((100, 300), 0.08), "bias": ((300,), 0.01)}
    return {name: rms * torch.randn(shape, generator=g) for name, (shape, rms) in sizes.items()} | {"n": torch.arange(4)}


def relative(a, b):
    return ((a - b).square().sum() / a.square().sum()).sqrt().item()


@pytest.mark.parametrize("budget", [{"target_bits": 3.0}, {"target_bits": 5.0}, {"target_ratio": 8.0}, {"max_bytes": 60000}])
def test_a_file_keeps_its_size(tmp_path, budget):
    state, path = state_dict(), tmp_path / "a.ckp"
    plan = ckpress.plan(state, **budget)
    ckpress.save(path, state, profile="weights", steps=plan.steps)
    size = path.stat().st_size
    want = {
        "target_bits": lambda b: b * plan.params / 8,
        "target_ratio": lambda r: plan.raw_bytes / r,
        "max_bytes": float,
    }
    (name, value), = budget.items()
    assert plan.met and plan.encodes == 2
    assert abs(size / want[name](value) - 1) < 0.01 and abs(size / plan.bytes - 1) < 0.005
    assert plan.bits_all == pytest.approx(8 * plan.bytes / plan.params, abs=1e-3)
    assert torch.equal(ckpress.load(path)["n"], state["n"])


def test_an_error_is_kept(tmp_path):
    state, path = state_dict(), tmp_path / "a.ckp"
    plan = ckpress.plan(state, max_error=0.1)
    ckpress.save(path, state, profile="weights", steps=plan.steps)
    got = ckpress.load(path)
    rows = {row.name: row for row in plan.table}
    assert rows.keys() == {"wte", "up", "down", "bias"} == plan.steps.keys()
    planned = [k for k in rows if k != "bias"]
    mean = sum(relative(state[k], got[k]) ** 2 * state[k].numel() for k in rows) / plan.params
    assert mean**0.5 == pytest.approx(0.1, rel=0.03) and plan.error == pytest.approx(0.1, rel=0.01)
    for k in planned:
        assert relative(state[k], got[k]) == pytest.approx(rows[k].error, rel=0.05) and rows[k].why == "multiplier"
        assert rows[k].step == plan.steps[k] > 0 and rows[k].step_rms == pytest.approx(rows[k].step / state[k].square().mean().sqrt().item(), rel=1e-3)
    assert rows["bias"].why.startswith("small") and plan.bytes == plan.encodes == 0


def test_scores_move_bits(tmp_path):
    state = state_dict()
    plain = ckpress.plan(state, target_bits=4.0)
    scores = {"wte": 1.0, "up": torch.full((300, 100), 64.0), "down": 1, "bias": 1.0}
    scored = ckpress.plan(state, target_bits=4.0, scores=scores)
    assert scored.steps["up"] < plain.steps["up"] and scored.steps["wte"] > 4 * scored.steps["up"]
    assert abs(scored.bits_all - 4) < 0.05
    assert scored.loss == pytest.approx(sum(row.loss for row in scored.table), rel=1e-6)


def test_files_and_modules(tmp_path):
    from safetensors.torch import save_file

    state = state_dict()
    save_file(state, tmp_path / "m.safetensors")
    ckpress.save(tmp_path / "m.ckp", state)
    file = ckpress.plan(tmp_path / "m.safetensors", target_bits=3.0)
    done = ckpress.compress(tmp_path / "m.safetensors", tmp_path / "out.ckp", profile="weights", steps=file.steps)
    assert abs(8 * done.out_bytes / file.params - 3) < 0.03
    model, optimizer, scheduler = training()
    train(model, optimizer, scheduler, 3)
    plan = ckpress.plan({"model": model, "optimizer": optimizer}, target_bits=9.0, profile="resume")
    assert "model/up.weight" in plan.steps and not any("exp_avg" in name for name in plan.steps) and plan.met
    assert {row.why for row in plan.table} >= {"lossless"}  # what is not trained
    ckpress.save(tmp_path / "t.ckp", {"model": model, "optimizer": optimizer}, profile="resume", steps=plan.steps)
    assert abs(8 * (tmp_path / "t.ckp").stat().st_size / plan.params - 9) < 0.1


def test_given_steps_and_unmet_budgets():
    state = state_dict()
    plan = ckpress.plan(state, target_bits=4.0, steps={"up": 0.003, "bias": 0})
    assert plan.steps["up"] == 0.003 and plan.steps["bias"] == 0
    assert {row.name: row.why for row in plan.table if row.why == "given"}.keys() == {"up", "bias"}
    short = ckpress.plan(state, target_bits=0.01)
    assert not short.met and {row.why for row in short.table} == {"coarsest step"} and short.bits_all > 0.01


def test_what_is_refused(tmp_path):
    state = state_dict()
    for wrong in ({}, {"target_bits": 3, "max_error": 1}, {"target_bits": 0}, {"target_bits": float("nan")}, {"max_error": "small"}, {"target_bits": True}):
        with pytest.raises(ckpress.InvalidError):
            ckpress.plan(state, **wrong)
    for wrong in ({"scores": {"up": 0}}, {"scores": {"n": 1.0}}, {"scores": {"nobody": 1.0}}, {"steps": {"nobody": 1.0}}, {"encodes": 0}, {"profile": "lossless"}):
        with pytest.raises(ckpress.InvalidError):
            ckpress.plan(state, target_bits=3, **wrong)
    with pytest.raises(ckpress.InvalidError, match="nothing to plan"):
        ckpress.plan({"n": torch.arange(5)}, target_bits=3)
    with pytest.raises(ckpress.NotFoundError):
        ckpress.plan(tmp_path / "none", target_bits=3)
    with pytest.raises(ZeroDivisionError):
        ckpress.plan(state, target_bits=3, progress=lambda done, total: 1 / 0)
