# SPDX-License-Identifier: Apache-2.0
"""Four processes save one run together: one checkpoint, one answer for all."""

import os
import shutil
import signal
import subprocess
import time
import warnings

import pytest

import ckpress

torch = pytest.importorskip("torch")

from ranks import WORLD, flat, run, train, training  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.is_gloo_available(), reason="needs gloo")


WIDE = 600  # so that a save takes a while


def open_run(dir, **how):
    return ckpress.Checkpointer(f"{dir}/run", **{"group": "world", "threads": 1, "group_seconds": 10, "join_seconds": 60, **how})


def alike(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def newest(dir):
    rows = [row for row in ckpress.list_run(f"{dir}/run") if row.health == "ok"]
    return rows[-1].dir


def save_empty(rank, dir):
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 3)
    model.register_buffer("nothing", torch.empty(0))
    with open_run(dir) as ck:
        ck.save(1, model=model, wait=True)
    with open_run(dir) as ck:
        return ck.restore(model=model)


def test_empty_tensors(tmp_path):
    """What has no elements is one rank's too, and no second tensor of the others."""
    assert run(save_empty, tmp_path, world=2) == [("ok", 1)] * 2
    with ckpress.open(tmp_path / "run") as f:
        assert [name for name in f if "nothing" in name] == ["model/nothing"]


def save_steps(rank, dir, profile, saves):
    model, optimizer = training()
    torch.manual_seed(100 + rank)  # random states are each rank's own
    with open_run(dir, profile=profile, key_every=3) as ck:
        for done in range(1, saves + 1):
            train(model, optimizer, seed=done)
            ck.save(done, model=model, optimizer=optimizer, mine={"rank": rank}, wait=True)
        stats = ck.stats
    return flat(model, optimizer), torch.rand(3), stats["raw_bytes"]


def restore(rank, dir, profile="lossless"):
    model, optimizer = training(seed=77)
    mine = {"rank": None}
    with open_run(dir, profile=profile) as ck:
        done = ck.restore(model=model, optimizer=optimizer, mine=mine)
        where = ck.restored["name"] if done is not None else None
        drawn = torch.rand(3)
        train(model, optimizer, seed=99)
        if done is not None:
            ck.save(done + 1, wait=True)
    return done, where, mine["rank"], drawn


def restore_only(rank, dir, own=False, width=24):
    model, optimizer = training(seed=77, width=width)
    place = f"{dir}/of-{rank}" if own else dir
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with open_run(place) as ck:
            done = ck.restore(model=model, optimizer=optimizer, mine={"rank": None})
    return done, flat(model, optimizer), [str(w.message) for w in caught]


@pytest.mark.parametrize("profile", ["lossless", "resume"])
def test_four_processes_save_one_step(tmp_path, profile):
    found = run(save_steps, tmp_path, profile, 4)
    assert [kind for kind, _ in found] == ["ok"] * WORLD, found
    values = [value for _, value in found]
    place = tmp_path / "run" / newest(tmp_path)
    assert sorted(os.listdir(place)) == ["manifest.json"] + [f"shard-{r:05}-of-{WORLD:05}.ckp" for r in range(WORLD)]
    raw = [value[2] for value in values]
    assert max(raw) < 0.6 * sum(raw)  # divided
    assert ckpress.verify(tmp_path / "run", level="decode").whole == 4
    # one process reads it all
    told = subprocess.run(["ckpress", "info", str(tmp_path / "run")], capture_output=True, text=True, check=True).stdout
    assert f"saved by {WORLD} writers" in told
    model, optimizer = training(seed=5)
    with ckpress.Checkpointer(tmp_path / "run", profile) as ck:
        assert ck.restore(model=model, optimizer=optimizer, mine={"rank": None}) == 4
    if profile == "lossless":
        assert alike(flat(model, optimizer), values[0][0])
    # and four go on, each with its own random numbers
    found = run(restore, tmp_path, profile)
    assert [kind for kind, _ in found] == ["ok"] * WORLD, found
    for rank, (_, (done, where, mine, drawn)) in enumerate(found):
        assert (done, where, mine) == (4, found[0][1][1], rank)
        assert torch.equal(drawn, values[rank][1])
    rows = ckpress.list_run(tmp_path / "run")
    assert rows[-1].step == 5 and rows[-1].is_delta


