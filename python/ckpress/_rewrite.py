# SPDX-License-Identifier: Apache-2.0
"""Storing checkpoints of a run at rest otherwise."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import _core
from ._coding import whole
from ._file import PathLike, Progress
from ._url import local

FATES = ("left", "done", "moved", "needed")


class RewrittenCheckpoint(NamedTuple):
    """What became of one checkpoint: ``"left"``, ``"done"``, ``"moved"`` (its base was written anew) or ``"needed"`` (old, but newer moments are
    differences to its own). ``dir`` and ``stored_bytes``: as it was; ``new_bytes``: of what stands in for it."""

    step: int
    dir: str
    stored_bytes: int
    new_bytes: int
    fate: str


class Rewritten(NamedTuple):
    """What :func:`thin` or :func:`rebase` did, or would do; ``checkpoints`` in the order in which they were saved."""

    done: int
    moved: int
    needed: int
    deleted: int
    freed_bytes: int
    new_bytes: int
    checkpoints: list[RewrittenCheckpoint]


def _rewrite(path: PathLike, step: int | None, older_than: int, dry_run: bool, base: PathLike | None, threads: int, progress: Progress | None) -> Rewritten:
    done: dict[str, Any] = _core.rewrite(os.fspath(local(path, "only runs in a directory are rewritten")), step, older_than, dry_run, base, threads, progress)
    rows = [RewrittenCheckpoint(*row[:4], FATES[row[4]]) for row in done.pop("checkpoints")]
    return Rewritten(**done, checkpoints=rows)


def thin(
    path: PathLike,
    *,
    older_than: int = 10,
    dry_run: bool = False,
    base: PathLike | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Rewritten:
    """Drops first moments of all checkpoints older than the newest ``older_than`` of a run that no training writes to.

    Weights, second moments and everything else come back bit for bit as before; the moments come back as zeros, with a warning. What weights' steps
    follow stays, and moments that those of a newer checkpoint are differences to. Each checkpoint is written anew beside the old one and
    decoded whole before the old one goes; what was cut short goes on when it is called again.

    Raises:
        BusyError: a training writes to the run. CorruptError: something in it is damaged: nothing is done.
    """
    return _rewrite(path, None, whole("older_than", older_than, 1, (1 << 63) - 1), dry_run, base, threads, progress)


def rebase(
    path: PathLike,
    step: int,
    *,
    dry_run: bool = False,
    base: PathLike | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Rewritten:
    """Makes the checkpoint of a step a key, which needs no base; what is based on it has a shorter chain. For lossless checkpoints.

    Raises:
        UnsupportedError: it is coded lossily. NotFoundError: no such step. BusyError, CorruptError: as of :func:`thin`.
    """
    return _rewrite(path, whole("step", step, 0, (1 << 63) - 1), 1, dry_run, base, threads, progress)
