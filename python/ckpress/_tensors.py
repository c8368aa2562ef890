# SPDX-License-Identifier: Apache-2.0
"""Memory for tensors that are read: of torch, of numpy, or plain buffers, whichever is asked for and there."""

from __future__ import annotations

import array
import contextlib
import sys
from typing import Any

from . import _core, _dtypes
from ._decode import AS_BUFFER, Leaf, shaped
from .errors import CorruptError, InvalidError, NoMemoryError, PartlyWrittenError, UnsupportedError, from_status, make

#: What ``framework=`` may be; None: as it was saved, else whatever is installed.
FRAMEWORKS = ("torch", "numpy", "buffer")

_BUFFER_AS = (_core.AS_PYTHON_BYTES, _core.AS_PYTHON_INTS, AS_BUFFER)
_TORCH_AS = (_core.AS_TORCH, _core.AS_TORCH_PARAMETER, _core.AS_TORCH_REQUIRES_GRAD, _core.AS_SPARSE_PART)


def check_framework(framework: str | None) -> None:
    if framework is not None and framework not in FRAMEWORKS:
        raise make(InvalidError, f"framework must be one of {', '.join(FRAMEWORKS)} or None, not {framework!r}")


def _import(name: str) -> Any | None:
    try:
        return __import__(name)
    except ImportError:
        return None


def _order(as_: int, framework: str | None) -> tuple[str, ...]:
    if framework is not None:
        return (framework,)
    return ("torch", "numpy", "buffer") if as_ in _TORCH_AS else ("numpy", "torch", "buffer")


def allocate(info: dict[str, Any], as_: int, framework: str | None) -> tuple[Any, Any]:
    """Memory for one tensor, its content undefined.

    Args:
        info: as ``Checkpoint.tensor()`` gives it.
        as_: what the tree wants of it.
        framework: see :data:`FRAMEWORKS`.

    Returns:
        the object and where its elements lie (a data pointer or a buffer).

    Raises:
        UnsupportedError: no installed framework has the dtype.
        NoMemoryError: there is not that much memory.
    """
    if as_ in _BUFFER_AS:
        return _buffer(info)
    try:
        for name in _order(as_, framework):
            made = _ALLOCATE[name](info)
            if made is not None:
                return made
    except (MemoryError, RuntimeError) as e:  # torch says RuntimeError
        raise make(NoMemoryError, f"{info['name']}: no memory for {info['raw_bytes']} bytes ({e})", tensor=info["name"]) from None
    raise make(UnsupportedError, f"{info['name']}: nothing installed here has the dtype {info['dtype']}", tensor=info["name"])


def _torch(info: dict[str, Any]) -> tuple[Any, Any] | None:
    torch = _import("torch")
    dtype = None if torch is None else _dtypes.to_torch(info["dtype"])
    if torch is None or dtype is None:
        return None
    plain = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
    t = torch.empty(info["shape"], dtype=plain.get(dtype, dtype), device="cpu")  # whatever the default device is
    return t, t.data_ptr()


def _numpy(info: dict[str, Any]) -> tuple[Any, Any] | None:
    numpy = _import("numpy")
    dtype = None if numpy is None else _dtypes.to_numpy(info["dtype"])
    if numpy is None or dtype is None:
        return None
    a = numpy.empty(info["shape"], dtype=dtype)
    return a, a.__array_interface__["data"][0]


def _buffer(info: dict[str, Any]) -> tuple[Any, Any]:
    raw = bytearray(info["raw_bytes"])
    fmt: Any = _dtypes.to_buffer(info["dtype"])
    view = memoryview(raw)
    if fmt is not None:
        with contextlib.suppress(ValueError):  # then bytes
            view = shaped(view, fmt, tuple(info["shape"]))
    return view, raw


_ALLOCATE = {"torch": _torch, "numpy": _numpy, "buffer": _buffer}


def finish(obj: Any, as_: int) -> Any:
    """What the tree wants of a tensor that has been read."""
    if as_ == _core.AS_PYTHON_BYTES:
        return bytes(obj)
    if as_ == _core.AS_PYTHON_INTS:
        words = array.array("I")
        words.frombytes(bytes(obj))
        return tuple(words)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        try:
            if as_ == _core.AS_TORCH_PARAMETER:
                return torch.nn.Parameter(obj)
            if as_ == _core.AS_TORCH_REQUIRES_GRAD:
                return obj.requires_grad_()
        except RuntimeError as e:
            raise make(CorruptError, f"state tree: {e}") from None
    return obj


def read_all(ck: Any, wanted: list[Leaf], framework: str | None, threads: int) -> dict[int, Any]:
    """Reads tensors into fresh memory, all or nothing; aliases share one.

    Returns:
        by index, the object that :func:`allocate` made, or another framework's over the same memory.
    """
    made: dict[int, Any] = {}
    targets = []
    home: dict[int, int] = {}
    infos = {leaf.index: ck.tensor(leaf.index) for leaf in wanted}
    for leaf in sorted(wanted, key=lambda leaf: leaf.as_ in _BUFFER_AS):  # a buffer can be seen in an array, and an array made of no buffer
        info = infos[leaf.index]
        root = info["alias_of"] if info["alias_of"] is not None else leaf.index
        home[leaf.index] = root
        if root not in made:
            obj, memory = allocate(info, leaf.as_, framework)
            made[root] = obj
            targets.append((leaf.index, info["dtype"], info["shape"], None, memory))
    try:
        ck.read(targets, threads)
    except PartlyWrittenError as e:  # memory that nobody has seen: just a read that failed
        raise from_status(-20, "input/output error", e.errno or 0, str(e).partition(": ")[2], e.file, e.tensor, e.offset) from None
    kinds = {leaf.index: "numpy" if leaf.as_ in _BUFFER_AS else _order(leaf.as_, framework)[0] for leaf in wanted}
    return {index: _over(made[root], kinds[index], infos[index]) for index, root in home.items()}


def _over(obj: Any, kind: str, info: dict[str, Any]) -> Any:
    """The same memory as a tensor of torch or an array of numpy, where that has the dtype; else as it is."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is None or numpy is None:
        return obj
    if kind == "torch" and isinstance(obj, numpy.ndarray) and (dtype := _dtypes.to_torch(info["dtype"])) is not None:
        return torch.from_numpy(obj.reshape(-1).view(numpy.uint8)).view(dtype).reshape(info["shape"])
    if kind == "numpy" and isinstance(obj, torch.Tensor) and (dtype := _dtypes.to_numpy(info["dtype"])) is not None:
        return obj.reshape(-1).view(torch.uint8).numpy().view(dtype).reshape(info["shape"])
    return obj


def alias(obj: Any) -> Any:
    """Another object over the same memory, as tied tensors are."""
    torch = sys.modules.get("torch")
    return obj.detach() if torch is not None and isinstance(obj, torch.Tensor) else obj


def builder(made: dict[int, Any], device: Any = None) -> Any:
    """The ``leaf`` function for ``_decode.build`` over what :func:`read_all` read; ``device`` moves torch tensors."""
    moved: dict[int, Any] = {}

    def leaf(at: Leaf) -> Any:
        obj = made[at.index]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor):
            if device is not None:
                obj = moved.setdefault(id(obj), obj.to(device))
            obj = alias(obj)
        return finish(obj, at.as_)

    return leaf
