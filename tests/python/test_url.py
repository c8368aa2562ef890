# SPDX-License-Identifier: Apache-2.0
"""Runs behind URLs: what holds of a directory holds there, also where requests fail, are cut or never answer."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import uuid

import ckpress
import numpy as np
import pytest
import torch
from helpers import same, steps, training

pytest.importorskip("fsspec", reason="URLs need fsspec")
from object_fs import CreatingFS, Faults, ObjectFS, PartsFS  # noqa: E402

QUICK = ckpress.Storage(deadline=8, try_seconds=1)
TRAINER = pathlib.Path(__file__).parent / "trainer.py"


def break_it(**shares):
    ObjectFS.faults = Faults(int(os.environ.get("CKP_SEED", "1")), **shares)
    return ObjectFS.faults


@pytest.fixture(params=["memory", "objects", "creating"])
def url(request, tmp_path, faults):
    return f"memory://{uuid.uuid4().hex}/run" if request.param == "memory" else f"{request.param}://{tmp_path}/run"


def saved(url, n, storage=None, **how):
    """A training saved n times; its states by step."""
    model, optimizer, scheduler = training()
    states = {}
    with ckpress.Checkpointer(url, storage=storage, **how) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        for step in range(1, n + 1):
            steps(model, optimizer, scheduler, 1)
            states[step] = {name: t.clone() for name, t in model.state_dict().items()}
            ck.save(step, wait=True, metrics={"loss": step})
    return states


# ---- everything works ---------------------------------------------------------------------------------------------------


def test_life(url, tmp_path):
    states = saved(url, 6, key_every=3)
    rows = ckpress.list_run(url)
    assert [(r.step, r.health, r.is_delta) for r in rows] == [(i, "ok", i % 3 != 1) for i in range(1, 7)]
    assert rows[3].metrics == {"loss": 4.0}
    for step, state in states.items():
        assert same(dict(ckpress.load(f"{url}@{step}")["model"]), state)
    assert same(dict(ckpress.load(url + "/")["model"]), states[6])
    with ckpress.open(f"{url}@2") as f:
        assert torch.equal(f["model/up.weight"][10:12], states[2]["up.weight"][10:12])
    ckpress.verify(url, level="decode")
    ckpress.decompress(f"{url}@5", tmp_path / "x.safetensors", only="model")
    assert (tmp_path / "x.safetensors").stat().st_size > 1000
    gone = ckpress.prune(url, keep_last=1)
    assert (gone.kept, gone.bases, gone.deleted) == (1, 2, 3)
    ckpress.verify(url, level="decode")


@pytest.mark.filterwarnings("ignore:ckpress. between two saves")
@pytest.mark.parametrize("profile", ["lossless", "resume"])
def test_resume(url, profile):
    """Restored into live objects, and on: with a delta against it, and by the rules."""
    saved(url, 3, profile=profile, keep_last=2, final_on_close=False)
    model, optimizer, scheduler = training(seed=7)
    with ckpress.Checkpointer(url, profile=profile, keep_last=2) as ck:
        assert ck.dir == url
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == 3
        steps(model, optimizer, scheduler, 1)
        ck.save(4, wait=True)
        assert ckpress.list_run(url)[-1].is_delta
    assert ckpress.list_run(url)[-1].step == 4
    assert same(dict(ckpress.load(url)["model"]), dict(model.state_dict()))
    ckpress.verify(url, level="decode")


def test_new_and_lost_runs(url):
    with pytest.raises(ckpress.NotFoundError, match="not a run"):
        ckpress.list_run(url)
    model, _, _ = training()
    with ckpress.Checkpointer(url) as ck:
        assert ck.restore(model=model) is None
    assert ckpress.list_run(url) == []


def test_lost_manifests(tmp_path, faults):
    """Whole shards of three steps are no new run, wherever they lie."""
    saved(f"objects://{tmp_path}/run", 3)
    for manifest in (tmp_path / "run").glob("step-*/manifest.json"):
        manifest.unlink()
    model, _, _ = training()
    with ckpress.Checkpointer(f"objects://{tmp_path}/run", storage=QUICK) as ck, pytest.raises(ckpress.NotFoundError, match="whole shards"):
        ck.restore(model=model)


def test_two_writers(url):
    with ckpress.Checkpointer(url), pytest.raises(ckpress.BusyError, match="has the run open"):
        ckpress.Checkpointer(url)
    ckpress.Checkpointer(url).close()


def test_same_bytes_as_a_directory(tmp_path, faults):
    """A run can be copied from one to the other: it is the same layout."""
    states = saved(f"objects://{tmp_path}/run", 3)
    assert same(dict(ckpress.load(tmp_path / "run")["model"]), states[3])
    ckpress.verify(tmp_path / "run", level="decode")
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == 3


def test_large_shards(tmp_path, faults, monkeypatch):
    """Staged in a file, which is gone afterwards, and streamed where the file system has no parts."""
    from ckpress import _url

    monkeypatch.setattr(_url, "WHOLE", 1 << 20)
    stage = tmp_path / "stage"
    stage.mkdir()
    where = f"memory://{uuid.uuid4().hex}/run"
    state = {"w": torch.randn(3_000_000)}
    storage = ckpress.Storage(stage_dir=stage)
    with ckpress.Checkpointer(where, storage=storage) as ck:
        ck.save(1, state=state, wait=True)
    assert same(ckpress.load(where)["state"], state)
    assert list(stage.iterdir()) == []
    with pytest.raises(ckpress.NotFoundError, match="no/such/place"), ckpress.Checkpointer(where, storage=storage._replace(stage_dir="/no/such/place")) as ck:
        ck.save(2, state=state, wait=True)


def test_file_url(tmp_path):
    saved(f"file://{tmp_path}/run", 2)
    assert [r.step for r in ckpress.list_run(tmp_path / "run")] == [1, 2]
    assert ckpress.load(f"file://{tmp_path}/run@1")["step"] == 1
    ckpress.save(f"file://{tmp_path}/x.ckp", {"a": 1})
    assert ckpress.load(tmp_path / "x.ckp") == ckpress.load(f"file://{tmp_path}/x.ckp") == {"a": 1}
    assert (tmp_path / "run" / "run.json").is_file()


# ---- faults -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["objects", "creating"])
def test_throttled_failing_and_cut(scheme, tmp_path, faults):
    """5 % of the requests are throttled, 1 % fail, 2 % are done without an answer, 8 % of what is read is cut: nobody notices."""
    where = f"{scheme}://{tmp_path}/run"
    bad = break_it(throttled=0.05, failed=0.01, lost=0.02, cut=0.08)
    states = saved(where, 16, keep_last=3, key_every=4, storage=ckpress.Storage(deadline=30, try_seconds=5))
    rows = ckpress.list_run(where)
    assert all(r.health == "ok" for r in rows) and [r.step for r in rows][-3:] == [14, 15, 16]
    for r in rows:
        assert same(dict(ckpress.load(f"{where}@{r.step}")["model"]), states[r.step])
    assert bad.count["throttled"] > 10 and bad.count["failed"] > 2 and bad.count["lost"] > 2 and bad.count["cut"] > 1, bad.count
    break_it()
    ckpress.verify(where, level="decode")
    left = {p.parent.name for p in (tmp_path / "run").glob("step-*/*")}
    assert left == {r.dir for r in rows}


def count_requests(where, **how):
    bad = break_it()
    saved(where, 2, **how)
    return len(bad.requests)


def test_one_request_never_answers(tmp_path, faults):
    """Whichever it is, it is given up and made again; the save takes no longer than that."""
    total = count_requests(f"creating://{tmp_path}/count")
    assert total > 20
    for k, number in enumerate(range(1, total + 1, 4)):
        bad = break_it()
        bad.hang_at = range(number, number + 1)
        where, start = f"creating://{tmp_path}/run{k}", time.monotonic()
        states = saved(where, 2, storage=ckpress.Storage(deadline=8, try_seconds=0.3))
        assert time.monotonic() - start < 4
        assert bad.count["hung"] == 1
        bad.release.set()
        assert same(dict(ckpress.load(where)["model"]), states[2])
        ckpress.verify(where)


def test_nothing_answers_any_more(tmp_path, faults):
    """The save fails in time, by name; later ones work; the run is as it was."""
    where = f"creating://{tmp_path}/run"
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(where, storage=ckpress.Storage(deadline=1.0, try_seconds=0.4)) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        ck.save(1, wait=True)
        faults.hang_at = range(len(faults.requests) + 1, 10**9)
        start = time.monotonic()
        with pytest.raises(ckpress.FileError, match=r"no answer \(gave up after \d tries: the deadline is 1 s\)"):
            ck.save(2, wait=True)
        assert time.monotonic() - start < 15
        faults.hang_at = None
        faults.release.set()
        ck.save(3, wait=True)
        assert ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) == 3
    assert {1, 3} <= {r.step for r in ckpress.list_run(where) if r.health == "ok"}
    ckpress.verify(where)


@pytest.mark.parametrize(
    ("error", "cls", "tries"),
    [
        (PermissionError("403 Forbidden"), ckpress.AccessError, 1),
        (OSError(28, "quota"), ckpress.NoSpaceError, 1),
        (ValueError("odd"), ckpress.FileError, 1),
        (type("NoCredentialsError", (Exception,), {})("no keys"), ckpress.FileError, 1),  # as botocore calls it
        (OSError(5, "broken"), ckpress.FileError, None),
        (RuntimeError("surprise"), ckpress.FileError, None),
    ],
)
def test_failures_by_class(error, cls, tries, tmp_path, faults):
    """What cannot pass is not tried again; what was raised is in the text."""
    where = f"creating://{tmp_path}/run"
    saved(where, 1)
    model = training()[0]
    with ckpress.Checkpointer(where, storage=ckpress.Storage(deadline=0.8)) as ck:
        faults.raises = ("put", "shard", error)
        with pytest.raises(cls) as caught:
            ck.save(2, model=model, wait=True)
        assert str(error.args[-1]) in str(caught.value) and where in str(caught.value)
        assert "shard-00000-of-00001.ckp" in str(caught.value)
        n = faults.count["raised"]
        assert n == tries if tries is not None else n > 1
        faults.raises = None
        ck.save(3, model=model, wait=True)
    assert [r.step for r in ckpress.list_run(where)] == [1, 3]


class Data:
    """What is put, as ``_core`` gives it."""

    def __init__(self, raw):
        self.raw = raw

    def __len__(self):
        return len(self.raw)

    def read(self, offset, n):
        return self.raw[offset : offset + n]


@pytest.fixture
def in_parts(tmp_path, faults, monkeypatch):
    """A store for large objects, and one."""
    from ckpress import _url

    monkeypatch.setattr(_url, "WHOLE", PartsFS.block)
    monkeypatch.setattr(_url, "SLOWEST", 1 << 40)
    return _url.place(f"parts://{tmp_path}/run", ckpress.Storage(deadline=60, try_seconds=5)), Data(os.urandom(5 * PartsFS.block + 7))


@pytest.mark.parametrize("error", [OSError(5, "broken"), PermissionError("403 Forbidden")])
def test_a_part_that_fails_makes_no_object(in_parts, faults, error):
    store, data = in_parts
    before = faults.before

    def third(what, path):
        if what == "part" and faults.requests.count("part") == 2:
            faults.requests.append("part")
            raise error
        return before(what, path)

    faults.before = third
    if isinstance(error, PermissionError):
        with pytest.raises(PermissionError):
            store.put("x.ckp", data, False)
    else:
        store.put("x.ckp", data, False)
    assert store._fs.published == [data.raw] * (not isinstance(error, PermissionError)) and store._fs.discarded == 1


def test_a_try_that_was_given_up_makes_no_object(in_parts, faults):
    store, data = in_parts
    faults.hang_at = range(3, 4)
    store.put("x.ckp", data, False)
    assert faults.count["hung"] == 1
    faults.release.set()
    end = time.monotonic() + 10
    while not store._fs.discarded and len(store._fs.published) == 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert store._fs.published == [data.raw] and store._fs.discarded == 1


def test_server_that_knows_no_condition(tmp_path, faults):
    """It says so: then a look comes first."""
    where = f"creating://{tmp_path}/run"
    real = CreatingFS.pipe_file

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode == "create":
            raise OSError(errno.ENOSYS, "A header you provided implies functionality that is not implemented")
        real(self, path, value, mode=mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CreatingFS, "pipe_file", pipe_file)
        states = saved(where, 2, storage=QUICK)
        with ckpress.Checkpointer(where, storage=QUICK), pytest.raises(ckpress.BusyError):
            ckpress.Checkpointer(where, storage=QUICK)
    assert same(dict(ckpress.load(where)["model"]), states[2])


class Hostile(Exception):
    def __str__(self):
        raise RuntimeError("no text either")


def test_no_exception_is_lost(tmp_path, faults):
    where = f"creating://{tmp_path}/run"
    saved(where, 1)
    faults.raises = ("list", "", Hostile())
    with pytest.raises(ckpress.FileError):
        ckpress.list_run(where, storage=ckpress.Storage(deadline=0.3))
    faults.raises = ("list", "", MemoryError())
    with pytest.raises(ckpress.NoMemoryError):
        ckpress.list_run(where)
    faults.raises = ("list", "", SystemExit(3))
    with pytest.raises(ckpress.CancelledError):
        ckpress.list_run(where)


def test_in_the_background(tmp_path, faults):
    """save() does not wait for the store, and the interpreter is not held while one is slow."""
    where = f"creating://{tmp_path}/run"
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(where, storage=ckpress.Storage(deadline=20, try_seconds=2)) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        ck.save(1, wait=True)
        faults.hang_at = range(len(faults.requests) + 1, len(faults.requests) + 2)
        start = time.monotonic()
        ck.save(2)
        assert time.monotonic() - start < 1 and ck._run.busy
        steps(model, optimizer, scheduler, 5)
        faults.release.set()
    assert [r.step for r in ckpress.list_run(where)] == [1, 2]


def in_child(url, queue):
    try:
        queue.put([r.step for r in ckpress.list_run(url)] if url else "idle")
    except BaseException as e:
        queue.put(repr(e))


@pytest.mark.filterwarnings("error")
def test_forked_children(tmp_path, faults, capfd):
    """As data loaders: they end without a word, leave the run alone, and may read it."""
    where, fork = f"creating://{tmp_path}/run", multiprocessing.get_context("fork")
    model = training()[0]
    with ckpress.Checkpointer(where) as ck:
        ck.save(1, model=model, wait=True)
        for url, found in ((None, "idle"), (where, [1])):
            queue = fork.SimpleQueue()
            child = fork.Process(target=in_child, args=(url, queue))
            child.start()
            assert queue.get() == found
            child.join(30)
            assert child.exitcode == 0
        ck.save(2, model=model, wait=True)
    assert capfd.readouterr().err == ""
    assert [r.step for r in ckpress.list_run(where)] == [1, 2]


def test_process_that_does_not_close(tmp_path):
    """A save in flight is finished, with requests that need threads."""
    where = f"creating://{tmp_path}/run"
    code = f"""
