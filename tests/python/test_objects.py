# SPDX-License-Identifier: Apache-2.0
"""Live training objects: aliases, subclasses, wrappers, optimizers of every kind (rows 34, 48, 62, 63, 69, 79)."""

from __future__ import annotations

import io

import ckpress
import numpy as np
import pytest
import torch
from helpers import Net, bits, same, snapshot, steps, training
from torch import nn


def run_roundtrip(run, make, train=None, **how):
    """Trains, saves, trains on; restores into fresh objects and trains the same steps: both must end with the same bits."""
    model, optimizer, scheduler = make()
    (train or steps)(model, optimizer, scheduler, 3)
    with ckpress.Checkpointer(run, **how) as ck:
        ck.save(3, model=model, optimizer=optimizer, scheduler=scheduler)
    expected = (train or steps)(model, optimizer, scheduler, 3)
    other, other_optimizer, other_scheduler = make()
    torch.manual_seed(12345)
    with ckpress.Checkpointer(run, **how) as ck:
        assert ck.restore(model=other, optimizer=other_optimizer, scheduler=other_scheduler) == 3
    assert (train or steps)(other, other_optimizer, other_scheduler, 3) == expected
    assert [bits(t) for t in other.state_dict().values()] == [bits(t) for t in model.state_dict().values()]
    return other, other_optimizer


OPTIMIZERS = {
    "SGD": {},
    "SGD momentum": {"momentum": 0.9, "nesterov": True},
    "Adam": {},
    "AdamW": {},
    "AdamW amsgrad": {"amsgrad": True},
    "AdamW foreach": {"foreach": True},
    "AdamW fused": {"fused": True},
    "AdamW tensor lr": {"lr": torch.tensor(1e-3)},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Adagrad": {},
    "Adadelta": {},
    "ASGD": {},
    "Rprop": {},
    "Adafactor": {},
    "Muon": {},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_on_bit_for_bit(run, name):
    kind = name.split()[0]
    if not hasattr(torch.optim, kind):
        pytest.skip(f"this torch has no {kind}")

    def make():
        if kind != "Muon":
            return training(1, kind, **OPTIMIZERS[name])
        torch.manual_seed(1)
        model = Net()
        optimizer = torch.optim.Muon([p for p in model.parameters() if p.dim() == 2 and p.requires_grad])
        return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 1 / (1 + s))

    run_roundtrip(run, make)


def test_lbfgs(run):
    def make():
        torch.manual_seed(2)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def train(model, optimizer, scheduler, n):
        x = torch.linspace(0, 1, 20).view(5, 4)
        out = []
        for _ in range(n):

            def closure():
                optimizer.zero_grad()
                loss = (model(x) - 1).pow(2).sum()
                loss.backward()
                return loss

            out.append(optimizer.step(closure).item())
            scheduler.step()
        return out

    run_roundtrip(run, make, train)


SCHEDULERS = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
    "ExponentialLR": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "CyclicLR": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 1e-4, 1e-2, step_size_up=3, cycle_momentum=False),
    "LinearLR": lambda o: torch.optim.lr_scheduler.LinearLR(o),
    "PolynomialLR": lambda o: torch.optim.lr_scheduler.PolynomialLR(o),
    "SequentialLR": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
    "ChainedScheduler": lambda o: torch.optim.lr_scheduler.ChainedScheduler(
        [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore")
def test_every_scheduler(run, name):
    def make():
        model, optimizer, _ = training(1)
        return model, optimizer, SCHEDULERS[name](optimizer)

    run_roundtrip(run, make)


def test_aliases_are_stored_once(path):
    """Row 62: a tie of two and of three, and views that only overlap."""
    t = torch.randn(1000, 100)
    obj = {"a": t, "b": t, "c": t.detach(), "rows": t[:500], "turned": t.t()}
    ckpress.save(path, obj)
    assert path.stat().st_size < 2.6 * t.numel() * 4
    got = ckpress.load(path)
    assert got["a"].data_ptr() == got["b"].data_ptr() == got["c"].data_ptr()
    assert got["rows"].data_ptr() != got["a"].data_ptr()
    assert all(same(got[k], obj[k].contiguous()) for k in obj)


def test_equal_values_are_no_tie(path):
    """Row 63: only the same storage is a tie."""
    ckpress.save(path, {"a": torch.ones(1000), "b": torch.ones(1000)})
    got = ckpress.load(path)
    assert got["a"].data_ptr() != got["b"].data_ptr()
    with ckpress.open(path) as f:
        assert f["b"].info["alias_of"] is None


def test_a_tie_that_is_none_in_the_checkpoint(run):
    model = Net()
    model.head.weight = nn.Parameter(model.embed.weight.detach() + 1)
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=model)
    tied = Net()
    before = bits(tied.embed.weight)
    with ckpress.Checkpointer(run) as ck, pytest.raises(ckpress.MismatchError, match="shares its memory"):
        ck.restore(model=tied)
    assert bits(tied.embed.weight) == before


def test_parameters_keep_what_they_are(path):
    obj = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2), requires_grad=False), torch.ones(2, requires_grad=True), torch.ones(1)]
    got = ckpress.save(path, obj) or ckpress.load(path)
    assert [type(t) for t in got] == [type(t) for t in obj] and [t.requires_grad for t in got] == [t.requires_grad for t in obj]


