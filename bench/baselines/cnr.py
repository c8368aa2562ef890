# SPDX-License-Identifier: Apache-2.0
"""CNR+: Check-N-Run's adaptive uniform quantization (NSDI 2022), as arXiv 2306.11800 compares with it.

Every save alone (no delta): each row on ``bins`` values between two ends of its own. The ends start at the row's smallest and largest
value and are drawn in greedily: STEPS equal steps would cross the range; at each step the end goes in whose move gives the smaller
squared error, until RANGE of the range is used up; the best ends seen are kept. 2306.11800 searches bins 8 to 256, steps 10 to 100 and
range 0.1 to 0.5 for each checkpoint; here they are fixed, bins by the setting. Ends are fp16. Weights only. The paper packs bits; codes
here are Huffman coded, which is smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .pack import Array, State, WeightsOnly, huffman, unhuffman

STEPS, RANGE = 10, 0.3


class CheckNRun(WeightsOnly):
    """Setting: bins."""

    def __init__(self, setting: str, init: State) -> None:
        super().__init__(setting, init)
        self.bins = int(setting)

    def _codes(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        scale = (high - low) / (self.bins - 1)
        scale = torch.where(scale > 0, scale, 1.0)
        return ((x - low) / scale).round_().clamp_(0, self.bins - 1)

    def _values(self, codes: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return codes * ((high - low) / (self.bins - 1)) + low

    def _error(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return (self._values(self._codes(x, low, high), low, high) - x).square_().sum(1, keepdim=True)

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, high = (end.half().float() for end in (x.amin(1, keepdim=True), x.amax(1, keepdim=True)))
        step = (high - low) / STEPS
        best, least = (low, high), self._error(x, low, high)
        for _ in range(int(STEPS * RANGE)):
            moved = ((low + step).half().float(), (high - step).half().float())
            left, right = self._error(x, moved[0], high), self._error(x, low, moved[1])
            low, high = torch.where(left <= right, moved[0], low), torch.where(left <= right, high, moved[1])
            error = torch.minimum(left, right)
            best = torch.where(error < least, low, best[0]), torch.where(error < least, high, best[1])
            least = torch.minimum(error, least)
        return best

    def _encode(self, name: str, w: Array) -> Any:
        x = torch.from_numpy(w.reshape(w.shape[0], -1))
        low, high = self._ends(x)
        codes = self._codes(x, low, high).to(torch.uint8).numpy()
        return low.numpy().astype(np.float16), high.numpy().astype(np.float16), huffman(codes)

    def _decode(self, name: str, part: Any) -> Array:
        low, high, raw = part
        shape = self.init[name]["w"].shape
        codes = torch.from_numpy(unhuffman(raw, (shape[0], -1)).astype(np.float32))
        values = self._values(codes, *(torch.from_numpy(end.astype(np.float32)) for end in (low, high)))
        return values.numpy().reshape(shape)