import sys; sys.path.insert(0, {str(TRAINER.parent)!r})
import ckpress, numpy, object_fs
ck = ckpress.Checkpointer({where!r})
ck.save(1, w=numpy.zeros(1000)); ck.save(2, w=numpy.ones(1000))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert [r.step for r in ckpress.list_run(where)] == [1, 2]


def test_base_model(tmp_path, faults):
    """It stays where it is, here."""
    where, base = f"creating://{tmp_path}/run", tmp_path / "base.ckp"
    model, optimizer, scheduler = training()
    ckpress.save(base, model.state_dict())
    with ckpress.Checkpointer(where, profile="resume", base=base, final_on_close=False) as ck:
        ck.register(model=model, optimizer=optimizer)
        for step in (1, 2):
            steps(model, optimizer, scheduler, 1)
            ck.save(step, wait=True)
    assert ckpress.list_run(where)[0].base_model == str(base)
    assert ckpress.load(where)["step"] == 2
    ckpress.verify(where, level="decode")
    base.rename(tmp_path / "moved.ckp")
    with pytest.raises(ckpress.BaseMismatchError, match="base"):
        ckpress.load(where)
    assert ckpress.load(where, base=tmp_path / "moved.ckp")["step"] == 2


def test_side_by_side():
    """Parts of an upload: results in order; a failure ends it, once what had begun has ended."""
    from ckpress._url import AT_ONCE, _side_by_side

    gate = threading.Barrier(AT_ONCE, timeout=10)

    def fn(i):
        if i < AT_ONCE:
            gate.wait()
        return i * i

    assert _side_by_side(fn, 20) == [i * i for i in range(20)]
    ended = []

    def failing(i):
        time.sleep(0.02)
        if i == 5:
            raise OSError("part 5")
        ended.append(i)

    with pytest.raises(OSError, match="part 5"):
        _side_by_side(failing, 100)
    assert len(ended) < 20
    assert _side_by_side(fn, 0) == []


