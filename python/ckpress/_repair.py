# SPDX-License-Identifier: Apache-2.0
"""Repairing runs at rest."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import _core
from ._file import PathLike, Progress
from ._url import local

FATES = ("set aside", "deleted", "left", "swept", "attempt")


class RepairedCheckpoint(NamedTuple):
    """What became of one that is not a whole checkpoint, and why.

    ``fate``: ``"set aside"`` (its directory is now ``set-aside-DIR``), ``"deleted"``, ``"left"`` (of another run, of a newer version, or it cannot be
    read), ``"swept"`` (the rest of what was cut short), ``"attempt"`` (the same in a dry run).
    """

    step: int
    dir: str
    stored_bytes: int
    fate: str
    reason: str


class Repaired(NamedTuple):
    """What :func:`repair` did, or would do. ``newest_step``: of the ``restorable`` checkpoint that a restore takes; ``identity``: run.json was lost."""

    set_aside: int
    deleted: int
    left: int
    swept: int
    restorable: int
    newest_step: int
    identity: bool
    checkpoints: list[RepairedCheckpoint]


def repair(path: PathLike, *, data: bool = False, delete: bool = False, dry_run: bool = False, progress: Progress | None = None) -> Repaired:
    """Takes what is damaged, and what is based on it, out of the way of a run that no training writes to; writes a lost run.json anew.

    Args:
        data: read everything: what fails its hash is damaged too.
        delete: delete instead of setting aside, unless nothing restorable would be left.
        dry_run: say what would be done, and touch nothing.
        progress: with ``data``, called with bytes done and bytes in all; may raise to stop.

    Raises:
        NotFoundError: no run, or nothing in it can be restored (after all was done). BusyError: a training writes to it.
        MismatchError: run.json is lost and manifests name different runs.
    """
    done: dict[str, Any] = _core.repair(os.fspath(local(path, "only runs in a directory are repaired")), dry_run, delete, data, progress)
    rows = [RepairedCheckpoint(step, name, size, FATES[fate], why) for step, name, size, fate, why in done.pop("checkpoints")]
    return Repaired(**done, checkpoints=rows)
