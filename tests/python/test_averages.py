# SPDX-License-Identifier: Apache-2.0
"""Running averages of weights (EMA, SWA): small where the caller names them, exact where not."""

from __future__ import annotations

import ckpress
import pytest
import torch
from helpers import same, steps, training
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def averaged(model):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))


def trained(n=12, seed=0):
    """Model, optimizer, its average after n steps."""
    model, optimizer, scheduler = training(seed)
    ema = averaged(model)
    for _ in range(n):
        steps(model, optimizer, scheduler, 1)
        ema.update_parameters(model)
    return model, optimizer, ema


def error_of(a, b):
    """RMS of the difference, in RMS of what it should be."""
    return float((a - b).detach().square().mean().sqrt() / b.detach().square().mean().sqrt())


def infos(run):
    with ckpress.open(run) as f:
        return {name: f[name].info for name in f}


def test_named_averages_are_small_and_close(run):
    model, optimizer, ema = trained()
    with ckpress.Checkpointer(run, "resume", averages=("ema",), final_on_close=False) as ck:
        ck.save(1, model=model, optimizer=optimizer, ema=ema)
    info = infos(run)
    assert {i["role"] for name, i in info.items() if name.startswith("ema/") and i["lossy"]} == {"average"}
    assert info["ema/up.weight"]["lossy"] and info["ema/up.weight"]["stored_bytes"] < info["ema/up.weight"]["raw_bytes"] / 4
    other = averaged(training(5)[0])
    with ckpress.Checkpointer(run, "resume", averages=("ema",)) as ck:
        ck.restore(ema=other, strict=False)
    for (name, got), want in zip(other.state_dict().items(), ema.state_dict().values()):
        short = name.removeprefix("module.")
        if short in ("frozen", "norm.running_mean", "norm.num_batches_tracked", "n_averaged"):
            continue
        assert same(got, want) or 0 < error_of(got, want) < 0.05, name
    assert other.n_averaged == ema.n_averaged
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):  # buffers are no weights
        assert same(other.state_dict()[f"module.{name}"], ema.state_dict()[f"module.{name}"])


def test_unnamed_ones_are_exact(run):
    model, optimizer, ema = trained()
    with ckpress.Checkpointer(run, "resume", final_on_close=False) as ck:
        ck.save(1, model=model, optimizer=optimizer, ema=ema)
    other = averaged(training(5)[0])
    with ckpress.Checkpointer(run, "resume") as ck:
        ck.restore(ema=other, strict=False)
    assert all(same(a, b) for a, b in zip(other.state_dict().values(), ema.state_dict().values()))


def test_they_leave_the_rest_alone(run, tmp_path):
    """Steps of weights follow the weights only."""
    model, optimizer, ema = trained()
    for place, more, averages in ((run, {"ema": ema}, ("ema",)), (tmp_path / "without", {}, ())):
        with ckpress.Checkpointer(place, "resume", averages=averages, rng=False, final_on_close=False) as ck:
            ck.save(1, model=model, optimizer=optimizer, **more)
    with_it, without = infos(run), infos(tmp_path / "without")
    assert all(with_it[name]["rms_rel_error"] == i["rms_rel_error"] for name, i in without.items())


@pytest.mark.parametrize("profile", ["resume", "small"])
def test_deltas_stay_close(run, profile):
    model, optimizer, scheduler = training(0)
    ema = averaged(model)
    with ckpress.Checkpointer(run, profile, averages=["ema"], final_on_close=False) as ck:
        for step in range(1, 9):
            steps(model, optimizer, scheduler, 4)
            ema.update_parameters(model)
            ck.save(step, model=model, optimizer=optimizer, ema=ema, wait=True)
    got = ckpress.load(run)["ema"]
    for name, want in ema.named_parameters():
        if want.ndim == 2:
            assert error_of(got[name.removeprefix("module.")], want) < (0.1 if profile == "resume" else 0.2)


def test_final_is_exact(run):
    model, optimizer, ema = trained()
    with ckpress.Checkpointer(run, "resume", averages=("ema",)) as ck:
        ck.save(1, model=model, optimizer=optimizer, ema=ema)
    got = ckpress.load(run)["ema"]
    assert all(same(got[name.removeprefix("module.")], t) for name, t in ema.state_dict().items())


