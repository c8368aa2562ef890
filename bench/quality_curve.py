# SPDX-License-Identifier: Apache-2.0
"""How many bits one system needs at the loss gap that another one reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence


def bits_at(curve: Sequence[tuple[float, float]], gap: float, floor: float) -> float:
    """Bits at which a system's curve reaches a gap; nan when it does not.

    Args:
        curve: (bits, gap) of a system's settings.
        gap: of the other system.
        floor: gaps below it are taken as equal: one noise standard deviation, since a smaller gap cannot be told from none.

    Between two settings the bits' logarithm is linear in the gap; nothing is extrapolated: a gap above that of the coarsest setting costs
    what that setting costs. A setting that needs more bits than another one for a larger gap is no part of the curve.
    """
    gap = max(gap, floor)
    before: tuple[float, float] | None = None
    for bits, reached in sorted(curve):
        reached = max(reached, floor)
        if before is not None and reached >= before[1]:
            continue
        if reached <= gap:
            if before is None:
                return bits
            share = (before[1] - gap) / (before[1] - reached)
            return math.exp((1 - share) * math.log(before[0]) + share * math.log(bits))
        before = (bits, reached)
    return math.nan
