# SPDX-License-Identifier: Apache-2.0
"""Element types: names of the library against those of torch, numpy and ml_dtypes, none of which needs to be there."""

from __future__ import annotations

import functools
import sys
from typing import Any

# Names of torch.dtype attributes. Those marked in TORCH_OPAQUE have no dtype of their own in the format: they are stored as bytes
# and the tree keeps their name.
TORCH = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "uint16": "u16",
    "int16": "i16",
    "uint32": "u32",
    "int32": "i32",
    "uint64": "u64",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "float4_e2m1fn_x2": "f4e2m1fn_x2",
    "bits8": "bits8",
    "bits16": "bits16",
    "qint8": "qint8",
    "quint8": "quint8",
    "qint32": "qint32",
}
TORCH_OPAQUE = ["bits1x8", "bits2x4", "bits4x2"] + [f"{s}int{n}" for n in range(1, 8) for s in ("", "u")]

NUMPY = {
    "b1": "bool",
    "u1": "u8",
    "i1": "i8",
    "u2": "u16",
    "i2": "i16",
    "u4": "u32",
    "i4": "i32",
    "u8": "u64",
    "i8": "i64",
    "f2": "f16",
    "f4": "f32",
    "f8": "f64",
    "f16": "f128",
    "c8": "c64",
    "c16": "c128",
    "c32": "c256",
}
ML_DTYPES = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
    "float8_e4m3": "f8e4m3",
    "float8_e3m4": "f8e3m4",
    "float8_e4m3b11fnuz": "f8e4m3b11fnuz",
    "float6_e2m3fn": "f6e2m3fn",
    "float6_e3m2fn": "f6e3m2fn",
    "float4_e2m1fn": "f4e2m1fn",
    "int4": "i4",
    "uint4": "u4",
    "int2": "i2",
    "uint2": "u2",
    "int1": "i1",
    "uint1": "u1",
}

# Formats of memoryview and array.array; all native sizes.
BUFFER = {
    "?": "bool",
    "B": "u8",
    "b": "i8",
    "c": "u8",
    "H": "u16",
    "h": "i16",
    "I": "u32",
    "i": "i32",
    "Q": "u64",
    "q": "i64",
    "L": "u64",
    "l": "i64",
    "e": "f16",
    "f": "f32",
    "d": "f64",
}
_BUFFER_BACK = {name: fmt for fmt, name in reversed(BUFFER.items()) if fmt not in "cLl"}


@functools.cache
def _torch_tables() -> tuple[dict[Any, str], dict[str, Any], dict[Any, str]]:
    torch = sys.modules["torch"]
    known = {getattr(torch, t): name for t, name in TORCH.items() if hasattr(torch, t)}
    opaque = {getattr(torch, t): f"torch.{t}" for t in TORCH_OPAQUE if hasattr(torch, t)}
    return known, {name: dt for dt, name in known.items()}, opaque


def of_torch(dtype: Any) -> str | None:
    """Library name of a torch dtype; None when it has none of its own."""
    return _torch_tables()[0].get(dtype)


def opaque_torch(dtype: Any) -> str | None:
    """``"torch.int3"`` for the dtypes that are stored as bytes under their name; None for others."""
    return _torch_tables()[2].get(dtype)


def to_torch(name: str) -> Any | None:
    """The torch dtype of that library name, if torch has it."""
    return _torch_tables()[1].get(name)


def torch_by_name(qualified: str) -> Any | None:
    """``torch.float32`` for ``"torch.float32"``; None for anything that is no dtype."""
    torch = sys.modules.get("torch")
    module, _, attr = qualified.partition(".")
    found = getattr(torch, attr, None) if torch is not None and module == "torch" and attr.isidentifier() else None
    return found if torch is not None and isinstance(found, torch.dtype) else None


def of_numpy(dtype: Any) -> str | None:
    """Library name of a numpy dtype in native byte order; None when it has none of its own."""
    if dtype.kind in "mM":
        return "datetime64" if dtype.kind == "M" else "timedelta64"
    if dtype.type.__module__.startswith("ml_dtypes"):
        return ML_DTYPES.get(dtype.name)
    if dtype.kind not in "biufc":
        return None
    return NUMPY.get(f"{dtype.kind}{dtype.itemsize}")


def to_numpy(name: str) -> Any | None:
    """The numpy dtype of that library name, if numpy (or ml_dtypes) has it."""
    import numpy

    for code, lib in NUMPY.items():
        if lib == name:
            try:
                return numpy.dtype(code)
            except TypeError:
                return None
    if name in ("datetime64", "timedelta64"):
        return numpy.dtype("i8")  # the unit, if any, is laid over it by the tree
    for attr, lib in ML_DTYPES.items():
        if lib == name:
            return _ml_dtype(attr)
    return None


def _ml_dtype(attr: str) -> Any | None:
    import numpy

    try:
        import ml_dtypes
    except ImportError:
        return None
    found = getattr(ml_dtypes, attr, None)
    return None if found is None else numpy.dtype(found)


def numpy_name(dtype: Any) -> str:
    """Qualified name of a numpy dtype as kept in the tree: ``"numpy.float32"``, ``"numpy.>f4"``, ``"ml_dtypes.bfloat16"``."""
    if dtype.type.__module__.startswith("ml_dtypes"):
        return f"ml_dtypes.{dtype.name}"
    if dtype.kind in "biufc" and dtype.isnative and dtype.name.isidentifier():
        return f"numpy.{dtype.name}"
    return f"numpy.{dtype.str}"


def numpy_by_name(qualified: str) -> Any | None:
    """The dtype behind :func:`numpy_name`; None for anything else. Objects are never made."""
    import numpy

    module, _, attr = qualified.partition(".")
    if module == "ml_dtypes":
        return _ml_dtype(attr) if attr in ML_DTYPES else None
    if module != "numpy" or len(attr) > 64 or "," in attr:
        return None
    try:
        dtype = numpy.dtype(attr)
    except (TypeError, ValueError, SyntaxError):
        return None
    return None if dtype.hasobject else dtype


def of_buffer(fmt: str, itemsize: int) -> str | None:
    """Library name of a buffer format; None when it has none."""
    from . import _core

    name = BUFFER.get(fmt.lstrip("@=<") if sys.byteorder == "little" else fmt)
    # "l" and "L" are as wide as the platform says.
    if fmt in "lL" and itemsize == 4:
        name = "i32" if fmt == "l" else "u32"
    return name if name is not None and _core.dtype_bits(name) == itemsize * 8 else None


def to_buffer(name: str) -> str | None:
    """A memoryview format for that library name; None when Python has none."""
    return _BUFFER_BACK.get(name)
