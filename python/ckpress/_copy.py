# SPDX-License-Identifier: Apache-2.0
"""Copies of runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _core
from ._coding import whole
from ._file import PathLike, Progress
from ._url import local

FATES = ("copied", "there", "damaged")  # the last only beside an exception


class CopiedCheckpoint(NamedTuple):
    """What became of one checkpoint: ``"copied"``, or it was ``"there"``."""

    step: int
    dir: str
    stored_bytes: int
    fate: str


class Copied(NamedTuple):
    """What :func:`copy_run` did, or would do; ``checkpoints`` in the order in which they were saved.

    ``models_outside`` counts copied keys that begin from a base model outside the run's directory: whoever keeps the copy keeps that file.
    """

    copied: int
    there: int
    bytes: int
    models_outside: int
    checkpoints: list[CopiedCheckpoint]


def copy_run(
    path: PathLike,
    dest: PathLike,
    *,
    steps: Iterable[int] | None = None,
    newest: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Copied:
    """Copies a run, or some of its checkpoints with all that they need, into a directory that is a run at every moment.

    ``dest`` is made, or is an earlier copy of the same run, which is brought up to date. A :class:`Checkpointer` can go on from it. Every byte is
    proved by its hash on the way; what was cut short goes on when it is called again. The source is only read, and may be trained and pruned
    meanwhile. What is damaged is left out with all that is based on it: the rest is copied, then the call raises.

    Args:
        steps: the newest checkpoint of each of these steps. None, and not ``newest``: the whole run.
        newest: the newest checkpoint.
        dry_run: say what would be copied, and touch nothing.
        progress: called with bytes done and bytes in all; may raise to stop.

    Raises:
        MismatchError: ``dest`` is another run, or both have gone on since they were one. BusyError: somebody writes to ``dest``.
        NotFoundError: no run, or nothing that can be restored was asked for. CorruptError: something is damaged.
        UnsupportedError: a URL other than ``file://``. InvalidError: ``dest`` is the run itself or lies in it. ExistsError: it is no run and holds other files.
    """
    which = () if steps is None else tuple(whole("steps", step, 0, (1 << 63) - 1) for step in steps)
    if steps is not None and not which and not newest:
        return Copied(0, 0, 0, 0, [])
    here, there = (os.fspath(local(p, "runs are copied from directory to directory: give a path")) for p in (path, dest))
    done: dict[str, Any] = _core.copy_run(here, there, which, newest, dry_run, progress)
    rows = [CopiedCheckpoint(step, name, size, FATES[fate]) for step, name, size, fate in done.pop("checkpoints")]
    return Copied(**done, checkpoints=rows)