def test_one_shard_alone(tmp_path):
    """What another rank has saved is in it as a row without elements: refused by name, and not memory as it was."""
    assert [kind for kind, _ in run(save_steps, tmp_path, "lossless", 1, world=2)] == ["ok"] * 2
    for rank in range(2):
        shard = tmp_path / "run" / newest(tmp_path) / f"shard-{rank:05}-of-00002.ckp"
        with pytest.raises(ckpress.UnsupportedError, match="a part of a tensor"):
            ckpress.load(shard)
        with ckpress.open(shard) as f:
            absent = next(f[name] for name in f if f[name].info["numel"] == 0)
            for way in (lambda: absent.read(), lambda: absent[:], lambda: absent[0]):
                with pytest.raises(ckpress.UnsupportedError, match=absent.name):
                    way()
            assert [f[name].read() for name in f if f[name].info["numel"] != 0]
            calls = (["decompress", shard], ["extract", shard, absent.name], ["export", shard, "--to", "safetensors"])
        for call in calls:
            done = subprocess.run(["ckpress", *map(str, call), "-o", tmp_path / "out"], capture_output=True, text=True)
            assert done.returncode == 4 and ("holds a part" in done.stderr or "a part of a tensor" in done.stderr), done
            assert not os.path.isfile(tmp_path / "out")
        assert not any(files for _, _, files in os.walk(tmp_path / "out"))


def test_another_number_of_ranks(tmp_path):
    found = run(save_steps, tmp_path, "lossless", 2)
    saved = found[0][1][0]
    for world in (2, 5):
        again = run(restore_only, tmp_path, world=world)
        assert [kind for kind, _ in again] == ["ok"] * world, again
        for rank, (_, (done, state, texts)) in enumerate(again):
            assert done == 2 and alike(state, saved)
            assert any("keeps its own" in text for text in texts) == (rank >= WORLD)


def failing(rank, dir, how):
    model, optimizer = training()
    with open_run(dir) as ck:
        train(model, optimizer, seed=1)
        ck.save(1, model=model, optimizer=optimizer, wait=True)
        train(model, optimizer, seed=2)
        began = time.monotonic()
        try:
            if rank == 2 and how == "value":
                ck.save(2, odd=lambda: None)  # cannot be saved
            elif rank == 2 and how == "late":
                time.sleep(3)
                ck.save(2, metrics={"loss": "no number"})
            elif rank == 2 and how == "step":
                ck.save(7, wait=True)
            elif rank == 2 and how == "model":
                with torch.no_grad():
                    model.extra = torch.nn.Linear(3, 3)
                ck.save(2, wait=True)
            else:
                ck.save(2, wait=True)
            text = ""
        except (ckpress.Error, ValueError) as e:
            text = str(e)
        took = time.monotonic() - began
        if how == "model" and rank == 2:
            del model.extra
        ck.save(3, wait=True)
        key = ck.stats["is_key"]
    return text, took, key


@pytest.mark.parametrize("how, text", [("value", "rank 2: "), ("late", "rank 2: "), ("step", "rank 2 saves at step 7"), ("model", "rank 2 has other")])
def test_one_rank_fails(tmp_path, how, text):
    found = run(failing, tmp_path, how)
    assert [kind for kind, _ in found] == ["ok"] * WORLD, found
    for rank, (_, (told, took, key)) in enumerate(found):
        assert told and key
        assert text in told or (rank == 2 and how in ("value", "late"))
        assert took < 10 + (3 if how == "late" else 0)
    assert [row.step for row in ckpress.list_run(tmp_path / "run")] == [1, 3]


def full_disk(rank, dir):
    import resource

    model, optimizer = training(width=400)
    with open_run(dir) as ck:
        ck.save(1, model=model, optimizer=optimizer, wait=True)
        train(model, optimizer, seed=2)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        if rank == 3:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        began = time.monotonic()
        try:
            ck.save(2, wait=True)
            text = ""
        except ckpress.Error as e:
            text = str(e)
        took = time.monotonic() - began
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        ck.save(3, wait=True)
    return text, took


def test_one_rank_cannot_write(tmp_path):
    found = run(full_disk, tmp_path)
    assert [kind for kind, _ in found] == ["ok"] * WORLD, found
    for _, (text, took) in found:
        assert text.startswith("rank 3: ") and text == found[0][1][0] and took < 10
    rows = ckpress.list_run(tmp_path / "run")
    assert [(row.step, row.health) for row in rows] == [(1, "ok"), (3, "ok")]


