# SPDX-License-Identifier: Apache-2.0
"""Restoring is all or nothing, strict, and says what does not fit."""

from __future__ import annotations

import shutil
import signal
import socket

import ckpress
import ckpress.torch
import warnings

import pytest
import torch
from helpers import Net, bits, snapshot, steps, training
from torch import nn


@pytest.fixture
def saved(run):
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    with ckpress.Checkpointer(run) as ck:
        ck.save(2, model=model, optimizer=optimizer, scheduler=scheduler)
    return run


def fresh():
    model, optimizer, scheduler = training(8)
    steps(model, optimizer, scheduler, 1)
    return model, optimizer, scheduler


def everything(model, optimizer, scheduler):
    return (
        snapshot(model, optimizer),
        repr(optimizer.state_dict()["param_groups"]),
        repr(scheduler.state_dict()),
        bits(torch.get_rng_state()),
    )


def test_missing_unexpected_and_shapes_are_named(saved):
    model, optimizer, scheduler = fresh()
    model.more = nn.Parameter(torch.zeros(3))
    del model.frozen
    model.frozen = nn.Parameter(torch.zeros(5))
    before = everything(model, optimizer, scheduler)
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.MismatchError) as caught:
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    assert caught.value.missing == ["model/more"] and "model/frozen (shape [96] saved, [5] here)" in caught.value.mismatched
    assert "1 missing" in str(caught.value) and "step-00000002" in str(caught.value)
    assert everything(model, optimizer, scheduler) == before


def test_dtype_is_not_cast(saved):
    model, optimizer, scheduler = fresh()
    model.up.to(torch.bfloat16)
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.MismatchError, match="f32 saved, torch.bfloat16 here"):
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)


def test_a_part_only_when_asked(saved):
    """Row 83: nothing is left out by default."""
    model, optimizer, scheduler = fresh()
    with ckpress.Checkpointer(saved) as ck:
        with pytest.raises(ckpress.MismatchError) as caught:
            ck.restore(model=model)
        assert caught.value.unexpected == ["optimizer", "scheduler"]
        assert ck.restore(model=model, strict=False) == 2
    assert bits(model.up.weight) == bits(ckpress.load(saved)["model"]["up.weight"])


def test_another_kind(saved):
    model, optimizer, scheduler = fresh()
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.MismatchError, match="optimizer saved, module here"):
        ck.restore(model=model, optimizer=Net(), scheduler=scheduler)


def test_other_groups(saved):
    model, _, scheduler = fresh()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": params[:2]}, {"params": params[2:]}])
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.MismatchError, match="1 param_groups saved, 2 here"):
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)


@pytest.mark.parametrize(("was", "here"), [("AdamW", "SGD"), ("SGD", "AdamW"), ("Adam", "RMSprop"), ("AdamW", "Adamax")])
@pytest.mark.parametrize("strict", [True, False])
def test_another_optimizer(run, was, here, strict):
    """Its hyperparameters and moments would be taken without a word, and step() would use none of them."""
    model, optimizer, _ = training(optimizer=was)
    steps(model, optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer), 2)
    with ckpress.Checkpointer(run) as ck:
        ck.save(2, model=model, optimizer=optimizer)
    model, optimizer, scheduler = training(8, optimizer=here)
    steps(model, optimizer, scheduler, 1)
    before = everything(model, optimizer, scheduler)
    with ckpress.Checkpointer(run) as ck:
        with pytest.raises(ckpress.MismatchError, match=rf"{was}, here is torch.optim.*\.{here}: .* only there") as caught:
            ck.restore(model=model, optimizer=optimizer, strict=strict)
        assert everything(model, optimizer, scheduler) == before and caught.value.mismatched
        assert ck.restore(model=model, strict=False) == 2


