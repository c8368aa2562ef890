# SPDX-License-Identifier: Apache-2.0
"""Runs behind a URL: the object store that ``_core`` calls, over fsspec.

Every request has a deadline, also one that never answers, and is tried again, with growing pauses, when what went wrong may pass. What a failed upload has
left is for the library to look at (src/objects/send.c).
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import math
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, Union

from . import _core
from .errors import FileError, InvalidError, NoSpaceError, UnsupportedError, make

T = TypeVar("T")
PathLike = Union[str, "os.PathLike[str]"]

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_LOCAL = re.compile(r"(?:file|local)://")
WHOLE = 32 << 20  # larger uploads go in parts of this size where the file system has them (S3: 5 MB to 5 GB, at most 10,000)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 8.0  # seconds
SLOWEST = 1 << 20  # bytes a second that an upload in one request is given time for


class Storage(NamedTuple):
    """How a URL is read and written.

    ``options``: what fsspec's file system is made with (``endpoint_url``, ``key`` ...). ``deadline``: seconds that one request may take with all its tries;
    ``try_seconds``: one try. ``read_back``: each upload is downloaded again and compared before anything relies on it; False: only its size is asked
    for. ``stage_dir``: where shards wait for their upload (None: as :mod:`tempfile`).
    """

    options: Mapping[str, Any] = {}
    deadline: float = 60.0
    try_seconds: float = 20.0
    read_back: bool = True
    stage_dir: PathLike | None = None


def is_url(path: Any) -> bool:
    return isinstance(path, str) and _URL.match(path) is not None


def place(path: PathLike, storage: Storage | Mapping[str, Any] | None = None) -> str | Store:
    """Where a run lies, as ``_core`` takes it: a path (also of ``file://``), or the store behind a URL."""
    name = os.fspath(path)
    if isinstance(name, str) and "::" in name and "://" in name:
        raise make(UnsupportedError, f"{name}: chained file systems are not supported: they may keep what has changed")
    if not is_url(name):
        if storage is not None:
            raise make(InvalidError, f"{name}: storage= is for URLs")
        return name
    if _LOCAL.match(name) is not None:
        return str(local(name))
    if not name.partition("://")[2].strip("/"):
        raise make(InvalidError, f"{name}: a run needs a place below this URL")
    return Store(name, _checked(storage))


NOT_FILES = "behind a URL lie runs (Checkpointer), not single files: give a path"


def local(path: PathLike, why: str = NOT_FILES) -> PathLike:
    """A path, also of a ``file://`` URL; ``why``: what the error says of other URLs."""
    name = os.fspath(path)
    if not is_url(name):
        return path
    if _LOCAL.match(name) is None:
        raise make(UnsupportedError, f"{name}: {why}")
    return os.path.abspath(_LOCAL.sub("", name, count=1))


def _checked(storage: Storage | Mapping[str, Any] | None) -> Storage:
    if storage is None:
        return Storage()
    if not isinstance(storage, Storage):
        return Storage(options=dict(storage))
    for name in ("deadline", "try_seconds"):
        value = getattr(storage, name)
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
            raise make(InvalidError, f"{name} must be a number of seconds above 0, not {value!r}")
    return storage


def run_and_step(url: str) -> tuple[str, int]:
    """URL and step (-1: the newest) of ``url`` or ``url@step``."""
    run, at, step = url.rpartition("@")
    return (run, int(step)) if at and step.isascii() and step.isdigit() and is_url(run) else (url, -1)


# ---- deadlines ----------------------------------------------------------------------------------------------------------


class _Worker(threading.Thread):
    """Does one thing at a time for threads that may stop waiting for it."""

    def __init__(self) -> None:
        super().__init__(name="ckpress-request", daemon=True)
        self.wake = threading.Semaphore(0)
        self.job: _Job | None = None
        self.doing: _Job | None = None

    def run(self) -> None:
        while True:
            self.wake.acquire()
            self.doing, self.job = self.job, None
            if self.doing is not None:
                self.doing.do()
            self.doing = None
            if not _idle.put(self):
                return


class _Job:
    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn: Callable[[], Any] | None = fn
        self.done = threading.Event()
        self.result: Any = None
        self.failed: BaseException | None = None
        self.given_up = False  # nobody waits for it any more

    @classmethod
    def without_answer(cls) -> _Job:
        job = cls(lambda: None)
        job.failed = _NoAnswer("no answer")
        return job

    def do(self) -> None:
        try:
            assert self.fn is not None
            self.result = self.fn()
        except BaseException as e:
            self.failed = e
        finally:
            self.fn = None
            self.done.set()


class _Idle:
    """Workers without work. A forked child has none of its parent's."""

    KEPT = 16

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.workers: list[_Worker] = []

    def take(self) -> _Worker | None:
        with self.lock:
            if self.workers:
                return self.workers.pop()
        worker = _Worker()
        try:
            worker.start()
        except RuntimeError:  # the interpreter is ending and makes no threads any more
            return None
        return worker

    def put(self, worker: _Worker) -> bool:
        with self.lock:
            if len(self.workers) >= self.KEPT:
                return False
            self.workers.append(worker)
            return True


_idle = _Idle()
os.register_at_fork(after_in_child=lambda: _idle.__init__())  # type: ignore[misc]


class _NoAnswer(TimeoutError):
    pass


@contextlib.contextmanager
def _only_signals_raise() -> Iterator[None]:
    """Marks what comes out of the block: a signal's handler has raised it, and it is no failure of a request. ``_core`` gives it to its caller as it is."""
    try:
        yield
    except BaseException as e:
        if threading.current_thread() is threading.main_thread():
            with contextlib.suppress(Exception):
                e.ckpress_of_signal = True  # type: ignore[attr-defined]
        raise


def within(seconds: float, fn: Callable[[], Any]) -> _Job:
    """``fn``, done: with what it has given, or its failure. :class:`_NoAnswer` is one; then it may still be going on, on a thread that nobody waits for.

    What is raised here is none of its: a signal's handler has raised it.
    """
    job, answered = _Job(fn), False
    try:
        with _only_signals_raise():
            if (worker := _idle.take()) is None:
                job.do()
                return job
            worker.job = job
            worker.wake.release()
            answered = job.done.wait(seconds)
    finally:
        job.given_up = not answered
    return job if answered else _Job.without_answer()


def _check_wanted() -> None:
    """Ends what this thread does if nobody waits for it any more."""
    job = getattr(threading.current_thread(), "doing", None)
    if job is not None and job.given_up:
        raise _NoAnswer("given up")


AT_ONCE = 4  # parts of one upload


def _side_by_side(fn: Callable[[int], T], n: int) -> list[T]:
    """``fn`` of 0 to n - 1; the first failure, once all that had begun have ended."""
    numbers, lock = iter(range(n)), threading.Lock()
    results: dict[int, T] = {}
    failed: list[BaseException] = []

    def work() -> None:
        while not failed:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                results[number] = fn(number)
            except BaseException as e:
                failed.append(e)

    threads = [threading.Thread(target=work, name="ckpress-part", daemon=True) for _ in range(min(AT_ONCE, n) - 1)]
    begun = []
    try:
        for thread in threads:
            thread.start()
            begun.append(thread)
    except RuntimeError:  # the interpreter is ending: this thread does it all
        pass
    work()
    for thread in begun:
        thread.join()
    if failed:
        raise failed[0]
    return [results[i] for i in range(n)]


# ---- failures -----------------------------------------------------------------------------------------------------------

_FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, MemoryError)
_MISUSE = (TypeError, ValueError, AttributeError, NotImplementedError, ImportError, LookupError)
_NO_KEYS = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "TokenRetrievalError", "UnauthorizedSSOTokenError")  # botocore's
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def _s3_code(e: BaseException) -> Any:
    """What S3 called it; s3fs's exceptions do not tell everything apart."""
    response = getattr(e.__cause__, "response", None) or getattr(e, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _knows_no_condition(e: BaseException) -> bool:
    """Whether the server, or the S3 client, says that it cannot put if absent. Many say nothing, and do not."""
    return getattr(e, "errno", None) == errno.ENOSYS or _s3_code(e) in ("NotImplemented", "501") or type(e).__name__ == "ParamValidationError"


class _NoCondition(Exception):
    pass


def _may_pass(e: BaseException) -> bool:
    final = isinstance(e, (*_FINAL, *_MISUSE)) or getattr(e, "errno", None) in _FULL or type(e).__name__ in _NO_KEYS
    return isinstance(e, Exception) and not final


def _said(e: BaseException) -> str:
    if isinstance(e, _NoAnswer):
        return str(e)
    return f"{type(e).__name__}: {e}" if str(e) else type(e).__name__


def _final(e: Exception) -> Exception:
    """What ``_core`` tells apart: the classes of _FINAL as they are, a full store, everything else as an I/O error."""
    if isinstance(e, _FINAL):
        return e
    return make(NoSpaceError if getattr(e, "errno", None) in _FULL else FileError, _said(e))


def outlive(finalizer: Callable[[], Any]) -> None:
    """Calls it while threads can still be made, as requests need them: at the end of a process atexit comes too late for that."""
    register, pid = getattr(threading, "_register_atexit", None), os.getpid()
    if register is not None:
        try:  # a forked child of multiprocessing ends its threads too: the run is not its own
            register(lambda: finalizer() if os.getpid() == pid else None)
        except RuntimeError:  # the process is ending
            pass


# ---- the store ----------------------------------------------------------------------------------------------------------


def _open(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as e:
        raise make(UnsupportedError, f"{url}: URLs need the package fsspec (pip install fsspec; for s3://: pip install s3fs)") from e
    try:
        try:
            fs, path = fsspec.core.url_to_fs(url, **{"use_listings_cache": False, **options})
        except TypeError:  # a file system whose constructor does not take it
            fs, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as e:  # fsspec names the package that it needs
        raise make(UnsupportedError, f"{url}: {e}") from e
    except ValueError as e:
        raise make(UnsupportedError, f"{url}: {e}") from e
    return fs, path.rstrip("/")


class Store:
    """A run's objects below a URL, for ``_core``: keys are relative to it."""

    bytes_type = _core.ObjectBytes

    def __init__(self, url: str, storage: Storage) -> None:
        self.url = url.rstrip("/")
        self.reads_back = bool(storage.read_back)
        self.stage_dir = os.fspath(storage.stage_dir) if storage.stage_dir is not None else tempfile.gettempdir()
        self._storage = storage
        self._fs, self._root = _open(self.url, storage.options)
        self._pid = os.getpid()
        self._creates = _creates(self._fs)
        self.lists_all = _lists_all(self._fs)

    # -- what _core calls

    def stat(self, key: str) -> int:
        info = self._try("stat", lambda fs: _fresh(fs).info(self._path(key)))
        if info.get("type") != "file":
            raise FileNotFoundError("no such object")
        return int(info["size"])

    def is_run(self) -> bool:
        try:
            return self.stat("run.json") >= 0
        except FileNotFoundError:
            return False

    def get(self, key: str, offset: int, n: int) -> bytes:
        def read(fs: Any) -> bytes:
            data: bytes = fs.cat_file(self._path(key), start=offset, end=offset + n)
            if len(data) != n:
                raise OSError(errno.EIO, f"the answer was cut: {len(data)} of {n} bytes")
            return data

        return self._try("get", read, n)

    def put(self, key: str, data: Any, replace: bool) -> None:
        try:
            self._put(self._path(key), data, replace)
        except _NoCondition:
            self._creates = False  # from now on it looks first
            self._put(self._path(key), data, replace)

    def _put(self, path: str, data: Any, replace: bool) -> None:
        size = len(data)
        if size <= WHOLE:
            whole = data.read(0, size)
            self._try("put", lambda fs: self._put_whole(fs, path, whole, replace), size)
        elif hasattr(self._fs, "call_s3"):
            self._put_parts(path, data, replace)
        else:
            self._try("put", lambda fs: self._put_stream(fs, path, data, size, replace), size)

    def list(self, directory: str) -> list[tuple[str, bool]]:
        path = self._path(directory)

        def names(fs: Any) -> list[tuple[str, bool]]:
            try:
                entries = _fresh(fs).ls(path, detail=True)
            except FileNotFoundError:
                return []
            found = []
            for entry in entries:
                name = entry["name"].rstrip("/")
                if name.strip("/") != path.strip("/"):
                    found.append((name.rpartition("/")[2], entry["type"] == "directory"))
            return found

        return self._try("list", names)

    def list_all(self) -> list[tuple[str, int]]:
        """Key and bytes of every object of the run; of S3 a thousand a request. For file systems that ``lists_all``."""

        def sizes(fs: Any) -> list[tuple[str, int]]:
            try:
                found = _fresh(fs).find(self._root, detail=True)
            except FileNotFoundError:
                return []
            start = self._root.strip("/") + "/"
            keys = ((name.strip("/"), info) for name, info in found.items())
            files = ((key[len(start) :], info.get("size")) for key, info in keys if key.startswith(start) and info.get("type") == "file")
            return [(key, int(size)) for key, size in files if size is not None]  # what has no size is asked for it

        return self._try("list", sizes)

    def remove(self, key: str) -> None:
        def rm(fs: Any) -> None:
            try:
                fs.rm_file(self._path(key))
            except FileNotFoundError:
                pass

        self._try("remove", rm)

    def fetch(self, key: str, path: str) -> str:
        """Copies an object to a file, whose path it gives back."""
        size = self.stat(key)
        with open(path, "wb") as f:
            for offset in range(0, size, WHOLE):
                f.write(self.get(key, offset, min(WHOLE, size - offset)))
        return path

    # -- how

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _file_system(self) -> Any:
        """fsspec's instances do not survive a fork."""
        if os.getpid() != self._pid:
            self._fs, _ = _open(self.url, self._storage.options)
            self._pid = os.getpid()
        return self._fs

    def _try(self, what: str, fn: Callable[[Any], T], size: int = 0) -> T:
        """``fn`` until it gives something, fails for good, or the deadline has passed. Larger ones have longer."""
        more = size / SLOWEST
        deadline = self._storage.deadline + more
        end = time.monotonic() + deadline
        pause, tries = FIRST_PAUSE, 0
        while True:
            tries += 1
            left = max(end - time.monotonic(), 0.01)
            job = within(min(left, self._storage.try_seconds + more), lambda: fn(self._file_system()))
            if job.failed is None:
                result: T = job.result
                return result
            if not isinstance(job.failed, Exception):
                raise job.failed
            failed = FileExistsError("there is an object of that name") if _s3_code(job.failed) in ("PreconditionFailed", "412") else job.failed
            if what == "put" and self._creates and _knows_no_condition(failed):
                raise _NoCondition from failed
            if not _may_pass(failed):
                raise _final(failed)
            wait = pause * random.uniform(0.5, 1.0)
            if time.monotonic() + wait >= end:
                raise make(FileError, f"{_said(failed)} (gave up after {tries} {'tries' if tries > 1 else 'try'}: the deadline is {deadline:.3g} s)") from failed
            with _only_signals_raise():
                time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _put_whole(self, fs: Any, path: str, data: bytes, replace: bool) -> None:
        if replace:
            fs.pipe_file(path, data)
        elif self._creates:
            fs.pipe_file(path, data, mode="create")
        else:
            _must_be_new(fs, path)
            fs.pipe_file(path, data)

    def _put_stream(self, fs: Any, path: str, data: Any, size: int, replace: bool) -> None:
        """In whatever parts the file system's own files make. Closing one makes an object of it: only after the last byte, and only while somebody waits for it."""
        if not replace and not self._creates:
            _must_be_new(fs, path)
        f = fs.open(path, "xb" if self._creates and not replace else "wb")
        try:
            for offset in range(0, size, WHOLE):
                _check_wanted()
                f.write(data.read(offset, min(WHOLE, size - offset)))
            _check_wanted()
            f.close()
        except BaseException:
            _discard(f)
            raise

    def _put_parts(self, path: str, data: Any, replace: bool) -> None:
        """S3's multipart upload: each part has tries and a deadline of its own."""
        bucket, key, _ = self._fs.split_path(path)
        if not replace and not self._creates:
            self._try("stat", lambda fs: _must_be_new(fs, path))
        made = self._try("put", lambda fs: fs.call_s3("create_multipart_upload", Bucket=bucket, Key=key))
        to = {"Bucket": bucket, "Key": key, "UploadId": made["UploadId"]}
        try:
            offsets = range(0, len(data), WHOLE)
            parts = _side_by_side(lambda i: self._put_part(to, data, i + 1, offsets[i]), len(offsets))
        except BaseException:
            self._abort(to)
            raise
        condition = {} if replace or not self._creates else {"IfNoneMatch": "*"}
        try:
            self._try("put", lambda fs: fs.call_s3("complete_multipart_upload", **to, MultipartUpload={"Parts": parts}, **condition))
        except FileNotFoundError as e:  # no such upload: an earlier try of this request has completed it
            raise make(FileError, _said(e)) from e
        except (FileExistsError, _NoCondition):
            self._abort(to)
            raise

    def _put_part(self, to: Mapping[str, Any], data: Any, number: int, offset: int) -> dict[str, Any]:
        body = data.read(offset, min(WHOLE, len(data) - offset))
        done = self._try("put", lambda fs: fs.call_s3("upload_part", **to, PartNumber=number, Body=body), len(body))
        return {"PartNumber": number, "ETag": done["ETag"]}

    def _abort(self, to: Mapping[str, Any]) -> None:
        # Once, and whatever comes of it: what cannot be told now is left to the bucket's own rules.
        within(self._storage.try_seconds, lambda: self._fs.call_s3("abort_multipart_upload", **to))


def _discard(f: Any) -> None:
    """A file that has not been written to its end: what was uploaded of it goes, and nothing closes it, its finalizer neither."""
    with contextlib.suppress(Exception):
        f.discard()
    with contextlib.suppress(Exception):
        f.closed = True


def _lists_all(fs: Any) -> bool:
    """Whether its ``find()`` is its own: fsspec's walks, a request for each directory, where nothing is spared."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    walk = AsyncFileSystem._find if isinstance(fs, AsyncFileSystem) else AbstractFileSystem.find
    return getattr(type(fs), walk.__name__, walk) is not walk


def _fresh(fs: Any) -> Any:
    fs.invalidate_cache()
    return fs


def _must_be_new(fs: Any, path: str) -> None:
    if _fresh(fs).exists(path):
        raise FileExistsError("there is an object of that name")


def _creates(fs: Any) -> bool:
    """Whether the file system puts if absent in one request: s3fs, gcsfs and the memory's do where ``mode="create"`` is theirs."""
    method = getattr(fs, "_pipe_file", None) or fs.pipe_file
    known = {"s3", "s3a", "gs", "gcs", "memory"}
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return bool(protocols & known) and "mode" in inspect.signature(method).parameters
