# SPDX-License-Identifier: Apache-2.0
"""Plain rounding: every tensor alone, blocks of 128 with their largest size as scale, v by its square root and never zero; Huffman coded."""

from __future__ import annotations

from typing import Any

import numpy as np

from .pack import Array, State, bundle, coded, huffman, unbundle, unhuffman

BLOCK = 128


class Plain:
    """Setting: bits a value."""

    def __init__(self, setting: str, init: State) -> None:
        self.bits = int(setting)
        self.init = init

    def _top(self, signed: bool) -> int:
        return 2 ** (self.bits - 1) - 1 if signed else 2**self.bits

    def _quantize(self, values: Array, signed: bool) -> tuple[Array, bytes]:
        x = np.append(values.ravel(), np.zeros(-values.size % BLOCK, np.float32)).reshape(-1, BLOCK)
        top = self._top(signed)
        scale = np.abs(x).max(1, keepdims=True).astype(np.float32)
        x = x / np.where(scale > 0, scale, 1) * top
        codes = (np.rint(x) + top if signed else np.clip(np.ceil(x), 1, top) - 1).astype(np.uint8)
        return scale, huffman(codes)

    def _restore(self, part: tuple[Array, bytes], shape: tuple[int, ...], signed: bool) -> Array:
        scale, raw = part
        top = self._top(signed)
        codes = unhuffman(raw, (-1, BLOCK)).astype(np.float32)
        x = (codes - top if signed else codes + 1) / np.float32(top) * scale
        return x.ravel()[: int(np.prod(shape))].reshape(shape)

    def encode(self, state: State) -> bytes:
        parts: list[Any] = []
        for name, roles in state.items():
            if coded(name, roles["w"]):
                parts.append({role: self._quantize(np.sqrt(t) if role == "v" else t, role != "v") for role, t in roles.items()})
            else:
                parts.append(roles)
        return bundle(parts)

    def decode(self, raw: bytes) -> State:
        out: State = {}
        for (name, roles), part in zip(self.init.items(), unbundle(raw)):
            if coded(name, roles["w"]):
                part = {role: self._restore(p, roles["w"].shape, role != "v") for role, p in part.items()}
                if "v" in part:
                    part["v"] = np.square(part["v"])
            out[name] = part
        return out
