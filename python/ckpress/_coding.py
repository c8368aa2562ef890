# SPDX-License-Identifier: Apache-2.0
"""Options that saving functions share, checked and turned into what the library takes."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from . import _core
from .errors import InvalidError, make

Profile = Literal["lossless", "resume", "small", "weights"]
PROFILES = {
    "lossless": _core.PROFILE_LOSSLESS,
    "resume": _core.PROFILE_RESUME,
    "small": _core.PROFILE_SMALL,
    "weights": _core.PROFILE_WEIGHTS,
}

OptimizerStates = Literal["profile", "cluster", "codebook"]
STATES = {"profile": _core.STATES_PROFILE, "cluster": _core.STATES_CLUSTER, "codebook": _core.STATES_CODEBOOK}

Coding = tuple[int, float, int, int, int, "dict[str, float] | None", int]
_SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(?:([kmgt])(i?))?b?\s*", re.IGNORECASE)
_POWER = {None: 0, "k": 1, "m": 2, "g": 3, "t": 4}
STEP_MIN, STEP_MAX = 1e-30, 1e30  # CKP_STEP_MIN and CKP_STEP_MAX of run.h


def whole(name: str, value: object, low: int, high: int) -> int:
    """``value`` (an int, or what stands for one, as numpy's do) as an int in [low, high]; low is at least 0.

    Raises:
        InvalidError: it is not one.
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not low <= number <= high:
        raise make(InvalidError, f"{name} must be an int from {low} to {high}, not {value!r}")
    return number


def size(name: str, value: object, low: int = 1, high: int = (1 << 63) - 1) -> int:
    """A number of bytes, from ``low`` to ``high``: an int, or as the command takes it, ``"512MB"`` or ``"10G"`` (powers of 1000), ``"2GiB"`` (of 1024).

    Raises:
        InvalidError: it is not one.
    """
    given = value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)) is not None:
        number, unit, binary = match.groups()
        value = int(Fraction(number) * (1024 if binary else 1000) ** _POWER[unit and unit.lower()])
    try:
        return whole(name, value, low, high)
    except InvalidError:
        raise make(InvalidError, f"{name} must be a number of bytes from {low}, or as '512MB', not {given!r}") from None


def steps_of(steps: Mapping[str, float] | None) -> dict[str, float] | None:
    """Steps by the name of a weight, as floats; None where there are none.

    Raises:
        InvalidError: a name that is no str, or a step that is neither 0 nor between :data:`STEP_MIN` and :data:`STEP_MAX`.
    """
    if not steps:
        return None
    for name, step in steps.items():
        if not isinstance(name, str):
            raise make(InvalidError, f"steps are by the names of tensors, not {name!r}")
        if isinstance(step, bool) or not isinstance(step, (int, float)) or not (step == 0 or STEP_MIN <= step <= STEP_MAX):
            raise make(InvalidError, f"the step of {name} must be 0 or from {STEP_MIN:g} to {STEP_MAX:g}, not {step!r}", tensor=name)
    return {name: float(step) for name, step in steps.items()}


def coding(
    profile: str,
    quality: float,
    threads: int,
    effort: int,
    memory_budget: int | str | None,
    steps: Mapping[str, float] | None = None,
    optimizer_states: str = "profile",
) -> Coding:
    """The tuple that ``_core`` takes.

    Raises:
        InvalidError: an option out of its range, named.
    """
    if not isinstance(profile, str) or profile not in PROFILES:
        raise make(InvalidError, f"profile must be one of {', '.join(PROFILES)}, not {profile!r}")
    if not isinstance(quality, (int, float)) or not 0.01 <= quality <= 100:
        raise make(InvalidError, f"quality must be from 0.01 to 100, not {quality!r}")
    if steps and profile == "lossless":
        raise make(InvalidError, "steps are for lossy profiles")
    if not isinstance(optimizer_states, str) or optimizer_states not in STATES:
        raise make(InvalidError, f"optimizer_states must be one of {', '.join(STATES)}, not {optimizer_states!r}")
    if optimizer_states != "profile" and profile != "lossless":
        raise make(InvalidError, f"optimizer_states={optimizer_states!r} stands beside lossless weights: the profile {profile!r} has its own way")
    return (
        PROFILES[profile],
        float(quality),
        whole("threads", threads, 0, 1024),
        whole("effort", effort, 0, 2),
        0 if memory_budget is None else size("memory_budget", memory_budget),
        steps_of(steps),
        STATES[optimizer_states],
    )
