# SPDX-License-Identifier: Apache-2.0
"""Options that saving functions share, checked and turned into what the library takes."""

from __future__ import annotations

import operator
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

Coding = tuple[int, float, int, int, int]


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


def coding(profile: str, quality: float, threads: int, effort: int, memory_budget: int | None) -> Coding:
    """The tuple that ``_core`` takes.

    Raises:
        InvalidError: an option out of its range, named.
    """
    if not isinstance(profile, str) or profile not in PROFILES:
        raise make(InvalidError, f"profile must be one of {', '.join(PROFILES)}, not {profile!r}")
    if not isinstance(quality, (int, float)) or not 0.01 <= quality <= 100:
        raise make(InvalidError, f"quality must be from 0.01 to 100, not {quality!r}")
    return (
        PROFILES[profile],
        float(quality),
        whole("threads", threads, 0, 1024),
        whole("effort", effort, 0, 2),
        0 if memory_budget is None else whole("memory_budget", memory_budget, 1, (1 << 63) - 1),
    )
