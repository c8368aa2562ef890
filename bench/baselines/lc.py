# SPDX-License-Identifier: Apache-2.0
"""LC-Checkpoint (arXiv 2009.13003): residuals of the weights in buckets of sign and binary exponent.

Delta against the last lossy state; one bucket a sign and exponent, its mean stands for its members (as in the published
re-implementation); priority promotion keeps the 2^b - 1 buckets of largest magnitude, all else is 0; Huffman codes. Weights only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .pack import Array, State, WeightsOnly, huffman, unhuffman

SIGN, BUCKETS = 256, 512  # exponents; signs and exponents


class LCCheckpoint(WeightsOnly):
    """Setting: b."""

    def __init__(self, setting: str, init: State) -> None:
        super().__init__(setting, init)
        self.buckets = 2 ** int(setting) - 1
        self.reference = {name: roles["w"].copy() for name, roles in init.items()}

    def _quantize(self, delta: Array) -> tuple[Array, Array]:
        bucket = (np.ascontiguousarray(delta).view(np.uint32) >> 23).ravel()  # sign and exponent of a float32
        count = np.bincount(bucket, minlength=BUCKETS)
        sums = np.bincount(bucket, weights=delta.ravel(), minlength=BUCKETS)
        magnitude = np.arange(BUCKETS) % SIGN
        found = np.flatnonzero((count > 0) & (magnitude > 0))  # exponent 0: zero and what is next to it
        kept = found[np.argsort(-magnitude[found], kind="stable")][: self.buckets]
        codes = np.zeros(BUCKETS, np.uint8)
        codes[kept] = np.arange(1, len(kept) + 1)
        means = np.append(0, sums[kept] / count[kept]).astype(np.float32)
        return means, codes[bucket]

    def _encode(self, name: str, w: Array) -> Any:
        means, codes = self._quantize(w - self.reference[name])
        self.reference[name] = self.reference[name] + means[codes].reshape(w.shape)
        return means, huffman(codes)

    def _decode(self, name: str, part: Any) -> Array:
        means, raw = part
        shape = self.reference[name].shape
        self.reference[name] = self.reference[name] + means[unhuffman(raw, shape)]
        return self.reference[name]
