# SPDX-License-Identifier: Apache-2.0
"""Weights by codebooks: a real training saved, killed and restored; what is pruned, protected and quantized."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import ckpress
import pytest
import torch
from helpers import same, steps, training

CONFIG = {"bins": 8, "bins_embedding": 16, "prune": 0.2, "prune_by": "magnitude", "protect": 0.005}
LARGE = {"embed.weight": 16, "up.weight": 8, "down.weight": 8}


def checkpointer(run, profile="resume", **options):
    return ckpress.Checkpointer(run, profile, threads=1, final_on_close=False, **{"dynaquant": CONFIG, **options})


def levels_of(got: torch.Tensor, bins: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The tensor's centres, which are its commonest values beside zero, and which elements have another: those are protected."""
    values, counts = got[got != 0].unique(return_counts=True)
    centres = values[counts.argsort(descending=True)[:bins]].sort().values
    return centres, ~torch.isin(got, torch.cat([centres, torch.zeros(1)]))


def check(got: torch.Tensor, live: torch.Tensor, bins: int, prune: float, protect: float) -> None:
    """Protected within bf16, pruned zero and no larger than what is left, all others at the nearest centre."""
    centres, protected = levels_of(got, bins)
    pruned = (got == 0) & ~protected
    n = live.numel()
    # The pool is all layers of a kind: a tensor may have more or less than its share, and none is protected where values end sharply.
    assert protected.sum() <= 8 * protect * n + 8
    assert pruned.sum() <= 3 * prune * n
    assert torch.equal(got[protected], live[protected].bfloat16().float())
    rest = ~(protected | pruned)
    assert live[pruned].abs().max() <= live[rest].abs().min() if prune else not pruned.any()
    distance = (live[rest, None] - centres[None, :]).abs()
    near = (live[rest] - got[rest]).abs()
    assert torch.all(near <= distance.min(dim=1).values * (1 + 1e-5) + 1e-9)


def test_a_training(run):
    """Saved eight times, restored from the newest: the deltas are small, and every value is what the method says."""
    model, optimizer, scheduler = training(0)
    sizes = []
    with checkpointer(run) as ck:
        for i in range(8):
            steps(model, optimizer, scheduler, 10)
            ck.save(i, model=model, optimizer=optimizer, scheduler=scheduler, wait=True)
            sizes.append(ck.stats["stored_by_role"]["weight"])
    assert max(sizes[1:]) < sizes[0]
    got = ckpress.load(run)
    for name, bins in LARGE.items():
        check(got["model"][name], model.state_dict()[name], bins, CONFIG["prune"], CONFIG["protect"])
    assert same(got["model"]["head.weight"], got["model"]["embed.weight"])
    assert same(got["model"]["frozen"], model.frozen.detach().clone())
    live = optimizer.state[model.up.weight]
    assert torch.equal(got["optimizer"]["state"]["up.weight"]["exp_avg_sq"] > 0, live["exp_avg_sq"] > 0)
    with ckpress.open(run) as f:
        settings = f.info["settings"]
        assert f["model/up.weight"].info["codec"].startswith("quant-index+")
    assert settings["dynaquant_bins"] == 8 and settings["dynaquant_bins_embedding"] == 16 and settings["dynaquant_prune"] == 0.2


@pytest.mark.parametrize("profile", ["resume", "small", "weights"])
@pytest.mark.parametrize("config", [{"bins": 4, "bins_embedding": 6, "prune": 0, "protect": 0}, {"bins": 32, "bins_embedding": 32, "prune": 0.4, "protect": 0.01}])
def test_configurations(run, profile, config):
    model, optimizer, scheduler = training(1)
    steps(model, optimizer, scheduler, 5)
    with checkpointer(run, profile, dynaquant=config) as ck:
        ck.save(5, model=model, optimizer=optimizer)
    got = ckpress.load(run)["model"]
    for name in LARGE:
        bins = config["bins_embedding" if name.startswith("embed") else "bins"]
        check(got[name], model.state_dict()[name], bins, config["prune"], config["protect"])


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop"])
def test_whatever_the_optimizer(run, optimizer):
    """Also one that has no moments at all."""
    model, opt, scheduler = training(2, optimizer, lr=1e-2 if optimizer == "SGD" else 1e-3)
    steps(model, opt, scheduler, 5)
    with checkpointer(run) as ck:
        ck.save(5, model=model, optimizer=opt)
    got = ckpress.load(run)["model"]
    for name, bins in LARGE.items():
        check(got[name], model.state_dict()[name], bins, CONFIG["prune"], CONFIG["protect"])
    assert same(got["up.bias"], model.up.bias.detach().clone()) == (optimizer != "Adam")


