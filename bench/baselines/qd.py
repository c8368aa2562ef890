# SPDX-License-Identifier: Apache-2.0
"""QD+: QD-Compressor (ICCD 2021), as arXiv 2306.11800 compares with it: quantize first, then a cyclic delta of the codes.

Each tensor has uniform bins over its own range, and a number of them of its own, between 8 and the setting's: more where the weighted
entropy is larger. The cyclic difference (previous - current) mod bins to the previous save's codes is Huffman coded; where the number
of bins changed, the larger one is the modulus. Weights only. What the sources do not say is chosen here: weighted entropy is that of
256 bins, each weighted with its mean square relative to the tensor's; the number of bins is the power of two nearest to
8 * (most / 8)^(entropy / largest entropy of a tensor). The error feedback into training, which the paper has, would change what is
trained and is left out, as in 2306.11800's transparent setting.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .pack import Array, State, WeightsOnly, huffman, unhuffman

LEAST, FINE = 8, 256


def uniform(w: Array, low: np.float32, high: np.float32, bins: int) -> Array:
    """Codes on ``bins`` values from low to high."""
    scale = (high - low) / (bins - 1) if high > low else np.float32(1)
    return np.clip(np.rint((w - low) / np.float32(scale)), 0, bins - 1).astype(np.uint8)


def weighted_entropy(w: Array) -> float:
    """Of 256 bins, in bits; a bin's weight is its mean square over the tensor's."""
    codes = uniform(w, w.min(), w.max(), FINE).ravel()
    count = np.bincount(codes, minlength=FINE)
    square = np.bincount(codes, weights=np.square(w.ravel(), dtype=np.float64), minlength=FINE)
    p = count[count > 0] / codes.size
    weight = square[count > 0] / count[count > 0] / max(square.sum() / codes.size, 1e-30)
    return float(-(weight * p * np.log2(p)).sum())


class QDCompressor(WeightsOnly):
    """Setting: most bins of a tensor."""

    def __init__(self, setting: str, init: State) -> None:
        super().__init__(setting, init)
        self.most = int(setting)
        self.codes: dict[str, Array] = {}
        self.bins: dict[str, int] = {}

    def _choose(self, state: State) -> None:
        """Numbers of bins, by the tensors of this save."""
        entropy = {name: weighted_entropy(r["w"]) for name, r in state.items() if r["w"].ndim > 1}
        top = max(max(entropy.values(), default=0.0), 1e-30)
        self.chosen = {name: 2 ** round(np.log2(LEAST) + np.log2(self.most / LEAST) * h / top) for name, h in entropy.items()}

    def encode(self, state: State) -> bytes:
        self._choose(state)
        return super().encode(state)

    def _step(self, name: str, codes: Array, bins: int) -> Array:
        """The cyclic difference, which is its own inverse: (previous - codes) mod the larger number of bins."""
        before = self.codes.get(name)
        if before is None:
            return codes
        modulus = max(bins, self.bins[name])
        return ((before.astype(np.int16) - codes) % modulus).astype(np.uint8)

    def _encode(self, name: str, w: Array) -> Any:
        bins, low, high = self.chosen[name], w.min(), w.max()
        codes = uniform(w, low, high, bins)
        raw = huffman(self._step(name, codes, bins))
        self.codes[name], self.bins[name] = codes, bins
        return bins, low, high, raw

    def _decode(self, name: str, part: Any) -> Array:
        bins, low, high, raw = part
        codes = self._step(name, unhuffman(raw, self.init[name]["w"].shape), bins)
        self.codes[name], self.bins[name] = codes, bins
        scale = np.float32((high - low) / (bins - 1)) if high > low else np.float32(1)
        return codes.astype(np.float32) * scale + low
