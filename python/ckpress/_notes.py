# SPDX-License-Identifier: Apache-2.0
"""What to say when a restore takes an older checkpoint than the newest, or finds none, and of a training that looks like fine-tuning."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable

from . import _core
from ._url import Store
from .errors import BaseMismatchError, Error, NotFoundError, make

_SCRATCH = "To train from scratch, move the directory away."
LOST_STEPS = 3  # steps of whole keys without manifests that no job leaves by dying in its first save
HARDLY = 0.02  # of their RMS: what weights move between two saves, where training has been done before
_BASE = re.compile(r"bad base: its base (\S+) cannot be restored itself")


def passed_over(notes: str) -> list[str]:
    """One text for each cause, from the library's line for each checkpoint (newest first): the cause, then how many need it."""
    reasons = {name: reason for name, _, reason in (line.partition(": ") for line in notes.splitlines())}
    groups: dict[tuple[str, str], list[str]] = {}
    for name in reasons:
        cause = name
        while (base := _BASE.fullmatch(reasons[cause])) and base[1] in reasons:
            cause = base[1]  # bases are older: this ends
        # Damage inside a file is told of every checkpoint that reads it; the text begins with where it is.
        place = reasons[cause].split("/", 1)[0]
        groups.setdefault((place if place in reasons else cause, reasons[cause]), []).append(name)
    return [_text(cause, reason, [name for name in names if name != cause]) for (cause, reason), names in groups.items()]


def _text(cause: str, reason: str, others: list[str]) -> str:
    text = f"{cause} is passed over: {reason}"
    if not others:
        return text
    return f"{text}; and so {'is 1 that needs' if len(others) == 1 else f'are {len(others)} that need'} it, up to {others[0]}"


def nothing_to_restore(place: str | Store, directory: str, why: Callable[[int], str]) -> str | None:
    """Why there is no checkpoint in a run: None for a new one; a warning's text when a first save may have been cut short. why: what stops the restore of
    a step.

    Raises:
        NotFoundError: checkpoints were there, and training from scratch is not what was meant.
    """
    rows = _core.list_run(place)
    committed = [row for row in rows if not row["health"].startswith(("incomplete", "deleting"))]
    if committed:
        cause = next((f"{row['dir']}: {row['health']}" for row in committed if row["health"] != "ok"), None) or why(max(row["step"] for row in committed))
        text = f"checkpoints are there ({len(committed)}) but none is whole ({cause})"
        raise make(NotFoundError, f"{directory}: {text}; ckpress.verify() tells more, ckpress.salvage() saves what is left. {_SCRATCH}")
    if aside := _set_aside(place):
        text = f"{len(aside)} checkpoints were set aside by a repair ({aside[-1]}), and no other is there"
        raise make(NotFoundError, f"{directory}: {text}; ckpress.salvage() saves what is left of them. {_SCRATCH}")
    begun = [(row, _kinds(place, row["dir"])) for row in rows if row["health"].startswith("incomplete")]
    begun = [(row, kinds) for row, kinds in begun if kinds]
    if not begun:
        return None
    whole = [(row, kinds) for row, kinds in begun if "torn" not in kinds]
    # A job that dies in its first save, however often, leaves keys of hardly more than one step.
    if any("delta" in kinds for _, kinds in whole) or len({row["step"] for row, _ in whole}) >= LOST_STEPS:
        names = [row["dir"] for row, _ in whole]
        text = f"{len(whole)} step directories hold whole shards, but no manifest.json ({names[0]} to {names[-1]})"
        raise make(NotFoundError, f"{directory}: {text}: none can be restored. Bring the manifests back. {_SCRATCH}")
    names = ", ".join(row["dir"] for row, _ in begun)
    return f"{directory}: step directories without a manifest: {len(begun)} ({names}); nothing to restore, training starts from scratch"


def _set_aside(place: str | Store) -> list[str]:
    names = os.listdir(place) if isinstance(place, str) else [name for name, _ in place.list("")]
    return sorted(name for name in names if name.startswith("set-aside-") and "step-" in name)


def _kinds(place: str | Store, name: str) -> list[str]:
    """Of the shards of one of the run's directories."""
    if isinstance(place, str):
        return [_kind(shard) for shard in _shards(os.path.join(place, name))]
    with tempfile.TemporaryDirectory() as here:
        keys = [f"{name}/{file}" for file, is_dir in sorted(place.list(name)) if file.endswith(".ckp") and not is_dir]
        return [_kind(place.fetch(key, os.path.join(here, "shard.ckp"))) for key in keys]


def _shards(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if name.endswith(".ckp")]
    except OSError:
        return []


def _kind(shard: str) -> str:
    """``"key"`` or ``"delta"`` of a shard with a valid end, else ``"torn"``."""
    try:
        _core.open_file(shard, ()).close()
    except BaseMismatchError:
        return "delta"
    except (Error, OSError):
        return "torn"
    return "key"


def hardly_moved(place: str | Store, profile: str) -> str | None:
    """Of a run's first two saves, whose weights have moved by less than training from scratch moves them."""
    try:
        rows = _core.list_run(place)
    except Error:  # it is for a hint only
        return None
    movement = next((row["settings"].get("movement") for row in reversed(rows) if row["settings"]), None)
    if movement is None or movement >= HARDLY:
        return None
    return (
        f"between two saves weights moved by {movement:.2g} of their RMS, as in fine-tuning: profile {profile!r} takes steps for training from scratch. "
        "Give base= the file that training starts from, or a finer quality= (docs/quality.md)"
    )
