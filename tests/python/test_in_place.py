# SPDX-License-Identifier: Apache-2.0
"""What somebody holds is what was restored: containers, and what is alive in them."""

from __future__ import annotations

import array
import collections

import ckpress
import numpy as np
import pytest
import torch
from ckpress import _core
from ckpress._decode import Leaf
from ckpress._restore import made_beside
from helpers import same
from torch import nn


def stepped(optimizer, params):
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer


def pair(seed):
    torch.manual_seed(seed)
    a, b = nn.Linear(3, 2), nn.Linear(2, 3)
    optimizers = [stepped(torch.optim.Adam(m.parameters(), lr=seed + 0.5), list(m.parameters())) for m in (a, b)]
    return {"a": a, "rest": (b, "b"), "round": seed}, optimizers


def test_modules_and_optimizers_in_containers(run):
    models, optimizers = pair(1)
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, models=models, optimizers=optimizers)
    live, into = pair(2)
    live["late"] = 3
    kept, weight, states = (live["a"], live["rest"][0], *into), live["a"].weight, [o.state for o in into]
    with ckpress.Checkpointer(run, rng=False) as ck:
        assert ck.restore(models=live, optimizers=into) == 1
    assert (live["a"], live["rest"][0], *into) == kept and live["a"].weight is weight and states == [o.state for o in into]
    assert live["round"] == 1 and "late" not in live
    for was, now in ((models["a"], live["a"]), (models["rest"][0], live["rest"][0])):
        assert same(dict(was.state_dict()), dict(now.state_dict()))
    for was, now in zip(optimizers, into):
        assert same(was.state_dict(), now.state_dict())


@pytest.mark.parametrize("change", [lambda m: m.pop("a"), lambda m: m.update(rest=[m["rest"][0], "b"]), lambda m: m.update(rest=(m["rest"][0], "c")), lambda m: m.update(a=m["rest"][0])])
def test_other_things_in_containers(run, change):
    models, _ = pair(1)
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, models={"b": models["rest"][0], **models} if len(models) == 2 else models)
        live, _ = pair(2)
        before = live["a"].weight.clone()
        weight = live["a"].weight
        change(live)
        if "a" not in live:
            live["c"] = nn.Linear(1, 1)
        with pytest.raises(ckpress.MismatchError, match="nothing was restored"):
            ck.restore(models=live)
        assert torch.equal(weight, before)


def test_training_that_went_on_in_a_container(run):
    """close() makes its last save of what is the last save's."""
    models, optimizers = pair(1)
    with ckpress.Checkpointer(run, "resume") as ck:
        ck.save(1, models=models, optimizers=optimizers)
        stepped(optimizers[0], list(models["a"].parameters()))
    assert len(ckpress.list_run(run)) == 1


def test_masters_in_a_list(run):
    """The optimizer holds them too."""
    model = nn.Linear(3, 3).bfloat16()
    masters = [nn.Parameter(p.detach().float() / 3) for p in model.parameters()]
    optimizer = stepped(torch.optim.SGD(masters, lr=0.1, momentum=0.9), masters)
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, model=model, optimizer=optimizer, masters=masters)
    live = [nn.Parameter(torch.zeros_like(p)) for p in masters]
    into, kept = torch.optim.SGD(live, lr=0.1, momentum=0.9), list(live)
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.restore(model=model, optimizer=into, masters=live)
    assert all(a is b and torch.equal(a, c) for a, b, c in zip(kept, live, masters)) and len(into.state) == 2


def test_a_placeholder_of_the_models_parameters(run):
    """The module restores those; the dict gets what was saved in it."""
    model = nn.Linear(3, 3)
    optimizer = stepped(torch.optim.Adam(model.parameters()), list(model.parameters()))
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, model=model, optimizer=optimizer, extra={"best": {name: p.detach() + 1 for name, p in model.named_parameters()}})
        extra, before = {"best": dict(model.named_parameters())}, model.weight.detach().clone()
        ck.restore(model=model, optimizer=optimizer, extra=extra)
    assert torch.equal(model.weight, before) and torch.equal(extra["best"]["weight"], before + 1)


