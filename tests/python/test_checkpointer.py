# SPDX-License-Identifier: Apache-2.0
"""The life of a run in one process (rows 5, 26, 31, 32, 35, 37)."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import ckpress
import pytest
import torch
from helpers import Net, bits, same, steps, training


def test_the_tensor_may_change_at_once(run):
    """Row 31: what was there at the call is saved, whatever happens next."""
    t = torch.ones(3_000_000)
    with ckpress.Checkpointer(run, rng=False) as ck:
        for step in range(1, 6):
            t.fill_(step)
            ck.save(step, t=t)
            t.add_(100)
    for step in range(1, 6):
        assert torch.all(ckpress.load(f"{run}@{step}")["t"] == step)


def test_load_right_after_save(run):
    """Row 32: restore waits for the save in flight."""
    t = torch.arange(2_000_000.0)
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, t=t)
        ck.save(2, t=t + 1)
        live = torch.zeros_like(t)
        assert ck.restore(t=live) == 2
        assert torch.equal(live, t + 1)


def test_saved_again_without_a_change(run):
    t = torch.randn(1000)
    for _ in range(2):
        with ckpress.Checkpointer(run) as ck:
            ck.restore(t=t)
            for step in range(3):
                ck.save(step, t=t)
    live = torch.zeros(1000)
    with ckpress.Checkpointer(run) as ck:
        assert ck.restore(t=live) == 2 and same(live, t)
    assert all(row.health == "ok" for row in ckpress.list_run(run))


def test_small_changes_are_changes(run):
    """Row 84: an update of one bit, far below any tolerance."""
    t = torch.ones(10_000)
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, t=t)
        t[1234] = torch.nextafter(t[1234], torch.tensor(2.0))
        ck.save(2, t=t)
    assert same(ckpress.load(run)["t"], t) and not torch.equal(ckpress.load(f"{run}@1")["t"], t)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "3"])
def test_keep_last_must_make_sense(run, bad):
    """Row 26: 0 is neither all nor none."""
    with pytest.raises(ckpress.InvalidError):
        ckpress.Checkpointer(run, keep_last=bad)


def test_keep_last(run):
    t = torch.randn(50_000)
    with ckpress.Checkpointer(run, keep_last=2, key_every=3) as ck:
        for step in range(1, 11):
            t[step] += 1
            ck.save(step, t=t, wait=True)
    rows = [r for r in ckpress.list_run(run) if r.health == "ok"]
    assert rows[-1].step == 10 and rows[-2].step == 9 and len(rows) <= 2 + 3
    assert same(ckpress.load(run)["t"], t)


def test_one_writer(run):
    with ckpress.Checkpointer(run), pytest.raises(ckpress.BusyError, match=f"this process.*{os.getpid()}.*close"):
        ckpress.Checkpointer(run)
    ckpress.Checkpointer(run).close()


@pytest.mark.parametrize(
    "how",
    [
        *({"profile": "best"}, {"profile": ["small"]}, {"quality": 0}, {"quality": "fine"}, {"threads": -1}, {"key_every": 0}),
        *({"when_busy": "replace"}, {"effort": 9}, {"lock_seconds": -1}),
    ],
)
def test_options_are_checked(run, how):
    with pytest.raises(ckpress.InvalidError, match=next(iter(how))):
        ckpress.Checkpointer(run, **how)


def test_steps_are_checked(run):
    with ckpress.Checkpointer(run) as ck:
        for bad in (-1, 1.0, True, 1 << 63):
            with pytest.raises(ckpress.InvalidError):
                ck.save(bad, t=1)
        with pytest.raises(ckpress.InvalidError, match="nothing to save"):
            ckpress.Checkpointer(str(run) + "2").save(1)
        with pytest.raises(ckpress.InvalidError, match="reserved"):
            ck.save(1, rng=1)


def test_a_save_that_fails_leaves_the_run_usable(run):
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, t=torch.ones(2))
        with pytest.raises(ckpress.UnsupportedError):
            ck.save(2, t=object())
        ck.save(3, t=torch.zeros(2))
    assert [r.step for r in ckpress.list_run(run)] == [1, 3]


def test_metrics_come_back(run):
    """In the listing, in what is open, and after a restore; every float, bit for bit."""
    told = {"loss": 0.1, "held-out": float("nan"), "Grüße": -math.inf, "zero": -0.0, "n": 3}
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, metrics=told, t=torch.ones(3))
        ck.save(2)
    want = {name: float(value) for name, value in told.items()}
    assert [same(row.metrics, each) for row, each in zip(ckpress.list_run(run), (want, {}), strict=True)] == [True, True]
    with ckpress.open(f"{run}@1") as f:
        assert same(f.info["metrics"], want)
    with ckpress.Checkpointer(run, rng=False) as ck:
        assert ck.restored is None
        ck.restore(step=1, t=torch.zeros(3))
        assert same(ck.restored["metrics"], want)
    with pytest.raises(ckpress.InvalidError, match="metrics.*'loss'"), ckpress.Checkpointer(run) as ck:
        ck.save(3, metrics={"loss": "low"}, t=torch.ones(3))


def test_metrics_of_a_file(path):
    ckpress.save(path, {"a": 1})
    with ckpress.open(path) as f:
        assert f.info["metrics"] == {}


def test_what_cannot_be_saved_is_not_registered(run):
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(1, t=torch.ones(2))
        with pytest.raises(ckpress.UnsupportedError):
            ck.save(2, t=object(), more=1)
        ck.save(3)
    got = ckpress.load(run)
    assert "more" not in got and same(got["t"], torch.ones(2))


def test_another_working_directory(tmp_path, monkeypatch):
    """A relative path means what it meant when the run was opened."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    t = torch.ones(4)
    with ckpress.Checkpointer("run", rng=False) as ck:
        ck.save(1, t=t)
        monkeypatch.chdir("elsewhere")
        ck.save(2, t=t + 1)
        assert ck.restore(t=t) == 2 and t[0] == 2
    assert os.listdir() == [] and [row.step for row in ckpress.list_run(tmp_path / "run")] == [1, 2]


