# SPDX-License-Identifier: Apache-2.0
"""Plain values that a restore changes in place: what somebody holds must be what was restored."""

from __future__ import annotations

import array
import collections
from collections.abc import Iterator
from typing import Any

from ._context import is_module, is_optimizer
from ._decode import Leaf, Named
from ._views import is_ndarray, is_torch_tensor, torch_module
from .errors import MismatchError, mismatch

_CONTAINERS = (dict, list, set, collections.deque, bytearray, array.array)
_ARRAY, _TENSOR = "array", "tensor"
_SAVED_AS = {
    "collections.OrderedDict": dict,
    "collections.defaultdict": dict,
    "collections.Counter": dict,
    "collections.deque": collections.deque,
    "array.array": array.array,
    "numpy.ndarray": _ARRAY,
}


def _base(obj: Any) -> Any:
    """As what a live object is changed in place; None: it is immutable, or of a type that is made anew."""
    if is_ndarray(obj):
        return _ARRAY
    if is_torch_tensor(obj):
        return _TENSOR
    return next((base for base in _CONTAINERS if isinstance(obj, base)), None)


def _base_saved(raw: Any) -> Any:
    if isinstance(raw, Named):
        return _SAVED_AS.get(raw.name, _TENSOR if raw.name.startswith("torch.") else None)
    return next((base for base in _CONTAINERS if isinstance(raw, base)), None)


def strange(obj: Any, raw: Any) -> bool:
    """Something to be changed in place that what was saved cannot change: it would stay as it is without a word."""
    base = _base(obj)
    return base is not None and base != _base_saved(raw)


def fill(obj: Any, value: Any) -> Any:
    """A value into a live container, which it gives back; other values as they are."""
    base = _base(obj)
    if base in (dict, set):
        obj.clear()
        obj.update(value)
    elif base is collections.deque:
        obj.clear()
        obj.extend(value)
    elif base is list:
        obj[:] = value
    else:
        return value
    return obj


def is_array(obj: Any) -> bool:
    """Memory of elements, which can be of another size than what was saved."""
    return _base(obj) in (_ARRAY, _TENSOR)


def is_buffer(obj: Any) -> bool:
    """Memory that somebody may be looking at: then it takes nothing of another length."""
    return _base(obj) in (bytearray, array.array)


def put(obj: Any, value: Any, name: str) -> None:
    """Elements into a live array or tensor that is not plain memory (sparse, quantized, dates ...), or into a buffer.

    Raises:
        MismatchError: another dtype, shape or layout; a buffer of another length whose memory is in use.
    """
    if _kind(obj) != _kind(value):
        raise _refused(f"{name} ({' '.join(map(str, _kind(value)))} saved, {' '.join(map(str, _kind(obj)))} here)")
    if is_buffer(obj):
        try:
            obj[:] = value
        except BufferError as e:
            raise _refused(f"{name} ({len(value)} elements saved, {len(obj)} here: {e})") from None
        return
    if is_ndarray(obj):
        obj[...] = value
        return
    torch = torch_module()
    assert torch is not None
    with torch.no_grad():
        obj.copy_(value)


def _refused(why: str) -> MismatchError:
    return mismatch(f"nothing was restored; 1 of another kind, dtype or shape: {why}", [], [], [why])


def _kind(obj: Any) -> tuple[Any, ...]:
    if is_buffer(obj):
        return _base(obj).__name__, getattr(obj, "typecode", "")
    return (getattr(obj, "layout", ""), obj.dtype, list(obj.shape)) if is_ndarray(obj) or is_torch_tensor(obj) else (type(obj).__name__,)


def copy_of(obj: Any) -> Any:
    return obj[:] if is_buffer(obj) else obj.copy() if is_ndarray(obj) else obj.detach().clone()


def holds_live(obj: Any, stepped: set[int], depth: int = 0) -> bool:
    """Whether a dict, list or tuple has modules, optimizers or parameters in it that no module but an optimizer of the same restore has (``stepped``, by id)."""
    if is_module(obj) or is_optimizer(obj) or (is_torch_tensor(obj) and id(obj) in stepped):
        return depth > 0
    if depth > 100:
        return False
    items = obj.values() if isinstance(obj, dict) else obj if type(obj) in (list, tuple) else ()
    return any(holds_live(item, stepped, depth + 1) for item in items)


def parameters_in(obj: Any, depth: int = 0) -> Iterator[Any]:
    """Of all modules in an object."""
    if is_module(obj):
        yield from obj.parameters()
    elif depth < 100:
        for item in obj.values() if isinstance(obj, dict) else obj if type(obj) in (list, tuple) else ():
            yield from parameters_in(item, depth + 1)


def is_live(obj: Any, stepped: set[int]) -> bool:
    return holds_live((obj,), stepped)


def same_plain(item: Any, raw: Any) -> bool:
    """Whether a plain value beside live objects in a tuple is what was saved: there it cannot be changed."""
    return not isinstance(raw, (Leaf, Named)) and type(item) is type(raw) and not is_array(item) and bool(item == raw)