def test_sensitivity(run):
    """The caller's scores decide; without them Adam's second moment does, and rows that no gradient reached stay."""
    model, optimizer, scheduler = training(3)
    steps(model, optimizer, scheduler, 5)
    scores = {model.up.weight: torch.ones_like(model.up.weight), model.down.weight: torch.ones_like(model.down.weight)}
    with torch.no_grad():
        scores[model.up.weight][:, ::2] = 1e-6
    config = {**CONFIG, "prune": 0.4, "prune_by": "sensitivity", "protect": 0, "sensitivity": lambda: scores}
    with checkpointer(run, dynaquant=config) as ck:
        ck.save(5, model=model, optimizer=optimizer, wait=True)
        got = ckpress.load(run)["model"]
        assert torch.all(got["up.weight"][:, ::2] == 0) and torch.all(got["up.weight"][:, 1::2] != 0)
        assert torch.all(got["down.weight"] != 0)
        v = optimizer.state[model.embed.weight]["exp_avg_sq"]
        score = v.sqrt() * model.embed.weight.detach().abs()
        pruned = got["embed.weight"] == 0
        assert 0.3 * pruned.numel() < pruned.sum() <= 0.4 * pruned.numel()
        assert score[pruned].max() <= score[~pruned].min() * 1.001
        scores[model.up.weight] = torch.ones(3)
        with pytest.raises(ckpress.InvalidError, match=r"sensitivity of model/up.weight must be a tensor of shape \(192, 96\)"):
            ck.save(6)


def test_not_finite(run):
    model, optimizer, scheduler = training(4)
    steps(model, optimizer, scheduler, 3)
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 3e38])
    with torch.no_grad():
        model.up.weight.view(-1)[50:55] = odd
    with checkpointer(run) as ck:
        for i in range(2):
            ck.save(i, model=model, optimizer=optimizer)
    got = ckpress.load(run)["model"]["up.weight"].view(-1)
    assert torch.isnan(got[50]) and torch.equal(got[51:54], odd[1:4])
    assert abs(got[54].item() / 3e38 - 1) < 2**-8
    assert torch.isfinite(got[:50]).all()


def test_bad_options(tmp_path):
    for bad, text in [
        ({"bins": 0}, "bins must be an int from 1 to 32"),
        ({"bins_embedding": 64}, "bins_embedding"),
        ({"prune": 1.0}, "prune must be from 0 to below 1"),
        ({"protect": -1}, "protect"),
        ({"prune_by": "luck"}, "prune_by must be one of magnitude, sensitivity"),
        ({"levels": 3}, "unknown option 'levels'"),
        ({"sensitivity": 3}, "sensitivity must be"),
        (7, "must be a dict"),
    ]:
        with pytest.raises(ckpress.InvalidError, match=text):
            ckpress.Checkpointer(tmp_path / "run", "resume", dynaquant=bad)
    with pytest.raises(ckpress.InvalidError, match="lossy profiles"):
        ckpress.Checkpointer(tmp_path / "run", "lossless", dynaquant=CONFIG)
    assert not (tmp_path / "run").exists()


def test_with_a_budget_for_the_loss(run):
    """A configuration that ruins the loss is given up for finer steps, then for lossless weights; nobody notices but the file."""
    model, optimizer, scheduler = training(5)
    steps(model, optimizer, scheduler, 60)
    batch = torch.arange(64)

    def validate(m):
        return m.eval()(batch)

    ruin = {"bins": 2, "bins_embedding": 2, "prune": 0.9, "protect": 0}
    with checkpointer(run, dynaquant=ruin, eval_fn=validate, max_loss_increase=0.01) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
        assert ck.measured is not None and ck.measured.evaluations > 1
        ck.save(2, wait=True)       # not measured: as the last one
    assert "dynaquant_bins" not in ckpress.list_run(run)[1].settings
    got = training(6)[0]
    got.load_state_dict(ckpress.load(run)["model"])
    live = validate(model).item()
    assert abs(validate(got).item() - live) <= 0.011 * abs(live)


