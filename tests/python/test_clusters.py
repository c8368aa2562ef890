# SPDX-License-Identifier: Apache-2.0
"""``optimizer_states``: moments in clusters beside lossless weights."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import ckpress
import pytest
import torch
from ckpress import _core
from ckpress._coding import coding
from helpers import same
from torch import nn

WAYS = ("cluster", "codebook")


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 200), nn.GELU(), nn.Linear(200, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        loss = model(torch.randn(16, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("way", WAYS)
def test_run(tmp_path: Path, way: str) -> None:
    model, optimizer = trained()
    with ckpress.Checkpointer(tmp_path / "run", optimizer_states=way) as ck:
        ck.restore(model=model, optimizer=optimizer)
        ck.save(1, wait=True)
        stats = ck.stats
    fresh, other = trained()
    with ckpress.Checkpointer(tmp_path / "run", optimizer_states=way) as ck:
        assert ck.restore(model=fresh, optimizer=other) == 1
    assert same(dict(fresh.state_dict()), dict(model.state_dict()))
    for role, key in (("m", "exp_avg"), ("v", "exp_avg_sq")):
        pairs = [(optimizer.state[p][key].double(), other.state[q][key].double()) for p, q in zip(model.parameters(), fresh.parameters())]
        assert all(same(a, b) for a, b in pairs if a.numel() < 4096)
        large = [(a, b) for a, b in pairs if a.numel() >= 4096]
        a, b = (torch.cat([pair[i].flatten() for pair in large]) for i in (0, 1))
        assert stats["mse_by_role"][role] == pytest.approx((a - b).square().mean().item(), rel=1e-6)
        assert stats["mre_by_role"][role] == pytest.approx(((a - b).abs() / a.abs())[a != 0].mean().item(), rel=1e-6)
        assert stats["stored_by_role"][role] < stats["raw_by_role"][role] / (2 if way == "cluster" else 4) * 1.1


@pytest.mark.parametrize("way", WAYS)
def test_command(tmp_path: Path, way: str) -> None:
    """A .pt of a training, compressed, told of and decompressed again."""
    model, optimizer = trained()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, tmp_path / "s.pt")
    subprocess.run(["ckpress", "compress", "-q", f"--optimizer-states={way}", tmp_path / "s.pt"], check=True)
    told = json.loads(subprocess.run(["ckpress", "info", "--json", tmp_path / "s.ckp"], check=True, capture_output=True).stdout)
    assert told["clusters"].keys() == {"m", "v"} and all(e["mse"] > 0 and e["mre"] > 0 for e in told["clusters"].values())
    # as a run of one file too
    _core.import_run(str(tmp_path / "run"), (str(tmp_path / "s.pt"),), None, True, coding("lossless", 1.0, 1, 0, None, None, way), None)
    run = json.loads(subprocess.run(["ckpress", "info", "--json", tmp_path / "run"], check=True, capture_output=True).stdout)
    assert run["clusters"].keys() == {"m", "v"}
    assert "error of v: MRE" in subprocess.run(["ckpress", "info", tmp_path / "s.ckp"], check=True, capture_output=True, text=True).stdout
    subprocess.run(["ckpress", "decompress", "-q", "-o", tmp_path / "back.pt", tmp_path / "s.ckp"], check=True)
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    assert same(dict(back["model"]), dict(state["model"]))
    a, b = state["optimizer"]["state"][0]["exp_avg"], back["optimizer"]["state"][0]["exp_avg"]
    assert not same(a, b) and torch.allclose(a, b, rtol=1e-2 if way == "cluster" else 1, atol=a.abs().max().item() / 50)


def test_refused(tmp_path: Path) -> None:
    model, optimizer = trained()
    with pytest.raises(ckpress.InvalidError, match="optimizer_states must be one of"):
        ckpress.save(tmp_path / "x.ckp", {"model": model}, optimizer_states="k-means")  # type: ignore[arg-type]
    with pytest.raises(ckpress.InvalidError, match="its own way"):
        ckpress.Checkpointer(tmp_path / "run", profile="resume", optimizer_states="cluster")
    with pytest.raises(ckpress.InvalidError, match="needs the live optimizer"):
        ckpress.save(tmp_path / "x.ckp", {"o": optimizer.state_dict()}, optimizer_states="cluster")
    assert not (tmp_path / "x.ckp").exists()