def test_tensors_in_containers(run):
    """As a module's: whoever holds them sees what was restored."""
    def made(x):
        frozen = nn.Parameter(torch.full((2,), x), requires_grad=False)
        return {"ema": {"a": torch.full((3,), x), "b": nn.Parameter(torch.full((2, 2), x))}, "list": [torch.full((1,), x), frozen], "odd": collections.defaultdict(list, k=torch.full((4,), x))}

    live = made(0.0)
    held = [*live["ema"].values(), *live["list"], live["odd"]["k"]]
    live["ema"]["late"] = torch.zeros(1)
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, **{**made(1.0), "more": {"new": torch.ones(2)}})
        more = {"old": 1}
        ck.restore(**live, more=more)
    assert all(a is b for a, b in zip(held, [*live["ema"].values(), *live["list"], live["odd"]["k"]], strict=True))
    assert all(t.eq(1).all() for t in held) and held[1].requires_grad and not held[3].requires_grad
    assert set(live["ema"]) == {"a", "b"} and same(more, {"new": torch.ones(2)})


@pytest.mark.parametrize("here", [torch.zeros(0), torch.zeros(4), torch.zeros(3, dtype=torch.float64)])
def test_tensors_in_containers_that_have_grown(run, here):
    """Logs and replay buffers do: the container gets what was saved, what fits is in its place."""
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, log={"deep": [torch.ones(3)], "frozen": nn.Parameter(torch.ones(3), requires_grad=False), "w": torch.ones(2)})
        live = {"deep": [here], "frozen": nn.Parameter(here.clone(), requires_grad=False), "w": torch.zeros(2)}
        w = live["w"]
        ck.restore(log=live)
    assert torch.equal(live["deep"][0], torch.ones(3)) and type(live["frozen"]) is nn.Parameter and torch.equal(live["frozen"], torch.ones(3))
    assert live["w"] is w and w.all() and not here.any()


@pytest.mark.parametrize("as_", ["AS_TORCH", "AS_TORCH_PARAMETER", "AS_TORCH_REQUIRES_GRAD"])
def test_a_tensor_that_has_grown_stays_on_its_device(as_):
    info = {"dtype": "bf16", "shape": (4, 2)}
    made = made_beside(torch.zeros(3, device="meta"), Leaf(0, getattr(_core, as_)), info)
    assert (made.device.type, made.dtype, made.shape) == ("meta", torch.bfloat16, (4, 2))
    assert (type(made) is nn.Parameter, made.requires_grad) == (as_ == "AS_TORCH_PARAMETER", as_ != "AS_TORCH")
    assert made_beside(torch.zeros(3), Leaf(0, _core.AS_TORCH), info) is None


def test_one_placeholder_for_several(run):
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, x={"a": torch.ones(2), "b": torch.zeros(2), "c": torch.arange(2.0)})
        live = {**dict.fromkeys("ab", torch.full((2,), 7.0)), "c": torch.zeros(1).expand(2)}
        ck.restore(x=live)
    assert [t.tolist() for t in live.values()] == [[1, 1], [0, 0], [0, 1]]


FULL = {
    "set": {1, 2},
    "deque": collections.deque([1, torch.ones(2)], maxlen=4),
    "bytearray": bytearray(b"ab"),
    "array": array.array("i", [1, 2]),
    "counter": collections.Counter("aab"),
    "defaultdict": collections.defaultdict(list, {"k": [1]}),
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "sparse": torch.eye(2).to_sparse(),
    "frozen": nn.Parameter(torch.ones(2), requires_grad=False),
}
EMPTY = {
    "set": {3},
    "deque": collections.deque(maxlen=4),
    "bytearray": bytearray(),
    "array": array.array("i"),
    "counter": collections.Counter("c"),
    "defaultdict": collections.defaultdict(list),
    "dates": np.array(["1999-01-01"], dtype="M8[D]"),
    "sparse": torch.zeros(2, 2).to_sparse(),
    "frozen": nn.Parameter(torch.zeros(2), requires_grad=False),
}


