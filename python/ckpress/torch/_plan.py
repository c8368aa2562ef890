# SPDX-License-Identifier: Apache-2.0
"""One step a matrix: the same loss a weight everywhere, for a size or an error that is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ._feedback import CODE_MAX, Side, rounded, side
from ._fisher import Metric, as_matrix

COARSEST = 2.0  # RMS of a tensor: a step for weights of which the batches say next to nothing
CHUNK = 1 << 20  # elements that share a table of the entropy coder
CHUNK_BYTES = 160.0  # a chunk's frame, table and part of the index
ESCAPE_BITS = 48.0  # of an element that is stored exactly
SAMPLE = 1 << 16


def entropy(codes: Tensor) -> float:
    """Bits of whole codes in [-128, 127], by their own frequencies."""
    counts = torch.bincount((codes.flatten() + 128).to(torch.int64), minlength=256).double()
    p = counts[counts > 0] / codes.numel()
    return float(-(p * p.log2()).sum()) * codes.numel()


def coded_bits(value: Tensor, step: float) -> float:
    """Close to what the file will hold for values that lie on the grid, table and frame included."""
    codes = (value.flatten() / step).round()
    far = codes.abs() > CODE_MAX
    chunks = torch.split(codes.masked_fill(far, 0), CHUNK)
    return sum(entropy(c) + 8 * CHUNK_BYTES for c in chunks) + ESCAPE_BITS * float(far.sum())


@dataclass
class Matrix:
    """One weight as a matrix, its metrics, and what is planned for it."""

    w: Tensor
    rows: Side
    columns: Side
    damage: float  # squared change of all outputs at a step of 1, after feedback: total x mean D x mean D / 12
    rms: float
    step: float = 0.0
    value: Tensor = field(default_factory=lambda: torch.empty(0))
    bits: float = 0.0

    @classmethod
    def of(cls, t: Tensor, metric: Metric, damp: float) -> Matrix:
        w = as_matrix(t).clone()  # the model itself is changed to measure
        rms = float(w.double().square().mean().sqrt())
        if metric.total <= 0:
            nothing = Side(None, 0.0)
            return cls(w, nothing, nothing, 0.0, rms)
        rows, columns = side(metric.rows, damp), side(metric.columns, damp)
        return cls(w, rows, columns, w.numel() * rows.mean * columns.mean / metric.total / 12, rms)

    def plan(self, level: float) -> None:
        """The step at which an element costs ``level``."""
        wanted = math.sqrt(level * self.w.numel() / self.damage) if self.damage > 0 else math.inf
        # Never so fine that more than the widest outliers leave the codes.
        self.step = float(torch.tensor(max(min(wanted, COARSEST * self.rms), self.rms / 16), dtype=torch.float32, device="cpu"))

    def round(self) -> None:
        self.value = rounded(self.w, self.rows, self.columns, self.step)
        self.bits = coded_bits(self.value, self.step)

    def guess(self) -> float:
        """Bits at the planned step without feedback, from a sample: close, and quick."""
        flat = self.w.flatten()
        part = flat[:: max(1, len(flat) // SAMPLE)]
        codes = (part / self.step).round().clamp(-128, CODE_MAX)
        return entropy(codes) * len(flat) / len(part) + 8 * CHUNK_BYTES * math.ceil(len(flat) / CHUNK)


class Plan:
    """All matrices of a model. ``others``: bits of everything that is stored as it is."""

    def __init__(self, matrices: dict[str, Matrix], others: float) -> None:
        self.matrices = matrices
        self.others = others
        self.level = 0.0

    def set_level(self, level: float) -> None:
        self.level = level
        for m in self.matrices.values():
            m.plan(level)
        self._unseen()

    def _unseen(self) -> None:
        """Weights that no batch reached get what the others have in the middle, in units of their RMS."""
        seen = sorted(m.step / m.rms for m in self.matrices.values() if m.damage > 0 and m.rms > 0)
        for m in self.matrices.values():
            if m.damage <= 0 and seen:
                m.step = float(torch.tensor(m.rms * seen[len(seen) // 2], dtype=torch.float32, device="cpu"))

    def guess(self, level: float) -> float:
        self.set_level(level)
        return self.others + sum(m.guess() for m in self.matrices.values())

    def for_bits(self, bits: float) -> None:
        """The level whose guess is ``bits``, by bisection of its logarithm."""
        low, high = self.level * 2.0**-24, self.level * 2.0**24
        for _ in range(30):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.guess(middle) > bits else (low, middle)
        self.set_level(high)

    def round(self) -> float:
        """Bits of all, with feedback."""
        for m in self.matrices.values():
            m.round()
        return self.others + sum(m.bits for m in self.matrices.values())

    def predicted(self) -> float:
        return sum(m.damage * m.step**2 for m in self.matrices.values())
