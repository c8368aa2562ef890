# SPDX-License-Identifier: Apache-2.0
"""What saves have cost, in the units that people read, and as scalars of a log."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from ._coding import size
from .errors import InvalidError, make

SCALARS = ("stall_ms", "encode_ms", "write_ms", "bits_per_param", "ratio", "memory_bytes")


def memory_of(memory: int | str | bool | None) -> int:
    """Bytes of shared memory as ``_core`` takes them: -1 is the default; of ``"512MB"``, ``"2GiB"``, an int; False: none."""
    if memory is None or memory is True:
        return -1
    if memory is False:
        return 0
    return size("memory", memory, 0, (1 << 62) - 1)


def figures(raw: dict[str, Any]) -> dict[str, Any]:
    """``_core``'s figures of the last save, and what is made of them: milliseconds, bytes written, ratio, bits a parameter; for totals too."""
    totals = raw["totals"]
    params = sum(raw["params_by_role"].get(role, 0) for role in ("weight", "master"))
    stored = raw["stored_bytes"]
    return {
        **raw,
        **_readable(raw),
        "bits_per_param": 8 * stored / params if params else 0.0,
        "totals": {"saves": raw["saves"], "failed": raw["failed"], "skipped": raw["skipped"], **totals, **_readable(totals)},
    }


def _readable(of: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{f"{name}_ms": 1e3 * of[name] for name in ("stall", "encode", "write")},
        "bytes_written": of["stored_bytes"],
        "ratio": of["raw_bytes"] / of["stored_bytes"] if of["stored_bytes"] else 0.0,
    }


class Log:
    """Tells a writer of scalars, such as tensorboard's SummaryWriter, of each committed save once."""

    def __init__(self, writer: Any) -> None:
        if not callable(getattr(writer, "add_scalar", None)):
            raise make(InvalidError, f"log_to() takes an object with add_scalar(name, value, step), not {type(writer).__name__}")
        self._writer: Any = writer
        self._told = 0
        self._waited = 0.0  # seconds that the save after the one that was last told of has waited here

    def ended(self, run: Any, skips: bool) -> None:
        """Before the next save of a ``_core.Run``. skips: a save in flight is not waited for."""
        waited = 0.0
        if not skips:
            start = time.perf_counter()
            run.wait()
            waited = time.perf_counter() - start
        if not run.busy:
            self.look(run)
            self._waited = waited

    def look(self, run: Any) -> None:
        """Tells of the last save that has ended, without waiting for another."""
        self._tell(figures(run.stats()))

    def _tell(self, stats: Mapping[str, Any]) -> None:
        if stats["saves"] <= self._told:
            return
        self._told = stats["saves"]
        try:
            for name in SCALARS if self._writer is not None else ():
                self._writer.add_scalar(f"ckpress/{name}", stats[name] + (1e3 * self._waited if name == "stall_ms" else 0), stats["step"])
        except Exception as e:  # a log is not worth a checkpoint
            self._writer = None
            warnings.warn(f"ckpress: log_to: the writer has failed and is told no more: {type(e).__name__}: {e}", RuntimeWarning, stacklevel=2)
