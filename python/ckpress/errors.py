# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exception classes.

Every failure of the library is an :class:`Error`. Failures of the file system are also the :class:`OSError` that Python users
expect, so ``except FileNotFoundError`` and ``except OSError`` work.
"""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Base of all failures that ckpress reports.

    Attributes:
        code: short name of the status, e.g. ``"corrupt"``.
        status: its number as in ``ckpress/base.h`` (negative).
        file: file or checkpoint, ``""`` when not known.
        tensor: tensor, ``""`` when not known.
        offset: byte offset in ``file``, or None.
    """

    code: str = "error"
    status: int = 0
    file: str = ""
    tensor: str = ""
    offset: int | None = None

    def __str__(self) -> str:
        # OSError would print "[Errno 28] ..." around a sentence that already says it all.
        return str(self.args[-1]) if self.args else ""


class InvalidError(Error, ValueError):
    """Misuse: an option, name or value that cannot be."""


class NoMemoryError(Error, MemoryError):
    """An allocation failed, or the process may open no more files (``ulimit -n``)."""


class LimitError(Error):
    """A cap (docs/format.md) or the memory budget would be exceeded."""


class UnsupportedError(Error):
    """A type, feature bit or option that this version does not know; nothing was dropped silently."""


class CancelledError(Error):
    """The progress callback asked to stop."""


class BusyError(Error):
    """Another writer holds the run, or a save is in flight."""


class ForkError(Error):
    """The handle belongs to the process that made it, and this is a forked child."""


class StateError(Error):
    """Called in the wrong order."""


class FileError(Error, OSError):
    """A read, write or fsync failed; ``errno`` says how."""


class NotFoundError(Error, FileNotFoundError):
    """No such file, checkpoint or tensor."""


class ExistsError(Error, FileExistsError):
    """The target exists and may not be replaced."""


class NoSpaceError(FileError):
    """No space or quota left."""


class AccessError(Error, PermissionError):
    """Permission denied, or a read-only place."""


class CorruptError(Error):
    """Bytes that do not match their hash or break the format."""


class TruncatedError(CorruptError):
    """The file ends before its trailer or in the middle of a record."""


class FormatError(Error):
    """Not a file of this kind at all."""


class VersionError(UnsupportedError):
    """Written by a newer format version."""


class BaseMismatchError(Error):
    """The base given is not the base that the delta names, or is missing."""


class MismatchError(Error, ValueError):
    """Names, dtypes or shapes differ from what the caller holds.

    Attributes:
        missing: names that the caller holds and the checkpoint lacks.
        unexpected: names that the checkpoint holds and the caller lacks.
        mismatched: names whose dtype, shape or kind differs.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.mismatched: list[str] = []


class PathError(Error, ValueError):
    """A name that would leave its directory."""


class UnsafeError(Error):
    """A pickle that asks for something outside the allow-list."""


class PartlyWrittenError(Error, OSError):
    """A restore failed after it had begun to write: the file could no longer be read, twice. Do not train on.

    Attributes:
        tensors: names of the live tensors that now hold neither what they held nor what was saved. Restore again, or end the process.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tensors: list[str] = []


class InternalError(Error):
    """A bug in ckpress."""


#: Status numbers of ckpress/base.h; tests compare their names with the library's.
BY_STATUS: dict[int, type[Error]] = {
    -1: InvalidError,
    -2: NoMemoryError,
    -3: LimitError,
    -4: UnsupportedError,
    -5: CancelledError,
    -6: BusyError,
    -7: ForkError,
    -8: StateError,
    -20: FileError,
    -21: NotFoundError,
    -22: ExistsError,
    -23: NoSpaceError,
    -24: AccessError,
    -40: CorruptError,
    -41: TruncatedError,
    -42: FormatError,
    -43: VersionError,
    -44: BaseMismatchError,
    -45: MismatchError,
    -46: PathError,
    -47: UnsafeError,
    -48: PartlyWrittenError,
    -60: InternalError,
}

_STATUS = {cls: status for status, cls in BY_STATUS.items()}
_CODE = {
    UnsupportedError: "unsupported",
    MismatchError: "mismatch",
    LimitError: "limit",
    CorruptError: "corrupt",
    NotFoundError: "not found",
    InvalidError: "invalid",
}


def from_status(status: int, name: str, sys_errno: int, text: str, file: str, tensor: str, offset: int | None) -> Error:
    """The exception for a failure of the C library (called by ``_core``)."""
    cls = BY_STATUS.get(status, Error)
    exc = cls(sys_errno, text) if issubclass(cls, OSError) else cls(text)
    exc.code, exc.status, exc.file, exc.tensor, exc.offset = name, status, file, tensor, offset
    return exc


def make(cls: type[Error], text: str, *, file: str = "", tensor: str = "") -> Error:
    """The exception for a failure that the Python side found itself, with the same attributes."""
    status = _STATUS.get(cls, 0)
    return from_status(status, _CODE.get(cls, cls.__name__), 0, text, file, tensor, None)


def mismatch(text: str, missing: list[str], unexpected: list[str], mismatched: list[str]) -> MismatchError:
    """A :class:`MismatchError` with its three lists."""
    exc = make(MismatchError, text)
    assert isinstance(exc, MismatchError)
    exc.missing, exc.unexpected, exc.mismatched = missing, unexpected, mismatched
    return exc
