# SPDX-License-Identifier: Apache-2.0
"""The quality bench: every baseline's decoder has what its encoder thinks it has, and a tiny pair runs to its end."""

from __future__ import annotations

import pathlib
import sys

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import quality  # noqa: E402
import quality_gpt  # noqa: E402
from baselines import CODERS, SETTINGS  # noqa: E402


def state(step):
    """Weights that move a little from step to step, as training moves them."""
    r = np.random.default_rng(0)
    out = {}
    for k, s in {"a": (40, 33), "b": (7,), "c": (128, 2)}.items():
        w, m, v = (r.normal(size=s).astype(np.float32) for _ in range(3))
        out[k] = {"w": w + np.float32(0.1 * step) * m, "m": m * np.float32(1e-3), "v": v**2 * np.float32(1e-6)}
    return out


@pytest.mark.parametrize(("name", "setting"), [(n, s) for n, settings in SETTINGS.items() for s in settings])
def test_baseline_decodes_what_it_encoded(name, setting):
    init = state(0)
    coder, decoder = CODERS[name](setting, init), CODERS[name](setting, init)
    for step in (1, 2, 3):
        now = state(step)
        back = decoder.decode(coder.encode(now))
        assert list(back) == list(now)
        for key, roles in now.items():
            assert all(back[key][role].shape == roles[role].shape for role in "wmv")
            if hasattr(coder, "reference") and roles["w"].ndim > 1:
                assert np.array_equal(back[key]["w"], coder.reference[key])
        assert np.array_equal(back["b"]["w"], now["b"]["w"])
        assert np.abs(back["a"]["w"] - now["a"]["w"]).mean() < np.abs(now["a"]["w"]).mean()
        assert name != "rounding" or (back["a"]["v"] > 0).all()


def test_a_tiny_pair():
    task = quality_gpt.Task(1, quick=True)
    reference = quality.plain(task)
    assert quality.plain(task)["loss"] == reference["loss"]
    for system, setting in (("ckpress", "resume"), ("ckpress", "lossless"), ("excp", "4")):
        row = quality.interrupted(task, system, setting, 10, reference)
        assert row["bits"] > 0
        assert setting != "lossless" or row["gap"] == 0
        assert abs(row["gap"]) < 0.5
