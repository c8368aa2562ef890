# SPDX-License-Identifier: Apache-2.0
"""Task gpt: the demo's GPT on text, wider (9.0 million parameters), AdamW; with b2 = 0.999 as a task of its own."""

from __future__ import annotations

import functools
import pathlib
import sys

import quality_data
import torch
from quality_task import Model, Optimizer, adamw
from quality_task import Task as Base
from torch import Tensor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "demo"))
import model as demo

BATCH, ROWS = 4, 16  # windows a step; windows a batch of the evaluation
HELD_OUT, VALIDATION = 240, 16  # windows of 128 tokens


@functools.cache
def _tokens() -> tuple[Tensor, Tensor]:
    return demo.split(quality_data.prose())


class Task(Base):
    name, b2 = "gpt", 0.95

    def __init__(self, seed: int, quick: bool = False) -> None:
        super().__init__(seed, quick, every=5)
        self.width, self.layers = (64, 2) if quick else (384, 5)

    def make(self) -> tuple[Model, Optimizer]:
        net = demo.GPT(self.width, self.layers, self.width // 32)
        return net, adamw(net, self.lr, self.b2)

    def batch(self, n: int) -> tuple[Tensor, ...]:
        return demo.Sampler(_tokens()[0], BATCH, self.seed * 1_000_003 + n).next()

    def _windows(self, first: int, count: int) -> list[tuple[Tensor, ...]]:
        """Windows spread over the held-out text, side by side with those of the other set."""
        text, size = _tokens()[1], demo.CONTEXT
        stride = len(text) // (HELD_OUT + VALIDATION)
        places = [i * stride for i in range(first, first + count)]
        rows = torch.stack([text[p : p + size + 1] for p in places])
        return [(r[:, :-1], r[:, 1:]) for r in rows.split(ROWS)]

    def held_out(self) -> list[tuple[Tensor, ...]]:
        return self._windows(0, HELD_OUT // 8 * 2 if self.quick else HELD_OUT)

    def validation(self) -> list[tuple[Tensor, ...]]:
        return self._windows(HELD_OUT, VALIDATION)

    def loss(self, model: Model, batch: tuple[Tensor, ...]) -> Tensor:
        out: Tensor = model(*batch)
        return out


class Slow(Task):
    """Second moments that remember a thousand steps."""

    name, b2 = "gpt-b2-0.999", 0.999