# ---- what cannot be ------------------------------------------------------------------------------------------------------


def test_refused(tmp_path, monkeypatch):
    with pytest.raises(ckpress.UnsupportedError, match="chained"):
        ckpress.Checkpointer("simplecache::memory://x/run")
    with pytest.raises(ckpress.UnsupportedError, match="nosuch"):
        ckpress.Checkpointer("nosuch://x/run")
    with pytest.raises(ckpress.UnsupportedError, match="single file"):
        ckpress.load("memory://x/model.ckp")
    with pytest.raises(ckpress.InvalidError, match="memory://: a run needs a place"):
        ckpress.Checkpointer("memory://")
    with pytest.raises(ckpress.InvalidError, match="storage="):
        ckpress.Checkpointer(tmp_path / "run", storage={})
    with pytest.raises(ckpress.InvalidError, match="deadline"):
        ckpress.list_run("memory://x/run", storage=ckpress.Storage(deadline=0))
    for name in ("s3", "s3a"):  # known already where s3fs was in use
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, name, raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ckpress.UnsupportedError, match="s3fs"):
        ckpress.list_run("s3://bucket/run")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ckpress.UnsupportedError, match="pip install fsspec"):
        ckpress.list_run("memory://x/run")


# ---- killed --------------------------------------------------------------------------------------------------------------