def killed_in_a_save(rank, dir, victim, delay):
    model, optimizer = training(width=WIDE)
    ck = open_run(dir)
    ck.save(1, model=model, optimizer=optimizer, mine={"rank": rank}, wait=True)
    train(model, optimizer, seed=2)
    if rank == victim:
        if delay == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        ck.save(2)
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        ck.save(2, wait=True)
        text = ""
    except ckpress.Error as e:
        text = str(e)
    return text, time.monotonic() - began


@pytest.mark.parametrize("victim, delay", [(0, 0), (3, 0), (0, 0.002), (3, 0.002), (0, 0.01), (2, 0.01)])
def test_killed_in_a_save(tmp_path, victim, delay):
    found = run(killed_in_a_save, tmp_path, victim, delay, killed=(victim,))
    for rank, answer in enumerate(found):
        if rank == victim:
            continue
        kind, (text, took) = answer
        assert kind == "ok" and took < 20, answer
        assert text or delay  # a save may have been committed before the kill
        assert not text or "lost each other" in text
    again = run(restore_only, tmp_path, False, WIDE)
    assert [kind for kind, _ in again] == ["ok"] * WORLD, again
    steps = {value[0] for _, value in again}
    assert len(steps) == 1 and steps <= {1, 2}
    assert all(alike(value[1], again[0][1][1]) for _, value in again)
    assert [row.health for row in ckpress.list_run(tmp_path / "run")] == ["ok"] * steps.pop()


def views(tmp_path, change):
    """A run of three saves, and a copy of it for each rank, which ``change`` may damage."""
    run(save_steps, tmp_path, "lossless", 3)
    name = newest(tmp_path)
    for rank in range(WORLD):
        shutil.copytree(tmp_path / "run", tmp_path / f"of-{rank}" / "run")
        change(rank, tmp_path / f"of-{rank}" / "run" / name)
    return name


def missing(rank, place):
    if rank == 1:
        os.unlink(place / f"shard-00002-of-{WORLD:05}.ckp")


def partial(rank, place):
    if rank == 3:
        os.unlink(place / "manifest.json")
        for shard in range(2):
            os.unlink(place / f"shard-{shard:05}-of-{WORLD:05}.ckp")


def damaged(rank, place):
    if rank == 2:
        path = place / f"shard-00001-of-{WORLD:05}.ckp"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def absent(rank, place):
    if rank == 0:
        shutil.rmtree(place)


@pytest.mark.parametrize("change, odd", [(missing, 1), (partial, 3), (damaged, 2), (absent, 0)])
def test_ranks_see_different_checkpoints(tmp_path, change, odd):
    """All fall back to the same older one, at once, and say why."""
    name = views(tmp_path, change)
    found = run(restore_only, tmp_path, True)
    assert [kind for kind, _ in found] == ["ok"] * WORLD, found
    for rank, (_, (done, state, texts)) in enumerate(found):
        assert done == 2 and alike(state, found[0][1][1])
        if rank != odd:
            assert any(name in text and f"rank {odd} cannot restore it" in text for text in texts), texts


def test_nothing_on_one_rank(tmp_path):
    """A rank without any checkpoint does not make all begin anew."""

    def change(rank, place):
        if rank == 1:
            for name in os.listdir(place.parent):
                if name.startswith("step-"):
                    shutil.rmtree(place.parent / name)

    views(tmp_path, change)
    found = run(restore_only, tmp_path, True)
    for kind, text in found:
        assert kind == "MismatchError" and "rank 1 has none" in text, found


def test_one_of_many_shards_is_missing(tmp_path):
    run(save_steps, tmp_path, "lossless", 3)
    name = newest(tmp_path)
    os.unlink(tmp_path / "run" / name / f"shard-00002-of-{WORLD:05}.ckp")
    model, optimizer = training(seed=5)
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        with pytest.warns(RuntimeWarning, match=f"{name} is passed over.*shard-00002-of-{WORLD:05}.ckp"):
            assert ck.restore(model=model, optimizer=optimizer, mine={"rank": None}) == 2
        with pytest.raises(ckpress.NotFoundError, match=f"shard-00002-of-{WORLD:05}.ckp"):
            ck.restore(step=3, model=model, optimizer=optimizer, mine={"rank": None})


def mismatched(rank, dir):
    model, optimizer = training(width=24 if rank != 1 else 25)
    before = flat(model, optimizer)
    with open_run(dir) as ck:
        try:
            ck.restore(model=model, optimizer=optimizer, mine={"rank": None})
        finally:
            assert alike(flat(model, optimizer), before), "written, though another rank cannot restore"


