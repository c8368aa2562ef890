# SPDX-License-Identifier: Apache-2.0
"""SGD with momentum, and Lion: one moment of a few bits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim.sgd import sgd as torch_sgd

from ..errors import InvalidError
from ._adamw import Resident


class _Momentum(Resident):
    """One moment, relative to factors of its rows and columns."""

    _counts_steps = False
    _rule = "momentum"

    def _correction(self, group: dict[str, Any], steps: float) -> tuple[float, float]:
        return 1.0, 0.0


class SGD(_Momentum):
    """``torch.optim.SGD`` with a momentum of ``state_bits`` bits: same arguments, same formula, same groups.

        optimizer = ckpress.torch.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)

    Without momentum there is nothing to keep, and the step is torch's. ``state_bits``: 2, 3, 4, 5, 6 or 8; or 32 (or None), torch's own step with its
    buffer in f32. An option of each group. Tensors of fewer than ``small`` elements get ``small_bits`` where that is more. Fewer than
    4 bits add noise that training notices. Momentum and dampening are 0 to 1. Everything else is as in :class:`AdamW`; the buffer goes to and comes from a ``torch.optim.SGD`` as moments do there.
    """

    _moments = ("momentum_buffer",)
    _torchs: ClassVar[dict[str, Any]] = {"foreach": None, "differentiable": False, "fused": None}

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        state_bits: Any = 4,
        small: int = 4096,
        small_bits: Any = 8,
        seed: int = 0,
        master: str | None = None,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        defaults |= {"maximize": maximize, "state_bits": state_bits, "seed": seed, "master": master}
        super().__init__(params, defaults, {"differentiable": differentiable}, small, small_bits)

    def _check(self, group: dict[str, Any]) -> None:
        lr, momentum, dampening = float(group["lr"]), group["momentum"], group["dampening"]
        if not (lr >= 0 and group["weight_decay"] >= 0 and 0 <= momentum <= 1 and 0 <= dampening <= 1):
            raise InvalidError(
                f"SGD: lr and weight_decay must not be negative, momentum and dampening 0 to 1: {lr}, {group['weight_decay']}, {momentum}, {dampening}"
            )
        if group["nesterov"] and (momentum == 0 or dampening != 0):
            raise InvalidError("SGD: nesterov needs a momentum and no dampening")

    def _settings(self, group: dict[str, Any]) -> tuple[Any, ...]:
        rest = group["nesterov"], group["maximize"], False, 0.0, int(group["seed"])
        return float(group["lr"]), group["momentum"], group["dampening"], float(group["weight_decay"]), *rest

    def _stays_wide(self, group: dict[str, Any]) -> bool:
        return (group["momentum"] == 0 and group["master"] is None) or super()._stays_wide(group)

    def _wide_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        buffers = [self.state[p].get("momentum_buffer") for p in params]
        torch_sgd(
            params, [p.grad for p in params], buffers, foreach=False, weight_decay=float(group["weight_decay"]), momentum=group["momentum"],
            lr=float(group["lr"]), dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"],
        )  # fmt: skip
        for p, buffer in zip(params, buffers, strict=True):
            if buffer is not None:
                self.state[p]["momentum_buffer"] = buffer


class Lion(_Momentum):
    """Lion (Chen et al., Symbolic discovery of optimization algorithms, 2023) with a momentum of ``state_bits`` bits.

        optimizer = ckpress.torch.Lion(model.parameters(), lr=1e-4, weight_decay=1.0)

    A step is ``lr`` times the sign of ``betas[0] * momentum + (1 - betas[0]) * gradient``; weight decay is decoupled. Options as in :class:`SGD`.
    """

    _moments = ("exp_avg",)
    _torchs: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        state_bits: Any = 4,
        small: int = 4096,
        small_bits: Any = 8,
        seed: int = 0,
        master: str | None = None,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        defaults |= {"state_bits": state_bits, "seed": seed, "master": master}
        super().__init__(params, defaults, {}, small, small_bits)

    def _check(self, group: dict[str, Any]) -> None:
        lr, (b1, b2) = float(group["lr"]), group["betas"]
        if not (lr >= 0 and group["weight_decay"] >= 0 and 0 <= b1 <= 1 and 0 <= b2 <= 1):
            raise InvalidError(f"Lion: lr and weight_decay must not be negative, betas 0 to 1: {lr}, {group['weight_decay']}, {b1}, {b2}")

    def _settings(self, group: dict[str, Any]) -> tuple[Any, ...]:
        b1, b2 = group["betas"]
        return float(group["lr"]), b2, 0.0, group["weight_decay"], False, group["maximize"], True, b1, int(group["seed"])

    def _wide_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        (b1, b2), lr = group["betas"], float(group["lr"])
        for p in params:
            m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
            g = p.grad if not group["maximize"] else -p.grad
            p.mul_(1 - lr * group["weight_decay"]).add_(m.lerp(g, 1 - b1).sign_(), alpha=-lr)
            m.lerp_(g, 1 - b2)
