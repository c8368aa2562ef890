# SPDX-License-Identifier: Apache-2.0
"""Rounding a matrix to a grid so that errors cancel where the batches would see them.

The loss of an error E of a weight is seen as tr(L E R E^T): R tells how columns (inputs) act together, L how rows (outputs) do. With
R = U^T D U, U unit upper triangular, rounding w + (earlier errors) (U - I) instead of w turns it into the sum of D_j e_j^2 with e the
plain rounding errors: OPTQ's compensation (Frantar et al., arXiv 2210.17323, section 3) in the form of LDLQ (Chee et al., arXiv
2307.13304, section 3), here from both sides, for the Kronecker product of L and R (as in Tseng et al., arXiv 2505.22988, section 3).
The grid is uniform and its codes are entropy-coded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CODE_MAX = 127  # of the format: what is beyond is stored exactly
BLOCK = 64  # columns that are brought up to date one by one; later ones at once


@dataclass
class Side:
    """One side's metric as M D M^T, M unit upper triangular: ``before`` is M - I (None: D is the metric's diagonal), ``mean`` that of D."""

    before: Tensor | None
    mean: float


def side(metric: Tensor, damp: float) -> Side:
    """Of a metric (n, n), or of its diagonal (n,) where errors are not made to cancel.

    ``damp``: share of the mean diagonal that is added, so that directions which no batch showed are not taken for harmless.
    """
    if metric.dim() == 1:
        return Side(None, float(metric.double().mean()))
    h = metric.double()
    h = h + damp * h.diagonal().mean() * torch.eye(len(h), dtype=h.dtype, device=h.device)
    m = torch.linalg.cholesky(h.flip(0, 1)).flip(0, 1)  # upper triangular, h = m m^T
    d = m.diagonal()
    return Side((m / d - torch.eye(len(h), dtype=h.dtype, device=h.device)).float(), float(d.square().mean()))


def _code(target: Tensor, exact: Tensor, step: float) -> Tensor:
    """The value for a target: the nearest of the grid; the exact one where that is beyond the format's codes."""
    value = (target / step).round().clamp(-CODE_MAX, CODE_MAX) * step + 0.0  # + 0.0: a code 0 is +0
    return torch.where((exact / step).round().abs() > CODE_MAX, exact, value)


def _rounded_columns(w: Tensor, before: Tensor, step: float) -> Tensor:
    """Rows alone, all of them at once: column j's target has the errors of the columns before it."""
    value, error = torch.empty_like(w), torch.empty_like(w)
    for a in range(0, w.shape[1], BLOCK):
        b = min(a + BLOCK, w.shape[1])
        target = w[:, a:b] + error[:, :a] @ before[:a, a:b]
        for j in range(a, b):
            value[:, j] = _code(target[:, j - a] + error[:, a:j] @ before[a:j, j], w[:, j], step)
            error[:, j] = w[:, j] - value[:, j]
    return value


def _rounded_both(w: Tensor, rows_before: Tensor, columns_before: Tensor, step: float) -> Tensor:
    """An element needs those above and those left of it: one diagonal after the other, each at once.

    With F the errors as later columns see them (error @ columns_before), the target of (r, c) is
    w + F[r, c] + sum over r' < r of rows_before[r', r] (error + F)[r', c].
    """
    height, width = w.shape
    value, error = torch.zeros_like(w), torch.zeros_like(w)
    # Columns from the last to the first, so that a diagonal's columns are a slice as its rows are.
    seen = torch.zeros(width, height, dtype=w.dtype, device=w.device)  # error + F, transposed
    by_column = columns_before.t().flip(0).contiguous()
    by_row = rows_before.t().contiguous()
    for s in range(height + width - 1):
        top, low = max(0, s - width + 1), min(height - 1, s) + 1
        first = width - 1 - s + top
        rows, turned = slice(top, low), slice(first, first + low - top)
        from_left = (error[rows, : s - top + 1] * by_column[turned, : s - top + 1]).sum(1)
        from_above = (by_row[rows, :low] * seen[turned, :low]).sum(1)
        r = torch.arange(top, low, device=w.device)
        c = s - r
        exact = w[r, c]
        value[r, c] = got = _code(exact + from_left + from_above, exact, step)
        error[r, c] = exact - got
        seen[width - 1 - c, r] = exact - got + from_left
    return value


def rounded(w: Tensor, rows: Side, columns: Side, step: float) -> Tensor:
    """``w`` (height, width), float32, on the grid of ``step`` (beyond 127 steps: as it is)."""
    if columns.before is None and rows.before is None:
        return _code(w, w, step)
    if columns.before is None:
        assert rows.before is not None
        return _rounded_columns(w.t().contiguous(), rows.before, step).t().contiguous()
    if rows.before is None:
        return torch.cat([_rounded_columns(part, columns.before, step) for part in torch.split(w, 4096)])
    return _rounded_both(w, rows.before, columns.before, step)