def test_sparse(path):
    dense = torch.zeros(6, 8)
    dense[1, 2], dense[5, 0] = 3.0, -1.0
    obj = {"coo": dense.to_sparse(), "raw": torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,)), "csr": dense.to_sparse_csr()}
    obj |= {"csc": dense.to_sparse_csc(), "bsr": dense.to_sparse_bsr((2, 2)), "bsc": dense.to_sparse_bsc((2, 2))}
    ckpress.save(path, obj)
    for key, got in ckpress.load(path).items():
        assert got.layout == obj[key].layout and torch.equal(got.to_dense(), obj[key].to_dense())
        if key in ("coo", "raw"):
            assert got.is_coalesced() == obj[key].is_coalesced()


class Scaled(torch.Tensor):
    """A wrapper subclass without memory of its own, like those of quantization libraries."""

    @staticmethod
    def __new__(cls, codes, scale, note):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale, note):
        self.codes, self.scale, self.note = codes, scale, note

    def __tensor_flatten__(self):
        return ["codes", "scale"], {"note": self.note}

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["codes"], inner["scale"], context["note"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(func)


class Opaque(torch.Tensor):
    """A wrapper that says nothing about its parts."""

    @staticmethod
    def __new__(cls):
        return torch.Tensor._make_wrapper_subclass(cls, (4,), dtype=torch.float32)

    __torch_dispatch__ = Scaled.__torch_dispatch__


def test_subclass_by_its_protocol(path):
    t = Scaled(torch.arange(6, dtype=torch.int8), torch.tensor(0.5), "hello")
    ckpress.save(path, {"w": t})
    got = ckpress.load(path)["w"]
    assert type(got) is Scaled and got.note == "hello" and torch.equal(got.codes, t.codes) and torch.equal(got.scale, t.scale)


def test_subclass_whose_class_is_not_loaded(path, monkeypatch):
    ckpress.save(path, {"w": Scaled(torch.arange(6, dtype=torch.int8), torch.tensor(0.5), "n")})
    monkeypatch.delattr("test_objects.Scaled")
    got = ckpress.load(path)["w"]
    assert isinstance(got, ckpress.Flattened) and got.cls.endswith("Scaled") and got.context == {"note": "n"}


def test_subclass_in_a_module_is_restored_in_place(run):
    class Holder(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.register_buffer("w", Scaled(torch.full((6,), value, dtype=torch.int8), torch.tensor(float(value)), "n"))

    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=Holder(3))
    other = Holder(0)
    with ckpress.Checkpointer(run) as ck:
        ck.restore(model=other)
    assert other.w.codes.tolist() == [3] * 6 and other.w.scale.item() == 3


@pytest.mark.parametrize("make", [Opaque, lambda: torch.ones(3).as_subclass(type("Mine", (torch.Tensor,), {}))], ids=["wrapper", "plain"])
def test_unknown_subclass_is_refused_by_name(path, make):
    """Row 34: never read through a null pointer, never lose the type."""
    with pytest.raises(ckpress.UnsupportedError, match=r"\['model'\]\['w'\].*(Opaque|Mine)"):
        ckpress.save(path, {"model": {"w": make()}})


@pytest.mark.parametrize("make", [lambda: torch.ones(3, device="meta"), lambda: nn.UninitializedParameter()], ids=["meta", "uninitialized"])
def test_no_memory_is_refused(path, make):
    with pytest.raises(ckpress.UnsupportedError, match="'w'"):
        ckpress.save(path, {"w": make()})


def test_fake_tensors_are_refused(path):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = torch.ones(3)
    del mode
    with pytest.raises(ckpress.UnsupportedError, match="'w'"):
        ckpress.save(path, {"w": fake})


class Extra(nn.Module):
    """Row 69: extra state that changes its type and size."""

    def __init__(self, extra):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))
        self.extra = extra

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


