# SPDX-License-Identifier: Apache-2.0
"""A caller's batches through a model: what comes out, gradients of random directions of it, and how far two outputs are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidError, make

Forward = Callable[[torch.nn.Module, Any], Any]


def plain_forward(model: torch.nn.Module, batch: Any) -> Any:
    """``model(batch)``; a mapping gives keyword arguments, a tuple or list positional ones."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


def outputs(made: Any) -> list[Tensor]:
    """The floating point tensors of what a model gave, in dicts, lists, tuples and dataclasses that are mappings.

    Raises:
        InvalidError: there are none, or one is not finite.
    """
    found = list(_tensors(made))
    if not found:
        raise make(InvalidError, f"forward must give a tensor of floats (or several in a dict, tuple or list), not {type(made).__name__}")
    if not all(bool(t.isfinite().all()) for t in found):
        raise make(InvalidError, "forward gave values that are not finite: a model like that cannot be calibrated")
    return found


def _tensors(made: Any) -> Iterator[Tensor]:
    if isinstance(made, Tensor):
        if made.is_floating_point() and made.numel() > 0:
            yield made
    elif isinstance(made, Mapping):
        for value in made.values():
            yield from _tensors(value)
    elif isinstance(made, (tuple, list)):
        for value in made:
            yield from _tensors(value)


def is_loss(outs: list[Tensor]) -> bool:
    return len(outs) == 1 and outs[0].numel() == 1


def gradients(
    model: torch.nn.Module, params: list[Tensor], batches: Iterable[Any], forward: Forward, passes: int, seed: int
) -> Iterator[list[Tensor | None]]:
    """For each batch and pass the gradient of <r, output> with r of independent standard normal numbers, or that of the loss.

    The mean of <gradient, d>^2 over r is the squared change of the output that a small change d of the weights makes (Gauss-Newton).
    A single number is a loss: its own gradient, once a batch, since another r says nothing new (empirical Fisher).
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    for batch in batches:
        with torch.enable_grad():
            outs = [o for o in outputs(forward(model, batch)) if o.requires_grad]
        if not outs:
            raise make(InvalidError, "forward gave nothing that depends on the weights by gradients: was it under no_grad?")
        times = 1 if is_loss(outs) else passes
        for n in range(times):
            r = [torch.ones_like(o) if is_loss(outs) else torch.randn(o.shape, dtype=torch.float32, generator=generator, device="cpu").to(o) for o in outs]
            yield list(torch.autograd.grad(outs, params, r, retain_graph=n + 1 < times, allow_unused=True))


@torch.no_grad()
def run(model: torch.nn.Module, batches: Iterable[Any], forward: Forward) -> list[list[Tensor]]:
    """The outputs for each batch."""
    return [[o.detach().float().cpu() for o in outputs(forward(model, batch))] for batch in batches]


def distance(before: list[list[Tensor]], after: list[list[Tensor]]) -> float:
    """Of losses: their mean relative change. Else sum |after - before|^2 / sum |before|^2; for outputs of length 1 that is
    2 (1 - mean cosine)."""
    if all(is_loss(outs) for outs in before):
        old, new = (sum(float(outs[0]) for outs in side) for side in (before, after))
        return abs(new - old) / max(abs(old), 1e-30)
    moved = sum(float((b - a).double().square().sum()) for x, y in zip(before, after) for a, b in zip(x, y))
    return moved / max(sum(float(a.double().square().sum()) for x in before for a in x), 1e-300)
