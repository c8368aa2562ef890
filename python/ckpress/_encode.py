# SPDX-License-Identifier: Apache-2.0
"""Python objects into a state: tensors by view, everything else into the tree of plain values, nothing dropped.

Types are matched exactly: a subclass (an IntEnum, a namedtuple) would come back as its base, so it is refused by its path. What the
tree has no node for but is known and plain is kept as NAMED (python/README.md lists the names).
"""

from __future__ import annotations

import array
import collections
import io
from collections.abc import Callable
from typing import Any

from . import _core, _dtypes
from ._decode import bad_attribute, shaped
from ._names import Names, Path, join, show
from ._views import Coded, View, buffer_view, is_ndarray, is_torch_tensor, numpy_module, numpy_view, refuse, torch_module, torch_view
from .errors import LimitError, make

# bytes and tuples of ints from this length on become tensors, so that a delta against the last save costs little.
HOIST_BYTES = 256
HOIST_INTS = 64
DEPTH_MAX = 100  # below the format's 128: NAMED values nest too

_FACTORIES: dict[Any, str] = {list: "list", dict: "dict", int: "int", float: "float", set: "set", str: "str", bool: "bool", tuple: "tuple"}
_SPARSE_PARTS = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


class Encoder:
    """Puts objects into a :class:`_core.State`.

    ``special`` maps a test to a method for objects that are not plain (modules and optimizers): see ``_objects``.
    """

    def __init__(self) -> None:
        self.state = _core.State()
        self.names = Names()
        self.special: list[tuple[Callable[[Any], bool], Callable[[Any, Path], None]]] = []
        self._depth = 0
        self._plain: dict[type, Callable[[Any, Path], None]] = {
            type(None): lambda v, p: self.state.put(_core.NONE),
            bool: lambda v, p: self.state.put(_core.TRUE if v else _core.FALSE),
            int: self._int,
            float: lambda v, p: self.state.put_float(v),
            complex: lambda v, p: self.state.put_complex(v.real, v.imag),
            str: lambda v, p: self.state.put_data(_core.STR, v.encode("utf-8", "surrogatepass")),
            bytes: self._bytes,
            bytearray: lambda v, p: self.state.put_data(_core.BYTEARRAY, bytes(v)),
            list: lambda v, p: self._sequence(_core.LIST, v, p),
            tuple: self._tuple,
            dict: lambda v, p: self._dict(_core.DICT, v, p),
            collections.OrderedDict: self._ordered_dict,
            set: lambda v, p: self._set(_core.SET, v, p),
            frozenset: lambda v, p: self._set(_core.FROZENSET, v, p),
            collections.Counter: self._counter,
            collections.defaultdict: self._defaultdict,
            collections.deque: self._deque,
            array.array: self._array,
            memoryview: self._memoryview,
            io.BytesIO: lambda v, p: self.named("io.BytesIO", v.getvalue(), p),
        }

    # ---- values ----

    def value(self, obj: Any, path: Path) -> None:
        """Appends one value to the tree.

        Raises:
            UnsupportedError: a type that would not come back as it is, named by its path.
            LimitError: nested deeper than DEPTH_MAX, or a container that holds itself.
        """
        if self._depth >= DEPTH_MAX:
            raise make(LimitError, f"{show(path[:8])}...: nested deeper than {DEPTH_MAX} levels (or it contains itself)")
        self._depth += 1
        try:
            self._value(obj, path)
        finally:
            self._depth -= 1

    def _value(self, obj: Any, path: Path) -> None:
        plain = self._plain.get(type(obj))
        if plain is not None:
            plain(obj, path)
            return
        for test, put in self.special:
            if test(obj):
                put(obj, path)
                return
        if is_torch_tensor(obj):
            self._torch_tensor(obj, path)
        elif is_ndarray(obj):
            self._ndarray(obj, path)
        elif not (self._torch_value(obj) or self._numpy_value(obj, path)):
            raise refuse(show(path), f"cannot save a value of type {_type_name(obj)}")

    def named(self, name: str, inner: Any, path: Path) -> None:
        """A known plain type, kept under its name."""
        self.state.put_data(_core.NAMED, name.encode())
        self.value(inner, path)

    def _int(self, v: int, path: Path) -> None:
        if -(1 << 63) <= v < 1 << 63:
            self.state.put_int(v)
        else:
            self.state.put_data(_core.BIGINT, v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True))

    def _bytes(self, v: bytes, path: Path) -> None:
        if len(v) < HOIST_BYTES:
            self.state.put_data(_core.BYTES, v)
        else:
            self.leaf(View("u8", (len(v),), None, v), path, _core.AS_PYTHON_BYTES)

    def _sequence(self, kind: int, v: Any, path: Path) -> None:
        self.state.put(kind, len(v))
        for i, item in enumerate(v):
            self.value(item, (*path, i))

    def _tuple(self, v: tuple[Any, ...], path: Path) -> None:
        if len(v) >= HOIST_INTS and all(type(i) is int and 0 <= i < 1 << 32 for i in v):
            words = array.array("I", v)
            self.leaf(View("u32", (len(v),), None, words), path, _core.AS_PYTHON_INTS)
        else:
            self._sequence(_core.TUPLE, v, path)

    def _dict(self, kind: int, v: Any, path: Path) -> None:
        self.state.put(kind, len(v))
        for key, item in v.items():
            self.key(key, path)
            self.value(item, (*path, key))

    def key(self, key: Any, path: Path) -> None:
        """A dict's key or a set's member: plain and hashable by value."""
        if isinstance(key, bytes) and len(key) >= HOIST_BYTES:
            self.state.put_data(_core.BYTES, key)
        elif isinstance(key, (tuple, frozenset)) and type(key) in (tuple, frozenset):
            self.state.put(_core.TUPLE if isinstance(key, tuple) else _core.FROZENSET, len(key))
            for item in sorted(key, key=_order) if isinstance(key, frozenset) else key:
                self.key(item, path)
        elif is_torch_tensor(key):
            raise refuse(show(path), "a tensor as a key is known by its identity, which cannot be saved")
        else:
            self.value(key, (*path, key))

    def _ordered_dict(self, v: Any, path: Path) -> None:
        # torch keeps the versions of modules in an attribute of the state_dict: part of what it means.
        if not vars(v):
            self._dict(_core.ORDERED_DICT, v, path)
            return
        if bad := [name for name in vars(v) if bad_attribute(name, collections.OrderedDict)]:
            raise refuse(f"{show(path)}.{bad[0]}", "cannot save an attribute of that name: it would change what others take an OrderedDict for")
        self.state.put_data(_core.NAMED, b"collections.OrderedDict")
        self.state.put(_core.TUPLE, 2)
        self._dict(_core.ORDERED_DICT, v, path)
        self.value(dict(vars(v)), (*path, "__dict__"))

    def _set(self, kind: int, v: Any, path: Path) -> None:
        self.state.put(kind, len(v))
        # Their order changes from process to process; the bytes of a checkpoint must not.
        for item in sorted(v, key=_order):
            self.key(item, path)

    def _counter(self, v: Any, path: Path) -> None:
        self.named("collections.Counter", dict(v), path)

    def _defaultdict(self, v: Any, path: Path) -> None:
        factory = v.default_factory
        if factory is not None and factory not in _FACTORIES:
            raise refuse(show(path), f"cannot save a defaultdict of {factory!r}")
        name = None if factory is None else _FACTORIES[factory]
        self.state.put_data(_core.NAMED, b"collections.defaultdict")
        self.state.put(_core.TUPLE, 2)
        self.value(name, path)
        self._dict(_core.DICT, v, path)

    def _deque(self, v: Any, path: Path) -> None:
        self.state.put_data(_core.NAMED, b"collections.deque")
        self.state.put(_core.TUPLE, 2)
        self.value(v.maxlen, path)
        self._sequence(_core.LIST, v, path)

    # ---- tensors ----

    def role_of(self, name: str, view: View, role: int, lossless: bool) -> tuple[int, bool]:
        """What the tensor of that name is, and whether it must stay lossless, from what its place says of it."""
        return role, lossless

    def absent(self, name: str, view: View) -> bool:
        """Whether another rank of a group saves it."""
        return False

    def leaf(
        self,
        view: View,
        path: Path,
        as_: int,
        *,
        name: str | None = None,
        role: int = _core.OTHER,
        owner: str | None = None,
        lossless: bool = False,
    ) -> int:
        """Adds a tensor and its node; returns its index."""
        unique = self.names.take(name if name is not None else join(path))
        if self.absent(unique, view):
            index = self.state.add_absent(unique, view.dtype, view.shape)
        else:
            role, lossless = self.role_of(unique, view, role, lossless)
            index = self.state.add(unique, role, view.dtype, view.shape, view.strides, view.memory, owner, lossless, view.keep)
        self.state.put_tensor(index, as_)
        return index

    def coded_leaf(self, moment: Coded, name: str, role: int, owner: str | None) -> None:
        """A moment as the tensor that it stands for."""
        view = View("f32", moment.shape, None, None, moment.keep)
        unique = self.names.take(name)
        if self.absent(unique, view):
            index = self.state.add_absent(unique, view.dtype, view.shape)
        else:
            index = self.state.add_coded(unique, role, moment.shape, moment.moment, moment.second, owner, moment.keep)
        self.state.put_tensor(index, _core.AS_TORCH)

    def _array(self, v: Any, path: Path) -> None:
        if v.typecode == "u":
            raise refuse(show(path), "cannot save an array of type code 'u'")
        self.state.put_data(_core.NAMED, b"array.array")
        self.state.put(_core.TUPLE, 2)
        self.value(v.typecode, path)
        self.leaf(buffer_view(v, show(path)), path, _core.AS_NUMPY)

    def _memoryview(self, v: Any, path: Path) -> None:
        view = buffer_view(v, show(path))
        fmt = v.format.lstrip("=<")  # the native order; cast() knows no other
        try:
            shaped(memoryview(b""), fmt, view.shape if 0 in view.shape else (0,))
        except ValueError as e:
            raise refuse(show(path), f"cannot save a memoryview: {e}") from None
        self.state.put_data(_core.NAMED, b"memoryview")
        self.state.put(_core.TUPLE, 2)
        self.value(fmt, path)
        self.leaf(view, path, _core.AS_NUMPY)

    def _torch_tensor(self, t: Any, path: Path) -> None:
        torch = torch_module()
        assert torch is not None
        parameter = type(t) is torch.nn.Parameter
        if not parameter and type(t) is not torch.Tensor:
            self.subclass(t, path)
        elif parameter and not t.requires_grad:
            self.named("torch.nn.Parameter", t.data, path)  # frozen: a PARAMETER node alone means one with a gradient
        elif parameter:
            self.torch_leaf(t, path, _core.AS_TORCH_PARAMETER)
        else:
            self.torch_leaf(t, path, _core.AS_TORCH_REQUIRES_GRAD if t.requires_grad else _core.AS_TORCH)

    def torch_leaf(self, t: Any, path: Path, as_: int, **how: Any) -> int | None:
        """A torch.Tensor or Parameter, whatever its layout; ``how`` as for :meth:`leaf`. Its index, if it is saved as one tensor."""
        torch = torch_module()
        assert torch is not None
        layout = str(t.layout).removeprefix("torch.")
        if layout in _SPARSE_PARTS:
            if as_ in (_core.AS_TORCH_PARAMETER, _core.AS_TORCH_REQUIRES_GRAD):
                raise refuse(show(path), "cannot save a sparse tensor that requires gradients: it would come back without. Save its detach()")
            self._sparse(t, layout, path, how)
        elif t.is_quantized:
            self._quantized(t, path, how)
        elif _dtypes.opaque_torch(t.dtype) is not None:
            self.state.put_data(_core.NAMED, b"torch.dtype")
            self.state.put(_core.TUPLE, 2)
            self.state.put_data(_core.DTYPE, str(t.dtype).encode())
            self.leaf(torch_view(t, show(path), "bits8"), path, as_, **how)
        else:
            return self.leaf(torch_view(t, show(path)), path, as_, **how)
        return None

    def _sparse(self, t: Any, layout: str, path: Path, how: dict[str, Any]) -> None:
        t = t.detach()
        parts = _SPARSE_PARTS[layout]
        get = {"indices": "_indices", "values": "_values"} if layout == "sparse_coo" else {}
        how = {"lossless": how.get("lossless", False)}  # a part is no weight of the model's shape
        self.state.put_data(_core.NAMED, f"torch.{layout}".encode())
        self.state.put(_core.DICT, len(parts) + 2)
        self.value("size", path)
        self._sequence(_core.TORCH_SIZE, tuple(t.shape), path)
        self.value("coalesced", path)
        self.value(bool(t.is_coalesced()) if layout == "sparse_coo" else None, path)
        for part in parts:
            self.value(part, path)
            view = torch_view(getattr(t, get.get(part, part))(), show(path))
            self.leaf(view, (*path, part), _core.AS_SPARSE_PART, **how)

    def _quantized(self, t: Any, path: Path, how: dict[str, Any]) -> None:
        torch = torch_module()
        assert torch is not None
        t = t.detach()
        name = _dtypes.of_torch(t.dtype)
        if name is None:
            raise refuse(show(path), f"cannot save a quantized tensor of dtype {t.dtype}")
        if t.qscheme() is torch.per_tensor_affine:
            scale: dict[str, Any] = {"scale": t.q_scale(), "zero_point": t.q_zero_point()}
        elif t.qscheme() is torch.per_channel_affine:
            scale = {"scale": t.q_per_channel_scales(), "zero_point": t.q_per_channel_zero_points(), "axis": t.q_per_channel_axis()}
        else:
            raise refuse(show(path), f"cannot save a quantized tensor of scheme {t.qscheme()}")
        self.state.put_data(_core.NAMED, b"torch.quantized")
        self.state.put(_core.TUPLE, 2)
        self.value(scale, path)
        how = {"lossless": how.get("lossless", False)}
        self.leaf(torch_view(t.int_repr(), show(path), name), path, _core.AS_TORCH, **how)

    def subclass(self, t: Any, path: Path) -> None:
        """A tensor subclass: its inner tensors by its own protocol, always lossless, with a note how to rebuild it."""
        if not hasattr(type(t), "__tensor_flatten__") or not hasattr(type(t), "__tensor_unflatten__"):
            raise refuse(show(path), f"cannot save a tensor of type {_type_name(t)}: it has no __tensor_flatten__")
        if t.is_nested:
            raise refuse(show(path), "cannot save a nested tensor")
        attrs, context = t.__tensor_flatten__()
        self.state.put_data(_core.NAMED, b"torch.subclass")
        self.state.put(_core.DICT, 5)
        for key, plain in (("class", _type_name(t)), ("context", context), ("size", t.shape), ("stride", tuple(t.stride()))):
            self.value(key, path)
            self.value(plain, (*path, key))
        self.value("inner", path)
        self.state.put(_core.DICT, len(attrs))
        for attr in attrs:
            self.value(attr, path)
            inner = getattr(t, attr)
            if type(inner) is torch_module().Tensor:  # type: ignore[union-attr]
                self.torch_leaf(inner, (*path, attr), _core.AS_TORCH, lossless=True)
            else:
                self.subclass(inner, (*path, attr))

    def _ndarray(self, a: Any, path: Path) -> None:
        numpy = numpy_module()
        assert numpy is not None
        if type(a) is numpy.memmap:
            a = a.view(numpy.ndarray)
        if type(a) is not numpy.ndarray:
            raise refuse(show(path), f"cannot save an array of type {_type_name(a)}")
        native = a.dtype.isnative and a.dtype.kind not in "mM"
        if native and _dtypes.of_numpy(a.dtype) is not None:
            self.leaf(numpy_view(a, show(path)), path, _core.AS_NUMPY)
            return
        self._odd_ndarray(a, path)

    def _odd_ndarray(self, a: Any, path: Path) -> None:
        """Arrays whose dtype needs more than an id: units, byte order, fixed-length strings, records. Kept with numpy's own description."""
        numpy = numpy_module()
        assert numpy is not None
        if a.dtype.hasobject:
            raise refuse(show(path), f"cannot save an array of dtype {a.dtype}: it holds Python objects")
        if a.dtype.itemsize == 0:
            raise refuse(show(path), f"cannot save an array of dtype {a.dtype}: its elements have no bytes")
        try:
            descr = numpy.lib.format.dtype_to_descr(a.dtype)
        except (ValueError, TypeError, UserWarning) as e:
            raise refuse(show(path), f"cannot save an array of dtype {a.dtype} ({e})") from None
        self.state.put_data(_core.NAMED, b"numpy.ndarray")
        self.state.put(_core.TUPLE, 3)
        self.value(descr, path)
        self.value(tuple(a.shape), path)
        if a.dtype.kind in "mM" and a.dtype.isnative:
            self.leaf(numpy_view(a, show(path)), path, _core.AS_NUMPY)
        else:
            flat = numpy.ascontiguousarray(a).reshape(-1).view(numpy.uint8)
            self.leaf(numpy_view(flat, show(path)), path, _core.AS_NUMPY)

    # ---- single values of torch and numpy ----

    def _torch_value(self, obj: Any) -> bool:
        torch = torch_module()
        if torch is None or not hasattr(torch, "Tensor"):
            return False
        if type(obj) is torch.Size:
            self._sequence(_core.TORCH_SIZE, obj, ())
        elif type(obj) is torch.dtype:
            self.state.put_data(_core.DTYPE, str(obj).encode())
        elif type(obj) is torch.device:
            self.state.put_data(_core.DEVICE, str(obj).encode())
        elif type(obj).__name__ == "TorchVersion":  # torch.__version__: a str for all that anyone does with it
            self.value(str(obj), ())
        else:
            return False
        return True

    def _numpy_value(self, obj: Any, path: Path) -> bool:
        numpy = numpy_module()
        if numpy is None or not hasattr(numpy, "generic"):
            return False
        if isinstance(obj, numpy.dtype):
            if obj.names is not None or obj.subdtype is not None or obj.hasobject:
                raise refuse(show(path), f"cannot save the dtype {obj}")
            self.state.put_data(_core.DTYPE, _dtypes.numpy_name(obj).encode())
        elif isinstance(obj, numpy.generic):
            if obj.dtype.hasobject or obj.dtype.names is not None or obj.dtype.itemsize == 0:
                raise refuse(show(path), f"cannot save a numpy scalar of dtype {obj.dtype}")
            self.state.put_data(_core.NUMPY_SCALAR, numpy.asarray(obj).tobytes(), _dtypes.numpy_name(obj.dtype))
        else:
            return False
        return True


def _order(item: Any) -> tuple[str, str]:
    return type(item).__name__, repr(item)


def _type_name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"
