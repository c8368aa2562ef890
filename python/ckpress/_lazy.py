# SPDX-License-Identifier: Apache-2.0
"""One tensor of an open checkpoint, of which only what is asked for is read."""

from __future__ import annotations

import math
import operator
from typing import Any

from ._decode import Leaf
from ._tensors import allocate, finish, read_all
from .errors import UnsupportedError, make


class LazyTensor:
    """A tensor that has not been read.

    Indexing reads: leading ints and one slice pick a range of rows, and only the chunks that hold it are read and decoded; whatever
    else the index says is left to torch or numpy. ``t[:]`` or ``t.read()`` is the whole.
    """

    def __init__(self, checkpoint: Any, index: int, as_: int, framework: str | None) -> None:
        self._ck = checkpoint
        self._index = index
        self._as = as_
        self._framework = framework
        self.info: dict[str, Any] = checkpoint.tensor(index)

    @property
    def name(self) -> str:
        return str(self.info["name"])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.info["shape"])

    @property
    def dtype(self) -> str:
        """Name of the element type in the library, e.g. ``"bf16"``."""
        return str(self.info["dtype"])

    @property
    def role(self) -> str:
        """What it is to the training: ``"weight"``, ``"m"``, ``"v"``, ``"momentum"``, ``"average"``, ``"other"``."""
        return str(self.info["role"])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def read(self) -> Any:
        """The whole tensor."""
        leaf = Leaf(self._index, self._as)
        return finish(read_all(self._ck, [leaf], self._framework, 0)[self._index], self._as)

    def __getitem__(self, key: Any) -> Any:
        keys = list(key) if isinstance(key, tuple) else [key]
        shape, first, depth = self.shape, 0, 0
        while keys and depth < len(shape) and _is_int(keys[0]):
            first += _row(keys.pop(0), shape[depth]) * math.prod(shape[depth + 1 :])
            depth += 1
        inner = shape[depth:]
        if keys and inner and isinstance(keys[0], slice):
            low, rows, step = _rows(keys[0], inner[0])
            first += low * math.prod(inner[1:])
            inner = (rows, *inner[1:])
            keys[0] = slice(None, None, step)
        got = self._range(first, inner)
        return got if all(k == slice(None, None, 1) for k in keys if isinstance(k, slice)) and _trivial(keys) else got[tuple(keys)]

    def _range(self, first: int, shape: tuple[int, ...]) -> Any:
        count = math.prod(shape)
        if math.prod(self.shape) != self.info["numel"]:
            raise make(UnsupportedError, f"{self.name}: a part of a tensor is in this shard: open the run, which has all shards", tensor=self.name)
        info = {**self.info, "shape": shape, "numel": count}
        info["raw_bytes"] = 0 if self.info["numel"] == 0 else self.info["raw_bytes"] * count // self.info["numel"]
        obj, memory = allocate(info, self._as, self._framework)
        if count > 0:
            self._ck.read_range(self._index, first, count, memory)
        return obj

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy

        return numpy.asarray(LazyTensor(self._ck, self._index, self._as, "numpy").read(), dtype=dtype)

    def __repr__(self) -> str:
        return f"<ckpress.LazyTensor {self.name!r} {self.dtype} {list(self.shape)}>"


def _is_int(key: Any) -> bool:
    return hasattr(key, "__index__") and not isinstance(key, bool) and getattr(key, "ndim", 0) == 0


def _row(key: Any, size: int) -> int:
    i = operator.index(key)
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of range for {size} rows")
    return i + size if i < 0 else i


def _rows(key: slice, size: int) -> tuple[int, int, int]:
    """First row, number of rows up to the last that is wanted, and the step among them."""
    start, stop, step = key.indices(size)
    if step < 0:
        raise ValueError("the step of a slice must be positive, as in torch")
    wanted = max(0, (stop - start + step - 1) // step)
    return start, 0 if wanted == 0 else (wanted - 1) * step + 1, step


def _trivial(keys: list[Any]) -> bool:
    return all(isinstance(k, slice) or k is Ellipsis for k in keys)