def test_trees_of_tensors(run):
    """What other libraries keep: a dict or a list, counters and numbers beside it."""
    model, optimizer, ema = trained()
    shadow = {"decay": torch.tensor(0.999), "updates": torch.tensor(12), "shadow": [p.detach().clone() for p in model.parameters()]}
    with ckpress.Checkpointer(run, "resume", averages=("shadow",), final_on_close=False) as ck:
        ck.save(1, model=model, optimizer=optimizer, shadow=shadow)
    got = ckpress.load(run)["shadow"]
    assert same(got["decay"], shadow["decay"]) and same(got["updates"], shadow["updates"])
    assert all(same(a, b) or 0 < error_of(a, b) < 0.05 for a, b in zip(got["shadow"], shadow["shadow"]))
    assert not same(got["shadow"][0], shadow["shadow"][0])


def test_a_run_goes_on(run):
    """The chain of deltas of an average goes on over a restart."""
    model, optimizer, ema = trained()
    for step in range(1, 4):
        with ckpress.Checkpointer(run, "resume", averages=("ema",), final_on_close=False) as ck:
            if step > 1:
                model, optimizer, ema = trained(1, step)
                assert ck.restore(model=model, optimizer=optimizer, ema=ema) == step - 1
            ck.save(step, model=model, optimizer=optimizer, ema=ema)
    assert [e.is_delta for e in ckpress.list_run(run)] == [False, True, True]


def test_with_a_base_model(run, tmp_path):
    """Fine-tuning: averages are predicted from the base model too, and take steps by how far training moves."""
    model, optimizer, scheduler = training(0)
    steps(model, optimizer, scheduler, 30)
    base = tmp_path / "base.ckp"
    ckpress.save(base, model.state_dict())
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"] = 1e-5
    model, optimizer, scheduler = model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5), None
    ema = averaged(model)
    before = {name: p.detach().clone() for name, p in ema.named_parameters()}
    with ckpress.Checkpointer(run, "resume", averages=("ema",), base=base, final_on_close=False) as ck:
        for step in range(1, 5):
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.randint(0, 64, (32,))).backward()
                optimizer.step()
                ema.update_parameters(model)
            ck.save(step, model=model, optimizer=optimizer, ema=ema)
    got = ckpress.load(run)["ema"]
    for name, p in ema.named_parameters():
        if p.ndim == 2 and p.requires_grad:
            moved = (p - before[name]).square().mean().sqrt()
            assert (got[name.removeprefix("module.")] - p).square().mean().sqrt() < moved


@pytest.mark.parametrize("averages, text", [("ema", "must be names"), ((1,), "must be names"), (("emma",), "'emma'"), (("model",), "trains")])
def test_bad_names(run, averages, text):
    model, optimizer, ema = trained(2)
    with pytest.raises(ckpress.InvalidError, match=text):
        with ckpress.Checkpointer(run, "resume", averages=averages) as ck:
            ck.save(1, model=model, optimizer=optimizer, ema=ema)


def test_lossless_profiles_do_not_care(run):
    model, optimizer, ema = trained()
    with ckpress.Checkpointer(run, averages=("ema",)) as ck:
        ck.save(1, model=model, optimizer=optimizer, ema=ema)
    got = ckpress.load(run)["ema"]
    assert all(same(got[name.removeprefix("module.")], t) for name, t in ema.state_dict().items())


def test_values_that_no_step_codes(run):
    """NaN, infinities, zeros, one outlier, a constant, halves: exact or close, and never a crash."""
    model, optimizer, _ = trained(3)
    wild = {
        "nan": torch.full((64, 80), float("nan")),
        "inf": torch.randn(64, 80).index_fill_(0, torch.tensor([3]), float("inf")),
        "zero": torch.zeros(64, 80),
        "outlier": torch.randn(64, 80).index_fill_(1, torch.tensor([7]), 1e30),
        "constant": torch.full((64, 80), 3.0),
        "bf16": torch.randn(64, 80).bfloat16(),
        "f16": torch.randn(64, 80).half(),
        "f64": torch.randn(64, 80, dtype=torch.float64),
        "none": torch.empty(0, 80),
    }
    with ckpress.Checkpointer(run, "resume", averages=("ema",), final_on_close=False) as ck:
        for step in (1, 2):
            ck.save(step, model=model, optimizer=optimizer, ema=wild)
    got = ckpress.load(run)["ema"]
    for name in ("nan", "zero", "f64", "none"):
        assert same(got[name], wild[name]), name
    assert torch.equal(got["inf"].isinf(), wild["inf"].isinf())
    assert error_of(got["constant"], wild["constant"]) < 0.1 and error_of(got["bf16"].float(), wild["bf16"].float()) < 0.1
    assert error_of(got["f16"].float(), wild["f16"].float()) < 0.1
