# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as files for other programs, and series of such files as runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from . import _core
from ._coding import Profile, coding, whole
from ._file import PathLike, Progress, open_checkpoint
from ._url import local
from .errors import InvalidError, make

KINDS = ("safetensors", "pt", "hf")


class Exported(NamedTuple):
    """What :func:`export` wrote: ``name`` is the file in the directory, or the index of several; ``values_lost`` plain values had no place."""

    name: str
    files: int
    tensors: int
    bytes: int
    values_lost: int


class ImportedCheckpoint(NamedTuple):
    """One file that :func:`import_run` has read."""

    file: str
    step: int
    in_bytes: int
    stored_bytes: int


def export(
    path: PathLike,
    out: PathLike,
    *,
    to: Literal["safetensors", "pt", "hf"],
    only: str | None = None,
    base: PathLike | Sequence[PathLike] | None = None,
    max_file_bytes: int = 5_000_000_000,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Exported:
    """Writes a ``.ckp`` file or a checkpoint of a run (``"runs/gpt"``, ``"runs/gpt@100"``) into the directory ``out``, which is made if need be.

    Args:
        to: ``"safetensors"``: every tensor; ``"pt"``: everything, for ``torch.load(weights_only=True)``; ``"hf"``: a model's weights under its own
            names, as ``from_pretrained()`` of transformers reads them (its config.json comes from where the model does).
        only: the tensors of one object alone, by their own names; None: all, but with ``"hf"`` those of ``model`` where a run has it.
        max_file_bytes: with ``"hf"``, tensors of more bytes go into several files with an index.
        overwrite: replace what is there; without it, ``"hf"`` refuses a directory that holds weights of any kind.
    """
    if to not in KINDS:
        raise make(InvalidError, f"to must be one of {', '.join(KINDS)}, not {to!r}")
    size = whole("max_file_bytes", max_file_bytes, 1, (1 << 63) - 1)
    ck = open_checkpoint(path, base, verify=False)
    try:
        return Exported(*_core.export_to(ck, os.fspath(local(out)), _stem(path, ck), KINDS.index(to), only, size, overwrite, threads, progress))
    finally:
        ck.close()


def _stem(path: PathLike, ck: Any) -> str:
    text = os.fspath(path)
    if os.path.isfile(text):
        stem = os.path.basename(text)
        return stem[:-4] if stem.endswith(".ckp") and len(stem) > 4 else stem
    run = os.path.basename(os.path.abspath(text)).rpartition("@")
    return f"{run[0] if run[1] and run[2].isdigit() else run[2] or 'run'}@{ck.info()['step']}"


def import_run(
    files: Iterable[PathLike],
    path: PathLike,
    *,
    steps: Iterable[int] | None = None,
    in_order: bool = False,
    profile: Profile = "lossless",
    quality: float = 1.0,
    threads: int = 0,
    progress: Progress | None = None,
) -> list[ImportedCheckpoint]:
    """Makes a new run of safetensors and PyTorch files, one checkpoint each, by rising steps. Nothing in the files is unpickled or run.

    Args:
        steps: of each file; None: the number in which the paths differ (``out/checkpoint-500/model.safetensors``, ...).
        in_order: steps 1, 2, 3 ... in the order of the files.

    Raises:
        InvalidError: the steps cannot be told from the names, or do not rise; before a file is read. ExistsError: the run has checkpoints.
        Error: of a file that cannot be read; what was imported before it stays, a valid run.
    """
    names = tuple(os.fspath(f) for f in files)
    given = None if steps is None else tuple(whole("steps", s, 0, (1 << 63) - 1) for s in steps)
    if given is not None and (len(given) != len(names) or in_order):
        raise make(InvalidError, "steps: one for each file, and not beside in_order")
    rows = _core.import_run(os.fspath(local(path)), names, given, in_order, coding(profile, quality, threads, 0, None), progress)
    return [ImportedCheckpoint(*row) for row in rows]
