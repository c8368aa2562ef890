# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning from a file: what was not trained stays as it is there, in few bits; the file is needed, and proved, at every restore."""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path

import pytest

import ckpress

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")


def pretrained(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    encoder = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 128))
    return torch.nn.ModuleDict({"encoder": encoder, "head": torch.nn.Linear(128, 4)})


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "encoder.safetensors"
    safetensors_torch.save_file(pretrained()["encoder"].state_dict(), str(path))
    return path


def fine_tune(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        x = torch.randn(32, 64)
        loss = (model["head"](model["encoder"](x)) - x[:, :4]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = pretrained()
    model["encoder"][0].weight.requires_grad_(False)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-5)


def test_a_fine_tuning_saves_what_it_changed(tmp_path: Path, base: Path) -> None:
    sizes = {}
    for name, given in (("with", base), ("without", None)):
        model, optimizer = fresh()
        with ckpress.Checkpointer(tmp_path / name, "resume", base=given, final_on_close=False) as ck:
            ck.register(model=model, optimizer=optimizer)
            for step in range(5, 25, 5):
                fine_tune(model, optimizer, 5)
                ck.save(step)
            ck.wait()
        there, optimizer = fresh()
        with torch.no_grad():
            for p in there.parameters():
                p.zero_()
        with ckpress.Checkpointer(tmp_path / name, "resume", base=given, final_on_close=False) as ck:
            assert ck.restore(model=there, optimizer=optimizer) == 20
            ck.save(21)
        listed = ckpress.list_run(tmp_path / name)
        assert [e.is_delta for e in listed] == [False, True, True, True, True]
        live, back = model.state_dict(), there.state_dict()
        key = "encoder.2.weight"
        error = float((live[key] - back[key]).norm() / live[key].norm())
        sizes[name] = (sum(e.stored_bytes for e in listed), error)
        with ckpress.open(f"{tmp_path / name}@20") as f:
            assert torch.equal(f["model/encoder.0.weight"][:], live["encoder.0.weight"])
    assert sizes["with"][1] < sizes["without"][1] / 2
    assert sizes["with"][0] < sizes["without"][0]


@pytest.mark.parametrize("form", ["safetensors", "pt", "ckp"])
def test_lossless_and_every_kind_of_file(tmp_path: Path, form: str) -> None:
    model, optimizer = fresh()
    path = tmp_path / f"base.{form}"
    if form == "safetensors":
        safetensors_torch.save_file(model.state_dict(), str(path))
    elif form == "pt":
        torch.save({"model": model.state_dict(), "epoch": 3}, path)
    else:
        ckpress.save(path, model.state_dict())
    for name, given in (("with", path), ("without", None)):
        with ckpress.Checkpointer(tmp_path / name, base=given, rng=False) as ck:
            ck.register(model=model)
            ck.save(1)
        back = ckpress.load(tmp_path / name)["model"]
        assert all(torch.equal(back[k], v) for k, v in model.state_dict().items())
    size = {n: sum(e.stored_bytes for e in ckpress.list_run(tmp_path / n)) for n in ("with", "without")}
    assert size["with"] < size["without"] / 20, "nothing changed since the base"


def test_the_base_must_be_there_and_the_same(tmp_path: Path, base: Path) -> None:
    model, optimizer = fresh()
    run = tmp_path / "run"
    with ckpress.Checkpointer(run, "resume", base=base) as ck:
        ck.register(model=model, optimizer=optimizer)
        fine_tune(model, optimizer, 3)
        ck.save(3)
    live = {k: v.clone() for k, v in model.state_dict().items()}
    moved = tmp_path / "elsewhere" / base.name
    moved.parent.mkdir()
    base.rename(moved)
    with pytest.raises(ckpress.BaseMismatchError, match="base model") as e:
        ckpress.load(run)
    assert base.name in str(e.value)
    with pytest.raises(ckpress.NotFoundError):
        ckpress.Checkpointer(run, "resume", base=base)
    with ckpress.Checkpointer(run, "resume") as ck, pytest.raises(ckpress.BaseMismatchError):
        ck.restore(model=model, optimizer=optimizer)
    for place in (moved, None):  # as given; then beside the checkpoints
        if place is None:
            moved.rename(run / base.name)
        back = ckpress.load(run, base=place)["model"]
        assert all(torch.equal(back[k], v) for k, v in live.items()), "close() stores weights exactly"
        ckpress.verify(run, base=place, level="decode")
    wrong = pretrained(1)
    safetensors_torch.save_file(wrong["encoder"].state_dict(), str(run / base.name))
    with pytest.raises(ckpress.BaseMismatchError, match="content id"):
        ckpress.load(run)


def test_the_command_takes_it(tmp_path: Path, base: Path) -> None:
    model, optimizer = fresh()
    run = tmp_path / "run"
    with ckpress.Checkpointer(run, base=base) as ck:
        ck.register(model=model)
        ck.save(1)
    moved = tmp_path / "moved.safetensors"
    base.rename(moved)
    tell = {"capture_output": True, "text": True}
    bad = subprocess.run(["ckpress", "verify", run], **tell)
    assert bad.returncode != 0 and base.name in bad.stderr
    assert subprocess.run(["ckpress", "verify", run, "--decode", "--base", moved], **tell).returncode == 0
    out = tmp_path / "out.pt"
    assert subprocess.run(["ckpress", "decompress", run, "--base", moved, "-o", out], **tell).returncode == 0
    assert torch.equal(torch.load(out)["model"]["encoder.2.weight"], model.state_dict()["encoder.2.weight"])
    assert os.path.exists(moved)
    listed = subprocess.run(["ckpress", "ls", run], **tell)
    assert f"base model: {base} IS MISSING" in listed.stdout
    os.mkfifo(base)  # no file, and nobody writes to it
    assert f"base model: {base} IS MISSING" in subprocess.run(["ckpress", "ls", run], **tell, timeout=30).stdout
    base.unlink()
    moved.rename(base)
    assert f"base model: {base}\n" in subprocess.run(["ckpress", "ls", run], **tell).stdout
    assert f"base model: {base}\n" in subprocess.run(["ckpress", "info", run], **tell).stdout
    assert ckpress.list_run(run)[0].base_model == str(base)


def test_an_export_beside_it(tmp_path: Path, base: Path) -> None:
    """The directory that a model was taken from is where its successor is easily exported to."""
    model, _ = fresh()
    with ckpress.Checkpointer(tmp_path / "run", base=base) as ck:
        ck.save(1, model=model)
    place = tmp_path / "model"
    place.mkdir()
    moved = base.rename(place / "model.safetensors")
    for size in (1 << 30, 20_000):
        with pytest.raises(ckpress.InvalidError, match="it is a base"):
            ckpress.export(tmp_path / "run", place, to="hf", base=moved, overwrite=True, max_file_bytes=size)
        assert os.listdir(place) == ["model.safetensors"]
    assert torch.equal(ckpress.load(tmp_path / "run", base=moved)["model"]["head.weight"], model.state_dict()["head.weight"])


def test_files_that_are_no_base(tmp_path: Path) -> None:
    model, _ = fresh()
    text = tmp_path / "notes.txt"
    text.write_text("not weights")
    with pytest.raises(ckpress.FormatError):
        ckpress.Checkpointer(tmp_path / "a", base=text)
    other = tmp_path / "other.safetensors"
    safetensors_torch.save_file({"x": torch.zeros(3)}, str(other))
    ck = ckpress.Checkpointer(tmp_path / "b", base=other, final_on_close=False)
    ck.register(model=model)
    with pytest.raises(ckpress.BaseMismatchError, match="no weight"):
        ck.save(1)
    ck.close()


@pytest.mark.parametrize("waits", [True, False])
def test_a_model_that_hardly_moves_is_noticed(tmp_path: Path, base: Path, waits: bool) -> None:
    for given, hardly in ((None, True), (base, False)):
        model, optimizer = fresh()
        with ckpress.Checkpointer(tmp_path / str(hardly), "resume", base=given, final_on_close=False) as ck:
            ck.register(model=model, optimizer=optimizer)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for step in range(5, 25, 5):
                    fine_tune(model, optimizer, 5)
                    ck.save(step, wait=waits)
        assert [("base=" in str(w.message)) for w in caught if "ckpress" in str(w.message)] == [True] * hardly


def test_a_hint_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The save has been taken, and must not seem to have failed."""

    def fails(place: str) -> None:
        raise ckpress.FileError(5, "no answer")

    model, optimizer = fresh()
    with ckpress.Checkpointer(tmp_path / "run", "resume") as ck:
        ck.register(model=model, optimizer=optimizer)
        with monkeypatch.context() as patch:
            patch.setattr("ckpress._notes._core.list_run", fails)
            for step in range(1, 4):
                fine_tune(model, optimizer, 1)
                assert ck.save(step)
    assert [row.step for row in ckpress.list_run(tmp_path / "run")] == [1, 2, 3, 3]


def test_a_base_that_is_overwritten_is_told(tmp_path: Path, base: Path) -> None:
    model, optimizer = fresh()
    run = tmp_path / "run"
    with ckpress.Checkpointer(run, "resume", base=base, final_on_close=False) as ck:
        ck.register(model=model, optimizer=optimizer)
        fine_tune(model, optimizer, 5)
        ck.save(5, wait=True)
        safetensors_torch.save_file(pretrained(7)["encoder"].state_dict(), str(base))
        with pytest.warns(RuntimeWarning, match="base model .* has changed"):
            ck.save(6, wait=True)
        ck.save(7, wait=True)
    assert [e.is_delta for e in ckpress.list_run(run)] == [False, False, True]
    assert ckpress.load(run)["step"] == 7
    with pytest.raises(ckpress.BaseMismatchError):
        ckpress.load(f"{run}@5")


def test_weights_are_read_from_a_plain_state_dict(tmp_path: Path) -> None:
    model = pretrained(3)
    ckpress.save(tmp_path / "a.ckp", model.state_dict())
    there = pretrained(4)
    ckpress.load_weights(tmp_path / "a.ckp", there)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), there.state_dict().values()))
    there["head"] = torch.nn.Linear(128, 9)
    kept = there["head"].weight.clone()
    with pytest.raises(ckpress.MismatchError):
        ckpress.load_weights(tmp_path / "a.ckp", there)
    ckpress.load_weights(tmp_path / "a.ckp", there, strict=False)
    assert torch.equal(there["head"].weight, kept)