def test_a_url_is_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ckpress.UnsupportedError, match="nosuch://bucket/run"):
        ckpress.Checkpointer("nosuch://bucket/run")
    with pytest.raises(ckpress.UnsupportedError, match="memory://bucket/x.ckp.*single files"):
        ckpress.save("memory://bucket/x.ckp", {"a": 1})
    assert os.listdir() == []


def test_ints_of_numpy_and_torch(run):
    import numpy as np

    with ckpress.Checkpointer(run, keep_last=np.int32(2)) as ck:
        ck.save(np.int64(3), t=1)
        ck.save(torch.tensor(4))
    assert [row.step for row in ckpress.list_run(run)] == [3, 4]


def test_signals_that_cannot_be_caught(run):
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(ckpress.InvalidError, match="Killed"):
        ckpress.Checkpointer(run, signals=(signal.SIGUSR1, signal.SIGKILL))
    assert signal.getsignal(signal.SIGUSR1) is before
    ckpress.Checkpointer(run).close()  # and the lock was given back


def test_signals_by_name(run):
    before = signal.getsignal(signal.SIGUSR1)
    with ckpress.Checkpointer(run, signals=("SIGUSR1",)) as ck:
        signal.raise_signal(signal.SIGUSR1)
        assert ck.should_save
    assert signal.getsignal(signal.SIGUSR1) is before


