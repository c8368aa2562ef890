# SPDX-License-Identifier: Apache-2.0
"""LC-Checkpoint (arXiv 2009.13003): residuals of the weights in buckets of sign and binary exponent.

Delta against the last lossy state; one bucket a sign and exponent, its mean stands for its members (as in the published
re-implementation); priority promotion keeps the 2^b - 1 buckets of largest magnitude, all else is 0; Huffman codes. Weights only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .pack import Array, State, WeightsOnly, huffman, unhuffman

ZERO = -(2**20)  # below the key of any float


class LCCheckpoint(WeightsOnly):
    """Setting: b."""

    def __init__(self, setting: str, init: State) -> None:
        super().__init__(setting, init)
        self.buckets = 2 ** int(setting) - 1
        self.reference = {name: roles["w"].copy() for name, roles in init.items()}

    def _quantize(self, delta: Array) -> tuple[Array, Array]:
        _, exponent = np.frexp(delta)
        key = np.where(delta == 0, ZERO, 2 * exponent + (delta < 0)).ravel()
        kept = np.sort(np.unique(key[key > ZERO]))[::-1][: self.buckets]
        codes = np.zeros(key.size, np.uint8)
        means = np.zeros(len(kept) + 1, np.float32)
        for i, k in enumerate(kept, 1):
            inside = key == k
            codes[inside] = i
            means[i] = delta.ravel()[inside].mean()
        return means, codes

    def _encode(self, name: str, w: Array) -> Any:
        means, codes = self._quantize(w - self.reference[name])
        self.reference[name] = self.reference[name] + means[codes].reshape(w.shape)
        return means, huffman(codes)

    def _decode(self, name: str, part: Any) -> Array:
        means, raw = part
        shape = self.reference[name].shape
        self.reference[name] = self.reference[name] + means[unhuffman(raw, shape)]
        return self.reference[name]
