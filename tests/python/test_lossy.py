# SPDX-License-Identifier: Apache-2.0
"""Lossy profiles: what may be lossy, what must not, and that training goes on (rows 79, 80)."""

from __future__ import annotations

import math

import ckpress
import pytest
import torch
from helpers import bits, same, steps, training
from torch import nn


def saved(run, profile="resume", n=8, **how):
    model, optimizer, scheduler = training(0, **how)
    losses = steps(model, optimizer, scheduler, n)
    with ckpress.Checkpointer(run, profile, final_on_close=False) as ck:
        ck.save(n, model=model, optimizer=optimizer, scheduler=scheduler)
    return model, optimizer, losses


def infos(run):
    with ckpress.open(run) as f:
        return {name: f[name].info for name in f}


def test_what_is_lossy(run):
    model, _, _ = saved(run)
    info = infos(run)
    lossy = {name for name, i in info.items() if i["lossy"]}
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert f"model/{name}" in lossy
            assert f"optimizer/{name}/exp_avg" in lossy and f"optimizer/{name}/exp_avg_sq" in lossy
    assert not {n for n in lossy if "frozen" in n or "norm.running" in n or "step" in n or n.startswith(("rng", "scheduler"))}
    assert info["optimizer/up.weight/exp_avg"]["role"] == "m" and info["optimizer/up.weight/exp_avg_sq"]["role"] == "v"
    assert info["model/up.weight"]["rms_rel_error"] > 0


def test_only_what_is_trained_is_lossy(run):
    """A parameter that no optimizer has is somebody's trained weight: quantizing it would ruin it."""
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    extra = nn.Linear(50, 50)
    with ckpress.Checkpointer(run, "resume", final_on_close=False) as ck:
        ck.save(1, model=nn.ModuleList([model, extra]), optimizer=optimizer)
    got = ckpress.load(run)["model"]
    assert same(got["1.weight"], extra.weight.detach()) and not same(got["0.up.weight"], model.up.weight.detach())


def test_everything_else_is_exact(run):
    model, optimizer, _ = saved(run)
    got = ckpress.load(run)
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "frozen"):
        assert same(got["model"][name], model.state_dict()[name])
    assert got["optimizer"]["state"]["up.weight"]["step"].item() == 8
    assert got["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)


@pytest.mark.parametrize("profile", ["resume", "small"])
def test_training_goes_on(run, profile):
    """Restored five times over, the loss stays near that of the run left alone."""
    model, optimizer, scheduler = training(0)
    alone = steps(model, optimizer, scheduler, 120)
    model, optimizer, scheduler = training(0)
    losses = []
    for part in range(6):
        with ckpress.Checkpointer(run, profile, final_on_close=False) as ck:
            if part:
                model, optimizer, scheduler = training(9)
            done = ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) or 0
            assert done == part * 20
            losses += steps(model, optimizer, scheduler, 20)
            ck.save(done + 20)
    assert losses[:20] == alone[:20]
    # A crude bound: 20 steps between restores, a warm-up that never ends. make demo measures what a restore costs.
    assert sum(losses[-10:]) / 10 < sum(alone[-10:]) / 10 + 0.45 * (alone[0] - alone[-1])


def test_the_restored_bits_are_the_checkpoints(run):
    saved(run)
    model, optimizer, scheduler = training(3)
    with ckpress.Checkpointer(run, "resume", final_on_close=False) as ck:
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    got = ckpress.load(run)
    assert all(same(got["model"][k], v) for k, v in model.state_dict().items())
    assert same(got["optimizer"]["state"]["up.weight"]["exp_avg_sq"], optimizer.state[model.up.weight]["exp_avg_sq"])


def test_positive_v_stays_positive(run):
    model, optimizer, _ = saved(run)
    got = ckpress.load(run)["optimizer"]["state"]
    for name, p in model.named_parameters():
        if p in optimizer.state:
            v = optimizer.state[p]["exp_avg_sq"]
            assert torch.equal(got[name]["exp_avg_sq"] > 0, v > 0)


def test_not_finite_comes_back(run):
    """Row 80: NaN payloads, infinities and negative zeros in weights and moments."""
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 4)
    odd = torch.tensor([0x7FC00001, 0x7F800001, -0x3FFFFF, 0x7F800000, -0x800000], dtype=torch.int32).view(torch.float32)
    m = optimizer.state[model.up.weight]["exp_avg"]
    with torch.no_grad():
        model.up.weight.view(-1)[100:105] = odd
        m.view(-1)[7:12] = odd
    with ckpress.Checkpointer(run, "resume", final_on_close=False) as ck:
        ck.save(4, model=model, optimizer=optimizer)
    got = ckpress.load(run)
    assert bits(got["model"]["up.weight"].view(-1)[100:105]) == bits(odd)
    assert bits(got["optimizer"]["state"]["up.weight"]["exp_avg"].view(-1)[7:12]) == bits(odd)
    assert math.isfinite(got["model"]["up.weight"].view(-1)[0].item())
    assert infos(run)["model/up.weight"]["n_nan"] == 3 and infos(run)["model/up.weight"]["n_inf"] == 2


