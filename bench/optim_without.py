# SPDX-License-Identifier: Apache-2.0
"""The policy of resident moments with one of its liberties switched off, to see what it brings: widths that differ by layer, by moment, over time.

    optimizer = ckpress.torch.AdamW(..., state_bits="auto")
    optimizer.policy = Without("layer", 4.0, every, optimizer.small)      before the first step

Visits, scores and changes are the policy's own; only what is wanted differs:

    layer    a pair of widths (m, v) for all tensors that follow the policy
    state    a width for both moments of a tensor
    time     the first plan, made after the first round, stays

Widths that must go together are planned as one moment whose bits bring what they bring together. With nothing switched off this plan is C's (src/optim/policy.c):
a test holds the two against each other. A score that rises between two plans moves no width here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ckpress import _core
from ckpress.torch._optim_state import Packed, is_wide, layout
from ckpress.torch._policy import Policy

LIBERTIES = ("layer", "state", "time")
ONE, STAYS, STEP, NO_PRICE = 256, 128, 64, -(1 << 20)  # log2 in parts of ONE, as in C
NEVER = 1 << 40  # a price that no score reaches
WIDTHS = ((2, 3, 4, 5, 6, 8), (2, 3, 5, 6, 8))
GAIN = ((0, -556, -1208, -1940, -2355), (-397, -1569, -1830, -2458))  # of a bit, from each width to the next
COMMON = tuple(b for b in WIDTHS[0] if b in WIDTHS[1])


@dataclass(frozen=True)
class Moment:
    """Moment ``which`` (m, v) of the tensor ``item``. ``bits``: now."""

    item: int
    which: int
    numel: int
    cols: int
    bits: int
    score: int

    def nbytes(self, bits: int) -> int:
        return _core.Optim.state_bytes(self.numel, self.cols, bits)

    def gains(self, low: int, high: int) -> list[tuple[int, int]]:
        """(bits, what each of them brings) of the steps between two of its widths."""
        widths, gain = WIDTHS[self.which], GAIN[self.which]
        return [(b - a, self.score + g) for a, b, g in zip(widths, widths[1:], gain, strict=False) if low <= a and b <= high]


@dataclass
class Unit:
    """Moments that have one width."""

    moments: list[Moment]
    ladder: tuple[int, ...]
    level: int = 0

    def gain(self, level: int) -> int:
        """Of a bit, from a level to the next: the damage that goes, by the bits that it takes."""
        steps = [(bits * m.numel, gain) for m in self.moments for bits, gain in m.gains(self.ladder[level], self.ladder[level + 1])]
        top = max(g for _, g in steps)
        brings = sum(n * 2.0 ** ((g - top) / ONE) for n, g in steps)
        return top + round(ONE * math.log2(brings / sum(n for n, _ in steps)))

    def more(self) -> int:
        return sum(m.nbytes(self.ladder[self.level + 1]) - m.nbytes(self.ladder[self.level]) for m in self.moments)

    def buy(self, price: int, left: int) -> int:
        """Takes levels that bring more than the price and fit; what is left then."""
        while self.level + 1 < len(self.ladder):
            has = all(self.ladder[self.level + 1] <= m.bits for m in self.moments)
            if self.gain(self.level) + (STAYS if has else 0) < price or self.more() > left:
                break
            left -= self.more()
            self.level += 1
        return left


def units(moments: list[Moment], without: str) -> list[Unit]:
    if not moments:
        return []
    if without == "layer":
        return [Unit([m for m in moments if m.which == which], WIDTHS[which]) for which in (0, 1)]
    if without == "state":
        return [Unit([m for m in moments if m.item == i], COMMON) for i in dict.fromkeys(m.item for m in moments)]
    return [Unit([m], WIDTHS[m.which]) for m in moments]


def plan(moments: list[Moment], budget: int, without: str = "") -> dict[tuple[int, int], int]:
    """Width of each (item, which) within ``budget`` bytes: prices fall in quarters of an octave."""
    of = units(moments, without)
    left = max(0, budget - sum(m.nbytes(u.ladder[0]) for u in of for m in u.moments))
    price = max((u.gain(0) for u in of), default=NO_PRICE) + STAYS
    low = min((u.gain(len(u.ladder) - 2) for u in of), default=0)
    while price >= low and left:
        for unit in of:
            left = unit.buy(price, left)
        price -= STEP
    return {(m.item, m.which): u.ladder[u.level] for u in of for m in u.moments}


class Without(Policy):
    """``without``: one of LIBERTIES, or "" for a policy whose widths move by plans alone."""

    def __init__(self, without: str, budget_bits: float, every: int, small: int) -> None:
        if without not in ("", *LIBERTIES):
            raise ValueError(f"without {without}: one of {', '.join(LIBERTIES)}")
        super().__init__(budget_bits, every, small)
        self.without = without
        self.wanted: dict[tuple[int, int], int] = {}

    def _start(self, *args: Any) -> dict[int, tuple[int, int]]:
        found = super()._start(*args)
        return {p: (min(bits),) * 2 for p, bits in found.items()} if self.without == "state" else found

    def after_step(self, optimizer: Any, *args: Any) -> int:
        before = self.core.state()[5] if self.core is not None else 0
        taken = super().after_step(optimizer, *args)
        if self.core is not None and self.core.state()[5] != before:
            self._plan_anew(optimizer)
        return taken

    def _plan_anew(self, optimizer: Any) -> None:
        """In the place of what C has just planned."""
        assert self.core is not None
        if self.without != "time" or not self.wanted:
            moments, rest = self._moments(optimizer)
            self.wanted = plan(moments, self._bytes(self.numel) - rest, self.without)
        for i in dict.fromkeys(item for item, _ in self.wanted):
            kept = self.core.item(i)
            self.core.set_item(i, (*kept[:2], self.wanted[i, 0], self.wanted[i, 1], *kept[4:]))
        state = self.core.state()
        state[6] = NEVER
        self.core.set_state(state)

    def _moments(self, optimizer: Any) -> tuple[list[Moment], int]:
        """What is planned, and the bytes of everything else."""
        assert self.core is not None
        out, rest = [], 0
        place = {n: i for i, n in enumerate(self.numbers)}
        for number, _, p in self._all(optimizer.param_groups):
            if number not in place:
                continue
            if is_wide(p.shape):
                rest += self._item(p, (8, 8), False)[2]
                continue
            i, bits = place[number], optimizer.state[p]["packed"].bits
            numel, cols, fixed, _, _, follows, _ = self._item(p, bits, p.numel() >= self.small)
            kept = self.core.item(i)
            own = [Moment(i, which, numel, cols, bits[which], kept[which]) for which in (0, 1)]
            rest += fixed
            if follows and kept[6]:  # has scores
                out += own
            else:
                rest += sum(m.nbytes(m.bits) for m in own)
        return out, rest

    def _change(self, core: _core.Policy, item: int, bits: tuple[int, int], settings: Any, packed: Packed, t: Any) -> None:
        """Both moments go together where they have one width."""
        if self.without == "state":
            bits = core.item(item)[2:4]
            size = packed.numel, layout(packed.shape)[0]
            more = sum(_core.Optim.state_bytes(*size, b) - _core.Optim.state_bytes(*size, was) for b, was in zip(bits, packed.bits, strict=True))
            if bits == packed.bits or core.state()[0] + more > self._bytes(self.numel):
                return
        super()._change(core, item, bits, settings, packed, t)