def test_signals_twice_and_without_a_name(run):
    came = []
    real_time = signal.SIGRTMIN + 1
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
    try:
        with ckpress.Checkpointer(run, signals=(signal.SIGUSR1, "SIGUSR1", real_time)) as ck:
            signal.raise_signal(signal.SIGUSR1)
            assert ck.should_save and came == [1]
            signal.raise_signal(real_time)
        signal.raise_signal(signal.SIGUSR1)
        assert came == [1, 1]
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("wanted", ["SIGTERM", ("TERM",), (0,), (1000,), (None,), (15.0,), signal.SIGTERM])
def test_signals_that_are_none(run, wanted):
    with pytest.raises(ckpress.InvalidError, match="signals must be"):
        ckpress.Checkpointer(run, signals=wanted)
    ckpress.Checkpointer(run).close()


def test_stats(run):
    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.save(5, t=torch.randn(100_000), wait=True)
        s = ck.stats
        assert (s["step"], s["saves"], s["is_key"], s["committed"]) == (5, 1, True, True)
        assert s["raw_bytes"] == 400_000 and 0 < s["stored_bytes"] and s["stall"] <= s["total"]
        assert not ck.busy


def test_not_closed(run):
    """A forgotten close() still finishes the save in flight."""
    ck = ckpress.Checkpointer(run)
    ck.save(1, t=torch.randn(1_000_000))
    del ck
    gc.collect()
    assert ckpress.load(run)["step"] == 1


def test_closed(run):
    ck = ckpress.Checkpointer(run)
    ck.save(1, t=torch.ones(1))
    ck.close()
    ck.close()
    with pytest.raises(ValueError, match="closed"):
        ck.save(2)


class TestFinal:
    """When close() makes a lossless last save."""

    def run_lossy(self, run, *, after=0, final=False, fail=False, **how):
        model, optimizer, scheduler = training()
        try:
            with ckpress.Checkpointer(run, "resume", **how) as ck:
                steps(model, optimizer, scheduler, 5)
                ck.save(5, model=model, optimizer=optimizer, final=final)
                steps(model, optimizer, scheduler, after)
                if fail:
                    raise KeyError
        except KeyError:
            pass
        with ckpress.open(run) as f:
            return (
                not f["model/up.weight"].info["lossy"],
                len(ckpress.list_run(run)),
                bits(f["model/up.weight"].read()) == bits(model.up.weight),
            )

    def test_by_close(self, run):
        assert self.run_lossy(run) == (True, 2, True)

    def test_is_one_of_the_kept(self, run):
        model, optimizer, _ = training()
        with ckpress.Checkpointer(run, "resume", keep_last=2, key_every=1) as ck:
            for step in range(1, 5):
                ck.save(step, model=model, optimizer=optimizer)
        assert [row.step for row in ckpress.list_run(run)] == [4, 4]

    def test_already_made(self, run):
        assert self.run_lossy(run, final=True) == (True, 1, True)

    def test_not_when_training_went_on(self, run):
        assert self.run_lossy(run, after=2) == (False, 1, False)

    def test_not_when_it_went_on_through_data(self, run):
        model, optimizer, _ = training()
        with ckpress.Checkpointer(run, "resume") as ck:
            ck.save(5, model=model, optimizer=optimizer)
            for p in model.parameters():
                p.data.add_(0.5)  # torch does not count these
        assert len(ckpress.list_run(run)) == 1

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.bool, torch.int64])
    def test_odd_parameters(self, run, dtype):
        model, optimizer, _ = training()
        for shape in ((), (3,), (2, 0), (40, 3)):
            model.register_parameter(f"p{len(shape)}{shape and shape[-1]}", torch.nn.Parameter(torch.ones(shape).to(dtype), requires_grad=False))
        with ckpress.Checkpointer(run, "resume") as ck:
            ck.save(5, model=model, optimizer=optimizer)
        assert len(ckpress.list_run(run)) == 2

    def test_not_where_nobody_can_tell(self, run):
        """No module is registered by itself: what has been trained since would be saved under an older step."""
        weights = {"w": torch.randn(100, 100)}
        with ckpress.Checkpointer(run, "resume", averages=("weights",)) as ck:
            ck.save(5, weights=weights)
            weights["w"] += 1
        assert len(ckpress.list_run(run)) == 1

    def test_not_where_the_only_module_is_frozen(self, run):
        """It says nothing about what is trained beside it."""
        weights, teacher = {"w": torch.randn(100, 100)}, training()[0].requires_grad_(False)
        with ckpress.Checkpointer(run, "resume", averages=("weights",)) as ck:
            ck.save(5, weights=weights, teacher=teacher)
            weights["w"] += 1
        assert len(ckpress.list_run(run)) == 1

    def test_not_when_it_was_lossless(self, run):
        model = training()[0].requires_grad_(False)
        with ckpress.Checkpointer(run, "resume") as ck:
            ck.save(5, model=model)
        assert len(ckpress.list_run(run)) == 1

    def test_has_the_metrics(self, run):
        """Without them it would pass for the newest one that has not gone wrong, and the last that really has not would go."""
        model, optimizer, _ = training()
        with ckpress.Checkpointer(run, "resume", keep_last=1, key_every=1) as ck:
            ck.save(1, model=model, optimizer=optimizer, metrics={"loss": 1.0})
            with torch.no_grad():
                model.frozen.add_(1)
            ck.save(2, metrics={"loss": math.nan})
        assert [(row.step, math.isnan(row.metrics["loss"])) for row in ckpress.list_run(run)] == [(1, False), (2, True)]

    def test_after_a_save_that_failed(self, run):
        model, optimizer, _ = training()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ck = ckpress.Checkpointer(run, "resume")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            ck.save(5, model=model, optimizer=optimizer)
            while ck.busy:
                time.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with pytest.warns(RuntimeWarning, match="step 5: the last save failed and is made again: .*cannot write"):
            ck.close()
        assert [row.step for row in ckpress.list_run(run)] == [5]
        assert same(ckpress.load(run)["model"]["up.weight"], model.up.weight.detach())

    def test_not_when_an_exception_ends_it(self, run):
        assert self.run_lossy(run, fail=True)[:2] == (False, 1)

    def test_not_when_told(self, run):
        assert self.run_lossy(run, final_on_close=False)[:2] == (False, 1)


