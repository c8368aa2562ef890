# SPDX-License-Identifier: Apache-2.0
"""Runs in S3 behind a proxy that throttles, fails and cuts requests, or leaves them without an answer. `make test-s3` has the same with kills, and more of it."""

from __future__ import annotations

import time

import ckpress
import pytest
import s3_chaos
from ckpress._url import Store
from helpers import same, steps, training
from s3_servers import SERVERS, Proxy, Server, Silence, missing, options

LIMITS = {"deadline": 3.0, "try_seconds": 1.2}
SAYS = r"no answer \(gave up after \d tr(y|ies): the deadline is 3 s\)"


@pytest.fixture(scope="module", params=SERVERS)
def server(request, tmp_path_factory):
    needs = missing(request.param)
    if needs is not None:
        pytest.skip(f"needs {needs}: pip install {needs}")
    server = Server(request.param, tmp_path_factory.mktemp(request.param))
    yield server
    server.close()


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.port)
    Store("s3://bucket/runs", ckpress.Storage(options=options(proxy.port, tries=1))).list("")  # the client takes a while to load
    yield proxy
    proxy.close()


_number = iter(range(1000))


@pytest.fixture
def url():
    return f"s3://bucket/runs/{next(_number)}"


def test_faults_are_not_noticed(server, url):
    proxy = Proxy(server.port, seed=3, **{**s3_chaos.SHARES, "hung": 0.0})
    storage, states = ckpress.Storage(options=options(proxy.port, tries=1)), {}
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(url, storage=storage, keep_last=3, key_every=4) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        for step in range(1, 9):
            steps(model, optimizer, scheduler, 1)
            states[step] = {name: t.clone() for name, t in model.state_dict().items()}
            ck.save(step, wait=True)
    rows = ckpress.list_run(url, storage=server.options)
    assert all(r.health == "ok" for r in rows) and [r.step for r in rows][-3:] == [6, 7, 8]
    for r in rows:
        assert same(dict(ckpress.load(f"{url}@{r.step}", storage=storage)["model"]), states[r.step])
    assert proxy.count["throttled"] > 5 and proxy.faults() > 10, proxy.count
    proxy.close()
    ckpress.verify(url, level="decode", storage=server.options)


OPERATIONS = {
    "cannot stat": lambda method, path: method == "HEAD",
    "cannot read": lambda method, path: method == "GET" and "list-type" not in path,
    "cannot write": lambda method, path: method in ("PUT", "POST"),
    "cannot list": lambda method, path: method == "GET" and "list-type" in path,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_answer_any_more(operation, server, proxy, url):
    """To one kind of request, in the middle of a training: the save fails in time and says what it waited for and how long; the next one works."""
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(url, storage=ckpress.Storage(options=options(proxy.port, tries=1), **LIMITS)) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        ck.save(1, wait=True)
        proxy.hangs = OPERATIONS[operation]
        start = time.monotonic()
        with pytest.raises(ckpress.FileError, match=rf"{url}/\S+: {operation}: {SAYS}"):
            ck.save(2, wait=True)
        assert time.monotonic() - start < 30 and proxy.count["hung"] > 1
        proxy.hangs = None
        ck.save(3, wait=True)
    rows = ckpress.list_run(url, storage=server.options)
    assert {1, 3} <= {r.step for r in rows if r.health == "ok"}
    ckpress.verify(url, storage=server.options)


def test_no_answer_to_a_deletion(server, proxy, url):
    storage = ckpress.Storage(options=options(proxy.port, tries=1), **LIMITS)
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(url, storage=server.options, key_every=1) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        for step in (1, 2):
            ck.save(step, wait=True)
    proxy.hangs = lambda method, path: method == "DELETE"
    with pytest.raises(ckpress.FileError, match=rf"{url}/\S+: cannot remove: {SAYS}"):
        ckpress.prune(url, keep_last=1, storage=storage)
    proxy.hangs = None
    ckpress.prune(url, keep_last=1, storage=storage)
    assert [(r.step, r.health) for r in ckpress.list_run(url, storage=server.options)] == [(2, "ok")]


ENTRIES = {
    "list_run": ckpress.list_run,
    "Checkpointer": ckpress.Checkpointer,
    "load": ckpress.load,
    "open": ckpress.open,
    "verify": ckpress.verify,
    "prune": lambda url, storage: ckpress.prune(url, keep_last=1, storage=storage),
}


@pytest.mark.skipif(missing("s3fs") is not None, reason="needs s3fs: pip install s3fs")
def test_silence():
    """A server that takes every request and answers none: whatever is asked fails in time, and says what it waited for and how long."""
    longest, named, n = s3_chaos.silence(deadline=0.9)
    assert longest < 1.6 and named == n == 7
    silent, limits = Silence(), {"deadline": 1.0, "try_seconds": 0.6}
    for name, entry in ENTRIES.items():
        start = time.monotonic()
        with pytest.raises(ckpress.FileError, match=rf"s3://bucket/run/run\.json: cannot stat: {SAYS.replace('3 s', '1 s')}"):
            entry("s3://bucket/run", storage=ckpress.Storage(options=options(silent.port, tries=1), **limits))
        assert time.monotonic() - start < 6, name
    silent.close()
