# SPDX-License-Identifier: Apache-2.0
"""Steps of single weights by name: files and runs."""

from __future__ import annotations

import numpy as np
import ckpress
import pytest
import torch
from helpers import same, steps as train, training


def grid(shape, step, reach, seed):
    k = torch.randint(-reach, reach + 1, shape, generator=torch.Generator().manual_seed(seed))
    return k.float() * torch.tensor(step, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_on_the_grid_come_back(tmp_path, dtype):
    state = {f"layer.{i}": grid((40 + i, 130), step, 127, i).to(dtype) for i, step in enumerate((0.01, 1 / 3, 2.0**-7))}
    state["layer.bias"] = grid((50,), 0.003, 127, 9).to(dtype)
    named = {"layer.0": 0.01, "layer.1": 1 / 3, "layer.2": 2.0**-7, "layer.bias": 0.003}
    if dtype != torch.float32:  # a grid of its own dtype's values
        state = {k: (t.float() / named[k]).round().clamp(-127, 127) * torch.tensor(0.25) for k, t in state.items()}
        state = {k: t.to(dtype) for k, t in state.items()}
        named = {k: 0.25 for k in named}
    ckpress.save(tmp_path / "a.ckp", state, profile="weights", steps=named)
    got = ckpress.load(tmp_path / "a.ckp")
    assert got.keys() == state.keys() and all(same(got[k], state[k]) for k in state)


def test_only_what_is_named_of_a_state_dict(tmp_path):
    state = {"w": torch.randn(80, 90), "x": torch.randn(80, 90), "n": torch.arange(5), "d": torch.randn(70, 70, dtype=torch.float64)}
    ckpress.save(tmp_path / "a.ckp", state, profile="weights", steps={"w": 0.05, "x": 0})
    got = ckpress.load(tmp_path / "a.ckp")
    assert same(got["x"], state["x"]) and same(got["n"], state["n"]) and same(got["d"], state["d"])
    error = (got["w"] - state["w"]).abs().max().item()
    assert 0.02 < error <= 0.025001
    with ckpress.open(tmp_path / "a.ckp") as f:
        assert f["w"].info["lossy"] and not f["x"].info["lossy"]
    with pytest.raises(ckpress.InvalidError, match="losslessly") as e:
        ckpress.save(tmp_path / "b.ckp", state, profile="weights", steps={"w": 0.05, "d": 0.05})
    assert e.value.tensor == "d"


def test_a_module(tmp_path):
    model, *_ = training()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    ckpress.save(tmp_path / "a.ckp", model, profile="weights", steps={"up.weight": 0.002})
    got = ckpress.load(tmp_path / "a.ckp")
    assert (got["up.weight"] - before["up.weight"]).abs().max().item() <= 0.001001
    ratio = got["up.weight"].numpy() / np.float32(0.002)
    assert np.abs(ratio - ratio.round()).max() < 1e-4


def test_wrong_steps_are_refused(tmp_path):
    state = {"w": torch.randn(80, 90)}
    for steps in ({"w": -1.0}, {"w": float("nan")}, {"w": True}, {"w": "fine"}, {3: 0.1}, {"w": 1e-40}):
        with pytest.raises(ckpress.InvalidError):
            ckpress.save(tmp_path / "a.ckp", state, profile="weights", steps=steps)
    with pytest.raises(ckpress.InvalidError, match="lossy"):
        ckpress.save(tmp_path / "a.ckp", state, steps={"w": 0.1})
    with pytest.raises(ckpress.InvalidError) as e:
        ckpress.save(tmp_path / "a.ckp", state, profile="weights", steps={"w": 0.1, "nobody": 0.1})
    assert e.value.tensor == "nobody"
    assert not list(tmp_path.iterdir())


def test_a_run(run):
    model, optimizer, scheduler = training()
    train(model, optimizer, scheduler, 4)
    with ckpress.Checkpointer(run, "resume", steps={"model/up.weight": 0.001}, final_on_close=False) as ck:
        for n in (1, 2):
            ck.save(n, model=model, optimizer=optimizer, scheduler=scheduler)
            ck.wait()
            got = ckpress.load(run)["model"]
            assert 0 < (got["up.weight"] - model.state_dict()["up.weight"]).abs().max().item() <= 0.0015001
            train(model, optimizer, scheduler, 1)
    with ckpress.Checkpointer(run, "resume", steps={"model/nobody": 0.001}, final_on_close=False) as ck:
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
        with pytest.raises(ckpress.InvalidError) as e:
            ck.save(3, model=model, optimizer=optimizer, scheduler=scheduler)
        assert e.value.tensor == "model/nobody"
    assert [c.step for c in ckpress.list_run(run)] == [1, 2]