def test_signals(run):
    """Row 5: a handler only sets a flag."""
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda n, f: seen.append(n))
    try:
        with ckpress.Checkpointer(run, signals=(signal.SIGUSR1,)) as ck:
            assert not ck.should_save
            os.kill(os.getpid(), signal.SIGUSR1)
            assert ck.should_save and seen == [signal.SIGUSR1]
            ck.save(1, t=torch.ones(1))
            assert not ck.should_save
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(seen) == 2
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_during_a_save_asks_for_another(run):
    class Slow:
        def state_dict(self):
            os.kill(os.getpid(), signal.SIGUSR1)
            return {}

        def load_state_dict(self, state):
            pass

    before = signal.getsignal(signal.SIGUSR1)
    with ckpress.Checkpointer(run, signals=(signal.SIGUSR1,)) as ck:
        ck.save(1, slow=Slow())
        assert ck.should_save
        with pytest.raises(ckpress.UnsupportedError):
            ck.save(2, slow={}, odd=object())
        assert ck.should_save, "nothing was saved"
        ck.save(2, slow={})
        assert not ck.should_save
    assert signal.getsignal(signal.SIGUSR1) is before


def test_an_interrupt_only_asks_for_a_save(run):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ckpress.Checkpointer(run, signals=(signal.SIGINT,)) as ck:
            os.kill(os.getpid(), signal.SIGINT)
            assert ck.should_save
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_forked_child_can_be_ended(run):
    """Workers of a pool are ended by SIGTERM."""
    with ckpress.Checkpointer(run, signals=(signal.SIGTERM,)) as ck:
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(1)
        time.sleep(0.1)
        os.kill(child, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM and not ck.should_save


def test_closed_in_another_thread(run):
    """Handlers cannot be put back there; the run is given back all the same, and signals do what they did before."""
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda n, f: seen.append(n))
    try:
        ck = ckpress.Checkpointer(run, signals=(signal.SIGUSR1,))
        ck.save(1, t=torch.ones(1))
        thread = threading.Thread(target=ck.close)
        thread.start()
        thread.join()
        ckpress.Checkpointer(run).close()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1] and not ck.should_save
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_skip(run):
    with ckpress.Checkpointer(run, when_busy="skip", rng=False) as ck:
        taken = [ck.save(i, t=torch.randn(2_000_000)) for i in range(6)]
        ck.wait()
        assert taken[0] and len(ckpress.list_run(run)) == sum(taken)