def test_adam_into_adamw(run):
    """The same state by the same names; weight decay stays AdamW's, as with load_state_dict()."""
    model, optimizer, scheduler = training(optimizer="Adam")
    steps(model, optimizer, scheduler, 2)
    with ckpress.Checkpointer(run) as ck:
        ck.save(2, model=model, optimizer=optimizer)
    other, into, _ = training(8)
    with ckpress.Checkpointer(run) as ck:
        assert ck.restore(model=other, optimizer=into) == 2
    assert snapshot(other, into) == snapshot(model, optimizer)
    assert all(g["decoupled_weight_decay"] for g in into.param_groups) and not optimizer.param_groups[0]["decoupled_weight_decay"]


def test_another_scheduler(saved):
    model, optimizer, _ = fresh()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
    before = everything(model, optimizer, scheduler)
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.MismatchError, match="LambdaLR, here is .*CosineAnnealingLR: 'lr_lambdas'"):
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    assert everything(model, optimizer, scheduler) == before


def test_another_version_of_the_same_optimizer(saved):
    """Keys that one version lacks keep their defaults: no reason to refuse."""
    model, optimizer, scheduler = fresh()
    optimizer.param_groups[0]["of a newer torch"] = optimizer.defaults["of a newer torch"] = 3
    with ckpress.Checkpointer(saved) as ck:
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == 2
    assert optimizer.param_groups[0]["of a newer torch"] == 3


def test_other_parameters(saved):
    model, _, scheduler = fresh()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad][1:])
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.MismatchError) as caught:
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    assert caught.value.unexpected == ["optimizer.param_groups[0]/embed.weight"]


@pytest.mark.parametrize(("was", "here"), [(torch.ones(3), {"k": 1}), (3, torch.ones(3)), ({"k": 1}, [1]), ([1], {"k": 1})])
def test_a_live_container_or_tensor_that_cannot_take_it(run, was, here):
    """It would stay as it was, without a word."""
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, x=was)
        with pytest.raises(ckpress.MismatchError, match="something else was saved"):
            ck.restore(x=here)


def test_a_refused_restore_registers_nothing(saved):
    model, optimizer, scheduler = fresh()
    with ckpress.Checkpointer(saved) as ck:
        with pytest.raises(ckpress.MismatchError):
            ck.restore(model=model, optimizer=Net(), scheduler=scheduler)
        ck.restore(model=model, strict=False)
        ck.save(3)
    assert "optimizer" not in ckpress.load(saved)


class Stubborn:
    """Refuses what it is given, after it has changed."""

    def __init__(self, fail):
        self.fail, self.value = fail, 1

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]
        if self.fail and state["value"] == 5:
            raise RuntimeError("will not")


def test_an_object_that_fails_takes_everything_back(run):
    model, optimizer, scheduler = training()
    steps(model, optimizer, scheduler, 2)
    kind, stubborn = Stubborn(False), Stubborn(False)
    kind.value = stubborn.value = 5
    with ckpress.Checkpointer(run) as ck:
        ck.save(2, model=model, optimizer=optimizer, scheduler=scheduler, kind=kind, stubborn=stubborn)
    model, optimizer, scheduler = fresh()
    kind, stubborn = Stubborn(False), Stubborn(True)
    before = everything(model, optimizer, scheduler)
    with ckpress.Checkpointer(run) as ck, pytest.raises(RuntimeError, match="will not"):
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler, kind=kind, stubborn=stubborn)
    assert (kind.value, stubborn.value) == (1, 1)
    assert everything(model, optimizer, scheduler) == before


def test_an_object_that_refuses_even_its_own_state(run):
    """It must not keep the others from what they had."""
    with ckpress.Checkpointer(run, rng=False) as ck:
        kind, stubborn = Stubborn(False), Stubborn(False)
        kind.value = stubborn.value = 5
        ck.save(2, kind=kind, stubborn=stubborn)
        kind.value, stubborn.fail = 7, True
        with pytest.raises(RuntimeError, match="will not"):
            ck.restore(kind=kind, stubborn=stubborn)
        assert kind.value == 7


