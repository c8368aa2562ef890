# SPDX-License-Identifier: Apache-2.0
"""Other people's files through the Python functions; the command has its own tests."""

from __future__ import annotations

import collections
import os
import pickle

import ckpress
import numpy as np
import pytest
import torch
from helpers import same, steps, training
from safetensors.torch import load_file, save_file


def test_safetensors_comes_back_byte_for_byte(tmp_path):
    tensors = {"b": torch.randn(1000, 50).bfloat16(), "a": torch.arange(7), "e": torch.zeros(0, 3)}
    save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "pt", "x": "é"})
    done = ckpress.compress(tmp_path / "m.safetensors")
    assert done.kind == "safetensors" and done.tensors == 3 and done.out_bytes == (tmp_path / "m.ckp").stat().st_size
    ckpress.decompress(tmp_path / "m.ckp", tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()
    got = ckpress.load(tmp_path / "m.ckp")
    assert set(got) == set(tensors) and all(same(got[k], v) for k, v in tensors.items())


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_pt(tmp_path, zipped):
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    obj = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "odd": [(1, 2.5, None, True), {"k": torch.Size([2])}, torch.float16, 1 << 70],
    }
    torch.save(obj, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    ckpress.compress(tmp_path / "x.pt", tmp_path / "x.ckp")
    got = ckpress.load(tmp_path / "x.ckp")
    assert same(got, obj) and got["model"]._metadata == obj["model"]._metadata
    assert got["model"]["head.weight"].data_ptr() == got["model"]["embed.weight"].data_ptr()
    ckpress.decompress(tmp_path / "x.ckp", tmp_path / "back.pt")
    assert same(torch.load(tmp_path / "back.pt", weights_only=True), obj)


def test_what_python_saved_becomes_a_pt(tmp_path):
    obj = {
        "t": torch.randn(5, 3).t(),
        "p": torch.nn.Parameter(torch.ones(2)),
        "n": [1, (2.0, "x"), {"a": b"b"}, {1, 2}],
        "o": collections.OrderedDict(x=torch.arange(3)),
        "rng": (3, tuple(range(625)), None),
        "state": b"x" * 1000,
    }
    ckpress.save(tmp_path / "x.ckp", obj)
    ckpress.decompress(tmp_path / "x.ckp", tmp_path / "x.pt")
    got = torch.load(tmp_path / "x.pt", weights_only=True)
    for key in obj:
        assert same(got[key], obj[key].contiguous() if key == "t" else obj[key]), key


def test_a_shard_of_a_run_becomes_a_pt(tmp_path):
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        ck.save(2, model=model, optimizer=optimizer, scheduler=scheduler)
    shard = next((tmp_path / "run").glob("step-*/*.ckp"))
    ckpress.decompress(shard, tmp_path / "x.pt")
    got = torch.load(tmp_path / "x.pt", weights_only=False)
    assert all(same(got["model"][k], v) for k, v in model.state_dict().items())
    other = training(3)[0]
    other.load_state_dict(got["model"])


def test_a_run_becomes_a_pt_that_weights_only_reads(tmp_path):
    """With the states of all generators: nothing in it is numpy's unless the user saved some."""
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    mine = {name.lower(): np.random.Generator(getattr(np.random, name)(3)) for name in ("MT19937", "PCG64", "Philox", "SFC64")}
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        ck.save(2, model=model, optimizer=optimizer, scheduler=scheduler, epoch=1, **mine)
    shard = next((tmp_path / "run").glob("step-*/*.ckp"))
    ckpress.decompress(shard, tmp_path / "x.pt")
    got = torch.load(tmp_path / "x.pt", weights_only=True)
    assert all(same(got["model"][k], v) for k, v in model.state_dict().items())
    np.random.set_state(got["rng"]["numpy"])
    mine["philox"].bit_generator.state = got["philox"]
    assert same(got["rng"]["torch"], torch.get_rng_state())


def test_a_step_of_a_run_by_its_name(tmp_path):
    """``run@step`` wherever a file may stand that is read, as in the command."""
    model, optimizer, scheduler = training()
    saved = {}
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        for step in (1, 2):
            steps(model, optimizer, scheduler, 1)
            saved[step] = {k: v.clone() for k, v in model.state_dict().items()}
            ck.save(step, model=model, wait=True)
    for place, step in ((f"{tmp_path}/run@1", 1), (tmp_path / "run@2", 2), (tmp_path / "run", 2)):
        done = ckpress.decompress(place, tmp_path / "x.pt", overwrite=True)
        got = torch.load(tmp_path / "x.pt", weights_only=False)["model"]
        assert done.kind == "pt" and all(same(got[k], v) for k, v in saved[step].items())
        assert same(ckpress.load(place)["model"]["up.weight"], saved[step]["up.weight"])
        with ckpress.open(place) as f:
            assert f.info["step"] == step
    ckpress.decompress(tmp_path / "run@2", tmp_path / "w.safetensors")
    assert any(name.endswith("up.weight") for name in load_file(tmp_path / "w.safetensors"))
    with pytest.raises(ckpress.ExistsError):
        ckpress.decompress(f"{tmp_path}/run@1", tmp_path / "x.pt")
    for gone in ("run@3", "run@-1", "none@1"):
        with pytest.raises(ckpress.NotFoundError):
            ckpress.decompress(tmp_path / gone, tmp_path / "y.pt")
    assert not (tmp_path / "y.pt").exists()


def test_a_file_of_weights_says_so(tmp_path):
    model = training()[0]
    for profile in ("weights", "lossless", "small"):
        ckpress.save(tmp_path / "w.ckp", {"model": model}, profile=profile)
        with ckpress.open(tmp_path / "w.ckp") as f:
            assert f.info["profile"] == profile and f.info["settings"] == {}


def test_what_each_tensor_takes(tmp_path):
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    tied = model.up.weight
    ckpress.save(tmp_path / "s.ckp", {"model": model, "optimizer": optimizer, "tied": tied, "low": tied.detach().bfloat16(), "zeros": torch.zeros(5000)})
    with ckpress.open(tmp_path / "s.ckp") as f:
        found = f.tensors
        assert list(found) == list(f) and sum(t["stored_bytes"] for t in found.values()) <= f.info["stored_bytes"]
        weight = found["model/up.weight"]
        assert (weight["role"], weight["dtype"], weight["shape"], weight["lossy"]) == ("weight", "f32", tuple(tied.shape), False)
        assert weight["raw_bytes"] == 4 * tied.numel() and weight["bits_per_element"] == pytest.approx(8 * weight["stored_bytes"] / tied.numel(), rel=1e-3)
        assert found["optimizer/up.weight/exp_avg"]["owner"] == found["tied"]["alias_of"] == found["low"]["copy_of"] == "model/up.weight"
        assert (found["low"]["codec"], weight["owner"]) == ("derived", None) and weight["codec"] in ("planes", "raw", "mask")


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/ckpress-was-here",)


def test_a_pickle_that_calls_is_refused(tmp_path):
    torch.save({"a": torch.ones(1), "evil": Evil()}, tmp_path / "x.pt")
    with pytest.raises(ckpress.UnsafeError, match="system"):
        ckpress.compress(tmp_path / "x.pt")
    assert not (tmp_path / "x.ckp").exists() and not os.path.exists("/tmp/ckpress-was-here")


def test_delta_of_files(tmp_path):
    t = torch.randn(100_000)
    save_file({"t": t}, tmp_path / "a.safetensors")
    t[::1000] += 1
    save_file({"t": t}, tmp_path / "b.safetensors")
    ckpress.compress(tmp_path / "a.safetensors")
    done = ckpress.compress(tmp_path / "b.safetensors", base=tmp_path / "a.ckp")
    assert done.out_bytes * 10 < done.in_bytes
    ckpress.decompress(tmp_path / "b.ckp", tmp_path / "back.safetensors", base=[tmp_path / "a.ckp"])
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_not_over_another_file(tmp_path):
    save_file({"t": torch.ones(3)}, tmp_path / "m.safetensors")
    (tmp_path / "m.ckp").write_bytes(b"mine")
    with pytest.raises(ckpress.ExistsError):
        ckpress.compress(tmp_path / "m.safetensors")
    assert (tmp_path / "m.ckp").read_bytes() == b"mine"
    ckpress.compress(tmp_path / "m.safetensors", overwrite=True)


def test_not_a_known_file(tmp_path):
    (tmp_path / "x.bin").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ckpress.Error):
        ckpress.compress(tmp_path / "x.bin")


