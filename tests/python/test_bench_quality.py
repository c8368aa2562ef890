# SPDX-License-Identifier: Apache-2.0
"""The quality bench: every baseline's decoder has what its encoder thinks it has, a tiny pair of each task runs to its end, the report."""

from __future__ import annotations

import math
import pathlib
import sys

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import quality  # noqa: E402
import quality_coding  # noqa: E402
import quality_gpt  # noqa: E402
import quality_report  # noqa: E402
import quality_rivals  # noqa: E402
import quality_runs  # noqa: E402
import quality_systems  # noqa: E402
from baselines import CODERS, SETTINGS, WEIGHTS_ONLY, pack, qd  # noqa: E402
from quality_curve import bits_at  # noqa: E402
from quality_images import ResNet  # noqa: E402


def state(step, moments=("m", "v")):
    """Weights that move a little from step to step, as training moves them, and a buffer."""
    r = np.random.default_rng(0)
    out = {}
    for k, s in {"a": (40, 33), "b": (7,), "c": (128, 2), "d": (6, 3, 3, 3)}.items():
        w, m, v = (r.normal(size=s).astype(np.float32) for _ in range(3))
        roles = {"w": w + np.float32(0.1 * step) * m, "m": m * np.float32(1e-3), "v": v**2 * np.float32(1e-6)}
        out[k] = {role: roles[role] for role in ("w", *moments)}
    return out | {"mean": {"w": np.arange(5, dtype=np.float32) + step}, "count": {"w": np.array(step)}}


@pytest.mark.parametrize("moments", [("m", "v"), ("m",)])
@pytest.mark.parametrize(("name", "setting"), [(n, s) for n, settings in SETTINGS.items() for s in settings])
def test_baseline_decodes_what_it_encoded(name, setting, moments):
    init = state(0, moments)
    coder, decoder = CODERS[name](setting, init), CODERS[name](setting, init)
    for step in (1, 2, 3):
        now = state(step, moments)
        raw = coder.encode(now)
        back = decoder.decode(raw)
        assert list(back) == list(now)
        for key, roles in now.items():
            assert list(back[key]) == list(roles)
            assert all(back[key][role].shape == roles[role].shape for role in roles)
            if hasattr(coder, "reference") and roles["w"].ndim > 1:
                assert np.array_equal(back[key]["w"], coder.reference[key])
        assert np.array_equal(back["b"]["w"], now["b"]["w"])
        assert np.array_equal(back["mean"]["w"], now["mean"]["w"]) and back["count"]["w"] == step
        assert np.abs(back["a"]["w"] - now["a"]["w"]).mean() < np.abs(now["a"]["w"]).mean()
        assert name != "rounding" or "v" not in moments or (back["a"]["v"] > 0).all()
        if name in WEIGHTS_ONLY:
            assert all(np.array_equal(back[k][role], now[k][role]) for k in "abcd" for role in moments)
            assert 0 < coder.weight_bytes < len(raw)


def test_cnr_is_within_half_a_step_and_draws_its_ends_in():
    w = np.random.default_rng(1).normal(size=(50, 400)).astype(np.float32)
    w[0, 0] = 100.0
    coder = CODERS["cnr+"]("64", {"a": {"w": w}})
    back = coder.decode(coder.encode({"a": {"w": w}}))["a"]["w"]
    plain = [qd.uniform(row, row.min(), row.max(), 64).astype(np.float32) * ((row.max() - row.min()) / 63) + row.min() for row in w]
    error, most = np.abs(back - w), (w.max(1) - w.min(1)) / 63
    assert (np.square(error).sum(1) <= np.square(np.stack(plain) - w).sum(1) * 1.01).all()
    assert (np.median(error, 1) <= most).all()


def test_qd_has_more_bins_where_the_weighted_entropy_is_larger_and_a_cyclic_delta():
    r = np.random.default_rng(2)
    spread, narrow = r.uniform(-1, 1, (60, 60)).astype(np.float32), r.choice([-1, 1], (60, 60)).astype(np.float32)
    coder = CODERS["qd+"]("256", {"spread": {"w": spread}, "narrow": {"w": narrow}})
    first = len(coder.encode({"spread": {"w": spread}, "narrow": {"w": narrow}}))
    assert coder.bins["spread"] == 256 and coder.bins["narrow"] == 16  # 8 and 1 bits of entropy
    assert len(coder.encode({"spread": {"w": spread}, "narrow": {"w": narrow}})) < first / 5


def test_huffman_and_nibbles_come_back():
    codes = np.random.default_rng(3).integers(0, 16, 1001).astype(np.uint8)
    assert np.array_equal(pack.unhuffman(pack.huffman(codes), (1001,)), codes)
    assert np.array_equal(pack.unnibble(pack.nibbles(codes), 1001), codes)


def test_the_curve_is_interpolated_and_never_extrapolated():
    curve = [(0.25, 0.08), (1.0, 0.02), (0.5, 0.09)]
    assert bits_at(curve, 0.08, 0.0) == 0.25
    assert bits_at(curve, 0.5, 0.0) == 0.25
    assert bits_at(curve, 0.05, 0.0) == pytest.approx(0.5)
    assert bits_at(curve, 0.02, 0.0) == pytest.approx(1.0)
    assert math.isnan(bits_at(curve, 0.01, 0.0))
    assert bits_at(curve, -0.01, 0.02) == pytest.approx(1.0)
    assert bits_at(curve, 0.0, 0.1) == 0.25


