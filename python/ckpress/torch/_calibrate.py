# SPDX-License-Identifier: Apache-2.0
"""Weights moved onto coarse grids so that a model's outputs on the caller's batches move least; nothing is trained."""

from __future__ import annotations

import copy
import math
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._context import module_entries
from .._file import save
from .._names import join, strip_wrappers
from ..errors import InvalidError, make
from ._fisher import collect, damage
from ._forward import Forward, distance, plain_forward, run
from ._plan import Matrix, Plan

DAMP = 0.1  # measured by bench/transfer.py: smaller fits the batches better and other text worse
LOSSY = (torch.float32, torch.bfloat16, torch.float16)
SMALL = 4096  # elements: below, and with one dimension, tensors stay as they are
GRADIENTS = 64  # from which the metrics are made, at least
HELD_OUT = 5  # one in so many batches measures instead of fitting
ROUNDS = 4  # of rounding everything
CLOSE = 0.01  # a size that is missed by less is met


@dataclass
class TensorStep:
    """One weight: its step in units of the weight and of its RMS, bits an element, and its predicted share of the error."""

    name: str
    step: float
    of_rms: float
    bits: float
    share: float


@dataclass
class Calibrated:
    """What :func:`calibrate` made.

    ``weights``: all of the model's ``state_dict`` by stripped keys, adjusted where there is a step, in their own dtypes, on the CPU.
    ``steps``: for :func:`ckpress.save` with profile ``weights``. ``ratio``: bytes of the tensors over those of the file.
    ``error``: measured on held-out batches, see :func:`calibrate`. ``tensors``: the steps, and why.
    """

    weights: dict[str, Any]
    steps: dict[str, float]
    ratio: float
    error: float
    tensors: list[TensorStep]


def calibrate(
    model: torch.nn.Module,
    batches: Iterable[Any],
    *,
    forward: Forward | None = None,
    ratio: float | None = None,
    max_error: float | None = None,
    passes: int | None = None,
    damp: float = DAMP,
    seed: int = 0,
) -> Calibrated:
    """Chooses a step for every weight of two or more dimensions and rounds to it with feedback, by what the batches show.

    Gradients of random directions of the outputs (or of a loss) tell how errors of weights act together (:class:`Metric`); errors are
    then made to cancel between rows and between columns, and steps are such that every element does the same damage. No training:
    weights stay within a few steps of where they were. The model is copied and left as it is; the copy is in eval mode.

    Args:
        model: floating point weights; wrappers of DDP and torch.compile are seen through.
        batches: what it will be used on, a few hundred samples; one batch in five only measures the error.
        forward: ``forward(model, batch)`` gives what must not change: a tensor of floats, several in a dict, tuple or list, or a loss (one
            number; two hundred samples or more in many batches). None: ``model(batch)``, ``model(*batch)`` or ``model(**batch)``.
        ratio: bytes of all tensors over bytes of the file, to be reached.
        max_error: instead of ``ratio``: the coarsest steps with at most this error: sum of squared changes of the outputs over sum of
            squares, 2 (1 - cosine) for outputs of length 1; for a loss, relative change of its mean.
        passes: random directions a batch; None: as many as make 64 gradients.
        damp: share of a metric's mean diagonal that is added to it; more of it fits the batches less and everything else better.
        seed: of the random directions.

    Returns:
        weights on their grids: saved with their steps, they come back exactly as they are here. Other machines may round a few weights to
        another step (torch's sums differ); what is saved decodes to the same bits everywhere.

    Raises:
        InvalidError: both or none of ``ratio`` and ``max_error``; no batches; outputs that are not finite or without gradient; a target
            that cannot be reached, with what can.
    """
    _check(ratio, max_error, damp)
    held = _Batches(list(batches), forward or plain_forward, passes)
    work = _Work(model)
    before = run(work.model, held.measure, held.forward)
    found = collect(work.model, work.params, held.fit, held.forward, held.passes, seed)
    plan = Plan({name: Matrix.of(t.detach().cpu(), found[name], damp) for name, t in work.params.items()}, work.others)
    search = _Search(plan, work, held, before, seed)
    if ratio is not None:
        search.by_bits(8 * work.bytes / ratio, ratio)
    else:
        assert max_error is not None
        search.by_error(max_error)
    return search.result()


def _check(ratio: float | None, max_error: float | None, damp: float) -> None:
    if (ratio is None) == (max_error is None):
        raise make(InvalidError, "calibrate needs ratio or max_error, and not both")
    for name, value in (("ratio", ratio), ("max_error", max_error), ("damp", damp)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf):
            raise make(InvalidError, f"{name} must be a positive number, not {value!r}")


class _Batches:
    """Batches to fit to and batches to measure on."""

    def __init__(self, batches: list[Any], forward: Forward, passes: int | None) -> None:
        if not batches:
            raise make(InvalidError, "calibrate needs at least one batch")
        self.forward = forward
        every = min(HELD_OUT, len(batches))
        self.measure = batches[every - 1 :: every]
        self.fit = [b for i, b in enumerate(batches) if i % every != every - 1] or self.measure
        self.passes = passes if passes is not None else max(1, math.ceil(GRADIENTS / len(self.fit)))


