# SPDX-License-Identifier: Apache-2.0
"""A run that keeps to a number of bits a parameter."""

from __future__ import annotations

import warnings

import ckpress
import pytest
import torch
from torch import nn

KEY_EVERY, PERIODS, STEPS = 8, 4, 10


class Training:
    """Wide enough that heads and manifests hardly count."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 64))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.done = 0

    def some(self) -> int:
        for _ in range(STEPS):
            x = torch.randn(32, 64)
            self.optimizer.zero_grad()
            (self.model(x) - x.roll(1, 1).tanh()).square().mean().backward()
            self.optimizer.step()
            self.done += 1
        return self.done


def costs(run, **options) -> tuple[list[float], list[float]]:
    """Bits a parameter and quality of each save."""
    t = Training()
    with ckpress.Checkpointer(run, "resume", key_every=KEY_EVERY, final_on_close=False, **options) as ck:
        for _ in range(PERIODS * KEY_EVERY):
            ck.save(t.some(), model=t.model, optimizer=t.optimizer, wait=True)
    listed = ckpress.list_run(run)
    return [8 * entry.stored_bytes / entry.params for entry in listed], [entry.settings["quality"] for entry in listed]


def late(bits) -> float:
    """Mean of the second half: whole periods."""
    half = bits[len(bits) // 2 :]
    return sum(half) / len(half)


def test_the_target_is_kept(tmp_path):
    free, _ = costs(tmp_path / "free")
    for share in (0.85, 1.3):
        bits, quality = costs(tmp_path / str(share), target_bits=share * late(free))
        assert 0.85 * share * late(free) <= late(bits) <= 1.03 * share * late(free)
        assert (quality[-1] > 1) == (share < 1)
        finer = [i for i, (a, b) in enumerate(zip(quality, quality[1:]), 1) if b < a]
        assert all(i % KEY_EVERY == 0 for i in finer), quality


def test_a_run_that_goes_on_keeps_its_quality(tmp_path):
    _, quality = costs(tmp_path / "run", target_bits=1.4)
    t = Training()
    t.some()
    with ckpress.Checkpointer(tmp_path / "run", "resume", key_every=KEY_EVERY, final_on_close=False, target_bits=1.4) as ck:
        ck.restore(model=t.model, optimizer=t.optimizer)
        ck.save(10_000, wait=True)
    assert ckpress.list_run(tmp_path / "run")[-1].settings["quality"] == pytest.approx(quality[-1]) != 1


def test_out_of_reach_is_told(tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, quality = costs(tmp_path / "run", target_bits=0.05)
    assert quality[-1] == 2 and any("target_bits 0.05 is out of reach" in str(w.message) for w in told)


@pytest.mark.parametrize("bad", [{"target_bits": 0}, {"target_bits": -1}, {"target_bits": 33}, {"target_bits": 1, "profile": "lossless"},
                                 {"target_bits": 1, "key_every": 1}, {"target_bits": 1, "eval_fn": lambda m: 0.0}])  # fmt: skip
def test_what_is_refused(tmp_path, bad):
    with pytest.raises(ckpress.InvalidError, match="target_bits"):
        ckpress.Checkpointer(tmp_path / "run", **{"profile": "resume", **bad})
    assert not (tmp_path / "run" / "run.json").exists()
