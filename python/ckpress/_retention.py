# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints of a run stay."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _core
from ._coding import size, whole
from ._file import PathLike, Stored, run_place
from .errors import InvalidError, make

Rules = tuple[int, int, int, "str | None", bool, int]  # keep_last, keep_best, keep_every, metric, best_is_max, max_bytes
FATES = ("deleted", "base", "kept")


def rules(keep_last: int | None, keep_every: int | None, keep_best: str | None, max_bytes: int | str | None) -> Rules:
    """As ``_core`` takes them. None is no rule; 0 must not come to mean "keep none" or "keep all" by accident."""
    metric, number, is_max = best(keep_best)
    return (
        0 if keep_last is None else whole("keep_last", keep_last, 1, (1 << 32) - 1),
        number,
        0 if keep_every is None else whole("keep_every", keep_every, 1, (1 << 63) - 1),
        metric,
        is_max,
        0 if max_bytes is None else size("max_bytes", max_bytes),
    )


def best(text: str | None) -> tuple[str | None, int, bool]:
    """Metric, how many, and whether the highest: of ``"val_loss"``, ``"accuracy:max"``, ``"val_loss:3"``, ``"accuracy:max:3"``."""
    if text is None:
        return None, 0, False
    metric, number, is_max = text, 1, False
    while ":" in metric:
        head, _, last = metric.rpartition(":")
        if last in ("min", "max"):
            is_max = last == "max"
        elif last.isdecimal():
            number = whole("keep_best", int(last), 1, (1 << 32) - 1)
        else:
            break
        metric = head
    if not metric:
        raise make(InvalidError, f"keep_best={text!r} names no metric")
    return metric, number, is_max


class Fate(NamedTuple):
    """What becomes of one checkpoint: ``"deleted"``, ``"base"`` (a kept one needs it) or ``"kept"``."""

    step: int
    dir: str
    stored_bytes: int
    fate: str


class Pruned(NamedTuple):
    """What :func:`prune` did, or would do; ``checkpoints`` in the order in which they were saved."""

    kept: int
    bases: int
    deleted: int
    freed_bytes: int
    left_bytes: int
    checkpoints: list[Fate]


def prune(
    path: PathLike,
    *,
    keep_last: int | None = None,
    keep_every: int | None = None,
    keep_best: str | None = None,
    max_bytes: int | str | None = None,
    dry_run: bool = False,
    storage: Stored = None,
) -> Pruned:
    """Deletes old checkpoints of a run that no training writes to. A :class:`Checkpointer` keeps to the same rules while it trains.

    What any rule names stays, and so do the newest checkpoint, the newest whose metrics are all finite, and whatever deltas among those need.

    Args:
        keep_last: the newest so many.
        keep_every: the first of each stretch of so many steps.
        keep_best: by a metric that ``save()`` was given: ``"val_loss"`` (the lowest), ``"accuracy:max"``, ``"val_loss:3"`` (three).
        max_bytes: or as ``"50GB"``: then the oldest go until what stays has no more, but never the newest. Alone, it is the only rule.
        dry_run: say what would go, and delete nothing.
        storage: of a URL: as for :class:`Checkpointer`.

    Raises:
        InvalidError: no rule. BusyError: a training writes to the run. CorruptError: something is damaged, so nothing is deleted.
    """
    given = rules(keep_last, keep_every, keep_best, max_bytes)
    done: dict[str, Any] = _core.prune(run_place(path, storage), given, dry_run)
    fates = [Fate(step, name, size, FATES[fate]) for step, name, size, fate in done.pop("checkpoints")]
    return Pruned(**done, checkpoints=fates)