def test_a_restore_that_fails_on_one_rank(tmp_path):
    run(save_steps, tmp_path, "lossless", 1)
    found = run(mismatched, tmp_path)
    assert all(kind == "MismatchError" for kind, _ in found), found
    assert all("rank 1: " in text for rank, (_, text) in enumerate(found) if rank != 1)


def own_parts(rank, dir, again, divide=False):
    part = {"t": torch.arange(40.0) + 1000 * rank if not again else torch.zeros(40)}
    module = torch.nn.Linear(4, 4)
    with torch.no_grad():
        module.weight.fill_(0.0 if again else float(rank))
    with open_run(dir, divide=divide) as ck:
        if again:
            ck.restore(module=module, part=part)
        else:
            ck.save(1, module=module, part=part, wait=True)
    return part["t"][0].item(), module.weight[0, 0].item()


def test_each_its_own(tmp_path):
    run(own_parts, tmp_path, False)
    found = run(own_parts, tmp_path, True)
    assert [value for _, value in found] == [(1000.0 * rank, float(rank)) for rank in range(WORLD)]
    # nobody goes on with a stranger's part
    for others in (run(own_parts, tmp_path, True, world=3), run(own_parts, tmp_path, True, True)):
        assert all(kind == "MismatchError" and "divide=False" in text for kind, text in others), others
    with ckpress.Checkpointer(tmp_path / "run") as ck, pytest.raises(ckpress.MismatchError, match="parts of 4 ranks"):
        ck.restore(module=torch.nn.Linear(4, 4))


def test_divided_needs_dividing(tmp_path):
    run(save_steps, tmp_path, "lossless", 1)
    found = run(own_parts, tmp_path, True)
    assert all(kind == "MismatchError" and "divide=True" in text for kind, text in found), found


def late(rank, dir):
    if rank == 1:
        time.sleep(12)
        return "late"
    start = time.monotonic()
    with pytest.raises(ckpress.BusyError, match="rank 0 has waited 3 s for all ranks"):
        open_run(dir, join_seconds=3)
    return time.monotonic() - start


def test_one_rank_does_not_open(tmp_path):
    (kind, waited), _ = run(late, tmp_path, world=2)
    assert kind == "ok" and waited < 9, (kind, waited)


class Scalars:
    def __init__(self):
        self.steps = []

    def add_scalar(self, name, value, step):
        self.steps.append(step)


def logged(rank, dir):
    model, optimizer = training()
    log = Scalars()
    with open_run(dir) as ck:
        ck.log_to(log)
        for step in (1, 2, 3):
            ck.save(step, model=model, optimizer=optimizer)
    return sorted(set(log.steps))


def test_the_last_save_is_logged(tmp_path):
    assert run(logged, tmp_path, world=2) == [("ok", [1, 2, 3])] * 2


def odd_arguments(rank, dir):
    for how, match in (({"group": "foo"}, "group must be"), ({"group": 3}, "group must be"), ({"memory": "64MB"}, "memory is not for a group")):
        with pytest.raises(ckpress.InvalidError, match=match):
            open_run(dir, **how)


def test_odd_arguments(tmp_path):
    assert run(odd_arguments, tmp_path, world=2) == [("ok", None)] * 2


def ranks_differ(rank, dir):
    for how, name in (({"quality": 1 + rank}, "quality"), ({"keep_last": 2 + rank}, "keep_"), ({"rng": rank == 0}, "rng")):
        with pytest.raises(ckpress.InvalidError, match=f"{name}.* is not the same on ranks 0 and 1 of the group"):
            open_run(dir, **how)
    open_run(dir, profile="resume", quality=1 if rank else 1.0, steps={"a.*": 2 if rank else 2.0}).close()  # the same numbers


def test_arguments_are_the_same_on_all_ranks(tmp_path):
    assert run(ranks_differ, tmp_path, world=2) == [("ok", None)] * 2


def test_arguments(tmp_path):
    with pytest.raises(ckpress.InvalidError, match="torch.distributed"):
        ckpress.Checkpointer(tmp_path / "run", group="world")
    with pytest.raises(ckpress.InvalidError, match="base is not for a group"):
        ckpress.Checkpointer(tmp_path / "run", group="world", base=tmp_path / "x")
    assert not os.path.exists(tmp_path / "run")