def test_threads_take_turns(run):
    t = torch.randn(100_000)
    failed = []

    def work(ck, first):
        try:
            for i in range(5):
                ck.save(first + i, wait=True)
        except Exception as e:
            failed.append(e)

    with ckpress.Checkpointer(run, rng=False) as ck:
        ck.register(t=t)
        workers = [threading.Thread(target=work, args=(ck, 100 * i)) for i in range(3)]
        [w.start() for w in workers]
        [w.join() for w in workers]
    assert not failed and len(ckpress.list_run(run)) == 15


def test_the_interpreter_is_free_while_saving(run):
    """Row 37: another Python thread runs while the state is coded and written."""
    counted = 0
    stop = threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    with ckpress.Checkpointer(run, rng=False) as ck:
        t = torch.randn(4_000_000)
        ck.save(1, t=t)
        before = counted
        ck.wait()
        after = counted
    stop.set()
    thread.join()
    assert after > before


def test_a_forked_child_changes_nothing(run):
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, t=torch.ones(2), wait=True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                ck.save(2, wait=True)
            except ckpress.ForkError:
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        ck.save(3, wait=True)
    assert [r.step for r in ckpress.list_run(run)] == [1, 3]


def test_a_forked_child_ends_without_a_word(run):
    """The run is its parent's: no save of it has failed."""
    code = "import os, sys, ckpress\nck = ckpress.Checkpointer(sys.argv[1])\nck.save(1, v=1, wait=True)\nif os.fork() == 0: sys.exit()\nos.wait()\nck.save(2)"
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True)
    assert done.stderr == "" and [r.step for r in ckpress.list_run(run)] == [1, 2]


def test_memory_and_files_stay_flat(run):
    """Row 35: 200 saves."""

    def rss():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    t = torch.randn(300_000)
    at = {}
    with ckpress.Checkpointer(run, keep_last=3, rng=False, threads=1) as ck:
        for step in range(1, 201):
            t[step * 7 % 1000] += 1
            ck.save(step, t=t, wait=True)
            if step in (20, 200):
                gc.collect()
                at[step] = rss(), len(os.listdir("/proc/self/fd"))
    assert at[200][0] - at[20][0] < 2_000_000 and at[200][1] == at[20][1]


def test_metrics_are_kept(run):
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, t=torch.ones(1), metrics={"val_loss": torch.tensor(1.25), "acc": 0.5})
    manifest = next(run.glob("step-*/manifest.json")).read_text()
    assert "val_loss" in manifest and "1.25" in manifest


def test_wide_and_narrow_models_in_one_run(run):
    """The tensors change from save to save: each restores as it was."""
    with ckpress.Checkpointer(run, rng=False) as ck:
        for step, width in ((1, 10), (2, 2000), (3, 10)):
            ck.save(step, t=torch.full((width,), float(step)))
    for step, width in ((1, 10), (2, 2000), (3, 10)):
        assert ckpress.load(f"{run}@{step}")["t"].shape == (width,)


def test_a_module_without_tensors(run):
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=torch.nn.ReLU(), big=Net())
        assert ck.restore(model=torch.nn.ReLU(), big=Net()) == 1
