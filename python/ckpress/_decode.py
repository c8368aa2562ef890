# SPDX-License-Identifier: Apache-2.0
"""The tree of a checkpoint back into Python objects.

Two steps: :func:`parse` gives the objects with a :class:`Leaf` for each tensor and a :class:`Named` for each known special type, so that a
restore can be planned before anything is read; :func:`build` makes the real ones. The bytes are hostile: nothing is imported, called or
looked up on the word of a file except from the tables below.
"""

from __future__ import annotations

import array
import collections
import ctypes
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _core, _dtypes
from ._views import is_ndarray, numpy_module
from .errors import CorruptError, UnsupportedError, make


#: In no file: what Python's own buffers are made of, whatever the framework of all else.
AS_BUFFER = -1


@dataclass(frozen=True)
class Leaf:
    """A tensor of the table, not read yet."""

    index: int
    as_: int


@dataclass
class Named:
    """A value under a type name."""

    name: str
    value: Any


@dataclass
class Flattened:
    """A tensor subclass whose class is not loaded here: its parts, as its own protocol gave them.

    Attributes:
        cls: qualified name of the class.
        inner: its tensors by attribute.
        context: what ``__tensor_flatten__`` gave besides.
        size, stride: of the outer tensor.
    """

    cls: str
    inner: dict[str, Any]
    context: Any
    size: Any
    stride: Any


def _corrupt(text: str) -> CorruptError:
    exc = make(CorruptError, f"state tree: {text}")
    assert isinstance(exc, CorruptError)
    return exc


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise _corrupt(f"{what} is not UTF-8") from None


# ---- nodes to objects with leaves ----


class _Parser:
    def __init__(self, nodes: list[tuple[Any, ...]], count: int) -> None:
        self._nodes = nodes
        self._next = 0
        self._count = count

    def value(self) -> Any:
        if self._next >= len(self._nodes):
            raise _corrupt("ends in the middle of a value")
        node = self._nodes[self._next]
        self._next += 1
        kind = node[0]
        simple = _SIMPLE.get(kind)
        if simple is not None:
            return simple(node)
        if kind in (_core.LIST, _core.TUPLE, _core.SET, _core.FROZENSET, _core.TORCH_SIZE):
            return self._sequence(kind, node[1])
        if kind in (_core.DICT, _core.ORDERED_DICT):
            return self._dict(kind, node[1])
        if kind == _core.TENSOR:
            if node[1] >= self._count:
                raise _corrupt(f"names tensor {node[1]} of {self._count}")
            return Leaf(node[1], node[2])
        if kind == _core.NAMED:
            name = _text(node[1], "a type name")
            value = self.value()
            return Named(name, _in_a_buffer(value) if name in ("array.array", "memoryview") else value)
        raise _corrupt(f"a node of unknown type {kind}")

    def _sequence(self, kind: int, count: int) -> Any:
        items = [self.value() for _ in range(count)]
        if kind == _core.LIST:
            return items
        if kind == _core.TUPLE:
            return tuple(items)
        if kind == _core.TORCH_SIZE:
            return _torch_size(items)
        try:
            out = set(items) if kind == _core.SET else frozenset(items)
        except TypeError:
            raise _corrupt("a set with a member that cannot be in one") from None
        if len(out) != count:
            raise _corrupt("a set with a member twice")
        return out

    def _dict(self, kind: int, count: int) -> Any:
        out: dict[Any, Any] = collections.OrderedDict() if kind == _core.ORDERED_DICT else {}
        for _ in range(count):
            key = self.value()
            if isinstance(key, (Leaf, Named)):
                raise _corrupt("a tensor as the key of a dict")
            item = self.value()
            try:
                out[key] = item
            except TypeError:
                raise _corrupt(f"a {type(key).__name__} as the key of a dict") from None
        if len(out) != count:
            raise _corrupt("a dict with a key twice")
        return out


def _in_a_buffer(value: Any) -> Any:
    """(format, elements)."""
    return tuple(Leaf(v.index, AS_BUFFER) if isinstance(v, Leaf) else v for v in value) if type(value) is tuple else value


