# SPDX-License-Identifier: Apache-2.0
"""Planning: which step each weight should have for a budget of size or error."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from . import _core
from ._coding import coding, whole
from ._collect import Collector, rounding_of
from .errors import InvalidError, make

_TARGETS = {"target_bits": 0, "target_ratio": 1, "max_bytes": 2, "max_error": 3, "max_loss": 4}  # ckp_plan_target of run_plan.h


class PlannedTensor(NamedTuple):
    """One weight. ``step`` is in its own unit (0: lossless), ``step_rms`` and ``error`` (expected, RMS) over the tensor's RMS, ``bits`` expected
    an element, ``loss`` its share of :attr:`Planned.loss`; ``why`` says what decided."""

    name: str
    role: str
    numel: int
    step: float
    step_rms: float
    bits: float
    error: float
    loss: float
    why: str


class Planned(NamedTuple):
    """Steps by the name of the weight, for ``steps=`` of :func:`ckpress.save`, and what they are expected to give.

    ``met`` is False where no plan keeps to the budget: the steps are the nearest then. ``bits`` are a planned weight's, ``bits_all`` a
    parameter's over the whole file, ``bytes`` the file's (both 0 where the budget is no size); ``error`` is the root of the mean, over planned
    weights, of (error / RMS of its tensor)^2; ``loss`` is what ``max_loss`` of :func:`plan` speaks of, ``multiplier`` the cost that a bit is worth. ``encodes`` codings of
    everything were made; ``cpu`` and ``encode_cpu`` are CPU seconds of all threads for measuring samples and for the last of them.
    """

    table: list[PlannedTensor]
    steps: dict[str, float]
    met: bool
    params: int
    raw_bytes: int
    bytes: int
    bits: float
    bits_all: float
    error: float
    loss: float
    multiplier: float
    encodes: int
    cpu: float
    encode_cpu: float


def _collect(obj: Any, profile: str) -> Any:
    """A state; where nothing in ``obj`` says what it is, its floats are weights, as those of a safetensors file."""
    for floats in (False, True):
        collector = Collector(obj, **rounding_of(profile), floats=floats)
        collector.value(obj, ())
        if collector.lossy_possible:
            break
    return collector.done()


def _scores_of(scores: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Numbers as they are; of a tensor or array the mean."""
    if not scores:
        return None
    out = {}
    for name, score in scores.items():
        value = float(score if isinstance(score, (int, float)) else score.mean())
        if not 0 < value < float("inf"):
            raise make(InvalidError, f"the score of {name} must be above 0, not {value!r}", tensor=str(name))
        out[name] = value
    return out


def plan(
    obj_or_path: Any,
    *,
    target_bits: float | None = None,
    target_ratio: float | None = None,
    max_bytes: float | None = None,
    max_error: float | None = None,
    max_loss: float | None = None,
    profile: Literal["resume", "small", "weights"] = "weights",
    scores: Mapping[str, Any] | None = None,
    steps: Mapping[str, float] | None = None,
    threads: int = 0,
    memory_budget: int | str | None = None,
    encodes: int = 2,
    progress: Callable[[int, int], Any] | None = None,
) -> Planned:
    """Which step each weight should have: of all that keep to the budget, the steps with the least distortion.

    One Lagrange multiplier over all weights. A weight's rate is what the real coder makes of a sample of it; an error e costs h e^2 / 2, with h from
    ``scores``, else the root of second moments (of an Adam optimizer that is saved too), else 1 / (the tensor's RMS * the model's).

    Args:
        obj_or_path: what :func:`ckpress.save` would be given, a ``state_dict``, or the path of a safetensors, PyTorch or ``.ckp`` file.
        target_bits: stored bits a parameter, everything in the file counted. Exactly one of these five budgets must be given.
        target_ratio: bytes of all tensors over bytes of the file.
        max_bytes: bytes of the file.
        max_error: root of the mean over all weights of (error / RMS of its tensor)^2.
        max_loss: sum over all weights of h e^2 / 2, with second moments of v e^2 / 2: about the increase of the loss.
        profile: what else is coded, and how.
        scores: by the name of a weight, how much it matters: the mean of its squared gradients, or anything in proportion to the second
            derivative of the loss; numbers, or tensors and arrays, of which the mean counts. A weight without one counts as if there were none:
            score all or none.
        steps: of weights that are not to be planned; 0: lossless.
        encodes: 1 to 3 whole codings, written nowhere, that tell a plan for a size what else the file costs.
        threads, memory_budget, progress: as for :func:`ckpress.save`.

    Raises:
        InvalidError: no budget or several, a score or a step for a name that is no weight, nothing that may be lossy.
    """
    budgets = {"target_bits": target_bits, "target_ratio": target_ratio, "max_bytes": max_bytes, "max_error": max_error, "max_loss": max_loss}
    given = [(name, value) for name, value in budgets.items() if value is not None]
    if len(given) != 1:
        raise make(InvalidError, f"exactly one of {', '.join(budgets)} must be given")
    name, value = given[0]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise make(InvalidError, f"{name} must be above 0, not {value!r}")
    options = coding(profile, 1.0, threads, 0, memory_budget, steps)
    is_path = isinstance(obj_or_path, (str, bytes, os.PathLike))
    source = obj_or_path if is_path else _collect(obj_or_path, profile)
    found = _core.plan(source, options, _TARGETS[name], float(value), _scores_of(scores), whole("encodes", encodes, 1, 3), progress)
    found["table"] = [PlannedTensor(**row) for row in found["table"]]
    return Planned(**found)