def killed_in_upload(where, at, moment):
    """A life of two saves in a process of its own, whose last act is a moment of that upload; False: that upload has no such moment."""

    def live():
        ObjectFS.faults.puts, ObjectFS.faults.kill_at = 0, (at, moment)
        with ckpress.Checkpointer(where, threads=1) as ck:
            for step in (2, 3):
                ck.save(step, w=np.full(1000, step), wait=True)

    child = multiprocessing.get_context("fork").Process(target=live)
    child.start()
    child.join(60)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


@pytest.mark.parametrize(("moment", "kills"), [("begun", 7), ("there", 5), ("answered", 7)])
def test_killed_in_an_upload(moment, kills, tmp_path, faults):
    """Each upload of a life is the last thing that its process does: the next writer leaves nothing of what was not committed, and loses nothing of what was."""
    killed = 0
    for at in range(1, 8):  # claim, its refresh, shard and manifest of each save, the claim's end
        where, folder = f"creating://{tmp_path}/run{at}", f"{tmp_path}/run{at}"
        with ckpress.Checkpointer(where, threads=1) as ck:
            ck.save(1, w=np.ones(1000), wait=True)
        committed = 3
        if killed_in_upload(where, at, moment):
            killed += 1
            uploaded = at - (moment == "begun")
            committed = 1 + (uploaded >= 4) + (uploaded >= 6)
        with ckpress.Checkpointer(where, threads=1) as ck:
            rows = ckpress.list_run(where)
            assert all(r.health == "ok" for r in rows), (at, rows)
            assert len(rows) == committed, at
            ck.save(9, w=np.zeros(1000), wait=True)
        listed = {entry["name"].rpartition("/")[2] for entry in ObjectFS().ls(folder)} - {"run.json", "lock"}
        assert listed == {r.dir for r in ckpress.list_run(where)}
        ckpress.verify(where, level="decode")
    assert killed == kills


