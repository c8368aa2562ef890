# SPDX-License-Identifier: Apache-2.0
"""The quality bench of resident optimizers: the policy without one of its liberties, bits counted, what is run again, the report."""

from __future__ import annotations

import math
import pathlib
import random
import sys

import pytest

pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import ckpress.torch  # noqa: E402
import optim_without  # noqa: E402
import quality  # noqa: E402
import quality_optim  # noqa: E402
import quality_optim_report  # noqa: E402
import quality_optim_runs  # noqa: E402
from ckpress import _core  # noqa: E402
from quality_optim_report import RIVAL  # noqa: E402

SHAPES = ((64, 64), (100, 80), (300, 33), (7, 5), (60, 100), (40,), (128, 128))


def policy_of(draw):
    """C's policy over tensors with scores, and the same moments for optim_without."""
    items, moments, rest = [], [], 0
    for i in range(draw.randrange(1, 12)):
        numel, cols, bits = 4096 * draw.randrange(1, 9), 2 ** draw.randrange(5, 9), (draw.choice((2, 3, 4, 5, 6, 8)), draw.choice((2, 3, 5, 6, 8)))
        score = draw.randrange(-3000, 3000), draw.randrange(-3000, 3000)
        items.append((numel, cols, 40, *bits, True, 0))
        rest += 40
        moments += [optim_without.Moment(i, which, numel, cols, bits[which], score[which]) for which in (0, 1)]
    core = _core.Policy(items)
    for a, b in zip(moments[::2], moments[1::2], strict=True):
        core.set_item(a.item, (a.score, b.score, 0, 0, 0, 0, 1))
    return core, moments, rest


def test_with_every_liberty_the_plan_is_that_of_c():
    draw, differ = random.Random(1), 0
    for _ in range(200):
        core, moments, rest = policy_of(draw)
        budget = rest + draw.randrange(2, 9) * sum(m.numel for m in moments) // 8
        core.plan(budget)
        ours = optim_without.plan(moments, budget - rest)
        assert {(m.item, m.which): core.item(m.item)[2 + m.which] for m in moments} == ours
        differ += len(set(ours.values())) > 2
    assert differ > 50


def test_widths_that_go_together_are_the_same_and_fit():
    draw = random.Random(2)
    for _ in range(100):
        _, moments, _ = policy_of(draw)
        budget = draw.randrange(3, 9) * sum(m.numel for m in moments) // 8
        layer, state = (optim_without.plan(moments, budget, without) for without in ("layer", "state"))
        assert len({(layer[i, 0], layer[i, 1]) for i in {m.item for m in moments}}) == 1
        assert all(state[m.item, 0] == state[m.item, 1] for m in moments)
        for wanted in (layer, state):
            assert sum(m.nbytes(wanted[m.item, m.which]) for m in moments) <= max(budget, sum(m.nbytes(2) for m in moments))


