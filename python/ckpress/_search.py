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
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _core
from ._evaluate import CannotMeasure, Eval, copies_of, loss_of, read_staged
from ._guard import Guard, Measured
from ._ranks import Alone, Ranks
from ._sizes import embeddings_of, estimate
from .errors import InvalidError, UnsupportedError, make

Planner = Literal["rd", "guided", "neighbourhood"]
PLANNERS = ("rd", "guided", "neighbourhood")
METRICS = ("ckpress.evaluations_guided", "ckpress.evaluations_neighbourhood", "ckpress.fell_back")
CONFIG = ("ckpress.bins", "ckpress.bins_embedding", "ckpress.prune", "ckpress.prune_by", "ckpress.protect")

Config = tuple[int, int, float, int, float]  # bins, bins of embeddings, share pruned, by magnitude (0) or sensitivity (1), share protected
Restage = Callable[[Any, Any, Config], int]  # (run, state, config) -> bytes of the weights


@dataclass
class Searched(Measured):
    """What one search found.

    ``evaluations`` are all of this save; ``by_method`` has them by the search that asked for them; ``config``: bins, bins of embeddings,
    share pruned, by magnitude (0) or sensitivity (1), share protected; None when no configuration kept the budget.
    """

    config: Config | None = None
    by_method: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    fell_back: bool = False
    why: str = ""

    def metrics(self) -> dict[str, float]:
        counts = (self.by_method.get("guided", 0), self.by_method.get("neighbourhood", 0), self.fell_back)
        return {**super().metrics(), **dict(zip(METRICS, map(float, counts))), **_config_metrics(self.config)}


def restage_dynaquant(run: Any, state: Any, config: Config) -> int:
    """Stages the same state again with a configuration.

    Returns:
        bytes of its weights as they would be written.
    """
    run.restage_dynaquant(state, *config)
    return int(run.staged_bytes(_core.WEIGHT))


def available() -> bool:
    return hasattr(_core.Run, "restage_dynaquant")


class Searcher(Guard):
    """Chooses the configuration that weights are coded with.

    Args:
        method: ``"guided"`` searches the whole grid each time; ``"neighbourhood"`` does at first, and then looks near its last choice.
        eval_fn, max_increase, every, quality: as of Guard. A save that is not measured is coded as the last one that was.
        ranks: who evaluates.
        sensitivity: there are scores |g * w| to prune by.
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
        *,
        sensitivity: bool = False,
        restage: Restage = restage_dynaquant,
    ) -> None:
        super().__init__(eval_fn, max_increase, every, quality)
        self._method = method
        self._ranks = ranks
        self._sensitivity = sensitivity
        self._restage = restage
        self._staged: Config | None = None  # what the run holds
        self.config: Config | None = None  # the last choice

    def resume(self, metrics: Mapping[str, float]) -> None:
        """Goes on near the configuration of the restored checkpoint."""
        if all(name in metrics for name in CONFIG):
            bins, embedding, prune, by, protect = (metrics[name] for name in CONFIG)
            config = (int(bins), int(embedding), float(prune), int(by), float(protect))
            self.config = config if config in _core.Search.grid() else None

    def unmeasured(self, run: Any, state: Any) -> dict[str, float] | None:
        if self.config is None:
            return None
        self._restage(run, state, self.config)
        return _config_metrics(self.config)

    def release(self) -> None:
        try:
            self._ranks.end()
        except CannotMeasure as e:  # the save has succeeded, and must not seem to have failed
            warnings.warn(f"ckpress: eval_group: {e}", RuntimeWarning, stacklevel=4)

    def judge(self, run: Any, step: int, state: Any, lossy: list[tuple[Any, int]], objects: Mapping[str, Any]) -> Measured:
        """Searches; the choice is staged."""
        start = time.perf_counter()
        found = Searched(step, math.nan, math.nan, math.nan, 0, False, 0.0)
        self._staged = None
        try:
            copies, places = copies_of(objects, lossy)
            found.loss_live = loss_of(self._eval, copies)
            self._ranks.begin(copies, [p for p, _ in places])
            self._search(run, state, copies, places, found)
        except CannotMeasure as e:
            found.lossless = True
            found.config = None
            warnings.warn(f"ckpress: step {step}: weights are saved losslessly: {e}", RuntimeWarning, stacklevel=5)
        self.config = found.config
        found.seconds = time.perf_counter() - start
        self.last = found
        return found

    def _search(self, run: Any, state: Any, copies: dict[str, Any], places: list[tuple[Any, int]], found: Searched) -> None:
        near = self._method == "neighbourhood" and self.config is not None
        sizes = estimate(copies, [p for p, _ in places])
        search = _core.Search(
            near, found.loss_live, self._budget, self.config, self._ranks.size, 1, self._sensitivity, bool(embeddings_of(copies)), sizes
        )
        try:
            while not search.done:
                search.tell(self._evaluate(search.ask(), run, state, copies, places))
        finally:
            stats = search.stats()
            found.by_method = {name: stats[name] for name in ("guided", "neighbourhood")}
            found.evaluations, found.rounds, found.fell_back = stats["evaluations"], stats["rounds"], bool(stats["fell_back"])
            found.why = search.why()
        best = search.best()
        if best is None:
            raise CannotMeasure("no configuration has a finite loss")
        found.config, found.loss_decoded, _, good = best
        if not good:
            raise CannotMeasure(f"loss {found.loss_live:g} of the weights; {found.why}")
        if self._staged != found.config:
            self._restage(run, state, found.config)

    def _evaluate(
        self, configs: list[Config], run: Any, state: Any, copies: dict[str, Any], places: list[tuple[Any, int]]
    ) -> list[tuple[float, int]]:
        sizes = [0] * len(configs)

        def code(i: int) -> None:
            sizes[i] = self._restage(run, state, configs[i])
            self._staged = configs[i]
            read_staged(run, places)

        losses = self._ranks.evaluate(len(configs), code, lambda: loss_of(self._eval, copies, finite=False))
        return list(zip(losses, sizes))


def guard_for(
    planner: str, eval_fn: Eval | None, max_increase: float, every: int, quality: float, eval_group: Any, lossless: bool
) -> Guard | None:
    """What judges the saves of a run; None: nothing does.

    Raises:
        InvalidError: an unknown planner, or one that searches without ``eval_fn``; ``eval_group`` with one that does not.
        UnsupportedError: the library has no coding for a planner's configurations.
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
    if searches and not available():
        raise make(UnsupportedError, f"planner={planner!r}: this build has no codebook coding of weights")
    if not searches:
        guard = Guard(eval_fn, max_increase, every, quality)  # bad arguments are told whatever the profile
        return None if lossless else guard
    if lossless and eval_group is not None:
        raise make(InvalidError, "eval_group: a lossless run evaluates nothing")
    searcher = Searcher(planner, eval_fn, max_increase, every, quality, Alone() if eval_group is None else Ranks(eval_group))
    return None if lossless else searcher


def _config_metrics(config: Config | None) -> dict[str, float]:
    return {} if config is None else dict(zip(CONFIG, map(float, config)))