def test_staged_and_coded_again(run):
    """What a search does: a staged save is coded by several configurations, sized, read, and committed; a delta stays one."""
    from ckpress import _core
    from ckpress._collect import Collector
    from ckpress._dynaquant import Bound, DynaQuant

    model, optimizer, scheduler = training(7)
    steps(model, optimizer, scheduler, 10)
    handle = _core.Run(str(run), (_core.PROFILE_RESUME, 1.0, 1, 0, 0, {}), 32, (0, 0, 0, None, False, 0), False, 60, None)
    objects = {"model": model, "optimizer": optimizer}
    configs = [DynaQuant(bins=4, prune=0.5), DynaQuant(bins=16, prune=0.0), DynaQuant(bins=8, bins_embedding=8)]
    for step in range(2):
        collector = Collector(objects)
        collector.state.put(_core.DICT, len(objects))
        for name, value in objects.items():
            collector.value(name, ())
            collector.value(value, (name,))
        bound = Bound(objects, collector, None)
        state = collector.done()
        assert handle.stage(step, state, False, {}, 0.0, bound.config(configs[2])) is (step == 0)
        sizes = []
        for config in configs:
            handle.restage_dynaquant(state, bound.config(config))
            sizes.append(handle.staged_bytes(_core.WEIGHT))
            got = torch.empty(192, 96)
            index = next(i for p, i in collector.lossy if p is model.up.weight)
            handle.staged_read([(index, "f32", (192, 96), None, got.data_ptr())])
            assert len(got.unique()) >= config.bins
        assert step == 1 or sizes[0] < sizes[2] < sizes[1]
        assert step == 0 or sizes[2] < sizes[0] < sizes[1]      # a delta of the configuration that its base has
        handle.commit({})
        handle.wait()
        assert 0 < handle.stats()["stored_by_role"]["weight"] - sizes[2] < 400
        assert handle.stats()["is_key"] is (step == 0)
        steps(model, optimizer, scheduler, 1)
    with pytest.raises(ckpress.InvalidError, match="no save is staged"):
        handle.staged_bytes(_core.WEIGHT)
    handle.close()
    assert same(ckpress.load(run)["model"]["up.weight"], got)


JOB = """
    import sys, os
    sys.path.insert(0, {here!r})
    import torch, ckpress
    from helpers import steps, training
    torch.set_num_threads(1)
    torch.manual_seed(int(sys.argv[2]))
    model, optimizer, scheduler = training(int(sys.argv[2]))
    with ckpress.Checkpointer(sys.argv[1], "resume", threads=1, dynaquant={config!r}, lock_seconds=2) as ck:
        done = ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) or 0
        print("restored", done, flush=True)
        while done < 60:
            steps(model, optimizer, scheduler, 5)
            done += 5
            ck.save(done)
            print("saved", done, flush=True)
"""


def job(run, seed, kill_at=None):
    here = str(Path(__file__).resolve().parent)
    code = textwrap.dedent(JOB.format(here=here, config=CONFIG))
    p = subprocess.Popen([sys.executable, "-c", code, str(run), str(seed)], stdout=subprocess.PIPE, text=True, env=os.environ)
    lines = []
    assert p.stdout is not None
    for line in p.stdout:
        lines.append(line.split())
        if kill_at is not None and lines[-1] == ["saved", str(kill_at)]:
            p.send_signal(signal.SIGKILL)
    p.stdout.close()
    return p.wait(), lines


def test_killed_and_restored(tmp_path):
    """Three processes, two of them killed in the middle: each goes on from the newest checkpoint, by deltas on its indices."""
    run = tmp_path / "run"
    code, _ = job(run, 1, kill_at=20)
    assert code == -signal.SIGKILL
    code, lines = job(run, 2, kill_at=40)
    assert code == -signal.SIGKILL and int(lines[0][1]) in (10, 15, 20)
    code, lines = job(run, 3)
    assert code == 0 and int(lines[0][1]) in (30, 35, 40)
    listed = ckpress.list_run(run)
    assert {entry.health for entry in listed} == {"ok"}
    assert [entry.is_delta for entry in listed] == [False] + [True] * (len(listed) - 1)
    ckpress.verify(run, level="decode")
    assert ckpress.load(f"{run}@55")["step"] == 55
