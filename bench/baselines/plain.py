# SPDX-License-Identifier: Apache-2.0
"""Plain rounding: every tensor alone, blocks of 128 with their largest size as scale, v by its square root and never zero."""

from __future__ import annotations

import numpy as np

from .pack import Array, State, coded, nibbles, pack, unnibble, unpack

BLOCK = 128


class Plain:
    """Setting: bits a value."""

    def __init__(self, setting: str, init: State) -> None:
        self.bits = int(setting)
        self.init = init

    def _quantize(self, values: Array, signed: bool) -> tuple[Array, Array]:
        x = np.append(values.ravel(), np.zeros(-values.size % BLOCK, np.float32)).reshape(-1, BLOCK)
        top = 2 ** (self.bits - 1) - 1 if signed else 2**self.bits
        scale = np.abs(x).max(1, keepdims=True).astype(np.float32)
        x = x / np.where(scale > 0, scale, 1) * top
        codes = (np.rint(x) + top if signed else np.clip(np.ceil(x), 1, top) - 1).astype(np.uint8)
        return scale, nibbles(codes) if self.bits <= 4 else codes.ravel()

    def _restore(self, part: tuple[Array, Array], shape: tuple[int, ...], signed: bool) -> Array:
        scale, packed = part
        top = 2 ** (self.bits - 1) - 1 if signed else 2**self.bits
        codes = (unnibble(packed, scale.size * BLOCK) if self.bits <= 4 else packed).reshape(-1, BLOCK).astype(np.float32)
        x = (codes - top if signed else codes + 1) / top * scale
        return x.ravel()[: int(np.prod(shape))].reshape(shape)

    def encode(self, state: State) -> bytes:
        parts: list[object] = []
        for name, r in state.items():
            small = not coded(name, r["w"])
            parts.append(r if small else (self._quantize(r["w"], True), self._quantize(r["m"], True), self._quantize(np.sqrt(r["v"]), False)))
        return pack(parts)

    def decode(self, raw: bytes) -> State:
        out: State = {}
        for (name, r), part in zip(self.init.items(), unpack(raw)):
            if coded(name, r["w"]):
                w, m, v = (self._restore(p, r["w"].shape, signed) for p, signed in zip(part, (True, True, False)))
                part = {"w": w, "m": m, "v": v * v}
            out[name] = part
        return out