@pytest.fixture
def interruptible():
    """A shell's background processes ignore SIGINT, and so do their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_an_interrupt_once_tensors_are_written(saved, monkeypatch, interruptible):
    """There is no way back then: the rest of what was saved is put in its place and registered, and the interrupt comes after it."""
    with ckpress.Checkpointer(saved) as ck:
        whole = fresh()
        ck.restore(model=whole[0], optimizer=whole[1], scheduler=whole[2])
        after, ck.restored = everything(*whole), None
        torch.rand(3)
        live = fresh()
        monkeypatch.setattr("ckpress._plan._tell_autograd", lambda tensors: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            ck.restore(model=live[0], optimizer=live[1], scheduler=live[2])
        assert everything(*live) == after
        assert list(ck._objects.values()) == list(live) and ck.restored["step"] == 2


def test_a_signal_that_waited_is_one_signal(run, monkeypatch):
    """Whoever is woken by a file descriptor, as asyncio is, hears of it once, and its handler is called once."""
    seen, (here, there) = [], socket.socketpair()
    there.setblocking(False)
    handler, fd = signal.signal(signal.SIGUSR1, lambda n, f: seen.append(n)), signal.set_wakeup_fd(there.fileno())
    try:
        with ckpress.Checkpointer(run, rng=False) as ck:
            ck.save(1, t=torch.ones(3))
            monkeypatch.setattr("ckpress._plan._tell_autograd", lambda tensors: signal.raise_signal(signal.SIGUSR1))
            ck.restore(t=torch.zeros(3))
    finally:
        signal.set_wakeup_fd(fd)
        signal.signal(signal.SIGUSR1, handler)
    assert (seen, here.recv(9)) == ([signal.SIGUSR1], bytes([signal.SIGUSR1]))


def test_an_interrupt_before_that(run, interruptible):
    """Everything is taken back, at once."""

    class Interrupting(Stubborn):
        def load_state_dict(self, state):
            super().load_state_dict(state)
            signal.raise_signal(signal.SIGINT)

    kind, live = Stubborn(False), torch.zeros(3)
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, kind=kind, late=Interrupting(False), t=torch.ones(3))
        kind.value = 7
        with pytest.raises(KeyboardInterrupt):
            ck.restore(kind=kind, late=Interrupting(False), t=live)
    assert kind.value == 7 and not live.any()


class Hidden(nn.Module):
    """Gives more than it takes."""

    def __init__(self):
        super().__init__()
        self.weight, self.hidden = nn.Parameter(torch.ones(3)), torch.zeros(2)
        self._register_state_dict_hook(lambda module, state, prefix, _: state.__setitem__(prefix + "hidden", module.hidden.clone()))


def test_a_module_that_does_not_take_what_it_gave(run):
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, model=Hidden())
    live = Hidden()
    with torch.no_grad():
        live.weight.zero_()
    with ckpress.Checkpointer(run, rng=False) as ck:
        with pytest.raises(ckpress.MismatchError, match="does not take: model/hidden"):
            ck.restore(model=live)
        assert not live.weight.any()
        assert ck.restore(model=live, strict=False) == 1
    assert live.weight.all()


@pytest.mark.parametrize("strict", [True, False])
def test_an_optimizer_without_its_module(saved, strict):
    """Nobody would know its parameters, and its moments would be gone."""
    _, optimizer, _ = fresh()
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.MismatchError, match="none of its parameters was saved: 'down.bias' there, 'group0.0' here"):
        ck.restore(optimizer=optimizer, strict=strict)
    assert optimizer.state


def test_damage_is_found_before_anything_is_written(saved):
    """A bit of a chunk: the restore of that step fails, and every live bit is as before."""
    shard = next(saved.glob("step-*/shard-*.ckp"))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    model, optimizer, scheduler = fresh()
    before = everything(model, optimizer, scheduler)
    with ckpress.Checkpointer(saved) as ck:
        with pytest.raises(ckpress.CorruptError) as caught:
            ck.restore(step=2, model=model, optimizer=optimizer, scheduler=scheduler)
        assert "shard-" in caught.value.file or "step-" in caught.value.file
        with pytest.raises(ckpress.NotFoundError):
            ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    assert everything(model, optimizer, scheduler) == before


def test_optimizer_without_state_gets_it(saved):
    model, optimizer, scheduler = training(4)
    with ckpress.Checkpointer(saved) as ck:
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    assert all(set(s) == {"step", "exp_avg", "exp_avg_sq"} and s["step"].item() == 2 for s in optimizer.state.values())
    assert len(optimizer.state) == len([p for p in model.parameters() if p.requires_grad])


def test_live_tensors_stay_the_same_objects(saved):
    model, optimizer, scheduler = fresh()
    weight, moment = model.up.weight, optimizer.state[model.up.weight]["exp_avg"]
    places, version = (weight.data_ptr(), moment.data_ptr()), weight._version
    with ckpress.Checkpointer(saved) as ck:
        ck.restore(model=model, optimizer=optimizer, scheduler=scheduler)
    assert model.up.weight is weight and optimizer.state[weight]["exp_avg"] is moment
    assert (weight.data_ptr(), moment.data_ptr()) == places and weight._version > version


def test_strided_live_tensors(run):
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, t=torch.arange(6.0).view(2, 3))
    live = torch.zeros(3, 4)[:, ::2].t()
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.restore(t=live)
    assert live.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_read_only_array(run):
    import numpy as np

    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, a=np.arange(3))
    a = np.zeros(3, dtype=int)
    a.flags.writeable = False
    with ckpress.Checkpointer(run, rng=False) as ck, pytest.raises(ckpress.MismatchError, match="read-only"):
        ck.restore(a=a)


def test_nothing_there(run):
    model, optimizer, scheduler = fresh()
    before = everything(model, optimizer, scheduler)
    with ckpress.Checkpointer(run) as ck:
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) is None
        with pytest.raises(ckpress.NotFoundError):
            ck.restore(step=3, model=model, optimizer=optimizer, scheduler=scheduler)
    assert everything(model, optimizer, scheduler) == before


def test_newest_valid_with_a_warning(saved):
    model, optimizer, scheduler = fresh()
    with ckpress.Checkpointer(saved) as ck:
        ck.save(9, model=model, optimizer=optimizer, scheduler=scheduler)
    shard = next(saved.glob("step-00000009-*/shard-*.ckp"))
    shard.write_bytes(shard.read_bytes()[:-9])
    with ckpress.Checkpointer(saved) as ck, pytest.warns(RuntimeWarning, match="step-00000009"):
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == 2


def lose_manifests(run, n, cut=0, key_every=32):
    """A run of n saves without its manifests; of each shard ``cut`` bytes are gone."""
    t = torch.arange(1000.0)
    with ckpress.Checkpointer(run, key_every=key_every) as ck:
        for step in range(1, n + 1):
            t[step] += 1
            ck.save(step, t=t)
    for manifest in run.glob("step-*/manifest.json"):
        manifest.unlink()
    for shard in run.glob("step-*/*.ckp"):
        shard.write_bytes(shard.read_bytes()[: -cut or None])


@pytest.mark.parametrize("key_every", [1, 32])
def test_lost_manifests_are_no_new_run(run, key_every):
    """Keys and deltas whose shards are whole: a training must not start from scratch without a word."""
    lose_manifests(run, 3, key_every=key_every)
    live = torch.zeros(1000)
    with ckpress.Checkpointer(run) as ck:
        with pytest.raises(ckpress.NotFoundError, match="3 step.*no manifest.json.*none can be restored.*move the directory away"):
            ck.restore(t=live)
        with pytest.raises(ckpress.NotFoundError):
            ck.restore(step=2, t=live)
    assert not live.any() and len(list(run.glob("step-*/*.ckp"))) == 3


def test_dying_in_the_first_save_blocks_no_restart(run):
    """Again and again, between shard and manifest: each leaves a whole key of the same step."""
    for life in range(1, 4):
        with ckpress.Checkpointer(run) as ck:
            if life > 1:
                with pytest.warns(RuntimeWarning, match=f"without a manifest: {life - 1} .*from scratch"):
                    assert ck.restore(t=torch.zeros(10)) is None
            ck.save(25, t=torch.ones(10), wait=True)
        for manifest in run.glob("step-*/manifest.json"):
            manifest.unlink()
    with ckpress.Checkpointer(run) as ck:
        ck.save(25, t=torch.ones(10), wait=True)
        assert ck.restore(t=torch.zeros(10)) == 25


def test_a_torn_first_save_is_swept(run):
    lose_manifests(run, 1, cut=9)
    with ckpress.Checkpointer(run) as ck, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not list(run.glob("step-*"))
        assert ck.restore(t=torch.zeros(1000)) is None


@pytest.mark.parametrize(("n", "cut"), [(1, 0), (3, 9)])
def test_a_first_save_cut_short_is_told(run, n, cut):
    """One attempt whose shard is whole, or several that died while they wrote."""
    lose_manifests(run, n, cut)
    with ckpress.Checkpointer(run) as ck:
        with pytest.warns(RuntimeWarning, match=f"without a manifest: {n} .*nothing to restore, training starts from scratch") as told:
            assert ck.restore(t=torch.zeros(1000)) is None
        assert told[0].filename == __file__
        ck.save(n, t=torch.ones(3))
        assert ck.restore(t=torch.zeros(3)) == n


def test_bad_manifests_are_no_new_run(saved):
    manifest = next(saved.glob("step-*/manifest.json"))
    manifest.write_bytes(manifest.read_bytes()[:-9])
    with ckpress.Checkpointer(saved) as ck, pytest.raises(ckpress.NotFoundError, match="none is whole.*step-00000002.*bad manifest"):
        ck.restore(t=1)


@pytest.mark.parametrize("how", ["gone", "cut", "flipped"])
def test_a_broken_base_is_told_once(run, how):
    """The cause comes first; what only needs it is counted."""
    t = torch.randn(1000)
    with ckpress.Checkpointer(run, key_every=3) as ck:
        for step in range(1, 10):
            t[step] += 1
            ck.save(step, t=t)
    shard = next(run.glob("step-00000007-*/*.ckp"))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.unlink() if how == "gone" else shard.write_bytes(raw[:-9] if how == "cut" else raw)
    with ckpress.Checkpointer(run) as ck, pytest.warns(RuntimeWarning) as told:
        assert ck.restore(t=t) == 6
    (text,) = [str(w.message) for w in told]
    assert text.startswith("ckpress: step-00000007-") and "so are 2 that need it, up to step-00000009-" in text
    shutil.rmtree(run / shard.parent.name)
    with ckpress.Checkpointer(run) as ck, pytest.warns(RuntimeWarning, match="step-00000008-.*so is 1 that needs it") as told:
        assert ck.restore(t=t) == 6 and len(told) == 1


def test_nothing_whole(run):
    t = torch.randn(1000)
    with ckpress.Checkpointer(run) as ck:
        for step in range(1, 4):
            ck.save(step, t=t + step)
    next(run.glob("step-00000001-*/*.ckp")).unlink()
    told = r"\(3\) but none is whole \(step-00000001-.*missing shard"
    with ckpress.Checkpointer(run) as ck, pytest.raises(ckpress.NotFoundError, match=told):
        ck.restore(t=t)


def test_stray_files_do_not_matter(saved):
    """Row 49."""
    folder = next(saved.glob("step-*"))
    for name in ("x.orig", ".DS_Store", "Thumbs.db", ".shard.swp"):
        (folder / name).write_bytes(b"junk")
        (saved / name).write_bytes(b"junk")
    foreign = [saved / "step-7 (copy)", saved / "step-00000099", saved / "notes"]
    for each in foreign:
        each.mkdir()
    model, optimizer, scheduler = fresh()
    with ckpress.Checkpointer(saved) as ck:
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == 2
    assert all(each.exists() for each in foreign)


def test_other_peoples_files_are_left_alone(tmp_path):
    ckpress.save(tmp_path / "x.ckp", {"a": 1})
    with ckpress.Checkpointer(tmp_path) as ck:
        ck.save(1, a=2)
    assert ckpress.load(tmp_path / "x.ckp") == {"a": 1} and ckpress.load(tmp_path)["a"] == 2


def test_saved_by_something_else(tmp_path):
    """A checkpoint whose tree no Checkpointer wrote: a typed error, nothing changed."""
    from ckpress import _core

    state = _core.State()
    state.put(_core.NONE)
    run = _core.Run(tmp_path, (0, 1.0, 0, 0, 0, {}), 32, (0, 0, 0, None, False, 0), False, 60, None)
    run.save(1, state, False, False, True)
    run.close()
    with ckpress.Checkpointer(tmp_path) as ck, pytest.raises(ckpress.FormatError, match="Checkpointer"):
        ck.restore(a=1)


def _loose(make, *shape):
    net = nn.Linear(4, 4)
    extra = nn.Parameter(torch.randn(*shape))
    return net, extra, make([*net.parameters(), extra])


def _go(net, extra, optimizer):
    optimizer.zero_grad()
    (net(torch.ones(1, 4)).sum() + extra.sum()).backward()
    optimizer.step()


@pytest.mark.parametrize("make", [ckpress.torch.AdamW, ckpress.torch.SGD, torch.optim.AdamW])
@pytest.mark.parametrize(("was", "now"), [((20, 40), (30, 40)), ((20, 40), (800,)), ((20,), (30,))])
def test_a_parameter_of_no_module_of_another_shape(path, make, was, now):
    """Its state is all that says so; nothing is written before that is seen."""
    options = {"lr": 0.1, "momentum": 0.9} if make is ckpress.torch.SGD else {"lr": 0.1}
    net, extra, optimizer = _loose(lambda params: make(params, **options), *was)
    _go(net, extra, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ckpress.Checkpointer(path) as ck:
            ck.save(1, model=net, optimizer=optimizer)
    net, extra, optimizer = _loose(lambda params: make(params, **{**options, "lr": 0.5}), *now)
    _go(net, extra, optimizer)
    before = [p.detach().clone() for p in net.parameters()]
    with ckpress.Checkpointer(path, final_on_close=False) as ck, pytest.raises(ckpress.MismatchError, match="the parameter here is"):
        ck.restore(model=net, optimizer=optimizer)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters())) and optimizer.param_groups[0]["lr"] == 0.5
    _go(net, extra, optimizer)


def test_an_optimizer_whose_modules_are_not_named(path):
    """One parameter that is of no module matches; the others' state must not go."""
    net, extra, optimizer = _loose(torch.optim.AdamW, 2, 2)
    _go(net, extra, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ckpress.Checkpointer(path) as ck:
            ck.save(1, model=net, optimizer=optimizer)
    with ckpress.Checkpointer(path, final_on_close=False) as ck, pytest.raises(ckpress.MismatchError, match="name the modules that they are of"):
        ck.restore(optimizer=optimizer, strict=False)
    assert len(optimizer.state) == 3


def test_widths_that_a_state_brings(path):
    """They are the checkpoint's, and a constructor that was given others hears of it."""
    net = nn.Linear(64, 128)
    optimizer = ckpress.torch.AdamW(net.parameters(), state_bits=4)
    net(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    with ckpress.Checkpointer(path) as ck:
        ck.save(1, model=net, optimizer=optimizer)
    other = ckpress.torch.AdamW(net.parameters(), state_bits=8)
    with ckpress.Checkpointer(path, final_on_close=False) as ck, pytest.warns(RuntimeWarning, match="goes on with the checkpoint's state_bits=4, not 8"):
        ck.restore(model=net, optimizer=other)
    wider = ckpress.torch.AdamW(net.parameters(), state_bits=8)
    wider.load_state_dict(other.torch_state_dict())
    assert wider.report()["bits"] > 8 > other.report()["bits"]
