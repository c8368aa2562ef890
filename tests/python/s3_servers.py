# SPDX-License-Identifier: Apache-2.0
"""S3 for tests: servers that speak its protocol, each in a process of its own, and a proxy before them that throttles, fails, cuts and keeps silent.

Two servers that share no code: moto, and localbucket, which keeps objects as files. (rclone has a server too, from 1.65 on; Debian's is 1.60.)
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import importlib.util
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVERS = ("moto", "localbucket")
BUCKET = "bucket"


class CannotStart(Exception):
    pass


def missing(kind):
    """The package that it would need; None: it is there."""
    for name in ("s3fs", kind):
        if importlib.util.find_spec(name) is None:
            return "'moto[server]'" if name == "moto" else name
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def options(port, tries=None):
    """What fsspec's file system is made with. tries: of the S3 client itself, below those of ckpress (None: as it likes)."""
    how = {"key": "k", "secret": "s", "endpoint_url": f"http://127.0.0.1:{port}", "client_kwargs": {"region_name": "us-east-1"}}
    return how if tries is None else {**how, "config_kwargs": {"retries": {"total_max_attempts": tries, "mode": "standard"}}}


class Server:
    """A server with an empty bucket."""

    def __init__(self, kind, folder):
        self.kind, self.port, self.folder = kind, free_port(), pathlib.Path(folder)
        self.options = options(self.port)
        command = {
            "moto": [sys.executable, "-m", "moto.server", "-p", str(self.port)],
            "localbucket": [sys.executable, "-m", "localbucket", str(self.folder / "data"), "--port", str(self.port)],
        }[kind]
        (self.folder / "data").mkdir(parents=True)
        with (self.folder / "log").open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            self._wait()
            self.fs().call_s3("create_bucket", Bucket=BUCKET)
        except BaseException:
            self.close()
            raise

    def _wait(self):
        for _ in range(600):
            if self.process.poll() is not None:
                break
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise CannotStart(f"{self.kind} does not start: {(self.folder / 'log').read_text()[-300:]}")

    def fs(self):
        import s3fs

        return s3fs.S3FileSystem(**self.options, skip_instance_cache=True, use_listings_cache=False)

    def unfinished(self):
        """Uploads in parts that have been neither completed nor given up."""
        if self.kind == "moto":
            return [u["Key"] for u in self.fs().call_s3("list_multipart_uploads", Bucket=BUCKET).get("Uploads", [])]
        return [p.name for p in self.folder.glob("data/.localbucket-uploads/*/*")]

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        self.go_on()
        self.process.kill()
        self.process.wait()


# ---- the proxy -----------------------------------------------------------------------------------------------------------

# Not done: throttled (503 SlowDown), failed (500), refused (the connection is closed), hung (never answered). Done: lost (closed without an answer), cut
# (in the middle of it).
FAULTS = ("throttled", "failed", "refused", "hung", "lost", "cut")
_TEXT = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>'
_ANSWERS = {"throttled": (503, "SlowDown", "Please reduce your request rate."), "failed": (500, "InternalError", "We encountered an internal error.")}
_HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self):
        super().setup()
        self.server_side = http.client.HTTPConnection("127.0.0.1", self.server.proxy.to_port, timeout=120)

    def finish(self):
        self.server_side.close()
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self):
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *args):
        pass

    def handle_expect_100(self):
        go_on = super().handle_expect_100()
        self.wfile.flush()
        return go_on

    def forward(self):
        proxy, body = self.server.proxy, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = proxy.draw(self.command, self.path)
        if fault in _ANSWERS:
            status, code, text = _ANSWERS[fault]
            return self.answer(status, {"Content-Type": "application/xml"}, _TEXT.format(code, text).encode())
        if fault == "refused":
            return self.hang_up()
        if fault == "hung":
            proxy.release.wait()
            return self.hang_up()
        status, headers, data = self.ask(body)
        if fault == "lost":
            return self.hang_up()
        return self.answer(status, headers, data, cut=fault == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

    def ask(self, body):
        server = self.server_side
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP:
                server.putheader(name, value)
        server.endheaders(body or None)
        reply = server.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()

    def answer(self, status, headers, data, cut=False):
        length = {k.lower(): v for k, v in headers.items()}.get("content-length") if self.command == "HEAD" else None
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP | {"content-length"}:
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.wfile.flush()
        if cut:
            self.hang_up()

    def hang_up(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


class Proxy:
    """Before a server: each request is, with these shares, throttled, failed ... (FAULTS)."""

    def __init__(self, to_port, seed=0, **shares):
        self.to_port, self.shares = to_port, {name: shares.pop(name, 0.0) for name in FAULTS}
        assert not shares, shares
        self.chance, self.lock = random.Random(seed), threading.Lock()
        self.count = collections.Counter()
        self.hangs = None  # (method, path) -> bool: those requests are never answered
        self.release = threading.Event()
        self.listener = _Listener(("127.0.0.1", 0), _Handler)
        self.listener.proxy = self
        self.port = self.listener.server_address[1]
        threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def draw(self, method, path):
        with self.lock:
            self.count["requests"] += 1
            if self.hangs is not None and self.hangs(method, path):
                self.count["hung"] += 1
                return "hung"
            at = self.chance.random()
            for name, share in self.shares.items():
                if at < share:
                    self.count[name] += 1
                    return name
                at -= share
        return None

    def faults(self):
        return sum(self.count[name] for name in FAULTS)

    def close(self):
        self.release.set()
        self.listener.shutdown()
        self.listener.server_close()


class Silence:
    """Takes connections and requests, and never answers."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        self.taken = []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        with contextlib.suppress(OSError):
            while True:
                self.taken.append(self.socket.accept()[0])

    def close(self):
        self.socket.close()
        for s in self.taken:
            s.close()
