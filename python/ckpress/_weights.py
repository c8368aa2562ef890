# SPDX-License-Identifier: Apache-2.0
"""Weights to pass on: one small file of a model's weights, adjusted to the caller's batches, and back into a model by one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._context import is_module
from ._decode import Named
from ._file import PathLike, open_checkpoint, raw_tree, save
from ._plan import Plan
from ._restore import Restorer, class_of
from .errors import InvalidError, make

if TYPE_CHECKING:
    from .torch import Calibrated


def save_weights(
    path: PathLike,
    model: Any,
    *,
    calibrate: Iterable[Any] | None = None,
    ratio: float | None = None,
    max_error: float | None = None,
    forward: Any = None,
    quality: float = 1.0,
    threads: int = 0,
    overwrite: bool = True,
) -> Calibrated | None:
    """Saves a model's weights to one ``.ckp`` file, small: for transfer learning and for use, not to go on training from.

    :func:`load_weights` reads it into a model, :func:`ckpress.load` as a ``state_dict``; ``ckpress decompress`` makes safetensors of it.

    Args:
        path: the file.
        model: a ``torch.nn.Module``; buffers, vectors and small weights are kept exactly when there are batches.
        calibrate: batches that the model is used on, a few hundred samples: weights are adjusted so that its outputs on them move least
            (:func:`ckpress.torch.calibrate`). None: plain rounding, about 4.3 bits a weight.
        ratio: with ``calibrate``: bytes of the model's tensors over bytes of the file. The file is never larger.
        max_error: with ``calibrate``, instead of ``ratio``: how far outputs may move.
        forward: with ``calibrate``: ``forward(model, batch)`` gives the outputs that matter.
        quality: without ``calibrate``: scales the steps.
        threads: 0: one a processor.
        overwrite: replace an existing file.

    Returns:
        what :func:`ckpress.torch.calibrate` made; None without ``calibrate``.

    Raises:
        InvalidError: not a module; a target without batches, or batches without a target; a target that cannot be reached.
        OSError: the file system refuses; the old file is untouched.
    """
    if not is_module(model):
        raise make(InvalidError, f"save_weights saves a torch.nn.Module, not {type(model).__name__}")
    if calibrate is None:
        if ratio is not None or max_error is not None or forward is not None:
            raise make(InvalidError, "ratio, max_error and forward need batches: calibrate=")
        save(path, model, profile="weights", quality=quality, threads=threads, overwrite=overwrite)
        return None
    from . import torch

    made = torch.calibrate(model, calibrate, forward=forward, ratio=ratio, max_error=max_error)
    save(path, made.weights, profile="weights", steps=made.steps, threads=threads, overwrite=overwrite)
    return made


def load_weights(path: PathLike, model: Any, *, strict: bool = True, threads: int = 0) -> None:
    """Reads weights into a live module, all or nothing: nothing is written before names, dtypes, shapes and hashes have been checked.

    Args:
        path: a file of :func:`save_weights`, of :func:`ckpress.save` of a module or ``state_dict``, or compressed from safetensors; or a run
            (its newest checkpoint, or ``run@step``) with one module in it.
        model: the module; wrappers of DDP and torch.compile do not matter.
        strict: a name that only one side has, or that has another shape, is an error; otherwise, as for a model with another head, what both
            have is read and the rest is left as it is.
        threads: 0: one a processor.

    Raises:
        MismatchError: names, dtypes or shapes differ; ``missing``, ``unexpected``, ``mismatched`` list them.
        NotFoundError, CorruptError, TruncatedError: with file, tensor and offset.
    """
    if not is_module(model):
        raise make(InvalidError, f"load_weights reads into a torch.nn.Module, not {type(model).__name__}")
    ck = open_checkpoint(path)
    try:
        raw = _module_of(raw_tree(ck), ck.info()["name"])
        plan = Plan(ck, strict, other_shapes=not strict)
        Restorer(plan, {"model": model}, {}).add("model", raw, "module", class_of(model))
        plan.run(threads)
    finally:
        ck.close()


def _module_of(raw: Any, name: str) -> dict[str, Any]:
    """The state_dict in a tree: the whole, or a run's only module."""
    meta = raw.get("ckpress") if isinstance(raw, dict) else None
    if isinstance(meta, dict) and isinstance(meta.get("kinds"), dict):
        modules = [key for key, kind in meta["kinds"].items() if kind == "module"]
        if len(modules) != 1:
            raise make(InvalidError, f"{name} holds {len(modules)} modules: ckpress.load() gives each by its name")
        raw = raw[modules[0]]
    if isinstance(raw, Named) and raw.name == "collections.OrderedDict":  # a state_dict with the versions of its modules
        raw = raw.value[0]
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise make(InvalidError, f"{name} holds no state_dict of a module")
    return raw
