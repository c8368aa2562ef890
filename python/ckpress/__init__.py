# SPDX-License-Identifier: Apache-2.0
"""Training checkpoints, made small and safe.

    ck = ckpress.Checkpointer("runs/gpt", profile="resume")
    done = ck.restore(model=model, optimizer=optimizer) or 0
    ...
    ck.save(done)

    ckpress.save("model.ckp", model.state_dict())
    state = ckpress.load("model.ckp")

Needs neither torch nor numpy to be imported; tensors of theirs are handled when they are there.
"""

import importlib

from . import errors
from ._checkpointer import Checkpointer
from ._copy import Copied, CopiedCheckpoint, copy_run
from ._core import version as __version__
from ._decode import Flattened
from ._export import Exported, ImportedCheckpoint, export, import_run
from ._file import Converted, File, Finding, Listed, Salvaged, Verified, compress, decompress, list_run, load, open, salvage, save, verify
from ._lazy import LazyTensor
from ._ranks import assist
from ._repair import Repaired, RepairedCheckpoint, repair
from ._retention import Fate, Pruned, prune
from ._steps import Planned, PlannedTensor, plan
from ._rewrite import Rewritten, RewrittenCheckpoint, rebase, thin
from ._url import Storage
from ._weights import load_weights, save_weights
from .errors import (
    AccessError,
    BaseMismatchError,
    BusyError,
    CancelledError,
    CorruptError,
    Error,
    ExistsError,
    FileError,
    ForkError,
    FormatError,
    InternalError,
    InvalidError,
    LimitError,
    MismatchError,
    NoMemoryError,
    NoSpaceError,
    NotFoundError,
    PartlyWrittenError,
    PathError,
    StateError,
    TruncatedError,
    UnsafeError,
    UnsupportedError,
    VersionError,
)


def __getattr__(name: str) -> object:
    """``ckpress.torch`` is imported when it is used: torch need not be there."""
    if name == "torch":
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AccessError",
    "BaseMismatchError",
    "BusyError",
    "CancelledError",
    "Checkpointer",
    "Converted",
    "Copied",
    "CopiedCheckpoint",
    "CorruptError",
    "Error",
    "ExistsError",
    "Fate",
    "Exported",
    "File",
    "FileError",
    "Finding",
    "Flattened",
    "ForkError",
    "FormatError",
    "ImportedCheckpoint",
    "InternalError",
    "InvalidError",
    "LazyTensor",
    "LimitError",
    "Listed",
    "MismatchError",
    "NoMemoryError",
    "NoSpaceError",
    "NotFoundError",
    "PartlyWrittenError",
    "PathError",
    "Planned",
    "PlannedTensor",
    "Pruned",
    "Repaired",
    "RepairedCheckpoint",
    "Rewritten",
    "RewrittenCheckpoint",
    "Salvaged",
    "StateError",
    "Storage",
    "TruncatedError",
    "UnsafeError",
    "UnsupportedError",
    "Verified",
    "VersionError",
    "__version__",
    "assist",
    "compress",
    "copy_run",
    "decompress",
    "errors",
    "export",
    "import_run",
    "list_run",
    "load",
    "load_weights",
    "open",
    "plan",
    "prune",
    "rebase",
    "repair",
    "salvage",
    "save",
    "save_weights",
    "thin",
    "verify",
]
