# SPDX-License-Identifier: Apache-2.0
"""Task minilm: all-MiniLM-L6-v2 (22.7 million parameters) learns which book a verse of the Bible is from; AdamW from loaded weights."""

from __future__ import annotations

from typing import Any

import quality_data
import torch
import torch.nn.functional as F
from quality_task import Model, Optimizer
from quality_task import Task as Base
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, INNER, PIECES, PLACES, EPS = 384, 12, 6, 1536, 30_522, 512, 1e-12
LENGTH, BATCH, ROWS, VALIDATION = 32, 10, 64, 64
HEAD_LR = 10.0  # a new head learns faster than what is loaded


class Block(nn.Module):
    """BERT's layer: each sublayer's norm comes after it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, EPS), nn.LayerNorm(WIDTH, EPS)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        x = self.norm1(x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)))
        out: Tensor = self.norm2(x + self.down(F.gelu(self.up(x))))
        return out


# Names of the published file, by those of Block.
LOADED = {"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value", "out": "attention.output.dense",
          "norm1": "attention.output.LayerNorm", "up": "intermediate.dense", "down": "output.dense", "norm2": "output.LayerNorm"}  # fmt: skip


class MiniLM(nn.Module):
    """Sentence embeddings, the mean over pieces; without dropout, so that step n is the same in every run."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.pieces, self.places, self.kinds = nn.Embedding(PIECES, WIDTH), nn.Embedding(PLACES, WIDTH), nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, classes)

    def embed(self, x: Tensor) -> Tensor:
        """(n, length) pieces -> (n, 384)."""
        seen = x != 0
        h = self.norm(self.pieces(x) + self.places.weight[: x.shape[1]] + self.kinds.weight[0])
        for block in self.blocks:
            h = block(h, seen[:, None, None])
        return (h * seen[..., None]).sum(1) / seen.sum(1, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.embed(x))
        return out

    def load_published(self) -> None:
        """Every weight but the head's; the published pooler is of no use to sentence embeddings."""
        given = quality_data.minilm_weights()
        parts: dict[str, nn.Module] = {"embeddings.word_embeddings": self.pieces, "embeddings.position_embeddings": self.places,
                                       "embeddings.token_type_embeddings": self.kinds, "embeddings.LayerNorm": self.norm}  # fmt: skip
        for i, block in enumerate(self.blocks):
            parts |= {f"encoder.layer.{i}.{name}": getattr(block, own) for own, name in LOADED.items()}
        with torch.no_grad():
            for name, part in parts.items():
                for own, p in part.named_parameters():
                    p.copy_(given[f"{name}.{own}"])


class Task(Base):
    name, lr = "minilm", 1e-4

    def __init__(self, seed: int, quick: bool = False) -> None:
        super().__init__(seed, quick, every=5, every_quick=1)
        self.x, self.y, self.x_held, self.y_held, self.classes = quality_data.passages(LENGTH)
        self.size = BATCH // 4 if quick else BATCH

    def make(self) -> tuple[Model, Optimizer]:
        net = MiniLM(self.classes)
        net.load_published()
        body = [p for name, p in net.named_parameters() if not name.startswith("head.")]
        groups: list[dict[str, Any]] = [{"params": body}, {"params": list(net.head.parameters()), "scale": HEAD_LR}]
        return net, torch.optim.AdamW(groups, lr=self.lr, betas=(0.9, 0.999), weight_decay=0.01, fused=True)

    def loaded(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.make()[0].named_parameters() if not name.startswith("head.")}

    def batch(self, n: int) -> tuple[Tensor, ...]:
        rows = torch.randint(0, len(self.x), (self.size,), generator=self.generator(n))
        return self.x[rows], self.y[rows]

    def _batches(self, rows: slice) -> list[tuple[Tensor, ...]]:
        return list(zip(self.x_held[rows].split(ROWS), self.y_held[rows].split(ROWS)))

    def held_out(self) -> list[tuple[Tensor, ...]]:
        return self._batches(slice(VALIDATION, VALIDATION + (128 if self.quick else 896)))

    def validation(self) -> list[tuple[Tensor, ...]]:
        return self._batches(slice(0, VALIDATION))

    def loss(self, model: Model, batch: tuple[Tensor, ...]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])