@pytest.mark.parametrize("saved", [b"", b"x" * 2322, torch.arange(7, dtype=torch.uint8), {"a": 1}, None], ids=str)
def test_extra_state(run, saved):
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=Extra(saved))
    other = Extra(torch.zeros(4, dtype=torch.uint8))
    with ckpress.Checkpointer(run) as ck:
        ck.restore(model=other)
    assert same(other.extra, saved)


def test_extra_state_as_a_stream(run):
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=Extra(io.BytesIO(b"abc")))
    other = Extra(None)
    with ckpress.Checkpointer(run) as ck:
        ck.restore(model=other)
    assert other.extra.getvalue() == b"abc"


def test_wrappers_come_and_go(run):
    """Prefixes of compile and DataParallel are no part of a name."""
    model, optimizer, _ = training()
    steps(model, optimizer, training()[2], 2)
    wrapped = nn.Sequential()
    wrapped.add_module("module", model)
    wrapped = nn.DataParallel(torch.compile(model))
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=wrapped, optimizer=optimizer)
    other, other_optimizer, _ = training(5)
    with ckpress.Checkpointer(run) as ck:
        assert ck.restore(model=other, optimizer=other_optimizer) == 1
    assert snapshot(other, other_optimizer) == snapshot(model, optimizer)
    assert "embed.weight" in ckpress.load(run)["model"]


def test_prefixes_that_collide(run):
    model = nn.Module()
    model.w = nn.Parameter(torch.ones(1))
    model.module = nn.Module()
    model.module.w = nn.Parameter(torch.zeros(1))
    with ckpress.Checkpointer(run) as ck, pytest.raises(ckpress.InvalidError, match="module.w"):
        ck.save(1, model=model)


def test_two_optimizers_and_two_models(run):
    """Row 47: the same names in both."""
    a, opt_a, sched_a = training(1)
    b, opt_b, sched_b = training(2)
    steps(a, opt_a, sched_a, 2)
    steps(b, opt_b, sched_b, 3)
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, a=a, b=b, opt_a=opt_a, opt_b=opt_b)
    c, opt_c, _ = training(3)
    d, opt_d, _ = training(4)
    with ckpress.Checkpointer(run) as ck:
        ck.restore(a=c, b=d, opt_a=opt_c, opt_b=opt_d)
    assert snapshot(c, opt_c) == snapshot(a, opt_a) and snapshot(d, opt_d) == snapshot(b, opt_b)


def test_one_optimizer_over_two_models(run):
    torch.manual_seed(0)
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    optimizer = torch.optim.AdamW([*a.parameters(), *b.parameters()])
    (a(torch.ones(1, 3)) + b(torch.ones(1, 3))).sum().backward()
    optimizer.step()
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, a=a, b=b, optimizer=optimizer)
    assert set(ckpress.load(run)["optimizer"]["state"]) == {"a/weight", "a/bias", "b/weight", "b/bias"}


def test_absent_state_stays_absent(run):
    """Row 48: plain SGD, a parameter that has had no gradient yet."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    model.up.weight.grad = torch.ones_like(model.up.weight)
    optimizer.step()
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=model, optimizer=optimizer)
    other = Net()
    other_optimizer = torch.optim.AdamW(other.parameters())
    for p in other.parameters():
        p.grad = torch.ones_like(p)
    other_optimizer.step()
    with ckpress.Checkpointer(run) as ck:
        ck.restore(model=other, optimizer=other_optimizer)
    assert list(other_optimizer.state) == [other.up.weight]


def test_moments_keep_their_dtype(run):
    """Row 79: bf16 weights with fp32 moments; torch's own load_state_dict would cast them."""

    def make():
        torch.manual_seed(0)
        model = nn.Linear(32, 32).to(torch.bfloat16)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    model, optimizer = make()
    for p in model.parameters():
        optimizer.state[p] = {"step": torch.tensor(7.0), "exp_avg": torch.randn(p.shape), "exp_avg_sq": torch.rand(p.shape)}
    with ckpress.Checkpointer(run) as ck:
        ck.save(7, model=model, optimizer=optimizer)
    other, other_optimizer = make()
    with ckpress.Checkpointer(run) as ck:
        ck.restore(model=other, optimizer=other_optimizer)
    assert snapshot(other, other_optimizer) == snapshot(model, optimizer)
    assert all(s["exp_avg"].dtype == torch.float32 for s in other_optimizer.state.values())