def _torch_size(items: list[Any]) -> Any:
    if not all(type(i) is int and 0 <= i < 1 << 63 for i in items):
        raise _corrupt("a torch.Size of something else than sizes")
    torch = sys.modules.get("torch")
    return torch.Size(items) if torch is not None else tuple(items)


def _dtype(node: tuple[Any, ...]) -> Any:
    name = _text(node[1], "a dtype")
    if name.startswith("torch."):
        found = _dtypes.torch_by_name(name)
        if found is None and "torch" not in sys.modules:
            return name  # without torch its name is what is left of it
    else:
        found = _numpy_dtype(name)
    if found is None:
        raise make(UnsupportedError, f"state tree: this installation has no dtype {name[:80]!r}")
    return found


def _numpy_dtype(name: str) -> Any:
    try:
        return _dtypes.numpy_by_name(name)
    except ImportError:
        return name


def _device(node: tuple[Any, ...]) -> Any:
    name = _text(node[1], "a device")
    torch = sys.modules.get("torch")
    if torch is None:
        return name
    try:
        return torch.device(name)
    except RuntimeError:
        raise _corrupt(f"no device: {name[:80]!r}") from None


def _numpy_scalar(node: tuple[Any, ...]) -> Any:
    name = _text(node[2], "a numpy dtype")
    try:
        import numpy
    except ImportError:
        raise make(UnsupportedError, f"state tree: a {name} needs numpy") from None
    dtype = _dtypes.numpy_by_name(name)
    if dtype is None or dtype.names is not None or dtype.itemsize != len(node[1]) or dtype.itemsize == 0:
        raise _corrupt(f"a numpy scalar of {len(node[1])} bytes as {name[:80]!r}")
    return numpy.frombuffer(node[1], dtype=dtype)[0]


_SIMPLE: dict[int, Callable[[tuple[Any, ...]], Any]] = {
    _core.NONE: lambda n: None,
    _core.FALSE: lambda n: False,
    _core.TRUE: lambda n: True,
    _core.INT: lambda n: n[1],
    _core.BIGINT: lambda n: int.from_bytes(n[1], "little", signed=True),
    _core.FLOAT: lambda n: n[1],
    _core.COMPLEX: lambda n: complex(n[1], n[2]),
    _core.STR: lambda n: _text(n[1], "a str"),
    _core.BYTES: lambda n: n[1],
    _core.BYTEARRAY: lambda n: bytearray(n[1]),
    _core.DTYPE: _dtype,
    _core.DEVICE: _device,
    _core.NUMPY_SCALAR: _numpy_scalar,
}


def parse(nodes: list[tuple[Any, ...]], count: int) -> Any:
    """The tree's value, with leaves.

    Args:
        nodes: as ``Checkpoint.tree()`` gives them, not empty.
        count: tensors in the table.

    Raises:
        CorruptError: the nodes are no value.
    """
    parser = _Parser(nodes, count)
    try:
        return parser.value()
    except RecursionError:
        raise _corrupt("nested too deeply") from None


def leaves(obj: Any) -> list[Leaf]:
    """Every leaf below, in order."""
    out: list[Leaf] = []
    stack = [obj]
    while stack:
        item = stack.pop()
        if isinstance(item, Leaf):
            out.append(item)
        elif isinstance(item, Named):
            stack.append(item.value)
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif type(item) in (list, tuple):
            stack.extend(reversed(item))
    return out


# ---- leaves to tensors ----


def build(obj: Any, leaf: Callable[[Leaf], Any]) -> Any:
    """The real objects: ``leaf`` gives the tensor behind a leaf."""
    if isinstance(obj, Leaf):
        return leaf(obj)
    if isinstance(obj, Named):
        return _named(obj, leaf)
    if isinstance(obj, dict):
        return type(obj)((k, build(v, leaf)) for k, v in obj.items())
    if type(obj) in (list, tuple):
        return type(obj)(build(v, leaf) for v in obj)
    return obj


def _named(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    rebuild = _NAMED.get(obj.name)
    if rebuild is None and obj.name.startswith("torch.sparse_"):
        rebuild = _sparse
    if rebuild is None:
        raise make(UnsupportedError, f"state tree: a value of type {obj.name[:80]!r}, which this version does not know")
    try:
        return rebuild(obj, leaf)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, RuntimeError) as e:
        raise _corrupt(f"a {obj.name[:80]} that cannot be one ({e})") from None


