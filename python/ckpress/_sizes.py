# SPDX-License-Identifier: Apache-2.0
"""How large each configuration would be, estimated from the weights alone: so that a search need not code what cannot be the smallest.

A code's cost is taken for the entropy of its level, levels as dense as the cube root of the weights' density (what a codebook of least squared
error tends to: Panter and Dite 1951), plus 16 bits for each protected weight and the codebooks. Thresholds of pruning and protecting are shared
by all weights of a kind, as the coder shares them, so a tensor of small weights loses most of them. Each tensor is known by a histogram of some
thousands of its weights. What a delta against the last codes saves is not known here: it changes sizes, hardly their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from ._views import torch_module

CELLS, REACH = 512, 8.0  # of a histogram of magnitudes; its end in RMS of its tensor
SAMPLE = 1 << 12  # weights of a tensor
CENTRE_BITS = 32
NUMEL_MIN = 4096


def coded_of(lossy: Sequence[Any]) -> list[Any]:
    """Those of the lossy tensors that codebooks are for (``ckp_dynaquant`` in run.h)."""
    return [p for p in lossy if p.dim() >= 2 and p.numel() >= NUMEL_MIN]


def embeddings_of(copies: Mapping[str, Any]) -> set[int]:
    """Identities of the weights of embeddings."""
    torch = torch_module()
    assert torch is not None
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return {id(m.weight) for module in copies.values() for m in module.modules() if isinstance(m, kinds)}


def estimate(coded: Sequence[Any], embeddings: set[int]) -> list[int] | None:
    """Bytes of every configuration of ``Search.grid()``.

    Args:
        coded: the tensors.
        embeddings: identities of those that have bins of their own.

    Returns:
        None when nothing is to be coded.
    """
    kinds: tuple[list[Any], ...] = ([], [], [])  # linear, convolution, embedding
    for p in coded:
        if p.numel() > 0:
            kinds[2 if id(p) in embeddings else int(p.dim() > 2)].append(p)
    parts = [_Part(tensors) for tensors in kinds]
    if not any(kinds):
        return None
    sizes = []
    for bins, bins_embedding, prune, _, protect in _core.Search.grid():
        bits = sum(part.bits(k, prune, protect) for part, k in zip(parts, (bins, bins, bins_embedding)))
        sizes.append(1 + int(bits / 8))
    return sizes


class _Part:
    """Tensors that share thresholds and the number of bins. None of them is empty."""

    def __init__(self, tensors: list[Any]) -> None:
        torch = torch_module()
        assert torch is not None
        self._torch = torch
        self._tensors = len(tensors)
        self._known: dict[tuple[int, float, float], float] = {}
        if not tensors:
            return
        samples = [_magnitudes(torch, t.detach()) for t in tensors]
        self._numel = torch.tensor([t.numel() for t in tensors], dtype=torch.float64, device="cpu")
        self._rms = torch.stack([x.square().mean().sqrt() for x in samples]).clamp(min=1e-300)
        self._share = torch.stack([_histogram(torch, x / rms) for x, rms in zip(samples, self._rms)])
        weight = torch.cat([torch.full((len(x),), t.numel() / len(x), dtype=torch.float64, device="cpu") for x, t in zip(samples, tensors)])
        self._sorted, order = torch.cat(samples).sort()
        self._rank = weight[order].cumsum(0) / weight.sum()

    def bits(self, bins: int, prune: float, protect: float) -> float:
        if self._tensors == 0:
            return 0.0
        key = (bins, prune, protect)
        if key not in self._known:
            self._known[key] = self._coded(*key) + self._tensors * bins * CENTRE_BITS
        return self._known[key]

    def _coded(self, bins: int, prune: float, protect: float) -> float:
        """Half of the levels are of either sign."""
        torch, half = self._torch, max(1, bins // 2)
        below = self._below(self._threshold(prune)) if prune > 0 else torch.zeros_like(self._share)
        kept = (self._below(self._threshold(1 - protect)) - below).clamp(min=0) * self._share
        pruned = (below * self._share).sum(1, keepdim=True)
        protected = (1 - pruned - kept.sum(1, keepdim=True)).clamp(min=0)
        density = kept.pow(1 / 3).cumsum(1)
        level = (density / density[:, -1:].clamp(min=1e-300) * half).long().clamp(max=half - 1)
        levels = torch.zeros(len(kept), half, dtype=torch.float64, device="cpu").scatter_add_(1, level, kept) / 2
        p = torch.cat([levels, levels, pruned, protected], 1)
        entropy = -(p * p.clamp(min=1e-300).log2()).sum(1)
        return float((self._numel * (entropy + 16 * protected[:, 0])).sum())

    def _threshold(self, share: float) -> Any:
        return self._sorted[int(self._torch.searchsorted(self._rank, share).clamp(max=len(self._sorted) - 1))]

    def _below(self, magnitude: Any) -> Any:
        """Of each tensor's cells, the share that is below a magnitude; the last cell has no end."""
        cells = (magnitude / self._rms * (CELLS / REACH)).unsqueeze(1) - self._torch.arange(CELLS, dtype=self._torch.float64, device="cpu")
        return cells.clamp(0, 1)


def _magnitudes(torch: Any, t: Any) -> Any:
    x = t.reshape(-1)[:: max(1, t.numel() // SAMPLE)].to("cpu", torch.float32).abs()
    return torch.where(torch.isfinite(x), x, 0).double()


def _histogram(torch: Any, x: Any) -> Any:
    """Shares of the cells."""
    cell = (x * (CELLS / REACH)).long().clamp_(max=CELLS - 1)
    return torch.bincount(cell, minlength=CELLS).double() / len(x)