def test_quality_scales_the_error(run, tmp_path):
    errors = []
    for quality in (1.0, 0.25):
        model, optimizer, scheduler = training()
        steps(model, optimizer, scheduler, 4)
        with ckpress.Checkpointer(tmp_path / str(quality), "resume", quality=quality, final_on_close=False) as ck:
            ck.save(4, model=model, optimizer=optimizer)
        errors.append(infos(tmp_path / str(quality))["model/up.weight"]["rms_rel_error"])
    assert errors[1] < errors[0] / 2


@pytest.mark.parametrize(
    "optimizer, how", [("SGD", {"momentum": 0.9}), ("SGD", {}), ("Adam", {"amsgrad": True}), ("NAdam", {}), ("RMSprop", {})], ids=str
)
def test_other_optimizers(run, optimizer, how):
    model, made, _ = saved(run, optimizer=optimizer, **how)
    other, other_optimizer, scheduler = training(4, optimizer, **how)
    with ckpress.Checkpointer(run, "resume", final_on_close=False) as ck:
        assert ck.restore(model=other, optimizer=other_optimizer, scheduler=scheduler) == 8
    for key, value in made.state[model.up.weight].items():
        got = other_optimizer.state[other.up.weight][key]
        assert torch.isfinite(got).all() if key in ("exp_avg", "exp_avg_sq", "momentum_buffer") else same(got, value)


def test_bf16(run):
    torch.manual_seed(0)
    model = nn.Linear(128, 128).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(4, 128, dtype=torch.bfloat16)).float().pow(2).mean().backward()
        optimizer.step()
    with ckpress.Checkpointer(run, "resume", final_on_close=False) as ck:
        ck.save(3, model=model, optimizer=optimizer)
    got = ckpress.load(run)["model"]["weight"]
    assert got.dtype == torch.bfloat16 and not same(got, model.weight.detach())


def test_weights_profile(run):
    """Optimizers are left out, and left alone on restore."""
    saved(run, "weights")
    assert not [i for i in infos(run).values() if i["role"] in ("m", "v")]
    model, optimizer, scheduler = training(4)
    steps(model, optimizer, scheduler, 1)
    before = bits(optimizer.state[model.up.weight]["exp_avg"])
    with ckpress.Checkpointer(run, "weights", final_on_close=False) as ck:
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == 8
    assert bits(optimizer.state[model.up.weight]["exp_avg"]) == before


def test_files_with_live_objects(path):
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 4)
    ckpress.save(path, {"model": model, "optimizer": optimizer, "epoch": 3}, profile="resume")
    got = ckpress.load(path)
    assert got["epoch"] == 3 and not same(got["model"]["up.weight"], model.up.weight.detach())
    assert path.stat().st_size * 4 < sum(p.numel() * 12 for p in model.parameters())


def test_nothing_lossy_in_a_state_dict(path):
    with pytest.raises(ckpress.InvalidError, match="live module"):
        ckpress.save(path, training()[0].state_dict(), profile="resume")


def test_lossless_after_lossy(run):
    """A run may change its profile: the next checkpoint is exact."""
    saved(run)
    model, optimizer, scheduler = training(4)
    with ckpress.Checkpointer(run) as ck:
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
        steps(model, optimizer, scheduler, 2)
        ck.save(10)
    got = ckpress.load(run)
    assert all(same(got["model"][k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize(("step", "betas"), [(float("nan"), None), (float("inf"), None), (1e30, None), (-3, None), (None, ("a", "b"))])
@pytest.mark.parametrize("profile", ["resume", "small"])
def test_adam_gone_wrong(run, profile, step, betas):
    """A diverged run is saved as well as another: constants that make no sense only cost some bits."""
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    for state in optimizer.state.values():
        if step is not None:
            state["step"].fill_(step)
    if betas is not None:
        optimizer.param_groups[0]["betas"] = betas
    with ckpress.Checkpointer(run, profile=profile, final_on_close=False) as ck:
        ck.save(2, model=model, optimizer=optimizer)
    got = ckpress.load(run)["optimizer"]
    if step is not None:
        assert all(same(s["step"], torch.tensor(step, dtype=torch.float32)) for s in got["state"].values())
    if betas is not None:
        assert got["param_groups"][0]["betas"] == betas
