# SPDX-License-Identifier: Apache-2.0
"""Runs in S3: s3fs and servers that speak its protocol, in processes of their own."""

from __future__ import annotations

import threading
import time

import ckpress
import pytest
import s3_chaos
import torch
from helpers import same, steps, training
from s3_servers import SERVERS, Server, missing


@pytest.fixture(scope="module", params=SERVERS)
def server(request, tmp_path_factory):
    needs = missing(request.param)
    if needs is not None:
        pytest.skip(f"needs {needs}: pip install {needs}")
    server = Server(request.param, tmp_path_factory.mktemp(request.param))
    yield server
    server.close()


_number = iter(range(1000))


@pytest.fixture
def url():
    return f"s3://bucket/runs/{next(_number)}"


def train(url, storage, upto, **how):
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(url, storage=storage, **how) as ck:
        done = ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) or 0
        while done < upto:
            steps(model, optimizer, scheduler, 1)
            done += 1
            ck.save(done)
    return model


def test_life(server, url):
    model = train(url, server.options, 7, keep_last=2, key_every=4)
    rows = ckpress.list_run(url, storage=server.options)
    assert [(r.step, r.health) for r in rows] == [(5, "ok"), (6, "ok"), (7, "ok")]
    model = train(url, server.options, 8)
    assert same(dict(ckpress.load(f"{url}@8", storage=server.options)["model"]), dict(model.state_dict()))
    with ckpress.open(url, storage=server.options) as f:
        assert torch.equal(f["model/up.weight"][3:5], model.up.weight.detach()[3:5])
    ckpress.verify(url, level="decode", storage=server.options)
    assert ckpress.prune(url, keep_last=1, storage=server.options).kept == 1
    names = {name.split("/", 3)[3].split("/")[0].split("-")[0] for name in server.fs().find(url)}
    assert names == {"run.json", "lock", "step"}


def test_parts(server, url, monkeypatch):
    """Shards go up in parts, and no upload stays half done."""
    from ckpress import _url

    monkeypatch.setattr(_url, "WHOLE", 5 << 20)
    put_part, sent = _url.Store._put_part, []

    def spy(self, to, data, number, offset):
        sent.append(number)
        return put_part(self, to, data, number, offset)

    monkeypatch.setattr(_url.Store, "_put_part", spy)
    state = {"w": torch.randn(4_000_000)}
    with ckpress.Checkpointer(url, storage=server.options) as ck:
        ck.save(1, state=state, wait=True)
    assert same(ckpress.load(url, storage=server.options)["state"], state)
    fs = server.fs()
    shard = next(name for name in fs.find(url) if name.endswith(".ckp"))
    assert sorted(sent) == [1, 2, 3]
    store = _url.Store(url, ckpress.Storage(options=server.options))

    class Bytes:
        def __len__(self):
            return 6 << 20

        def read(self, offset, n):
            return b"x" * n

    with pytest.raises(FileExistsError):
        store.put(shard.split("/", 3)[3], Bytes(), False)
    store.put("whole-again", Bytes(), True)
    assert store.stat("whole-again") == 6 << 20
    assert server.unfinished() == []


def test_one_wins(server, url):
    """Put if absent is the server's word, not a look before."""
    from ckpress import _url

    stores = [_url.Store(url, ckpress.Storage(options=server.options)) for _ in range(4)]
    assert all(store._creates for store in stores)

    class Bytes:
        def __init__(self, data):
            self.data = data

        def __len__(self):
            return len(self.data)

        def read(self, offset, n):
            return self.data[offset : offset + n]

    for round_ in range(5):
        won, gate = [], threading.Barrier(4)

        def put(i, won=won, gate=gate, round_=round_):
            gate.wait()
            try:
                stores[i].put(f"claim-{round_}", Bytes(bytes([i]) * 100), False)
                won.append(i)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=put, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(won) == 1
        assert stores[0].get(f"claim-{round_}", 0, 100) == bytes(won) * 100


def test_server_pauses(server, url):
    """Two seconds without an answer are not noticed."""
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(url, storage=ckpress.Storage(options=server.options, try_seconds=1, deadline=30)) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        ck.save(1, wait=True)
        server.stop()
        timer = threading.Timer(2.0, server.go_on)
        timer.start()
        ck.save(2, wait=True)
        timer.join()
    assert [(r.step, r.health) for r in ckpress.list_run(url, storage=server.options)] == [(1, "ok"), (2, "ok")]
    ckpress.verify(url, storage=server.options)


def test_server_gone(server, url):
    """The save fails in time and by name; the training goes on, and saves again when the server is back."""
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(url, storage=ckpress.Storage(options=server.options, try_seconds=0.5, deadline=1.5)) as ck:
        ck.register(model=model, optimizer=optimizer, scheduler=scheduler)
        ck.save(1, wait=True)
        server.stop()
        start = time.monotonic()
        with pytest.raises(ckpress.FileError, match=r"no answer \(gave up after"):
            ck.save(2, wait=True)
        assert time.monotonic() - start < 20
        server.go_on()
        ck.save(3, wait=True)
    rows = ckpress.list_run(url, storage=server.options)
    assert {1, 3} <= {r.step for r in rows if r.health == "ok"}
    ckpress.verify(url, storage=server.options)


def test_no_bucket(server):
    with pytest.raises(ckpress.Error, match="bucket does not exist"):
        ckpress.Checkpointer("s3://nosuchbucket/run", storage=server.options)
    with pytest.raises(ckpress.NotFoundError):
        ckpress.list_run("s3://nosuchbucket/run", storage=server.options)


# ---- killed --------------------------------------------------------------------------------------------------------------


def test_killed_again_and_again(server, url, tmp_path):
    """SIGKILL at random moments of a save, resumed from the URL: the end is that of the training that was left alone."""
    found = s3_chaos.run(server.options, server.options, url, tmp_path, steps=10, kills=2, seed=11)  # `make test-s3` does more
    assert found.kills == 2 and found.sound(), found
