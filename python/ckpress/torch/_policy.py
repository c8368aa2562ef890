# SPDX-License-Identifier: Apache-2.0
"""Widths of moments chosen while training runs: whose turn it is, what changes, and what must be known to go on the same way.

What is measured and how it is weighed is C's (src/optim/policy.c). Nothing here grows with a tensor: a parameter costs ``Policy.item_bytes``.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .. import _core
from ..errors import InvalidError
from . import _optim_state, _sharded
from ._optim_state import WIDTHS, Packed, is_wide, layout

AUTO = (0, 0)  # in the place of widths: the policy's
HISTORY = 256
_SUMS = 48
_KEPT = 7
_FIRST = 3  # of a group's list: budget in parts of 1024, every, tick; the rest is C's


_Widths = Callable[[Tensor, tuple[int, int]], tuple[int, int]]


def _budget(bits: float) -> int:
    if not (isinstance(bits, (int, float)) and 2 <= bits <= 16):
        raise InvalidError(f"budget_bits must be 2 to 16: {bits!r}")
    return round(bits * 1024)


def bits_of(value: Any, moments: int) -> tuple[int, int] | None:
    """Widths of m and v, v's 0 where there is one moment alone; None: they stay f32; AUTO: a policy's."""
    if isinstance(value, str) and value == "auto" and moments == 2:
        return AUTO
    if value is None or value == 32:
        return None
    widths = (value,) * moments if isinstance(value, (int, str)) else tuple(value)
    if widths == (32,) * moments:
        return None
    if len(widths) != moments or not all(b in WIDTHS for b in widths):
        auto = ' or "auto"' if moments == 2 else ""
        raise InvalidError(f"state_bits must be {moments} of {WIDTHS}, or 32{auto}: {value!r}")
    return widths[0], widths[1] if moments > 1 else 0


class Policy:
    """Rounds over the parameters of groups with ``state_bits="auto"``.

    What is kept lies in C while steps run, in a parameter's ``Packed.kept`` when C's part is dropped, and in a group's ``policy`` what is shared.
    What is seen of a sharded parameter is added up over its ranks, so that all decide the same. ``reduce`` is for those who know of more parts: called with the
    statistics of a step's visits, int64 (visits, sums), in place.
    """

    shared_bytes, item_bytes = _core.Policy.nbytes()

    def __init__(self, budget_bits: float, every: int, small: int) -> None:
        if not (isinstance(every, int) and 1 <= every <= 1 << 30):
            raise InvalidError(f"every must be a number of steps: {every!r}")
        self.budget, self.every, self.small = _budget(budget_bits), every, small
        self.tick = 0
        self.history: collections.deque[dict[str, Any]] = collections.deque(maxlen=HISTORY)
        self.reduce: Callable[[Tensor], None] | None = None
        self.core: _core.Policy | None = None  # None: made from what parameters and groups hold, when it is needed
        self.numbers: list[int] = []  # of the items' parameters, rising
        self.followers: list[int] = []  # items whose widths the policy sets
        self.numel = 0
        self._opening: dict[int, tuple[int, int]] | None = None  # widths of what a step gives its first state, by id()
        self._loading: dict[int, tuple[int, int]] | None = None  # the same of what is being loaded
        self._shares: list[int] = []  # elements of each group whose widths are the policy's
        self._shares_of: list[tuple[int, Any]] = []  # what these were counted of
        self._changed = False  # parameters have come or gone
        self._warned = False
        self._places: dict[int, int] = {}
        self._group: dict[str, Any] | None = None  # whose ``policy`` says what is shared

    # ---- what it stands on ----

    @staticmethod
    def _all(groups: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any], Tensor]]:
        number = 0
        for group in groups:
            for p in group["params"]:
                if group["state_bits"] == "auto":
                    yield number, group, p
                number += 1

    def _common(self, groups: list[dict[str, Any]], rates: list[float]) -> float:
        """The learning rate that most elements have, of those that have one; 0: none has."""
        if len(rates) == 1:
            return max(0.0, rates[0])
        made_of = [(len(g["params"]), g["state_bits"]) for g in groups]
        if made_of != self._shares_of:  # whoever writes into groups tells nobody
            self._shares = [sum(p.numel() for p in g["params"]) if g["state_bits"] == "auto" else 0 for g in groups]
            self._shares_of = made_of
        by_rate: dict[float, int] = {}
        for rate, share in zip(rates, self._shares, strict=True):
            if rate > 0:
                by_rate[rate] = by_rate.get(rate, 0) + share
        return max(by_rate, key=by_rate.__getitem__, default=0.0)

    def _item(self, p: Tensor, bits: tuple[int, int], follows: bool, lead: int = 0) -> tuple[int, int, int, int, int, bool, int]:
        """Of the whole parameter, whoever has it."""
        if is_wide(p.shape):
            return 0, 1, 2 * 4 * p.numel() + 4 + self.item_bytes, 8, 8, False, 0  # nothing of it has a width
        cols, has_cols = layout(tuple(p.shape))
        fixed = -(-p.numel() // cols) + (cols if has_cols else 0) + Packed.FIXED + self.item_bytes
        return p.numel(), cols, fixed, *bits, follows, lead

    def _bytes(self, numel: int) -> int:
        """What tensors may take."""
        return max(0, self.budget * numel // 4096 - self.shared_bytes)  # two moments, in bytes, of parts of 1024 bits

    def _start(self, groups: list[dict[str, Any]], widths: _Widths, state: dict[Any, Any], begins: Callable[[Tensor], bool]) -> dict[int, tuple[int, int]]:
        """Widths at the start of the parameters that begin, beside those that have a state; others take no memory yet."""
        items, params, numel = [], [], 0
        rates = [float(g["lr"]) or float(g.get("initial_lr", 0.0)) for g in groups]  # a warm-up from 0 says nothing yet
        common, rate_of = self._common(groups, rates), {id(p): rate for g, rate in zip(groups, rates, strict=True) for p in g["params"]}
        for _, _, p in self._all(groups):
            if not state.get(p) and not begins(p):
                continue
            numel += p.numel()
            packed, small = state.get(p, {}).get("packed"), p.numel() < self.small
            bits = packed.aim if packed is not None else widths(p, (2, 2)) if small else (2, 2)
            items.append(self._item(p, bits, packed is None and not small, _core.Policy.lead(rate_of[id(p)], common)))
            params.append(id(p))
        return dict(zip(params, _core.Policy(items).start(self._bytes(numel)), strict=True))

    def admit(self, p: Tensor, groups: list[dict[str, Any]], widths: _Widths, state: dict[Any, Any]) -> tuple[int, int]:
        """Widths of a parameter that this step gives its first state, beside those that have theirs."""
        if self._opening is None or id(p) not in self._opening:
            self._opening = self._start(groups, widths, state, lambda q: q is p or q.grad is not None)
        return self._opening[id(p)]

    @contextlib.contextmanager
    def loading(self, groups: list[dict[str, Any]], given: list[Tensor], widths: _Widths) -> Iterator[None]:
        """Inside, ``loaded()`` says widths of the parameters that are given a state, whose groups these are, and no other has one."""
        ids = {id(p) for p in given}
        self._loading = self._start(groups, widths, {}, lambda p: id(p) in ids) if any(g["state_bits"] == "auto" for g in groups) else {}
        try:
            yield
        finally:
            self._loading = None

    def loaded(self, p: Tensor) -> tuple[int, int]:
        assert self._loading is not None
        return self._loading[id(p)]

    def forget(self, optimizer: torch.optim.Optimizer) -> None:
        """Parameters or groups have changed."""
        self.hold(optimizer)
        self.core = self._opening = None
        self._places, self._group, self._changed = {}, None, True

    def reload(self) -> None:
        """States and groups are those of another optimizer."""
        self.core = self._opening = None
        self._places, self._group, self._changed = {}, None, False

    def set_budget(self, optimizer: torch.optim.Optimizer, budget_bits: float) -> None:
        budget = _budget(budget_bits)
        core = self.ensure(optimizer)  # first: where it is made anew it takes the budget over that groups have
        self.budget = budget
        for group in optimizer.param_groups:
            if group.get("policy") is not None:
                group["policy"] = [budget, *group["policy"][1:]]
        if core is not None:
            self._note(optimizer.param_groups)

    def ensure(self, optimizer: torch.optim.Optimizer) -> _core.Policy | None:
        """C's part, made anew where parameters have come or states were loaded; None: there is nothing to do."""
        if self.core is None:
            self._make(optimizer.param_groups, optimizer.state)
        return self.core if self.numbers else None

    def _make(self, groups: list[dict[str, Any]], state: dict[Any, Any]) -> None:
        found = [(n, p, state[p].get("packed")) for n, _, p in self._all(groups) if state.get(p)]
        shared = next((g["policy"] for g in groups if g.get("policy") is not None), None)
        if shared is not None:
            self._take_shared(shared)
        items = [self._item(p, (8, 8) if packed is None else packed.aim, p.numel() >= self.small) for _, p, packed in found]
        core = _core.Policy(items)
        for i, (n, _, packed) in enumerate(found):
            if packed is not None and packed.kept is not None:
                self._set(core, i, packed.kept, f"parameter number {n}")
        self.numel = sum(p.numel() for _, p, _ in found)
        core.start(self._bytes(self.numel))
        try:
            used = sum(t[2] + _core.Optim.state_bytes(t[0], t[1], t[3]) + _core.Optim.state_bytes(t[0], t[1], t[4]) for t in items)
            core.set_state([used, *(shared[_FIRST + 1 :] if shared is not None else core.state()[1:])])
        except (ValueError, TypeError, OverflowError):
            raise InvalidError("AdamW: the group's policy is not one of this version") from None
        if used > self._bytes(self.numel) and self.numel and not self._warned and all(t[3:5] == (2, 2) for t in items if t[5]):
            self._warned = True
            least = 4.0 * (used + self.shared_bytes) / self.numel
            warnings.warn(f"ckpress: budget_bits={self.budget / 1024:g}: these parameters take {least:.2f} bits at the least", stacklevel=4)
        for _, _, packed in found:
            if packed is not None:
                packed.kept = None
        numbers = [n for n, _, _ in found]
        if self._changed and self.numbers and numbers != self.numbers:  # a round over others starts anew
            self.tick = 0
        self._changed = False
        self.core, self.numbers = core, numbers
        self.followers = [i for i, t in enumerate(items) if t[5]]

    @staticmethod
    def _set(core: _core.Policy, i: int, kept: tuple[int, ...], name: str) -> None:
        try:
            core.set_item(i, kept)  # type: ignore[arg-type]
        except (ValueError, TypeError, OverflowError):
            raise InvalidError(f"AdamW: {name}: not what a policy keeps") from None

    @staticmethod
    def check(groups: list[dict[str, Any]]) -> None:
        """That a policy can go on from these groups."""
        for group in groups:
            if group["policy"] is not None:
                probe = Policy(2.0, 1, 0)
                probe._take_shared(group["policy"])
                probe._set_shared(_core.Policy([]), 0, group["policy"])

    @staticmethod
    def _set_shared(core: _core.Policy, used: int, shared: Any) -> None:
        try:
            core.set_state([used, *(shared[_FIRST + 1 :] if shared is not None else core.state()[1:])])
        except (ValueError, TypeError, OverflowError):
            raise InvalidError("AdamW: the group's policy is not one of this version") from None

    def _take_shared(self, shared: Any) -> None:
        if not (isinstance(shared, (list, tuple)) and len(shared) > _FIRST and all(isinstance(x, int) for x in shared)):
            raise InvalidError("AdamW: the group's policy is not one of this version")
        budget, every, tick = shared[:_FIRST]
        if not (2048 <= budget <= 16384 and 1 <= every <= 1 << 30 and 0 <= tick < every):
            raise InvalidError("AdamW: the group's policy is out of range")
        self.budget, self.every, self.tick = budget, every, tick

    # ---- a step's visits ----

    def after_step(
        self, optimizer: torch.optim.Optimizer, settings: list[tuple[Any, ...]], jobs: list[Any], tensors: list[tuple[Any, ...]]
    ) -> int:
        """Looks at N/K of the parameters, and codes anew what they ask for; bytes that ranks exchanged for it."""
        core = self.core if self.core is not None and self._opening is None else self._begun(optimizer)
        if core is None or not self.numbers:
            return 0
        n, tick, every = len(self.followers), self.tick, self.every
        first, end, plans = tick * n // every, (tick + 1) * n // every, tick + 1 == every
        if first == end and not plans and self._group is not None and self._group["policy"] is not None:  # as most steps of a net of few tensors
            self.tick = self._group["policy"][2] = tick + 1
            return 0
        due, taken = self.followers[first:end], 0
        if due:
            taken = self._visit(core, due, optimizer.param_groups, settings, jobs, tensors)
        self.tick = 0 if plans else self.tick + 1
        if plans:
            core.plan(self._bytes(self.numel))
        self._note(optimizer.param_groups, bool(due) or plans)
        return taken

    def opened(self, optimizer: torch.optim.Optimizer) -> None:
        """Parameters have states that no step has touched."""
        if self._begun(optimizer) is not None:
            self._note(optimizer.param_groups)

    def _begun(self, optimizer: torch.optim.Optimizer) -> _core.Policy | None:
        if self._opening is not None:
            self.forget(optimizer)
        return self.ensure(optimizer)

    def _note(self, groups: list[dict[str, Any]], all_of_it: bool = True) -> None:
        """Keeps the first group's ``policy`` at what C holds: whoever saves groups finds it there."""
        assert self.core is not None
        if self._group is None:
            self._group = next(group for group in groups if group["state_bits"] == "auto")
        if all_of_it or self._group["policy"] is None:
            self._group["policy"] = [self.budget, self.every, self.tick, *self.core.state()]
        else:
            self._group["policy"][2] = self.tick

    def _visit(
        self, core: _core.Policy, due: list[int], groups: list[dict[str, Any]], settings: list[tuple[Any, ...]], jobs: list[Any], tensors: list[tuple[Any, ...]]
    ) -> int:
        seen: list[tuple[int, int]] = []
        for item in due:
            at = number = self.numbers[item]  # where all have gradients
            if at >= len(tensors) or tensors[at][2] != number:
                at = bisect.bisect_left(tensors, number, key=lambda t: t[2])
            if at < len(tensors) and tensors[at][2] == number:  # one without a gradient waits for its next turn
                seen.append((item, at))
        stats = _core.Optim.look(settings, [tensors[at] for _, at in seen], [jobs[at].held.part.total for _, at in seen])
        taken, rates = 0, [s[0] for s in settings]
        common = self._common(groups, rates)
        if self.reduce is not None or any(jobs[at].ranks is not None for _, at in seen):
            sums = torch.frombuffer(stats, dtype=torch.int64).view(len(seen), _SUMS) if seen else torch.empty((0, _SUMS), dtype=torch.int64, device="cpu")
            taken = _sharded.add_up([(jobs[at].ranks, row) for (_, at), row in zip(seen, sums, strict=True)])
            if self.reduce is not None:
                self.reduce(sums)
        for k, (item, at) in enumerate(seen):
            t = tensors[at]
            bits = core.visit(item, stats, k, rates[t[1]], common, t[3])
            if bits is not None:
                self._change(core, item, bits, settings, jobs[at].held, t)
        return taken

    def _change(self, core: _core.Policy, item: int, bits: tuple[int, int], settings: list[tuple[Any, ...]], packed: Packed, t: tuple[Any, ...]) -> None:
        was = packed.bits
        _optim_state.recode(packed, bits, settings, t)
        core.moved(item, *bits)
        self.history.append({"step": t[3], "parameter": t[2], "from": was, "to": bits})

    # ---- what is kept ----

    def number_of(self, optimizer: torch.optim.Optimizer, p: Tensor) -> int:
        if id(p) not in self._places:  # which is empty whenever groups may have changed; all have a place there, or each save would look for those of fixed widths
            groups = optimizer.param_groups
            self._places = {id(q): -1 for g in groups for q in g["params"]} | {id(q): n for n, _, q in self._all(groups)}
        return self._places.get(id(p), -1)

    def kept(self, optimizer: torch.optim.Optimizer, number: int) -> dict[str, Tensor]:
        """For a state_dict, beside the parameter's codes."""
        core = self.ensure(optimizer)
        i = bisect.bisect_left(self.numbers, number)
        if core is None or i >= len(self.numbers) or self.numbers[i] != number:
            return {}
        return {"policy": torch.tensor(core.item(i), dtype=torch.int32, device="cpu")}

    def hold(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives what C keeps back to the parameters, before C's part is dropped or copied."""
        if self.core is None:
            return
        place = {n: i for i, n in enumerate(self.numbers)}
        for number, _, p in self._all(optimizer.param_groups):
            packed = optimizer.state.get(p, {}).get("packed")
            if isinstance(packed, Packed) and number in place:
                packed.kept = self.core.item(place[number])

    def nbytes(self) -> int:
        return self.shared_bytes + len(self.numbers) * self.item_bytes if self.numbers else 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "core": None, "reduce": None, "_places": {}, "_group": None, "_opening": None}  # the last by id()

    def report(self, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        core = self.ensure(optimizer)
        if core is None:
            return None
        used, _, visits, raised, lowered, plans, _ = core.state()[:7]
        return {
            "budget_bits": self.budget / 1024, "bits": 4.0 * (used + self.shared_bytes) / max(1, self.numel), "every": self.every, "visits": visits, "rounds": plans,
            "raised": raised, "lowered": lowered, "history": list(self.history),
        }


def kept_from(saved: Any, name: str) -> tuple[int, ...] | None:
    """What ``Policy.kept`` gave, looked at."""
    if saved is None:
        return None
    if not (isinstance(saved, Tensor) and saved.dtype == torch.int32 and tuple(saved.shape) == (_KEPT,)):
        raise InvalidError(f"{name}: not what a policy keeps")
    kept = tuple(int(x) for x in saved.tolist())
    try:
        _core.Policy([(1, 1, 0, 8, 8, True, 0)]).set_item(0, kept)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        raise InvalidError(f"{name}: not what a policy keeps") from None
    return kept
