# SPDX-License-Identifier: Apache-2.0
"""Task gpt: the demo's GPT on text, wider (9.0 million parameters), AdamW.

A task has: steps, every (steps between saves), build() -> (model, optimizer), step(model, optimizer, n), evaluate(model, every).
Everything follows from the seed; step n sees the same batch in every run of a pair.
"""

from __future__ import annotations

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "demo"))
import model as demo

BATCH, LR = 4, 1e-3
HELD_OUT = 256 * demo.CONTEXT + 1  # tokens: a whole evaluation costs about 20 steps


class Task:
    name = "gpt"
    unit = "held-out loss"

    def __init__(self, seed: int, quick: bool = False, b2: float = 0.95) -> None:
        self.seed, self.b2 = seed, b2
        self.steps, self.every = (44, 4) if quick else (330, 15)
        self.width, self.layers = (64, 2) if quick else (384, 5)
        self.train, held_out = demo.split(demo.text()[1])
        self.held_out = held_out[: HELD_OUT // 4 if quick else HELD_OUT]

    def build(self, seed: int | None = None) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        """Fresh objects; another seed for those that a restore fills."""
        torch.manual_seed(self.seed if seed is None else seed)
        net = demo.GPT(self.width, self.layers, self.width // 32)
        return net, torch.optim.AdamW(net.parameters(), lr=LR, betas=(0.9, self.b2), weight_decay=0.1)

    def step(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, n: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = LR * demo.learning_rate(n, self.steps)
        sampler = demo.Sampler(self.train, BATCH, self.seed * 1_000_003 + n)
        optimizer.zero_grad()
        model(*sampler.next()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def evaluate(self, model: torch.nn.Module, final: bool = True) -> float:
        """Over all held-out tokens at the end; over half of them for the slope."""
        return demo.held_out_loss(model, self.held_out, every=1 if final else 2)
