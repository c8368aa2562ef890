# SPDX-License-Identifier: Apache-2.0
"""What the tasks of the quality bench share: one loop over fixed batches, evaluation on a fixed held-out set.

Everything follows from the seed: step n sees the same batch in every run of a pair. A run has SAVES saves, so that ten restores have
four saves between them, and twenty have two.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SAVES, SAVES_QUICK = 42, 22
GUARD_SHARE = 8  # the caller's own validation is an eighth of the held-out set, and no part of what is reported
Model = torch.nn.Module
Optimizer = torch.optim.Optimizer


class Task:
    """A training that is measured.

    Attributes:
        name: as it stands in the results.
        steps, every: training steps; steps between saves.
        lr: the peak; warm-up over ``warm`` steps, then a cosine down to a tenth.
    """

    name = ""
    lr, warm, clip = 1e-3, 20, 1.0

    def __init__(self, seed: int, quick: bool, every: int, every_quick: int = 2) -> None:
        self.seed, self.quick = seed, quick
        self.every = every_quick if quick else every
        self.steps = self.every * (SAVES_QUICK if quick else SAVES)

    # ---- what a task defines ----

    def make(self) -> tuple[Model, Optimizer]:
        raise NotImplementedError

    def batch(self, n: int) -> tuple[Tensor, ...]:
        """The batch of step n."""
        raise NotImplementedError

    def held_out(self) -> list[tuple[Tensor, ...]]:
        """Batches of one size, without the part that validate() takes."""
        raise NotImplementedError

    def validation(self) -> list[tuple[Tensor, ...]]:
        raise NotImplementedError

    def loss(self, model: Model, batch: tuple[Tensor, ...]) -> Tensor:
        raise NotImplementedError

    def loaded(self) -> dict[str, Tensor]:
        """Weights that training starts from, by the names of parameters, as a user has them in a file; none: it starts from scratch."""
        return {}

    # ---- what runs call ----

    def build(self, seed: int | None = None) -> tuple[Model, Optimizer]:
        """Fresh objects; another seed for those that a restore fills."""
        torch.manual_seed(self.seed if seed is None else seed)
        return self.make()

    def generator(self, n: int) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed * 1_000_003 + n)

    def step(self, model: Model, optimizer: Optimizer, n: int) -> None:
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = self.lr * group.get("scale", 1.0) * self.schedule(n)
        optimizer.zero_grad()
        self.loss(model, self.batch(n)).backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
        optimizer.step()

    def schedule(self, n: int) -> float:
        cosine = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, n / self.steps)))
        return min(1.0, (n + 1) / self.warm) * cosine

    def evaluate(self, model: Model, every: int = 1) -> float:
        """Mean loss over the held-out set; over each ``every``-th batch of it for a quicker look."""
        return self._mean(model, self.held_out()[::every])

    def validate(self, model: Any) -> float:
        """What a user would pass as eval_fn."""
        return self._mean(model, self.validation())

    @torch.no_grad()
    def _mean(self, model: Model, batches: list[tuple[Tensor, ...]]) -> float:
        model.eval()
        return sum(self.loss(model, b).item() for b in batches) / len(batches)


def adamw(model: Model, lr: float, b2: float = 0.95, decay: float = 0.1) -> Optimizer:
    """torch's fused step: the fastest, so that costs in steps are not flattered."""
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, b2), weight_decay=decay, fused=True)
