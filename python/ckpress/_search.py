# SPDX-License-Identifier: Apache-2.0
"""Planners that search: DynaQuant's configurations, evaluated until the smallest that keeps the budget is known.

After Agrawal et al., "Inshrinkerator" (SoCC 2024, arXiv 2306.11800): guided exhaustive search for the first checkpoint, delta-neighbourhood
search for the later ones, guided again when nothing near is good enough. The searches are the library's (ckpress/plan.h).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from . import _core
from ._collect import Collector
from ._dynaquant import Config, DynaQuant
from ._evaluate import CannotMeasure, Eval, copies_of, loss_of, read_staged
from ._guard import Guard, Measured
from ._ranks import Alone, Ranks
from ._sizes import coded_of, embeddings_of, estimate
from .errors import InvalidError, LimitError, make

Planner = Literal["rd", "guided", "neighbourhood"]
PLANNERS = ("rd", "guided", "neighbourhood")
METRICS = ("ckpress.evaluations_guided", "ckpress.evaluations_neighbourhood", "ckpress.fell_back")
# Among the settings of every checkpoint that was coded so.
CHOICE = tuple(f"dynaquant_{name}" for name in ("bins", "bins_embedding", "prune", "prune_by_sensitivity", "protect"))

Choice = tuple[int, int, float, int, float]  # bins, bins of embeddings, share pruned, by magnitude (0) or sensitivity (1), share protected
Restage = Callable[[Any, Any, Config], int]  # (run, state, configuration) -> bytes of the weights


@dataclass
class Searched(Measured):
    """What one search found.

    ``evaluations`` are all of this save; ``by_method`` has them by the search that asked for them; ``config``: bins, bins of embeddings,
    share pruned, by magnitude (0) or sensitivity (1), share protected; None when no configuration kept the budget. ``bytes``: of weights, coded
    so.
    """

    config: Choice | None = None
    bytes: int = 0
    by_method: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    fell_back: bool = False
    why: str = ""

    def metrics(self) -> dict[str, float]:
        counts = (self.by_method.get("guided", 0), self.by_method.get("neighbourhood", 0), self.fell_back)
        return {**super().metrics(), **dict(zip(METRICS, map(float, counts)))}


def restage_dynaquant(run: Any, state: Any, config: Config) -> int:
    """Codes the weights of the staged save again.

    Returns:
        bytes of its weights as they would be written.
    """
    run.restage_dynaquant(state, config)
    return int(run.staged_bytes(_core.WEIGHT) + run.staged_bytes(_core.MASTER))


class Searcher(Guard):
    """Chooses the configuration that weights are coded with.

    Args:
        method: ``"guided"`` searches the whole grid each time; ``"neighbourhood"`` does at first, and then looks near its last choice.
        eval_fn, max_increase, every, quality: as of Guard. A save that is not measured is coded as the last one that was.
        ranks: who evaluates.
        restage: codes a candidate.
    """

    def __init__(
        self,
        method: str,
        eval_fn: Eval,
        max_increase: float,
        every: int,
        quality: float,
        ranks: Alone | Ranks,
        restage: Restage = restage_dynaquant,
    ) -> None:
        super().__init__(eval_fn, max_increase, every, quality)
        self._method = method
        self._ranks = ranks
        self._restage = restage
        self.config: Choice | None = None  # the last choice

    def due(self, is_key: bool) -> bool:
        """A search costs many evaluations, and codebooks are no coarser in deltas."""
        return self._routine(is_key)

    def resume(self, metrics: Mapping[str, float], settings: Mapping[str, float]) -> None:
        """Goes on near the configuration of the restored checkpoint."""
        if all(name in settings for name in CHOICE):
            bins, embedding, prune, by, protect = (settings[name] for name in CHOICE)
            choice = (int(bins), int(embedding), float(prune), int(by), float(protect))
            self.config = choice if choice in _core.Search.grid() else None

    def settings(self, given: DynaQuant | None) -> DynaQuant:
        base = DynaQuant() if given is None else given
        if self.config is None:
            return base
        bins, embedding, prune, by, protect = self.config
        return replace(base, bins=bins, bins_embedding=embedding, prune=prune, prune_by=("magnitude", "sensitivity")[by], protect=protect)

    def trusts(self) -> bool:
        return self.config is not None

    def release(self) -> None:
        try:
            self._ranks.end()
        except CannotMeasure as e:  # the save has succeeded, and must not seem to have failed
            warnings.warn(f"ckpress: eval_group: {e}", RuntimeWarning, stacklevel=4)

    def judge(self, run: Any, step: int, state: Any, collector: Collector, objects: Mapping[str, Any], config: Config | None) -> Measured:
        """Searches; the choice is staged."""
        assert config is not None
        start = time.perf_counter()
        found = Searched(step, math.nan, math.nan, math.nan, 0, False, 0.0)
        try:
            copies, places = copies_of(objects, collector.lossy + collector.changed)
            trained = {index for _, index in collector.lossy}
            found.loss_live = loss_of(self._eval, copies)
            self._ranks.begin(copies, [p for p, _ in places])
            staging = _Staging(run, state, config, self._restage, places)
            coded = coded_of([p for p, index in places if index in trained])
            self._search(staging, coded, copies, bool(config[6]) or collector.second_moments, found)
        except CannotMeasure as e:
            found.lossless = True
            found.config = None
            warnings.warn(f"ckpress: step {step}: weights are saved losslessly: {e}", RuntimeWarning, stacklevel=5)
        self.config = found.config
        found.seconds = time.perf_counter() - start
        self.last = found
        return found

    def _search(self, staging: _Staging, coded: list[Any], copies: dict[str, Any], sensitivity: bool, found: Searched) -> None:
        near = self._method == "neighbourhood" and self.config is not None
        embeddings = embeddings_of(copies) & {id(p) for p in coded}
        sizes = estimate(coded, embeddings)
        search = _core.Search(near, found.loss_live, self._budget, self.config, self._ranks.size, 1, sensitivity, bool(embeddings), sizes)
        try:
            while not search.done:
                search.tell(self._evaluate(search.ask(), staging, copies))
        finally:
            stats = search.stats()
            found.by_method = {name: stats[name] for name in ("guided", "neighbourhood")}
            found.evaluations, found.rounds, found.fell_back = stats["evaluations"], stats["rounds"], bool(stats["fell_back"])
            found.why = search.why()
        best = search.best()
        if best is None:
            raise CannotMeasure("no configuration has a finite loss")
        found.config, found.loss_decoded, found.bytes, good = best
        if not good:
            raise CannotMeasure(f"loss {found.loss_live:g} of the weights; {found.why}")
        staging.take(found.config)

    def _evaluate(self, choices: list[Choice], staging: _Staging, copies: dict[str, Any]) -> list[tuple[float, int]]:
        sizes = [0] * len(choices)

        def code(i: int) -> None:
            sizes[i] = staging.take(choices[i])
            staging.read()

        losses = self._ranks.evaluate(len(choices), code, lambda: loss_of(self._eval, copies, finite=False))
        return list(zip(losses, sizes))


class _Staging:
    """The staged save, as coded last.

    Args:
        config: what it was staged with; its names and scores go with every choice.
        places: where its decoded weights are read into.
    """

    def __init__(self, run: Any, state: Any, config: Config, restage: Restage, places: list[tuple[Any, int]]) -> None:
        self._run, self._state, self._restage, self._rest, self.places = run, state, restage, config[5:], places
        self._now: Choice | None = None
        self._bytes = 0

    def take(self, choice: Choice) -> int:
        """Codes the weights so; gives their bytes.

        Raises:
            CannotMeasure: the memory budget does not allow it.
        """
        if choice != self._now:
            try:
                self._bytes = self._restage(self._run, self._state, (*choice, *self._rest))
            except LimitError as e:
                raise CannotMeasure(str(e)) from e
            self._now = choice
        return self._bytes

    def read(self) -> None:
        read_staged(self._run, self.places)


def guard_for(
    planner: str, eval_fn: Eval | None, max_increase: float, every: int, quality: float, eval_group: Any, lossless: bool
) -> Guard | None:
    """What judges the saves of a run; None: nothing does.

    Raises:
        InvalidError: an unknown planner, or one that searches without ``eval_fn``; ``eval_group`` with one that does not.
    """
    if planner not in PLANNERS:
        raise make(InvalidError, f"planner must be one of {', '.join(PLANNERS)}, not {planner!r}")
    searches = planner != "rd"
    if searches and eval_fn is None:
        raise make(InvalidError, f"planner={planner!r} needs eval_fn: it chooses by what decoded weights lose")
    if eval_group is not None and not searches:
        raise make(InvalidError, "eval_group needs planner='guided' or 'neighbourhood': the others evaluate one candidate at a time")
    if eval_fn is None:
        return None
    if not searches:
        guard = Guard(eval_fn, max_increase, every, quality)  # bad arguments are told whatever the profile
        return None if lossless else guard
    if lossless and eval_group is not None:
        raise make(InvalidError, "eval_group: a lossless run evaluates nothing")
    searcher = Searcher(planner, eval_fn, max_increase, every, quality, Alone() if eval_group is None else Ranks(eval_group))
    return None if lossless else searcher