def start(url, out, steps):
    code = f"import sys; sys.path.insert(0, {str(TRAINER.parent)!r}); import object_fs, trainer; sys.argv = ['', {url!r}, '{steps}', {str(out)!r}]; trainer.main()"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def kill_again_and_again(url, out, steps, kills, chance, storage=None):
    """Kills the training at random moments of a save until it has ended; how often."""
    killed = 0
    while True:
        process = start(url, out, steps)
        first = process.stdout.readline()
        assert first.startswith("restored ")
        target = f"save {int(first.split()[1]) + chance.randint(2, 4)}\n"
        for line in process.stdout:
            if line == target and killed < kills:
                time.sleep(chance.uniform(0, 0.06))
                process.send_signal(signal.SIGKILL)
                killed += 1
                break
        process.stdout.close()
        if process.wait() == 0:
            return killed
        assert process.returncode == -signal.SIGKILL


def test_killed_again_and_again(tmp_path):
    whole, url = tmp_path / "whole", f"creating://{tmp_path}/broken"
    assert start(f"creating://{tmp_path}/left", whole, 80).wait() == 0
    killed = kill_again_and_again(url, tmp_path / "end", 80, 8, random.Random(5))
    assert killed >= 4
    assert json.loads((tmp_path / "end.json").read_text()) == json.loads((tmp_path / "whole.json").read_text())
    ckpress.verify(url, level="decode")
    assert all(r.health == "ok" for r in ckpress.list_run(url))


def test_a_run_whose_name_ends_like_a_step():
    """``run@5`` is that run where it is one, as a directory of that name is."""
    for url, value in (("memory://at/z", 1.0), ("memory://at/z@5", 2.0)):
        with ckpress.Checkpointer(url, rng=False) as ck:
            ck.save(5, v={"a": torch.full((2,), value)}, wait=True)
    assert [float(ckpress.load(f"memory://at/z{end}")["v"]["a"][0]) for end in ("", "@5", "@5@5")] == [1.0, 2.0, 2.0]
    with ckpress.Checkpointer("memory://at/y", rng=False) as ck:
        ck.save(5, v={"a": torch.full((2,), 3.0)}, wait=True)
    assert float(ckpress.load("memory://at/y@5")["v"]["a"][0]) == 3.0
