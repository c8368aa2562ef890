# SPDX-License-Identifier: Apache-2.0
"""How baselines put named arrays into bytes: a list of parts, and the entropy coders of their papers."""

from __future__ import annotations

import lzma
import pickle
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Roles = dict[str, Array]  # w, and those of m and v that the optimizer has
State = dict[str, Roles]  # by parameter; buffers have w alone

# As small as preset 9 on codes that are mostly zero (within 4 %, mostly smaller), at four times its speed.
LZMA2 = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20, "lc": 0, "lp": 0, "pb": 0, "mode": lzma.MODE_NORMAL, "mf": lzma.MF_HC4, "nice_len": 32,
          "depth": 2}]  # fmt: skip
ZLIB_MEMORY = 9


def pack(parts: list[Any]) -> bytes:
    """Through 7-zip's LZMA2. Bench only: what is read back is what this process wrote."""
    return lzma.compress(pickle.dumps(parts, protocol=5), format=lzma.FORMAT_RAW, filters=LZMA2)


def unpack(raw: bytes) -> list[Any]:
    parts: list[Any] = pickle.loads(lzma.decompress(raw, format=lzma.FORMAT_RAW, filters=LZMA2))
    return parts


def bundle(parts: list[Any]) -> bytes:
    """Without an archiver: parts that are coded, or that are stored exactly."""
    return pickle.dumps(parts, protocol=5)


def unbundle(raw: bytes) -> list[Any]:
    parts: list[Any] = pickle.loads(raw)
    return parts


def huffman(codes: Array) -> bytes:
    """Codes below 256 by deflate's Huffman coder, or by run lengths and that coder, whichever is smaller."""

    def through(strategy: int) -> bytes:
        c = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, ZLIB_MEMORY, strategy)
        return c.compress(codes.tobytes()) + c.flush()

    return min(through(zlib.Z_HUFFMAN_ONLY), through(zlib.Z_RLE), key=len)


def unhuffman(raw: bytes, shape: tuple[int, ...]) -> Array:
    return np.frombuffer(zlib.decompress(raw), np.uint8).reshape(shape)


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


class WeightsOnly:
    """What coders of weights share: both moments, and whatever is not a matrix, are stored exactly, and counted.

    A coder gives ``_encode(name, w) -> part`` and ``_decode(name, part) -> w``, which also keep what it deltas against.
    ``weight_bytes``: of the last save, everything but moments.
    """

    def __init__(self, setting: str, init: State) -> None:
        self.setting = setting
        self.init = init
        self.weight_bytes = 0

    def _encode(self, name: str, w: Array) -> Any:
        raise NotImplementedError

    def _decode(self, name: str, part: Any) -> Array:
        raise NotImplementedError

    def encode(self, state: State) -> bytes:
        weights = [self._encode(name, r["w"]) if coded(name, r["w"]) else r["w"] for name, r in state.items()]
        first = bundle(weights)
        self.weight_bytes = len(first)
        moments = [{role: t for role, t in r.items() if role != "w"} for r in state.values()]
        return len(first).to_bytes(8, "little") + first + bundle(moments)

    def decode(self, raw: bytes) -> State:
        cut = 8 + int.from_bytes(raw[:8], "little")
        out: State = {}
        for (name, r), part, moments in zip(self.init.items(), unbundle(raw[8:cut]), unbundle(raw[cut:])):
            out[name] = {"w": self._decode(name, part) if coded(name, r["w"]) else part, **moments}
        return out
