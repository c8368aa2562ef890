# SPDX-License-Identifier: Apache-2.0
"""One object of a run as a file of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import ckpress

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = torch.nn.Embedding(40, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 40, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.norm(self.embed(x)))
        return out


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, torch.nn.Module]:
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.arange(30)).square().mean().backward()
    optimizer.step()
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        ck.save(3, model=model, optimizer=optimizer, model2=torch.nn.Linear(3, 3))
    return tmp_path / "run", model


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_weights_of_a_run_load_as_a_state_dict(tmp_path: Path, run: tuple[Path, torch.nn.Module], ending: str) -> None:
    where, model = run
    out = tmp_path / f"weights.{ending}"
    assert ckpress.decompress(where, out, only="model").tensors == len(model.state_dict())
    state = safetensors_torch.load_file(str(out)) if ending == "safetensors" else torch.load(out)
    there = Tied()
    there.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), there.state_dict().values()))
    if ending == "pt":
        assert state["embed.weight"].data_ptr() == state["head.weight"].data_ptr()


def test_the_command_takes_it(tmp_path: Path, run: tuple[Path, torch.nn.Module]) -> None:
    where, model = run
    out = tmp_path / "w.safetensors"
    done = subprocess.run(["ckpress", "decompress", f"{where}@3", "--only", "model", "-o", out], capture_output=True, text=True)
    assert done.returncode == 0 and "left out" not in done.stderr
    assert set(safetensors_torch.load_file(str(out))) == set(model.state_dict())


def test_what_is_not_there(tmp_path: Path, run: tuple[Path, torch.nn.Module]) -> None:
    for name in ("mode", "models", "", "step"):
        with pytest.raises(ckpress.NotFoundError):
            ckpress.decompress(run[0], tmp_path / "no.pt", only=name)
    assert not (tmp_path / "no.pt").exists()


def test_ls_tells_the_exact_save_of_a_step(tmp_path: Path) -> None:
    model = torch.nn.Linear(80, 80)
    optimizer = torch.optim.AdamW(model.parameters())
    with ckpress.Checkpointer(tmp_path / "run", "resume") as ck:
        ck.register(model=model, optimizer=optimizer)
        for step in (1, 2):
            model(torch.randn(4, 80)).sum().backward()
            optimizer.step()
            ck.save(step)
    lines = subprocess.run(["ckpress", "ls", tmp_path / "run"], capture_output=True, text=True).stdout.splitlines()
    assert ["exact" in line for line in lines] == [False, False, False, True]
