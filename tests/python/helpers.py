# SPDX-License-Identifier: Apache-2.0
"""Models to train, and comparing bit for bit."""

from __future__ import annotations

import collections
import math
import struct
from typing import Any

import numpy as np
import torch
from torch import nn


def bits(t: Any) -> bytes:
    """Every bit of a tensor or array, in logical order."""
    if isinstance(t, torch.Tensor):
        t = t.detach().resolve_conj().resolve_neg().contiguous().cpu()
        return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
    return np.ascontiguousarray(t).tobytes()


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad and bits(a) == bits(b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, complex):
        return struct.pack("<dd", a.real, a.imag) == struct.pack("<dd", b.real, b.imag)
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) and same(a[x], b[y]) for x, y in zip(a, b))
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return bool(a == b)


class Net(nn.Module):
    """Small, with what makes restoring hard: tied weights, buffers of several dtypes, a frozen parameter."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        self.up = nn.Linear(width, 2 * width)
        self.norm = nn.BatchNorm1d(2 * width)
        self.down = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 64, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.02)
        self.frozen = nn.Parameter(torch.randn(width) / 50, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        h = h + self.down(torch.relu(self.norm(self.up(h)))) + self.frozen
        return nn.functional.cross_entropy(self.head(h), (x * 7 + 3) % 64)


def training(seed: int = 0, optimizer: str = "AdamW", **how: Any) -> tuple[nn.Module, Any, Any]:
    """Model, optimizer, scheduler."""
    torch.manual_seed(seed)
    model = Net()
    params = [p for p in model.parameters() if p.requires_grad]
    made = getattr(torch.optim, optimizer)(params, **{"lr": 1e-3, **how})
    return model, made, torch.optim.lr_scheduler.LambdaLR(made, lambda s: 1 / math.sqrt(1 + s))


def steps(model: nn.Module, optimizer: Any, scheduler: Any, n: int) -> list[float]:
    """Trains n steps on batches of torch's global generator."""
    losses = []
    for _ in range(n):
        loss = model(torch.randint(0, 64, (32,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def snapshot(model: nn.Module, optimizer: Any) -> list[bytes]:
    """Every bit of weights, buffers and optimizer tensors."""
    out = [bits(t) for t in model.state_dict().values()]
    for group in optimizer.param_groups:
        for p in group["params"]:
            out += [bits(t) for t in optimizer.state.get(p, {}).values() if isinstance(t, torch.Tensor)]
    return out
