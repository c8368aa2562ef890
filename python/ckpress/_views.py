# SPDX-License-Identifier: Apache-2.0
"""Where a tensor's elements lie: dtype, shape, strides and memory of torch tensors, numpy arrays and buffers, without a copy."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from . import _dtypes
from .errors import UnsupportedError, make


@dataclass
class View:
    """Elements in memory: ``memory`` is a data pointer, or a contiguous buffer (then ``strides`` is None)."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None: contiguous
    memory: Any
    keep: Any = field(default=None, repr=False)  # what must stay alive


@dataclass
class Coded:
    """A moment that is in memory as codes of a few bits (ckpress.torch): float32 of this shape when it is read."""

    shape: tuple[int, ...]
    moment: tuple[Any, ...]  # as _core.Optim.read takes it
    second: bool  # v
    keep: Any = field(default=None, repr=False)


def torch_module() -> Any | None:
    """torch, if something has imported it: a value of its types cannot exist otherwise."""
    return sys.modules.get("torch")


def numpy_module() -> Any | None:
    """numpy, if something has imported it."""
    return sys.modules.get("numpy")


def is_torch_tensor(obj: Any) -> bool:
    torch = torch_module()
    return torch is not None and hasattr(torch, "Tensor") and isinstance(obj, torch.Tensor)


def is_ndarray(obj: Any) -> bool:
    numpy = numpy_module()
    return numpy is not None and isinstance(obj, numpy.ndarray)


def refuse(path: str, why: str) -> UnsupportedError:
    exc = make(UnsupportedError, f"{path}: {why}", tensor=path)
    assert isinstance(exc, UnsupportedError)
    return exc


def torch_view(t: Any, path: str, dtype: str | None = None) -> View:
    """The view of a plain strided tensor; one on another device is copied to the CPU first.

    Args:
        t: a tensor without subclass behaviour (see ``_encode``).
        path: for messages.
        dtype: library name to use instead of the tensor's own.

    Raises:
        UnsupportedError: a meta tensor, or one whose data pointer is null or not to be had.
    """
    torch = torch_module()
    assert torch is not None
    t = t.detach()
    if t.device.type == "meta":
        raise refuse(path, "a meta tensor has no data to save")
    if t.is_nested:
        raise refuse(path, "cannot save a nested tensor")
    if t.layout is not torch.strided:
        raise refuse(path, f"cannot save a tensor of layout {t.layout}")
    if t.is_conj():
        t = t.resolve_conj()
    if t.is_neg():
        t = t.resolve_neg()
    if t.device.type != "cpu":
        t = t.cpu()
    name = dtype or _dtypes.of_torch(t.dtype)
    if name is None:
        raise refuse(path, f"cannot save a tensor of dtype {t.dtype}")
    try:
        pointer = t.data_ptr()
    except RuntimeError as e:
        raise refuse(path, f"{type(t).__name__} gives no data pointer ({e})") from None
    if pointer == 0 and t.numel() > 0:
        raise refuse(path, f"{type(t).__name__} of {t.numel()} elements has a null data pointer")
    strides = None if t.is_contiguous() else tuple(t.stride())
    return View(name, tuple(t.shape), strides, pointer, t)


def numpy_view(a: Any, path: str, dtype: str | None = None) -> View:
    """The view of an array in native byte order; a copy only if its strides are no multiple of its elements.

    Raises:
        UnsupportedError: a dtype without a name in the format.
    """
    numpy = numpy_module()
    assert numpy is not None
    name = dtype or _dtypes.of_numpy(a.dtype)
    if name is None:
        raise refuse(path, f"cannot save an array of dtype {a.dtype}")
    size = a.dtype.itemsize
    if any(s % size for s in a.strides):
        a = numpy.array(a, order="C", copy=True)
    strides = None if a.flags.c_contiguous else tuple(s // size for s in a.strides)
    return View(name, tuple(a.shape), strides, a.__array_interface__["data"][0], a)


def buffer_view(obj: Any, path: str) -> View:
    """The view of a memoryview or array.array.

    Raises:
        UnsupportedError: a format without a dtype, or strides.
    """
    m = memoryview(obj)
    name = _dtypes.of_buffer(m.format, m.itemsize)
    if name is None:
        raise refuse(path, f"cannot save a buffer of format {m.format!r}")
    if not m.c_contiguous:
        raise refuse(path, "cannot save a buffer with strides")
    return View(name, tuple(m.shape or ()), None, m, m)
