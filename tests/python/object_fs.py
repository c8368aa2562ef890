# SPDX-License-Identifier: Apache-2.0
"""An object store for tests, as fsspec's file system ``objects://``: files below a directory, whole or not there, that fail when told to.

What is being uploaded lies beside its object as ``~...`` and is none, nor makes a directory: a process that is killed meanwhile leaves nothing that is listed.
"""

from __future__ import annotations

import errno
import os
import pathlib
import random
import signal
import threading
import uuid

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class Faults:
    """What goes wrong: shares of all requests, or a request by its number (from 1, counted by ``what`` if that is given)."""

    def __init__(self, seed=0, throttled=0.0, failed=0.0, lost=0.0, cut=0.0):
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.shares = {"throttled": throttled, "failed": failed, "lost": lost, "cut": cut}
        self.count = dict.fromkeys([*self.shares, "hung", "raised"], 0)
        self.requests = []  # what was asked, in order
        self.hang_at: range | None = None  # these requests never answer
        self.release = threading.Event()
        self.raises = None  # (what, part of a path, exception): every such request
        self.kill_at = None  # (number, moment): this put is the process's last, "begun", "there" or "answered"
        self.puts = 0

    def before(self, what, path):
        with self.lock:
            self.requests.append(what)
            number = len(self.requests)
            drawn = {kind: self.chance.random() < share for kind, share in self.shares.items()}
            drawn["cut"] &= what == "get"
            kind = next((k for k, is_drawn in drawn.items() if is_drawn), None)
            hangs = self.hang_at is not None and number in self.hang_at
            raises = self.raises is not None and what == self.raises[0] and self.raises[1] in path
            self.count["hung"] += hangs
            self.count["raised"] += raises
            if kind is not None:
                self.count[kind] += 1
        if hangs:
            self.release.wait(60)
        if raises:
            raise self.raises[2]
        if kind == "throttled":
            raise OSError(errno.EBUSY, "Please reduce your request rate. (SlowDown)")
        if kind == "failed":
            raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
        return kind

    def moment(self, name):
        """Of a put: part of its bytes have arrived, its object is there, its answer is on the way."""
        self.puts += name == "begun"
        if self.kill_at == (self.puts, name):
            os.kill(os.getpid(), signal.SIGKILL)


def is_object(path):
    return path.is_file() and not path.name.startswith("~")


class ObjectFS(AbstractFileSystem):
    """Weak: it has no put if absent of its own (``mode`` is not its argument)."""

    protocol = "objects"
    cachable = False
    faults = Faults()

    @classmethod
    def _strip_protocol(cls, path):
        return path.partition("://")[2] if "://" in path else path

    def _after(self, kind):
        if kind == "lost":
            raise TimeoutError("the answer is lost")

    def info(self, path, **kwargs):
        kind = self.faults.before("stat", path)
        try:
            size = os.stat(path).st_size
        except NotADirectoryError:
            raise FileNotFoundError(path) from None
        self._after(kind)
        return {"name": path, "size": size, "type": "directory" if os.path.isdir(path) else "file"}

    def exists(self, path, **kwargs):
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ls(self, path, detail=True, **kwargs):
        kind = self.faults.before("list", path)
        try:
            names = os.listdir(path)
        except OSError:
            raise FileNotFoundError(path) from None
        found = []
        for name in names:
            full = pathlib.Path(path, name)
            if full.is_dir() and any(is_object(p) for p in full.rglob("*")):
                found.append({"name": str(full), "size": 0, "type": "directory"})
            elif is_object(full):
                found.append({"name": str(full), "size": full.stat().st_size, "type": "file"})
        self._after(kind)
        return found

    def cat_file(self, path, start=None, end=None, **kwargs):
        kind = self.faults.before("get", path)
        with open(path, "rb") as f:
            f.seek(start or 0)
            data = f.read(-1 if end is None else end - (start or 0))
        self._after(kind)
        return data[: len(data) // 2] if kind == "cut" else data

    def _put(self, path, value, new):
        kind = self.faults.before("put", path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tmp = os.path.join(os.path.dirname(path), "~" + uuid.uuid4().hex)
        pathlib.Path(tmp).write_bytes(value)
        self.faults.moment("begun")
        try:
            if new:
                os.link(tmp, path)
                self.faults.moment("there")
                os.unlink(tmp)
            else:
                os.replace(tmp, path)
        except FileExistsError:
            os.unlink(tmp)
            raise
        self.faults.moment("answered")
        self._after(kind)

    def pipe_file(self, path, value, **kwargs):
        self._put(path, value, False)

    def rm_file(self, path):
        kind = self.faults.before("remove", path)
        os.unlink(path)
        self._after(kind)


class CreatingFS(ObjectFS):
    """Puts if absent, and says so as s3fs does."""

    protocol = ("creating", "memory")

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self._put(path, value, mode == "create")


class PartFile(AbstractBufferedFile):
    """Parts, of which closing it makes an object, as other stores' files do."""

    def _initiate_upload(self):
        self.parts = []

    def _upload_chunk(self, final=False):
        kind = self.fs.faults.before("part", self.path)
        self.parts.append(self.buffer.getvalue())
        if final:
            self.fs.published.append(b"".join(self.parts))
            self.fs.pipe_file(self.path, self.fs.published[-1])
        self.fs._after(kind)

    def discard(self):
        self.fs.discarded += 1


class PartsFS(ObjectFS):
    """Large objects in parts."""

    protocol = "parts"
    block = 1 << 16

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.published, self.discarded = [], 0

    def _open(self, path, mode="rb", **kwargs):
        return PartFile(self, path, mode, block_size=self.block)


for name, cls in (("objects", ObjectFS), ("creating", CreatingFS), ("parts", PartsFS)):
    fsspec.register_implementation(name, cls, clobber=True)