def _ordered_dict(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    inner, attrs = build(obj.value, leaf)
    return _with_attributes(collections.OrderedDict(inner), attrs)


def bad_attribute(name: Any, cls: type) -> bool:
    """Attributes are data only: no name of the class itself is covered, and none that an interpreter or a library looks for by itself (numpy takes the
    address in ``__array_interface__`` for its word)."""
    return not isinstance(name, str) or name.startswith("__") or hasattr(cls, name)


def _with_attributes(obj: Any, attrs: Any) -> Any:
    for name, value in attrs.items():
        if bad_attribute(name, type(obj)):
            raise ValueError("bad attribute")
        setattr(obj, name, value)
    return obj


_FACTORIES = {"list": list, "dict": dict, "int": int, "float": float, "set": set, "str": str, "bool": bool, "tuple": tuple, None: None}


def _defaultdict(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    factory, inner = build(obj.value, leaf)
    return collections.defaultdict(_FACTORIES[factory], inner)


def _deque(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    maxlen, items = build(obj.value, leaf)
    return collections.deque(items, maxlen)


_CTYPES: dict[str, Any] = {
    "?": ctypes.c_bool, "c": ctypes.c_char, "b": ctypes.c_byte, "B": ctypes.c_ubyte, "h": ctypes.c_short, "H": ctypes.c_ushort, "i": ctypes.c_int, "I": ctypes.c_uint,
    "l": ctypes.c_long, "L": ctypes.c_ulong, "q": ctypes.c_longlong, "Q": ctypes.c_ulonglong, "f": ctypes.c_float, "d": ctypes.c_double,
}  # fmt: skip


def shaped(flat: memoryview, fmt: str, shape: tuple[int, ...]) -> memoryview:
    """Bytes as elements of a format, in a shape.

    Raises:
        ValueError: there is no such buffer.
    """
    if len(shape) == 1:
        return flat.cast(fmt)  # type: ignore[call-overload,no-any-return]
    if 0 not in shape:
        return flat.cast(fmt, shape)  # type: ignore[call-overload,no-any-return]
    try:  # cast() makes none that is empty; one of ctypes names the byte order
        kind = _CTYPES[fmt]
        for extent in reversed(shape):
            kind = kind * extent
        return memoryview(kind())
    except (KeyError, OverflowError) as e:
        raise ValueError(f"no buffer of format {fmt!r} and shape {shape}") from e


def _array(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    code, data = build(obj.value, leaf)
    return array.array(code, memoryview(data).tobytes())


def _memoryview(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    fmt, data = build(obj.value, leaf)
    return shaped(memoryview(memoryview(data).tobytes()), fmt.lstrip("=<"), tuple(data.shape))  # early files name the byte order, which is the native one


def _counter(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    return collections.Counter(build(obj.value, leaf))


def _bytes_io(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    return io.BytesIO(build(obj.value, leaf))


def _elsewhere(*parts: Any) -> bool:
    """Whether some are of another framework than torch: what is torch's alone cannot be made of them."""
    return any(isinstance(t, memoryview) or is_ndarray(t) for t in parts)


def _torch_for(name: str, *parts: Any) -> Any:
    """torch, which has read the parts of what it alone has."""
    torch = sys.modules.get("torch")
    if torch is None or _elsewhere(*parts):
        raise make(UnsupportedError, f"state tree: a {name[:80]} is torch's: no other framework has it")
    return torch


def _parameter(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    data = build(obj.value, leaf)
    torch = sys.modules.get("torch")
    return data if torch is None or _elsewhere(data) else torch.nn.Parameter(data, requires_grad=False)


def _torch_dtype(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    dtype, data = build(obj.value, leaf)
    _torch_for(f"tensor of {dtype}", data)
    return data.view(dtype)


def _sparse(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    layout = obj.name.removeprefix("torch.")
    v = build(obj.value, leaf)
    torch = _torch_for(f"tensor of {layout}", *v.values())
    size = torch.Size(v["size"])
    # Their invariants (indices in range, compressed pointers in order) are checked: kernels trust them.
    if layout == "sparse_coo":
        out = torch.sparse_coo_tensor(v["indices"], v["values"], size, device=v["values"].device, check_invariants=True)
        return out._coalesced_(v["coalesced"]) if v["coalesced"] else out
    rows, columns = ("crow_indices", "col_indices") if "crow_indices" in v else ("ccol_indices", "row_indices")
    return torch.sparse_compressed_tensor(v[rows], v[columns], v["values"], size, layout=getattr(torch, layout), device=v["values"].device, check_invariants=True)


def _quantized(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    scale, values = build(obj.value, leaf)
    torch = _torch_for("quantized tensor", values, *scale.values())
    plain = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
    dtype = {v: k for k, v in plain.items()}[values.dtype]
    if "axis" in scale:
        out = torch._make_per_channel_quantized_tensor(values, scale["scale"], scale["zero_point"], scale["axis"])
    else:
        out = torch._make_per_tensor_quantized_tensor(values, scale["scale"], scale["zero_point"])
    assert out.dtype == dtype
    return out


def _subclass(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    v = build(obj.value, leaf)
    parts = Flattened(str(v["class"]), dict(v["inner"]), v["context"], v["size"], v["stride"])
    return unflatten(parts)


def unflatten(parts: Flattened) -> Any:
    """The tensor of a class that is *already* imported; the parts as they are when it is not, or not of torch: a file never causes an import."""
    torch = sys.modules.get("torch")
    module, _, name = parts.cls.rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    if torch is None or _elsewhere(*parts.inner.values()) or not (isinstance(cls, type) and issubclass(cls, torch.Tensor) and hasattr(cls, "__tensor_unflatten__")):
        return parts
    return cls.__tensor_unflatten__(parts.inner, parts.context, torch.Size(parts.size), parts.stride)


def _odd_ndarray(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    numpy = numpy_module()
    descr, shape, data = build(obj.value, leaf)
    if numpy is None or not is_ndarray(data):
        raise make(UnsupportedError, "state tree: an array of dates, strings, records or another byte order is numpy's: no other framework has it")
    dtype = numpy.lib.format.descr_to_dtype(descr)
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError("dtype")
    return data.view(dtype).reshape(shape)


# ---- what only files of torch.save have ----


def _storage(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    cls, data = build(obj.value, leaf)
    torch = _torch_for("storage", data)
    raw = data.untyped_storage()
    return raw if cls == "UntypedStorage" else torch.storage.TypedStorage(wrap_storage=raw, dtype=data.dtype, _internal=True)


def _numpy_type(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    return _dtypes.numpy_by_name(obj.value).type  # type: ignore[union-attr]


def _python_type(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    return _TYPES[obj.value.rpartition(".")[2]]


def _torch_constant(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    import torch

    found = getattr(torch, obj.value.removeprefix("torch."))
    if not isinstance(found, (torch.layout, torch.qscheme)):
        raise ValueError(f"no {obj.name}")
    return found


def _meta(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    import torch

    dtype, size, stride, requires_grad = build(obj.value, leaf)
    return torch.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)


def _attributes(obj: Named, leaf: Callable[[Leaf], Any]) -> Any:
    tensor, _, attrs = build(obj.value, leaf)
    _torch_for("tensor with attributes", tensor)
    return _with_attributes(tensor, attrs)


_TYPES = {t.__name__: t for t in (int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, object)}

_NAMED: dict[str, Callable[[Named, Callable[[Leaf], Any]], Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.defaultdict": _defaultdict,
    "collections.deque": _deque,
    "collections.Counter": _counter,
    "array.array": _array,
    "memoryview": _memoryview,
    "io.BytesIO": _bytes_io,
    "torch.nn.Parameter": _parameter,
    "torch.dtype": _torch_dtype,
    "torch.quantized": _quantized,
    "torch.subclass": _subclass,
    "numpy.ndarray": _odd_ndarray,
    "torch.storage": _storage,
    "numpy.type": _numpy_type,
    "builtins.type": _python_type,
    "builtins.Ellipsis": lambda obj, leaf: ...,
    "torch.layout": _torch_constant,
    "torch.qscheme": _torch_constant,
    "torch.meta": _meta,
    "torch.attributes": _attributes,
}