@pytest.mark.parametrize("read", [ckpress.load, ckpress.open])
def test_what_a_foreign_file_is(tmp_path, read):
    """load("sd.pt") is the first thing that a new user tries."""
    import numpy

    torch.save({"a": torch.ones(3)}, tmp_path / "new.pt")
    torch.save({"a": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    save_file({"a": torch.ones(3)}, tmp_path / "x.safetensors")
    numpy.savez(tmp_path / "x.npz", a=numpy.ones(3))
    (tmp_path / "x.json").write_text('{"step": 1, "more": "than eight bytes"}')
    (tmp_path / "junk").write_bytes(b"no magic at all, but a few bytes more than a header needs to be one")
    want = {"new.pt": "torch.load.*ckpress.compress", "old.pt": "torch.load", "x.safetensors": "safetensors.*ckpress.compress"}
    want |= {"x.npz": "numpy.load", "x.json": "run's directory", "junk": "not a .ckp file[^;]*$"}
    for name, text in want.items():
        with pytest.raises(ckpress.FormatError, match=text) as caught:
            read(tmp_path / name)
        assert caught.value.file == str(tmp_path / name)


def test_verify_goes_as_deep_as_the_command():
    import inspect

    assert inspect.signature(ckpress.verify).parameters["level"].default == "data"


def test_paths_that_are_no_text(tmp_path):
    """Of a path that is not UTF-8, and of one that is cut inside of a character where the library keeps 255 bytes."""
    for name in (os.fsdecode(b"\xff.ckp"), *(f"{'a' * k}{'训' * 60}/{'训' * 40}.ckp" for k in range(3))):
        path = str(tmp_path / name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        ckpress.save(path, {"w": np.arange(8.0)})
        with ckpress.open(path) as ck:
            assert ck.info["name"].startswith(str(tmp_path))
        os.truncate(path, 100)
        with pytest.raises(ckpress.TruncatedError) as caught:
            ckpress.verify(path)
        assert len(caught.value.findings) == 1
