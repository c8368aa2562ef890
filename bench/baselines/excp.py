# SPDX-License-Identifier: Apache-2.0
"""ExCP (arXiv 2406.11257): residual of the weights, weights and moments pruned together, k-means codes, 7-zip.

Residual against the last reconstruction; weights are kept above alpha / sqrt(m) * median, moments where the first one is above
beta * mean and the weight was kept; alpha = 5e-5, beta = 2; 2^n - 1 centres on the non-zero values. Where the paper and its published
code differ, this is the code, which its numbers come from: one threshold a tensor, with the mean of the second moment and the median of
the residual, at most 2.5 medians; the mean of the first moment's size. Code books are fp32 (the published fp16 would make small v zero).
Without a second moment (SGD) the threshold is the cap.
"""

from __future__ import annotations

import numpy as np

from .pack import Array, State, coded, nibbles, pack, unnibble, unpack

ALPHA, BETA, CAP, SAMPLE, ROUNDS = 5e-5, 2.0, 2.5, 50_000, 20


def centres(values: Array, count: int) -> Array:
    """One-dimensional k-means (Lloyd from quantiles) on a sample."""
    x = np.sort(values[:: max(1, values.size // SAMPLE)])
    c = np.quantile(x, (np.arange(count) + 0.5) / count)
    sums = np.concatenate([[0.0], np.cumsum(x, dtype=np.float64)])
    for _ in range(ROUNDS):
        cuts = np.concatenate([[0], np.searchsorted(x, (c[1:] + c[:-1]) / 2), [x.size]])
        n = np.diff(cuts)
        c = np.where(n > 0, np.diff(sums[cuts]) / np.maximum(n, 1), c)
    return c.astype(np.float32)


class ExCP:
    """Setting: bits a code; with ":cap" the threshold is the cap for every tensor.

    alpha suits the gradients of the paper's runs, where most tensors reach the cap; where gradients are larger it prunes next to nothing.
    """

    def __init__(self, setting: str, init: State) -> None:
        bits, _, rule = setting.partition(":")
        self.bits, self.capped = int(bits), rule == "cap"
        self.reference = {name: roles["w"].copy() for name, roles in init.items()}  # from the seed, as in the paper

    def _quantize(self, values: Array) -> tuple[Array, Array]:
        kept = values != 0
        codes = np.zeros(values.shape, np.uint8)
        count = min(2**self.bits - 1, int(kept.sum()))
        if count == 0:
            return np.zeros(0, np.float32), nibbles(codes) if self.bits <= 4 else codes.ravel()
        c = centres(values[kept], count)
        codes[kept] = 1 + np.searchsorted((c[1:] + c[:-1]) / 2, values[kept])
        return c, nibbles(codes) if self.bits <= 4 else codes.ravel()

    def _restore(self, part: tuple[Array, Array], shape: tuple[int, ...]) -> Array:
        c, packed = part
        codes = unnibble(packed, int(np.prod(shape))) if self.bits <= 4 else packed
        return np.concatenate([np.zeros(1, np.float32), c])[codes].reshape(shape)

    def encode(self, state: State) -> bytes:
        parts = []
        for name, roles in state.items():
            if not coded(name, roles["w"]):
                parts.append(roles)
                continue
            delta = roles["w"] - self.reference[name]
            size = np.abs(delta)
            scale = ALPHA / float(np.sqrt(roles["v"].mean() + 1e-30)) if "v" in roles and not self.capped else CAP
            delta = np.where(size > min(CAP, scale) * np.median(size), delta, 0)
            first = np.abs(roles["m"])
            kept = (first > BETA * first.mean()) & (delta != 0)
            part = {role: self._quantize(delta if role == "w" else np.where(kept, t, 0)) for role, t in roles.items()}
            self.reference[name] = self.reference[name] + self._restore(part["w"], delta.shape)
            parts.append(part)
        return pack(parts)

    def decode(self, raw: bytes) -> State:
        out: State = {}
        for (name, reference), part in zip(self.reference.items(), unpack(raw)):
            if coded(name, reference):
                part = {role: self._restore(p, reference.shape) for role, p in part.items()}
                part["w"] = self.reference[name] = reference + part["w"]
            out[name] = part
        return out
