# SPDX-License-Identifier: Apache-2.0
"""Signals while a run behind a URL is asked for something."""

from __future__ import annotations

import os
import signal
import threading
import time

import ckpress
import numpy as np
import pytest
import torch

pytest.importorskip("fsspec", reason="URLs need fsspec")


@pytest.fixture
def interruptible():
    """A shell's background processes ignore SIGINT, and so do their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupted(tmp_path, faults, interruptible):
    """Ctrl-C while a request does not answer."""
    where = f"creating://{tmp_path}/run"
    with ckpress.Checkpointer(where) as ck:
        ck.save(1, w=np.ones(10))
    faults.hang_at = range(len(faults.requests) + 1, 10**9)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ckpress.list_run(where)
        time.sleep(1)
    assert time.monotonic() - start < 5


def test_interrupted_while_live_tensors_are_written(tmp_path, faults, interruptible, monkeypatch):
    """From files that are not kept in memory, so that requests are made meanwhile: the restore ends first."""
    from ckpress import _plan

    monkeypatch.setattr(_plan, "HOLD_MAX", 0)
    where, before, real, asked = f"creating://{tmp_path}/run", faults.before, _plan.Plan._read, []
    state, live = torch.randn(2_500_000), torch.zeros(2_500_000)  # more than what is kept of an object that is read
    with ckpress.Checkpointer(where) as ck:
        ck.save(1, w=state)

    late = range(0)

    def at_each_get(what, path):
        asked.extend([path] * path.endswith(".ckp"))  # the lock is refreshed meanwhile
        if path.endswith(".ckp") and len(asked) in late:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.05)
        return before(what, path)

    def read(*args):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "before", at_each_get)
            real(*args)

    monkeypatch.setattr(_plan.Plan, "_read", read)
    with ckpress.Checkpointer(where, threads=1, memory=0) as ck:
        ck.restore(w=torch.zeros(2_500_000))
        late = range(2 * len(asked), 1000)  # from the last one on: all is read for proof, then again
        with pytest.raises(KeyboardInterrupt):
            ck.restore(w=live)
    assert len(asked) >= 8 and len(asked) in late and torch.equal(live, state)


@pytest.fixture
def alarm(faults):
    """The next request waits until the main thread's handler of SIGALRM has raised what is given. Gives what was asked for from then on."""

    def begin(error):
        rung, asked = threading.Event(), []

        def handler(number, frame):
            rung.set()
            raise error

        def ring(what, path):
            asked.append(what)
            while not rung.wait(0.05):  # again, if it came just before there was something to wait for
                signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            return real(what, path)

        signal.signal(signal.SIGALRM, handler)
        faults.before = ring
        return asked

    real, was = faults.before, signal.getsignal(signal.SIGALRM)
    yield begin
    signal.signal(signal.SIGALRM, was)


class Alarm(Exception):
    pass


def test_a_handler_that_raises(tmp_path, faults, alarm):
    """What a signal's handler raises while a request is waited for is no failure of the request, to be tried again."""
    from ckpress import _url

    store = _url.place(f"objects://{tmp_path}/run", ckpress.Storage(deadline=8))
    asked = alarm(Alarm())
    with pytest.raises(Alarm):
        store.list("")
    assert asked == ["list"]


@pytest.mark.parametrize("error", [TimeoutError("too long"), Alarm("rings"), SystemExit(3)])
def test_a_handler_that_raises_through_the_library(error, tmp_path, faults, alarm):
    """It comes back as it was raised, and no older checkpoint is restored because of it."""
    where, w = f"creating://{tmp_path}/run", np.zeros(1000)
    with ckpress.Checkpointer(where, memory=0) as ck:
        for step in (1, 2):
            ck.save(step, w=np.full(1000, float(step)), wait=True)
        alarm(error)
        with pytest.raises(type(error)) as caught:
            ck.restore(w=w)
        assert caught.value is error and not w.any()
        assert ck.restore(w=w) == 2