@pytest.mark.parametrize("name", FULL)
def test_mutable_values(run, name):
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, x=FULL[name])
        live = EMPTY[name]
        ck.restore(x=live)
        assert ck.values["x"] is live
    dense = (live.to_dense(), FULL[name].to_dense()) if name == "sparse" else (live, FULL[name])
    assert same(*dense)


@pytest.mark.parametrize(("was", "here"), [({1}, [1]), ([1], {1}), (collections.deque([1]), [1]), (bytearray(b"a"), {1}), (FULL["dates"], EMPTY["sparse"]), (FULL["sparse"], torch.zeros(2, 2)), (FULL["dates"], np.array(["1999"], dtype="M8[Y]"))])
def test_mutable_values_that_cannot_take_it(run, was, here):
    """They would stay as they were, without a word."""
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, x=was)
        with pytest.raises(ckpress.MismatchError, match="nothing was restored"):
            ck.restore(x=here)


@pytest.mark.parametrize(("was", "here"), [(array.array("d", [1]), array.array("i", [2])), (bytearray(b"long"), bytearray(b"ab")), (array.array("i", [1, 2]), array.array("i", [3]))])
def test_buffers_that_cannot_take_it(run, was, here):
    """Found out before anything is written: another type code, or another length while somebody holds the memory."""
    live, before, held = torch.zeros(3), here[:], memoryview(here)
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, t=torch.ones(3), x=was)
        with pytest.raises(ckpress.MismatchError, match="nothing was restored.* x "):
            ck.restore(t=live, x=here)
        assert not live.any() and here == before
        held.release()


def test_plain_values_go_on(run):
    """The save after a restore has what was restored, and not what stood for it."""
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, seed=123, best=(0.5, None))
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.restore(seed=None, best=None)
        ck.save(2, best=(0.25, 1))
    assert (ckpress.load(run)["seed"], ckpress.load(run)["best"]) == (123, (0.25, 1))


class Counting(torch.optim.SGD):
    """Keeps more than torch does, where only its own state_dict() sees it."""

    count = 0

    def state_dict(self):
        return {**super().state_dict(), "count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
        super().load_state_dict({key: state[key] for key in ("state", "param_groups")})


@pytest.mark.parametrize("profile", ["lossless", "resume"])
def test_an_optimizer_with_a_state_dict_of_its_own(run, profile):
    def made(lr):
        model = nn.Linear(70, 70)
        return model, stepped(Counting(model.parameters(), lr=lr, momentum=0.9), list(model.parameters()))

    model, optimizer = made(0.1)
    optimizer.count = 5
    with ckpress.Checkpointer(run, profile, rng=False, final_on_close=False) as ck:
        ck.save(1, model=model, optimizer=optimizer)
    live, into = made(0.2)
    with ckpress.Checkpointer(run, profile, rng=False, final_on_close=False) as ck:
        ck.restore(model=live, optimizer=into)
        with pytest.raises(ckpress.UnsupportedError, match=r"more\[0\]: cannot save a Counting in there: its state_dict\(\) has 'count' of its own"):
            ck.save(2, more=[optimizer])
    assert into.count == 5 and same(optimizer.state_dict(), into.state_dict())


def test_optimizer_state_of_no_parameter(run):
    """As torch's state_dict() has it."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state["whole"] = {"k": 5, "t": torch.ones(2)}
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, model=model, optimizer=optimizer)
        optimizer.state["whole"] = {}
        ck.restore(model=model, optimizer=optimizer)
    assert same(optimizer.state["whole"], {"k": 5, "t": torch.ones(2)}) and len(optimizer.state_dict()["state"]) == 1