def trained(setting):
    """Widths of the tensors that follow the policy and what it wanted, step by step; sizes of gradients change places every eight steps."""
    g = torch.Generator().manual_seed(1)
    params = [torch.nn.Parameter(torch.empty(s).normal_(0, 0.02, generator=g)) for s in SHAPES]
    optimizer = quality_optim_runs.make("policy", setting, [{"params": params, "lr": 1e-3}], 3 * quality_optim_runs.ROUNDS, 1)
    widths, wanted = [], []
    for n in range(24):
        for i, p in enumerate(params):
            p.grad = torch.empty(p.shape).normal_(0, 1e-3 * 4.0 ** ((i + n // 8) % 6), generator=g)
        optimizer.step()
        core, followers = optimizer.policy.core, optimizer.policy.followers
        widths.append([optimizer.state[p]["packed"].bits for p in params if p.numel() >= optimizer.small and p.dim() > 1])
        wanted.append([core.item(i)[2:4] for i in followers])
        assert optimizer.report()["bits"] <= 4.0
    return widths, wanted


def test_liberties_that_are_switched_off():
    widths, wanted = trained("4.0")
    assert len(set(widths[-1])) > 1 and any(m != v for m, v in widths[-1]) and wanted[2] != wanted[-1]
    widths, wanted = trained("4.0-layer")
    assert all(len(set(now)) == 1 for now in widths) and len(set(wanted[-1])) == 1
    widths, wanted = trained("4.0-state")
    assert all(m == v for now in widths for m, v in now) and any(len(set(now)) > 1 for now in widths)
    widths, wanted = trained("4.0-time")
    assert len(set(wanted[2])) > 1 and all(now == wanted[2] for now in wanted[2:]) and widths[-1] == wanted[2] != widths[0]


def test_bits_count_everything():
    p = torch.nn.Parameter(torch.zeros(64, 64))
    p.grad = torch.ones_like(p)
    plain = torch.optim.AdamW([p])
    plain.step()
    assert quality_optim_runs.bits(plain) == 8 * (2 * p.nbytes + 4) / (2 * p.numel())
    ours = ckpress.torch.AdamW([p], state_bits=(4, 4))
    ours.step()
    assert quality_optim_runs.bits(ours) == ours.report()["bits"] > 4


def test_the_same_training_with_another_optimizer():
    task = quality.TASKS["gpt"](1, True)
    wide = quality_optim_runs.run(task, "fixed", "8")
    plain = quality.plain(task)
    assert abs(wide["loss"] - plain["loss"]) < 0.05 and wide["params"] == plain["params"]
    params = list(task.build()[0].parameters())
    rowless = sum(p.numel() for p in params if p.dim() < 2) / wide["params"]  # stay in f32
    assert 8 < wide["bits"] - 24 * rowless < 8.3 and wide["bits"] == wide["bits_end"] == wide["bits_most"]


def rows(task, system, setting, losses, bits=4.0):
    return [{"commit": "c", "machine": "m", "compiler": "g", "task": task, "system": system, "setting": setting, "seed": str(seed), "steps": "210", "params": "9e6", "bits": f"{bits}",
             "bits_end": f"{bits}", "bits_most": f"{bits}", "loss": f"{loss}", "loss_plain": "2", "gap": f"{loss - 2}", "run_s": "1", "slope": "-1e-3", "step_s": "0.1"}
            for seed, loss in enumerate(losses, 1)]  # fmt: skip


def musts(system_rows, floor):
    lines = quality_optim_report.musts(quality_optim_report.tell(floor, system_rows), ["gpt"])
    return {m.split()[1]: m.split()[4] for m in lines}


def test_the_report_and_its_must_lines(tmp_path):
    floor = rows("gpt", "plain", "", [1.9, 2.0, 2.1])  # noise 0.1
    good = rows("gpt", "policy", "4.0", [2.1, 2.2, 2.2], 3.9) + rows("gpt", "policy", "3.4", [2.0, 2.1, 2.2], 3.3) + rows("gpt", "torchao", "4", [2.0, 2.1, 2.1], 4.3)
    assert set(musts(good, floor).values()) == {"ok"}
    assert len(musts(good, floor)) == 4
    assert musts(rows("gpt", "policy", "4.0", [2.2, 2.3, 2.3], 4.1), floor) == {
        "optim_gpt_policy_4.0_bits": "short", "optim_gpt_policy_4.0_gap_sd": "short", "optim_gpt_policy_3.4_bits": "short", "optim_gpt_policy_3.4_above_torchao_4_sd": "short"
    }  # fmt: skip
    worse = good[:3] + rows("gpt", "policy", "3.4", [2.1, 2.2, 2.3], 3.3) + good[6:]
    assert musts(worse, floor)["optim_gpt_policy_3.4_above_torchao_4_sd"] == "short"
    document = tmp_path / "q.md"
    document.write_text(f"before\n{quality_optim_report.BEGIN}\nold\n{quality_optim_report.END}\nafter\n")
    found = quality_optim_report.tell(floor, good)
    quality_optim_report.report(floor, good, found, tmp_path, "quality-optim", document)
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| gpt | policy 4.0 | 3 | 3.900 | 3.900 | 3.900 | +0.1667 ± 0.1433 | +1.67 ± 1.43 | 1 |" in text
    assert "| gpt | policy 3.4 | torchao 4 | 3 | +0.33 ± 1.43 |" in text


def test_pairs_are_of_the_same_seeds():
    floor = rows("gpt", "plain", "", [1.9, 2.0, 2.1])
    some = rows("gpt", "policy", "3.4", [2.0, 2.1, 9.0]) + rows("gpt", "torchao", "4", [2.1, 2.2])
    d = quality_optim_report.difference(quality_optim_report.tell(floor, some), "gpt", *RIVAL)
    assert d.seeds == 2 and d.mean == pytest.approx(-1.0) and d.half == pytest.approx(0.0, abs=1e-6)
    assert quality_optim_report.difference(quality_optim_report.tell(floor, some), "gpt", "policy 3.4", "fixed 4") is None
    one = quality_optim_report.tell(floor, rows("gpt", "policy", "4.0", [2.1]))[0]
    assert math.isnan(one.gap_half) and one.sd == pytest.approx(1.0)


def test_a_row_that_stands_there_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setenv("BUDGET", "0")
    monkeypatch.setattr(quality_optim, "unavailable", lambda: "not here")
    alone = quality.Results(tmp_path / "p.csv")
    bench = quality_optim.Bench(True, "", quality.Bench(True, "plain"), {"gpt": alone})
    results = quality_optim.Results(tmp_path / "q.csv")
    assert bench.missing_plain("gpt") == [("plain", "", 0, 1), ("plain", "", 0, 2)]
    todo = bench.missing("gpt", results)
    assert ("policy", "4.0-state", 1) in todo and not any(system == "torchao" for system, *_ in todo)
    results.add({"commit": bench.commits["policy"], "task": "gpt", "system": "policy", "setting": "4.0", "seed": 1})
    results.add({"commit": "other", "task": "gpt", "system": "policy", "setting": "3.4", "seed": 1})
    assert bench.missing("gpt", results) == [job for job in todo if job != ("policy", "4.0", 1)]
    bench.run("gpt", results)  # no time is left: nothing is begun
    assert bench.plain.left == 2 and bench.left == len(todo) - 1 and len(results.rows) == 2 and not alone.rows
