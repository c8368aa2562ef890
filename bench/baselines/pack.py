# SPDX-License-Identifier: Apache-2.0
"""How baselines put named arrays into bytes: a list of parts, whose codes go through one archiver."""

from __future__ import annotations

import lzma
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
State = dict[str, dict[str, Array]]  # parameter -> role (w, m, v) -> values


def pack(parts: list[Any]) -> bytes:
    """Bench only: what is read back is what this process wrote."""
    return lzma.compress(pickle.dumps(parts, protocol=5), preset=6)


def unpack(raw: bytes) -> list[Any]:
    parts: list[Any] = pickle.loads(lzma.decompress(raw))
    return parts


def nibbles(codes: Array) -> Array:
    """Two codes below 16 a byte."""
    flat = codes.ravel()
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    return (flat[::2] << 4 | flat[1::2]).astype(np.uint8)


def unnibble(packed: Array, count: int) -> Array:
    return np.stack([packed >> 4, packed & 15], axis=1).ravel()[:count]


def coded(name: str, values: Array) -> bool:
    """Whether a tensor is quantized at all."""
    return values.ndim > 1