def test_generators_and_plain_values(run):
    import random

    made = [torch.Generator().manual_seed(3), np.random.default_rng(4), random.Random(5)]
    config = {"lr": 0.1, "names": ["a"]}
    history = [1.5]
    buffer, array = torch.arange(4.0), np.arange(3)
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, g=made[0], n=made[1], r=made[2], config=config, history=history, epoch=7, buffer=buffer, array=array)
    expected = [torch.rand(2, generator=made[0]).tolist(), made[1].random(2).tolist(), made[2].random()]
    other = [torch.Generator(), np.random.default_rng(0), random.Random(0)]
    config2, history2, buffer2, array2 = {"other": 1}, [], torch.zeros(4), np.zeros(3, dtype=array.dtype)
    with ckpress.Checkpointer(run) as ck:
        ck.restore(g=other[0], n=other[1], r=other[2], config=config2, history=history2, epoch=0, buffer=buffer2, array=array2)
        assert ck.values["epoch"] == 7
    assert [torch.rand(2, generator=other[0]).tolist(), other[1].random(2).tolist(), other[2].random()] == expected
    assert (config2, history2) == (config, history) and same(buffer2, buffer) and same(array2, array)


def test_random_states(run):
    import random

    with ckpress.Checkpointer(run) as ck:
        ck.save(1, n=1)
    expected = [torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()]
    with ckpress.Checkpointer(run) as ck:
        ck.restore(n=0)
    assert [torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()] == expected
    with ckpress.Checkpointer(run, rng=False) as ck:
        torch.manual_seed(9)
        before = torch.get_rng_state()
        ck.restore(n=0)
        assert torch.equal(torch.get_rng_state(), before)


def test_a_file_gives_modules_and_optimizers_as_their_state(path):
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 1)
    ckpress.save(path, {"m": model, "o": optimizer})
    got = ckpress.load(path)
    other = Net()
    other.load_state_dict(got["m"])
    assert type(got["m"]) is dict and all(same(a, b) for a, b in zip(other.state_dict().values(), model.state_dict().values()))
    assert set(got["o"]) == {"state", "param_groups"} and set(got["o"]["state"]) == set(got["o"]["param_groups"][0]["params"])
    assert "up.weight" in got["o"]["state"]


BIT_GENERATORS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]


@pytest.mark.parametrize("arrays", [False, True])
def test_generators_of_numpy(run, monkeypatch, arrays):
    """Also from early checkpoints, which have numpy's arrays."""
    if arrays:
        monkeypatch.setattr("ckpress._rng.plain", lambda state: state)
    made = {name: np.random.Generator(getattr(np.random, name)(4)) for name in BIT_GENERATORS}
    [g.random(3, dtype=np.float32) for g in made.values()]
    np.random.standard_normal()
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, **made)
    monkeypatch.undo()
    loaded = ckpress.load(run)
    assert isinstance(loaded["rng"]["numpy"]["state"]["key"], np.ndarray if arrays else tuple)
    expected = {name: g.random(3).tolist() for name, g in made.items()}, np.random.standard_normal(3).tolist()
    other = {name: np.random.Generator(getattr(np.random, name)(9)) for name in BIT_GENERATORS}
    with ckpress.Checkpointer(run) as ck:
        ck.restore(**other)
    assert ({name: g.random(3).tolist() for name, g in other.items()}, np.random.standard_normal(3).tolist()) == expected


def test_grad_scaler_and_ema(run):
    model, _, _ = training()
    scaler = torch.amp.GradScaler("cpu")
    ema = torch.optim.swa_utils.AveragedModel(model)
    scaler._growth_tracker = None
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, ema=ema, scaler=scaler)
    other = torch.optim.swa_utils.AveragedModel(training(4)[0])
    with ckpress.Checkpointer(run) as ck:
        ck.restore(ema=other, scaler=torch.amp.GradScaler("cpu"))
    assert all(same(a, b) for a, b in zip(other.state_dict().values(), ema.state_dict().values()))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused(path, layout):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
    with pytest.raises(ckpress.UnsupportedError, match=r"\['deep'\]\[0\]: cannot save a nested tensor"):
        ckpress.save(path, {"deep": [nested]})
