# SPDX-License-Identifier: Apache-2.0
"""What batches say about errors of weights: for each matrix two metrics whose Kronecker product stands for the Gauss-Newton matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._forward import Forward, gradients

SIDE_MAX = 4096  # rows or columns; of a longer side only the diagonal is kept
DIRECTIONS = 32  # gradients for damage(): a tensor's is then right within a quarter


def as_matrix(t: Tensor) -> Tensor:
    """(first dimension, all others), float32."""
    dense = t.to_dense() if t.is_sparse else t
    return dense.reshape(t.shape[0], -1).float()


@dataclass
class Metric:
    """Sums over batches, means over passes: ``rows`` of g g^T, ``columns`` of g^T g (long sides: their diagonal), ``total`` of |g|^2.

    These are Shampoo's preconditioners (Gupta et al., arXiv 1802.09568): over independent gradients, rows x columns / total is close to
    the second moment of vec(g), and they need nothing but the gradient of a parameter, of whatever layer it is.
    """

    rows: Tensor
    columns: Tensor
    total: float = 0.0

    def add(self, g: Tensor) -> None:
        self.total += float(g.double().square().sum())
        self.columns += _outer(g.t(), self.columns)
        self.rows += _outer(g, self.rows)


def _outer(g: Tensor, like: Tensor) -> Tensor:
    """g g^T or its diagonal; rows of zeros (tokens that a batch does not have) cost nothing."""
    if like.dim() == 1:
        return g.square().sum(1)
    used = g.t()[g.t().any(1)] if g.shape[1] > SIDE_MAX else g.t()
    return used.t() @ used


def _empty(n: int) -> Tensor:
    return torch.zeros((n, n) if n <= SIDE_MAX else n, dtype=torch.float32, device="cpu")


def collect(
    model: torch.nn.Module, params: dict[str, Tensor], batches: list[Any], forward: Forward, passes: int, seed: int
) -> dict[str, Metric]:
    """Metrics of the parameters (two or more dimensions), by name."""
    shapes = {name: as_matrix(p.detach()).shape for name, p in params.items()}
    found = {name: Metric(_empty(h), _empty(w)) for name, (h, w) in shapes.items()}
    count = 0
    for grads in gradients(model, list(params.values()), batches, forward, passes, seed):
        count += 1
        for metric, g in zip(found.values(), grads):
            if g is not None:
                metric.add(as_matrix(g.cpu()))
    times = count / len(batches)
    for metric in found.values():
        metric.rows /= times
        metric.columns /= times
        metric.total /= times
    return found


def damage(
    model: torch.nn.Module, params: dict[str, Tensor], errors: dict[str, Tensor], batches: list[Any], forward: Forward, seed: int
) -> dict[str, float]:
    """The squared change of the outputs that each error alone makes, to second order: the sum over
    batches of the mean of <gradient, error>^2."""
    sums = dict.fromkeys(params, 0.0)
    count = 0
    for grads in gradients(model, list(params.values()), batches, forward, math.ceil(DIRECTIONS / len(batches)), seed):
        count += 1
        for name, g in zip(params, grads):
            if g is not None:
                sums[name] += float((as_matrix(g.cpu()) * errors[name]).double().sum()) ** 2
    return {name: value * len(batches) / count for name, value in sums.items()}
