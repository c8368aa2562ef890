# SPDX-License-Identifier: Apache-2.0
"""Runs in S3: s3fs and a server that speaks its protocol (moto), in a process of its own."""

from __future__ import annotations

import json
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import ckpress
import pytest
import torch
from helpers import same, steps, training

pytest.importorskip("s3fs", reason="needs s3fs: pip install s3fs 'moto[server]'")
pytest.importorskip("moto.server", reason="needs moto's server: pip install 'moto[server]'")

TRAINER = pathlib.Path(__file__).parent / "url_trainer.py"


class Server:
    def __init__(self, log):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.options = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{self.port}", "client_kwargs": {"region_name": "us-east-1"}}
        with open(log, "wb") as out:
            self.process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(self.port)], stdout=out, stderr=out)
        for _ in range(600):
            if self.process.poll() is not None:
                pytest.skip(f"moto's server does not start: {pathlib.Path(log).read_text()[-300:]}")
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        pytest.skip("moto's server does not answer")

    def fs(self):
        import s3fs

        return s3fs.S3FileSystem(**self.options, skip_instance_cache=True, use_listings_cache=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("moto") / "log")
    server.fs().call_s3("create_bucket", Bucket="bucket")
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.process.kill()
    server.process.wait()


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
    state = {"w": torch.randn(4_000_000)}
    with ckpress.Checkpointer(url, storage=server.options) as ck:
        ck.save(1, state=state, wait=True)
    assert same(ckpress.load(url, storage=server.options)["state"], state)
    fs = server.fs()
    shard = next(name for name in fs.find(url) if name.endswith(".ckp"))
    assert fs.info(shard)["ETag"].strip('"').endswith("-3")
    store = _url.Store(url, ckpress.Storage(options=server.options))
    monkeypatch.setattr(_url, "WHOLE", 5 << 20)

    class Bytes:
        def __len__(self):
            return 6 << 20

        def read(self, offset, n):
            return b"x" * n

    with pytest.raises(FileExistsError):
        store.put(shard.split("/", 3)[3], Bytes(), False)
    store.put("whole-again", Bytes(), True)
    assert store.stat("whole-again") == 6 << 20
    assert not fs.call_s3("list_multipart_uploads", Bucket="bucket").get("Uploads")


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
        server.process.send_signal(signal.SIGSTOP)
        timer = threading.Timer(2.0, lambda: server.process.send_signal(signal.SIGCONT))
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
        server.process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        with pytest.raises(ckpress.FileError, match="no answer within"):
            ck.save(2, wait=True)
        assert time.monotonic() - start < 20
        server.process.send_signal(signal.SIGCONT)
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


def start(server, url, last, out):
    command = [sys.executable, str(TRAINER), url, str(last), str(out), json.dumps(server.options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_killed_again_and_again(server, url, tmp_path):
    """SIGKILL at random moments of a save, resumed from the URL: the end is that of the training that was left alone."""
    last, killed, chance = 16, 0, random.Random(11)
    assert start(server, url + "-whole", last, tmp_path / "whole").wait() == 0
    committed = 0
    while True:
        process = start(server, url, last, tmp_path / "end")
        first = process.stdout.readline()
        assert first.startswith("restored ") and int(first.split()[1]) >= committed  # more: a request of the dead was still on its way
        target = f"save {int(first.split()[1]) + chance.randint(2, 4)}\n"
        for line in process.stdout:
            if line == target and killed < 4:
                time.sleep(chance.uniform(0, 0.3))
                process.send_signal(signal.SIGKILL)
                killed += 1
                break
        process.stdout.close()
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL
        committed = max((r.step for r in ckpress.list_run(url, storage=server.options) if r.health == "ok"), default=0)
    assert killed >= 3
    assert json.loads((tmp_path / "end").read_text()) == json.loads((tmp_path / "whole").read_text())
    rows = ckpress.list_run(url, storage=server.options)
    assert all(r.health == "ok" for r in rows) and rows[-1].step == last
    ckpress.verify(url, level="decode", storage=server.options)
