# SPDX-License-Identifier: Apache-2.0
"""The loss of weights that are not the live ones: copies of the modules, decoded weights in them, the caller's function called on them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

from . import _dtypes, _rng
from ._context import is_module
from ._views import torch_module

Eval = Callable[..., Any]


class CannotMeasure(Exception):
    """Not an error of the save: why nothing can be said about its loss."""


def loss_of(eval_fn: Eval, copies: Mapping[str, Any], finite: bool = True) -> float:
    """What ``eval_fn`` says of the copies; random states are put back after it.

    Raises:
        CannotMeasure: it raised, or gave no number, or (``finite``) one that is not finite.
    """
    torch = torch_module()
    assert torch is not None
    before = _rng.get()
    try:
        with torch.no_grad():
            loss = float(eval_fn(next(iter(copies.values()))) if len(copies) == 1 else eval_fn(**copies))
    except Exception as e:
        raise CannotMeasure(f"eval_fn raised {type(e).__name__}: {e}") from e
    finally:
        _rng.put(before)
    if finite and not math.isfinite(loss):
        raise CannotMeasure(f"eval_fn gave {loss}")
    return loss


def _bare(module: Any) -> Any:
    """Without the wrappers of data parallelism and torch.compile: their copies would want process groups and compilers of their own."""
    torch = torch_module()
    assert torch is not None
    while True:
        if isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), torch.nn.Module):
            module = module._orig_mod
        else:
            return module


def copies_of(objects: Mapping[str, Any], lossy: list[tuple[Any, int]]) -> tuple[dict[str, Any], list[tuple[Any, int]]]:
    """Copies of the modules, and in them the parameter that each lossy one became."""
    modules = {name: _bare(obj) for name, obj in objects.items() if is_module(obj)}
    if not modules:
        raise CannotMeasure("no module is registered")
    memo: dict[int, Any] = {}
    try:
        copies = {name: copy.deepcopy(obj, memo) for name, obj in modules.items()}
    except Exception as e:
        raise CannotMeasure(f"the model cannot be copied ({type(e).__name__}: {e})") from e
    for module in copies.values():
        for p in module.parameters():
            p.grad = None
    return copies, [(memo[id(p)], index) for p, index in lossy if id(p) in memo]


def read_staged(run: Any, places: list[tuple[Any, int]]) -> None:
    """Decoded weights into the copies."""
    torch = torch_module()
    assert torch is not None
    targets, later = [], []
    for p, index in places:
        at = p.data
        if at.device.type != "cpu" or not at.is_contiguous():
            at = torch.empty(tuple(p.shape), dtype=p.dtype, device="cpu")
            later.append((p, at))
        targets.append((index, _dtypes.of_torch(p.dtype), tuple(p.shape), None, at.data_ptr()))
    run.staged_read(targets)
    for p, at in later:
        p.data.copy_(at)