def test_restores_are_evenly_spaced():
    at, halfway = quality_runs.places(42, 20)
    assert at == set(range(2, 42, 2)) and halfway == set(range(3, 42, 2))
    at, halfway = quality_runs.places(42, 10)
    assert len(at) == 10 and {b - a for a, b in zip(sorted(at), sorted(at)[1:])} <= {3, 4}
    assert not at & halfway and len(halfway) == 10
    with pytest.raises(ValueError, match="do not fit"):
        quality_runs.places(8, 20)


def test_put_gives_arrays_back_with_buffers_and_momentum():
    net, other = ResNet(8, 1), ResNet(8, 1)
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in (net, other)]
    net(torch.randn(4, 1, 28, 28)).square().sum().backward()
    optimizers[0].step()
    taken = quality_rivals.arrays(net, optimizers[0])
    quality_rivals.put(taken, 1, other, optimizers[1])
    again = quality_rivals.arrays(other, optimizers[1])
    assert list(again) == list(taken) and "norm.running_mean" in taken and set(taken["head.weight"]) == {"w", "m"}
    assert all(np.array_equal(again[k][role], taken[k][role]) for k in taken for role in taken[k])


def test_a_tiny_pair(tmp_path):
    task = quality_gpt.Task(1, quick=True)
    reference = quality_runs.plain(task)
    assert quality_runs.plain(task)["loss"] == reference["loss"]
    results = quality.Results(tmp_path / "q.csv")
    for seed, shift in ((1, 0.0), (2, 0.01)):  # a second seed, so that there is a noise
        results.add({"commit": "c", "machine": "m", "compiler": "g", "task": "gpt", "system": "plain", "setting": "", "restores": 0, "seed": seed,
                     "steps": task.steps, **reference, "loss": reference["loss"] + shift})  # fmt: skip
    for system, setting in (("ckpress", "resume"), ("ckpress", "resume+key"), ("ckpress", "lossless"), ("excp", "4"), ("qd+", "64")):
        row = quality_runs.interrupted(task, system, setting, 10, reference)
        assert row["bits"] > 0 and row["save_s"] > 0
        assert setting != "lossless" or row["gap"] == 0 == row["saved_gap"] == row["final_gap"]
        assert system != "ckpress" or row["final_gap"] == 0
        assert abs(row["gap"]) < 0.5
        results.add({"commit": "c", "machine": "m", "compiler": "g", "task": "gpt", "system": system, "setting": setting, "restores": 10, "seed": 1,
                     "steps": task.steps, **row})  # fmt: skip
    again = quality.Results(tmp_path / "q.csv")
    assert again.rows == results.rows and again.find(system="excp", setting="4", seed=1)
    document = tmp_path / "q.md"
    document.write_text(f"before\n{quality_report.BEGIN}\nold\n{quality_report.END}\nafter\n")
    quality_report.report(again.newest(), tmp_path, "quality", document)
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text and "| gpt | excp | 4 | 10 |" in text
    lines = quality_report.musts(again.newest())
    assert any(m.startswith("MUST gpt_resume_10_final_gap 0 ") and m.endswith(" ok") for m in lines)
    assert any(m.startswith("MUST gpt_times_excp_4 ") for m in lines)


def test_a_run_that_stands_there_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setenv("BUDGET", "0")
    bench = quality.Bench(quick=True, only="")
    results = quality.Results(tmp_path / "q.csv")
    todo = bench._missing("gpt", results)
    assert ("plain", "", 0, 1) in todo
    results.add({"commit": bench.commits["plain"], "task": "gpt", "system": "plain", "setting": "", "restores": 0, "seed": 1})
    results.add({"commit": "other", "coding": bench.coding("gpt", "ckpress", "small"), "task": "gpt", "system": "ckpress", "setting": "small", "restores": 10, "seed": 1})
    results.add({"commit": bench.commits["ckpress"], "coding": "other", "task": "gpt", "system": "ckpress", "setting": "resume", "restores": 10, "seed": 1})
    assert bench._missing("gpt", results) == [j for j in todo if j not in (("plain", "", 0, 1), ("ckpress", "small", 10, 1))]
    bench.run("gpt", results)  # no time is left: nothing is begun
    assert bench.left == len(todo) - 2 and len(results.rows) == 3


def test_coding_has_a_fingerprint(monkeypatch):
    run = quality_coding.RUNS[0]
    monkeypatch.setattr(quality_coding, "RUNS", (run,))
    one = quality_coding.fingerprint("resume", False)
    assert quality_coding.fingerprint("resume", False) == one != quality_coding.fingerprint("small", False)
    monkeypatch.setattr(quality_coding, "RUNS", ((run[0], "resume:0.9", *run[2:]),))
    assert quality_coding.fingerprint("resume", False) != one


def test_systems_that_this_build_lacks_are_named():
    known = quality_systems.unavailable
    assert known("ckpress", "resume:0.3") == known("ckpress", "resume+eval") == known("excp", "4") == ""
    assert "nosuch" in quality_systems.missing({"nosuch": 1}) and quality_systems.missing({"quality": 1}) == ""