class _Work:
    """A copy of the model to work on, its weights that get a step, and what everything takes as it is."""

    def __init__(self, model: torch.nn.Module) -> None:
        model = _unwrapped(model)
        self.entries = {key: e.value for key, e in module_entries(model, "model").items()}
        self.named = {id(p): strip_wrappers(name) for name, p in model.named_parameters()}  # a shared one by its first name
        self.keys = {self.named[id(v)]: key for key, v in reversed(self.entries.items()) if id(v) in self.named}
        self.model = copy.deepcopy(model).eval()
        self.params: dict[str, Tensor] = {}
        for name, p in self.model.named_parameters():
            plain = type(p) is torch.nn.Parameter and p.dtype in LOSSY and p.dim() >= 2 and p.numel() >= SMALL
            if plain and strip_wrappers(name) in self.keys and _finite(p):  # a module may leave it out of its state_dict
                self.params[strip_wrappers(name)] = p.requires_grad_(True)
        if not self.params:
            raise make(InvalidError, f"model has no floating point weight of two dimensions and {SMALL} elements")
        seen = {(v.data_ptr(), v.shape): v for v in self.entries.values() if isinstance(v, Tensor)}
        self.bytes = sum(t.numel() * t.element_size() for t in seen.values())
        self.others = 8.0 * (self.bytes - sum(p.numel() * p.element_size() for p in self.params.values()))

    @torch.no_grad()
    def put(self, values: dict[str, Tensor]) -> None:
        for name, p in self.params.items():
            p.copy_(values[name].reshape(p.shape))

    def weights(self, values: dict[str, Tensor]) -> dict[str, Any]:
        """The state_dict with these values; names of one parameter share one tensor."""
        own = {name: values[name].reshape(p.shape).to(p.dtype) for name, p in self.params.items()}
        out = {}
        for key, value in self.entries.items():
            plain = value.detach().cpu().clone() if isinstance(value, Tensor) else value
            out[key] = own.get(self.named.get(id(value), ""), plain)
        return out


class _Search:
    """Rounds until a target is met; knows what has been reached."""

    def __init__(self, plan: Plan, work: _Work, batches: _Batches, before: list[list[Tensor]], seed: int) -> None:
        self.plan, self.work, self.batches, self.before, self.seed = plan, work, batches, before, seed
        # Begin where an element loses about a hundredth of what it would if its step were its RMS.
        sums = [m.damage * m.rms**2 / m.w.numel() for m in plan.matrices.values() if m.damage > 0]
        if not sums:
            raise make(InvalidError, "the outputs depend on none of the weights that may be adjusted")
        plan.level = sum(sums) / len(sums) / 100
        self.bits = math.inf
        self.error = math.inf

    def by_bits(self, bits: float, ratio: float) -> None:
        least = self.plan.guess(self.plan.level * 2.0**60)
        if least > bits:
            raise make(InvalidError, f"ratio {ratio:g} cannot be reached: at most {8 * self.work.bytes / least:.2f}")
        self.plan.level /= 2.0**60
        self.plan.for_bits(bits)
        self._learn()
        aim = bits
        for _ in range(ROUNDS):
            self.plan.for_bits(aim)
            self._round()
            if (1 - CLOSE) * bits <= self.bits <= bits:
                break
            aim += (1 - CLOSE / 4) * bits - self.bits
        self._measure()

    def by_error(self, most: float) -> None:
        self.plan.set_level(self.plan.level)
        self._learn()
        level, best = self.plan.level, None
        for _ in range(2 * ROUNDS):
            self.plan.set_level(level)
            self._round()
            self._measure()
            if self.error <= most:
                best = level
                if self.error >= 0.8 * most:
                    return
            # An error is about proportional to the level; far from it, a step in its direction is enough.
            level *= min(16.0, max(1 / 64, 0.92 * most / max(self.error, 1e-30)))
        if best is None:
            raise make(InvalidError, f"max_error {most:g} cannot be reached: {self.error:.3g} at {8 * self.work.bytes / self.bits:.2f}x")
        self.plan.set_level(best)
        self._round()
        self._measure()

    def _round(self) -> None:
        """Rounds everything, and codes it to see what it takes."""
        self.plan.round()
        with tempfile.TemporaryDirectory(prefix="ckpress-") as place:
            path = os.path.join(place, "weights.ckp")
            save(path, self.weights(), profile="weights", steps=self.steps())
            self.bits = 8.0 * os.path.getsize(path)

    def weights(self) -> dict[str, Any]:
        return self.work.weights({name: m.value for name, m in self.plan.matrices.items()})

    def steps(self) -> dict[str, float]:
        """By the name under which a file has the tensor: of a shared one, the first."""
        return {join((self.work.keys[name],)): m.step for name, m in self.plan.matrices.items()}

    def _learn(self) -> None:
        """Puts right what metrics make of whole tensors: an error that is really there, seen by gradients of batches kept apart."""
        matrices, measure = self.plan.matrices, self.batches.measure
        self.plan.round()
        seen = damage(self.work.model, self.work.params, {n: m.w - m.value for n, m in matrices.items()}, measure, self.batches.forward, self.seed + 1)
        share = len(measure) / len(self.batches.fit)
        for name, m in matrices.items():
            expected = m.damage * m.step**2 * share
            if expected > 0:
                m.damage *= min(16.0, max(1 / 16, seen[name] / expected))

    def _measure(self) -> None:
        exact = {name: m.w for name, m in self.plan.matrices.items()}
        self.work.put({name: m.value for name, m in self.plan.matrices.items()})
        self.error = distance(self.before, run(self.work.model, self.batches.measure, self.batches.forward))
        self.work.put(exact)

    def result(self) -> Calibrated:
        matrices = self.plan.matrices
        total = self.plan.predicted() or 1.0
        return Calibrated(
            weights=self.weights(),
            steps=self.steps(),
            ratio=8 * self.work.bytes / self.bits,
            error=self.error,
            tensors=[TensorStep(name, m.step, m.step / m.rms, m.bits / m.w.numel(), m.damage * m.step**2 / total) for name, m in matrices.items()],
        )


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The module inside DDP and torch.compile."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner


def _finite(t: Tensor) -> bool:
    return bool(t.detach().isfinite().all()) and bool(t.detach().any())
