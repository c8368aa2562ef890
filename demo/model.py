# SPDX-License-Identifier: Apache-2.0
"""A small GPT on bytes of text: about 1.8 million parameters."""

from __future__ import annotations

import math
import os
import pathlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 128
CONTEXT = 128
TEXT_MAX = 5_000_000  # bytes


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Bytes in, the loss of predicting the next byte out."""

    def __init__(self, width: int = 192, layers: int = 4, heads: int = 6) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


def text() -> tuple[str, bytes]:
    """Where the text comes from, and the text: the sources of Python's own library, which every machine has that runs this."""
    library = pathlib.Path(os.__file__).parent
    sources = b"".join(p.read_bytes() for p in sorted(library.glob("*.py")))
    return "sources of Python's standard library", sources[:TEXT_MAX]


def split(raw: bytes) -> tuple[Tensor, Tensor]:
    """Training and held-out tokens: the last twentieth is held out."""
    tokens = torch.frombuffer(bytearray(raw), dtype=torch.uint8).long().clamp(max=VOCAB - 1)
    cut = len(tokens) * 19 // 20
    return tokens[:cut], tokens[cut:]


class Sampler:
    """Random batches whose order belongs to the checkpoint."""

    def __init__(self, tokens: Tensor, batch: int, seed: int) -> None:
        self._tokens = tokens
        self._batch = batch
        self._generator = torch.Generator().manual_seed(seed)

    def next(self) -> tuple[Tensor, Tensor]:
        starts = torch.randint(0, len(self._tokens) - CONTEXT - 1, (self._batch,), generator=self._generator)
        rows = torch.stack([self._tokens[s : s + CONTEXT + 1] for s in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]

    def state_dict(self) -> dict[str, Tensor]:
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._generator.set_state(state["generator"])


@torch.no_grad()
def held_out_loss(model: GPT, tokens: Tensor, every: int = 1) -> float:
    """Mean loss over the held-out tokens in windows side by side; ``every`` n-th window only for a quicker look."""
    count = (len(tokens) - 1) // CONTEXT
    x = tokens[: count * CONTEXT].view(count, CONTEXT)[::every]
    y = tokens[1 : count * CONTEXT + 1].view(count, CONTEXT)[::every]
    total = sum(model(x[i : i + 64], y[i : i + 64]).item() * len(x[i : i + 64]) for i in range(0, len(x), 64))
    return total / len(x)


def learning_rate(step: int, steps: int, warm: int = 50) -> float:
    """Factor for LambdaLR: linear warm-up, then a cosine down to a tenth."""
    cosine = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
    return min(1.0, (step + 1) / warm) * cosine
