# SPDX-License-Identifier: Apache-2.0
"""ckpress.export() and import_run(): files that others read, and runs of theirs."""

import json
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import ckpress


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(50, 16)
        self.body = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("scale", torch.ones((), dtype=torch.bfloat16))


@pytest.fixture
def run(tmp_path):
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    path = str(tmp_path / "gpt")
    with ckpress.Checkpointer(path) as ck:
        for step in (10, 20):
            model.head(model.body(model.wte(torch.arange(8)))).square().mean().backward()
            optimizer.step()
            ck.save(step, model=model, optimizer=optimizer, extra={"lr": 0.1})
            ck.wait()
    return path, model


def test_hf(run, tmp_path):
    path, model = run
    out = str(tmp_path / "hf")
    done = ckpress.export(path, out, to="hf")
    assert done.name == "model.safetensors" and os.listdir(out) == [done.name] and done.files == 1
    got = load_file(out + "/model.safetensors")
    want = model.state_dict()
    assert got.keys() == want.keys() and all(torch.equal(got[k], want[k]) for k in want)
    with safe_open(out + "/model.safetensors", "pt") as f:
        assert f.metadata() == {"format": "pt"}
    with pytest.raises(ckpress.ExistsError):
        ckpress.export(path, out, to="hf")
    done = ckpress.export(path + "@10", out, to="hf", max_file_bytes=2000, overwrite=True)
    assert done.name == "model.safetensors.index.json" and "model.safetensors" not in os.listdir(out)
    index = json.load(open(out + "/" + done.name))
    first = ckpress.load(path + "@10")["model"]
    assert index["weight_map"].keys() == first.keys()
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(f"{out}/{file}")[name], first[name])
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in first.values())
    assert len(set(index["weight_map"].values())) == done.files - 1 > 1


def test_from_pretrained(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    with ckpress.Checkpointer(str(tmp_path / "run")) as ck:
        ck.save(1, model=model)
    for size in (5_000_000_000, 8000):
        out = str(tmp_path / f"hf{size}")
        ckpress.export(str(tmp_path / "run"), out, to="hf", max_file_bytes=size)
        config.save_pretrained(out)
        again, info = transformers.GPT2LMHeadModel.from_pretrained(out, output_loading_info=True)
        assert not any(info.values())
        assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))


def test_pt_and_safetensors(run, tmp_path):
    path, model = run
    out = tmp_path / "out"
    assert ckpress.export(path + "@20", out, to="pt").name == "gpt@20.pt"
    state = torch.load(out / "gpt@20.pt", weights_only=True)
    assert state["extra"] == {"lr": 0.1} and torch.equal(state["model"]["body.weight"], model.body.weight)
    assert state["model"]["head.weight"].data_ptr() == state["model"]["wte.weight"].data_ptr()
    done = ckpress.export(path, out, to="safetensors", only="model")
    assert load_file(out / done.name).keys() == model.state_dict().keys()
    with pytest.raises(ckpress.InvalidError):
        ckpress.export(path, out, to="gguf")


def test_import(run, tmp_path):
    path, _ = run
    files = []
    for step in (10, 20):
        ckpress.export(f"{path}@{step}", tmp_path / f"ck-{step}", to="pt")
        os.rename(tmp_path / f"ck-{step}" / f"gpt@{step}.pt", tmp_path / f"ck-{step}" / "all.pt")
        files.append(tmp_path / f"ck-{step}" / "all.pt")
    rows = ckpress.import_run(files[::-1], tmp_path / "imported")
    assert [(r.step, r.file) for r in rows] == [(10, str(files[0])), (20, str(files[1]))]
    for step in (10, 20):
        a, b = ckpress.load(f"{path}@{step}"), ckpress.load(f"{tmp_path}/imported@{step}")
        assert all(torch.equal(a["model"][k], b["model"][k]) for k in a["model"]) and a["extra"] == b["extra"]
    rows = ckpress.import_run(files, tmp_path / "lossy", profile="resume", in_order=True)
    assert [r.step for r in rows] == [1, 2] and sum(r.stored_bytes for r in rows) < sum(r.in_bytes for r in rows) / 2
    with pytest.raises(ckpress.ExistsError):
        ckpress.import_run(files, tmp_path / "lossy", in_order=True)
    with pytest.raises(ckpress.InvalidError):
        ckpress.import_run([files[0], files[0]], tmp_path / "other")
    save_file({"a": torch.ones(3)}, tmp_path / "x.safetensors")
    rows = ckpress.import_run([tmp_path / "x.safetensors"], tmp_path / "one", steps=[5])
    assert rows[0].step == 5 and torch.equal(ckpress.load(str(tmp_path / "one"))["a"], torch.ones(3))


def test_what_cannot_be_decoded_replaces_nothing(run, tmp_path):
    path, _ = run
    out = tmp_path / "hf"
    ckpress.export(path + "@10", out, to="hf", max_file_bytes=2000)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    newest = ckpress.list_run(path)[-1]
    shard = next((tmp_path / path / newest.dir).glob("*.ckp"))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) * 6 // 10] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(ckpress.Error):
        ckpress.export(f"{path}@{newest.step}", out, to="hf", max_file_bytes=2000, overwrite=True)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_urls_are_refused_by_name(run):
    for call in (ckpress.repair, ckpress.thin, lambda url: ckpress.import_run([run[0]], url, steps=[1])):
        with pytest.raises(ckpress.UnsupportedError, match="memory://bucket/run"):
            call("memory://bucket/run")
