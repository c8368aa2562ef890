# SPDX-License-Identifier: Apache-2.0
"""LC-Checkpoint (arXiv 2009.13003): residuals of the weights in buckets of sign and binary exponent.

Section 3.1: delta against the last lossy state, one bucket a sign and exponent, its mean stands for its members. Section 3.2, priority
promotion: the 2^b - 1 buckets of largest magnitude are kept, all else is 0. Weights only: both moments are stored exactly, and counted.
"""

from __future__ import annotations

import numpy as np

from .pack import Array, State, coded, pack, unpack


class LCCheckpoint:
    """Setting: b."""

    def __init__(self, setting: str, init: State) -> None:
        self.buckets = 2 ** int(setting) - 1
        self.reference = {name: roles["w"].copy() for name, roles in init.items()}
        self.weight_bytes = 0

    def _quantize(self, delta: Array) -> tuple[Array, Array]:
        _, exponent = np.frexp(delta)
        key = np.where(delta == 0, -(2**20), 2 * exponent + (delta < 0)).ravel()
        kept = np.sort(np.unique(key[key > -(2**20)]))[::-1][: self.buckets]
        codes = np.zeros(key.size, np.uint8)
        means = np.zeros(len(kept) + 1, np.float32)
        for i, k in enumerate(kept, 1):
            inside = key == k
            codes[inside] = i
            means[i] = delta.ravel()[inside].mean()
        return means, codes

    def encode(self, state: State) -> bytes:
        weights, moments = [], []
        for name, roles in state.items():
            moments.append((roles["m"], roles["v"]))
            if not coded(name, roles["w"]):
                weights.append(roles["w"])
                continue
            means, codes = self._quantize(roles["w"] - self.reference[name])
            self.reference[name] = self.reference[name] + means[codes].reshape(roles["w"].shape)
            weights.append((means, codes))
        first = pack(weights)
        self.weight_bytes = len(first)
        plain = b"".join(t.astype(np.float32).tobytes() for pair in moments for t in pair)
        return len(first).to_bytes(8, "little") + first + plain

    def decode(self, raw: bytes) -> State:
        cut = 8 + int.from_bytes(raw[:8], "little")
        moments, at = np.frombuffer(raw[cut:], np.float32), 0
        out: State = {}
        for (name, reference), part in zip(self.reference.items(), unpack(raw[8:cut])):
            n = reference.size
            m, v = (moments[at + i * n : at + (i + 1) * n].reshape(reference.shape).copy() for i in (0, 1))
            at += 2 * n
            if coded(name, reference):
                means, codes = part
                part = self.reference[name] = reference + means[codes].reshape(reference.shape)
            out[name] = {"w": part, "m": m, "v": v}
        return out
