# SPDX-License-Identifier: Apache-2.0
"""How much the loss feels each weight, gathered while a model trains: |g w| with g an average of gradients (DynaQuant, arXiv 2306.11800)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._coding import whole
from .._context import is_module
from .._names import strip_wrappers
from ..errors import InvalidError, StateError, make

BETA = 0.9  # weight of the new gradient, as in the paper


class Sensitivity:
    """Averages of gradients in the making: see :func:`track_sensitivity`.

    Not for use from several threads. It belongs to one model object; parameters that are replaced later are not seen.
    """

    def __init__(self, model: torch.nn.Module, batches: int, beta: float, accumulate: int) -> None:
        self.batches = batches
        self._beta, self._accumulate = beta, accumulate
        self._parallel = model if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
        # named_parameters gives a shared parameter once: its gradient is the sum over its uses already.
        self._params = {strip_wrappers(name): p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
        self._average: dict[str, Tensor] = {}
        self._seen: dict[str, int] = {}
        self._hooks: dict[str, Any] = {}
        self._arriving: dict[str, tuple[Tensor, Any]] = {}  # pinned copies of gradients on a GPU, and when they are whole

    @property
    def names(self) -> list[str]:
        """Of the parameters that are watched."""
        return list(self._params)

    @property
    def running(self) -> bool:
        """Whether any parameter is still being watched."""
        return bool(self._hooks)

    @property
    def gathered(self) -> int:
        """Gradients of the parameter that had fewest of them, without those that never had one; ``batches`` when all is done."""
        return min((n // self._accumulate for n in self._seen.values()), default=0)

    def start(self) -> None:
        """Begins anew: averages are dropped."""
        self.stop()
        self._average, self._seen, self._arriving = {}, {}, {}
        self.resume()

    def resume(self) -> None:
        """Goes on where :meth:`stop` ended, with the parameters that have not had all their batches."""
        for name, p in self._params.items():
            if name not in self._hooks and self._seen.get(name, 0) < self.batches * self._accumulate:
                self._hooks[name] = p.register_post_accumulate_grad_hook(self._hook(name))  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Takes the hooks away; what was gathered stays. Stopping twice is fine."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}

    def _hook(self, name: str) -> Any:
        def gather(p: Tensor) -> None:
            seen = self._seen[name] = self._seen.get(name, 0) + 1
            if seen % self._accumulate == 0 and p.grad is not None:
                self._gather(name, p.grad)
            if seen >= self.batches * self._accumulate:
                self._hooks.pop(name).remove()

        return gather

    @torch.no_grad()
    def _gather(self, name: str, grad: Tensor) -> None:
        new = (grad.to_dense() if grad.is_sparse else grad).detach()
        if new.device.type != "cuda":
            self._add(name, new)
            return
        # Copied behind the rest of the backward pass and added when the next one comes.
        self._arrived(name)
        place = torch.empty(new.shape, dtype=new.dtype, device="cpu", pin_memory=True)
        place.copy_(new, non_blocking=True)
        whole_at = torch.cuda.Event()  # type: ignore[no-untyped-call]
        whole_at.record(torch.cuda.current_stream(new.device))
        self._arriving[name] = place, whole_at

    def _arrived(self, name: str) -> None:
        if name in self._arriving:
            place, whole_at = self._arriving.pop(name)
            whole_at.synchronize()
            self._add(name, place)

    def _add(self, name: str, grad: Tensor) -> None:
        new = grad.to("cpu", torch.float32)
        average = self._average.get(name)
        if average is None:
            self._average[name] = new * self._beta
        else:
            average.lerp_(new, self._beta)

    @torch.no_grad()
    def scores(self) -> dict[str, Tensor]:
        """|g w| by parameter, float32, on the CPU, of its shape; zero where no gradient came. Weights are those of now.

        Of a model in DistributedDataParallel, averages are those of the mean gradient of all ranks: every rank must call it.

        Raises:
            StateError: nothing has been gathered yet.
        """
        for name in list(self._arriving):
            self._arrived(name)
        if not self._average:
            raise make(StateError, "no gradient has been gathered yet: call start() and run backward passes")
        return {name: (self._mean(name, p) * p.detach().to("cpu", torch.float32)).abs_() for name, p in self._params.items()}

    def _mean(self, name: str, p: Tensor) -> Tensor:
        own = self._average.get(name)
        own = torch.zeros(p.shape, dtype=torch.float32, device="cpu") if own is None else own
        if self._parallel is None:
            return own
        # An average of averages is the average of the ranks' mean gradient: both are linear.
        total = own.to(p.device, copy=True)
        torch.distributed.all_reduce(total, group=self._parallel.process_group)
        return total.cpu() / torch.distributed.get_world_size(self._parallel.process_group)

    def __enter__(self) -> Sensitivity:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def track_sensitivity(model: torch.nn.Module, batches: int = 50, *, beta: float = BETA, accumulate: int = 1) -> Sensitivity:
    """Gathers averages of gradients over the next ``batches`` backward passes, then takes its hooks away by itself: call it so many
    batches before a save, and :meth:`Sensitivity.scores` at the save.

    Each gradient is added right after it has been accumulated, beside the rest of the backward pass. Memory: four bytes a parameter on the CPU
    until the object goes. Without hooks nothing is left in the model that could cost.

    Args:
        model: may be wrapped by DDP or torch.compile; a shared parameter counts once, by its first name.
        batches: after which gathering ends.
        beta: weight of a new gradient in the average, in (0, 1].
        accumulate: backward passes an optimizer step; only the last of them has the whole gradient.

    Raises:
        InvalidError: no module, or one without trained parameters; an argument out of its range.
    """
    if not is_module(model):
        raise make(InvalidError, f"track_sensitivity watches a torch.nn.Module, not {type(model).__name__}")
    batches, accumulate = whole("batches", batches, 1, 1 << 31), whole("accumulate", accumulate, 1, 1 << 20)
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 0 < beta <= 1:
        raise make(InvalidError, f"beta must be above 0 and at most 1, not {beta!r}")
    made = Sensitivity(model, batches, float(beta), accumulate)
    if not made.names:
        raise make(InvalidError, "the model has no floating point parameter that is trained")
    made.start()
    return made
