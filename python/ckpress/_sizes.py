# SPDX-License-Identifier: Apache-2.0
"""How large each configuration would be, estimated from the weights alone: so that a search need not code what cannot be the smallest.

A code's cost is taken for the entropy of its level, levels as dense as the cube root of the weights' density (what a codebook of least squared
error tends to: Panter and Dite 1951), plus 16 bits for each protected weight and the codebooks. Weights are looked at by magnitude relative
to their tensor's RMS, some thousands a tensor. What a delta against the last codes saves is not known here: it changes sizes, hardly their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from ._views import torch_module

CELLS, REACH = 2048, 8.0  # of the histogram of magnitudes; its end in RMS
SAMPLE = 1 << 14  # weights of a tensor
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
    parts = [_Part([p for p in coded if (id(p) in embeddings) == wanted]) for wanted in (False, True)]
    if all(part.numel == 0 for part in parts):
        return None
    sizes = []
    for bins, bins_embedding, prune, _, protect in _core.Search.grid():
        bits = parts[0].bits(bins, prune, protect) + parts[1].bits(bins_embedding, prune, protect)
        sizes.append(1 + int(bits / 8))
    return sizes


class _Part:
    """Tensors that are coded with the same number of bins."""

    def __init__(self, tensors: list[Any]) -> None:
        torch = torch_module()
        assert torch is not None
        self._counts = torch.zeros(CELLS, dtype=torch.float64)
        self._known: dict[tuple[int, float, float], float] = {}
        self._tensors = 0
        self.numel = 0
        for t in tensors:
            self._add(torch, t.detach())

    def _add(self, torch: Any, t: Any) -> None:
        if t.numel() == 0:
            return
        x = t.reshape(-1)[:: max(1, t.numel() // SAMPLE)].to("cpu", torch.float32).abs()
        x = torch.where(torch.isfinite(x), x, 0).double()
        rms = float(x.square().mean().sqrt())
        cell = (x * (CELLS / REACH / rms) if rms > 0 else x).long().clamp_(max=CELLS - 1)
        self._counts += torch.bincount(cell, minlength=CELLS).double() * (t.numel() / x.numel())
        self._tensors += 1
        self.numel += t.numel()

    def bits(self, bins: int, prune: float, protect: float) -> float:
        if self.numel == 0:
            return 0.0
        key = (bins, prune, protect)
        if key not in self._known:
            self._known[key] = self.numel * (self._entropy(*key) + 16 * protect) + self._tensors * bins * CENTRE_BITS
        return self._known[key]

    def _entropy(self, bins: int, prune: float, protect: float) -> float:
        """Bits a weight; half of the levels are of either sign."""
        torch = torch_module()
        assert torch is not None
        share = self._counts / self._counts.sum()
        above = share.cumsum(0)
        kept = (above.clamp(max=1 - protect) - (above - share).clamp(min=prune)).clamp(min=0)  # of each cell, neither pruned nor protected
        density = kept.pow(1 / 3).cumsum(0)
        level = (density / density[-1].clamp(min=1e-300) * (bins / 2)).long().clamp(max=max(1, bins // 2) - 1)
        levels = torch.zeros(max(1, bins // 2), dtype=torch.float64).index_add_(0, level, kept) / 2
        p = torch.cat([levels, levels, torch.tensor([prune, protect], dtype=torch.float64)])
        p = p[p > 0]
        return float(-(p * p.log2()).sum())
