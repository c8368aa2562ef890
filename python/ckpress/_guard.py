# SPDX-License-Identifier: Apache-2.0
"""A budget for the loss: decoded weights are measured on the caller's batches before a save is committed (docs/quality.md)."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._collect import Collector
from ._dynaquant import Config, DynaQuant
from ._evaluate import CannotMeasure, Eval, copies_of, loss_of, read_staged
from .errors import InvalidError, make

QUALITY_MIN = 0.01  # the library's bound
MAX_TRIES = 4  # evaluations of decoded weights in one save
FINER_AT_MOST, FINER_AT_LEAST = 0.125, 0.7  # of the quality that missed, for the next try
MARGIN = 0.8  # of the quality that the budget seems to allow
EASY = 0.1  # a save that used less of its budget than this is a sign that coarser would do
EASY_SAVES = 3
METRICS = ("ckpress.loss_live", "ckpress.loss_decoded", "ckpress.quality", "ckpress.evaluations")


@dataclass
class Measured:
    """What one save was found to lose.

    ``loss_decoded`` is NaN when it could not be measured; ``lossless``: the budget was not met, so the weights were saved losslessly.
    ``seconds`` are the caller's: copying, reading and evaluating, apart from the stall.
    """

    step: int
    loss_live: float
    loss_decoded: float
    quality: float
    evaluations: int
    lossless: bool
    seconds: float

    def metrics(self) -> dict[str, float]:
        values = (self.loss_live, self.loss_decoded, self.quality, float(self.evaluations))
        return {k: v for k, v in zip(METRICS, values) if not math.isnan(v)}


class Guard:
    """Decides how finely weights are coded, by measuring.

    Args:
        eval_fn: called with a *copy* of the registered module without wrappers of DDP or torch.compile (of each, by name as keyword, when there are several) under ``no_grad``;
            gives a loss, a finite number; random states are put back after it.
        max_increase: by how much the loss of the decoded weights may exceed that of the live ones, as a share of the live one's size.
        every: every so many saves; the first one of a process, keys and the first delta after each are always measured, and all saves after one that missed
            until one meets the budget again.
        quality: the caller's, the coarsest that is used.
    """

    def __init__(self, eval_fn: Eval, max_increase: float, every: int, quality: float) -> None:
        if not callable(eval_fn):
            raise make(InvalidError, f"eval_fn must be a function of a model, not {type(eval_fn).__name__}")
        if not (isinstance(max_increase, (int, float)) and 0 < max_increase < math.inf):
            raise make(InvalidError, f"max_loss_increase must be a positive number, not {max_increase!r}")
        self._eval = eval_fn
        self._budget = float(max_increase)
        self._every = every
        self._coarsest = quality
        self._saves = 0
        self._easy = 0
        self._was_key = False  # the save before
        self._missed = False  # the last measured save: nothing is known to meet the budget
        self.quality = quality  # in use
        self.last: Measured | None = None

    @property
    def relaxed(self) -> bool:
        """Whether the caller's own quality is in use: nothing finer was needed of late."""
        return self.quality >= self._coarsest

    def resume(self, metrics: Mapping[str, float], settings: Mapping[str, float]) -> None:
        """Goes on with the quality that the restored checkpoint needed."""
        quality = metrics.get(METRICS[2], self._coarsest)
        self.quality = min(self._coarsest, max(QUALITY_MIN, quality))

    def due(self, is_key: bool) -> bool:
        """Whether the save that is staged is to be measured."""
        after_key, self._was_key = self._was_key and not is_key, is_key  # deltas take coarser steps than keys
        return self._routine(is_key) or after_key or self._missed

    def _routine(self, is_key: bool) -> bool:
        self._saves += 1
        return is_key or self._saves == 1 or self._saves % self._every == 0

    def settings(self, given: DynaQuant | None) -> DynaQuant | None:
        """What a save is staged with, from the caller's ``dynaquant``."""
        return given

    def trusts(self) -> bool:
        """Whether a staged save that is not due may be committed as it is."""
        return True

    def release(self) -> None:
        """Called at the end of every save, whatever came of it."""

    def judge(self, run: Any, step: int, state: Any, collector: Collector, objects: Mapping[str, Any], config: Config | None) -> Measured:
        """Measures the staged save, and stages it finer until the budget is met or cannot be."""
        start = time.perf_counter()
        live = decoded = math.nan
        tries, lossless = 0, False
        try:
            copies, places = copies_of(objects, collector.lossy + collector.changed)
            live = loss_of(self._eval, copies)
            while True:
                read_staged(run, places)
                tries += 1
                decoded = loss_of(self._eval, copies)
                if decoded - live <= self._budget * abs(live):
                    break
                if tries == MAX_TRIES:
                    raise CannotMeasure(
                        f"loss {live:g} of the weights, {decoded:g} decoded at quality {self.quality:g}: more than the budget"
                    )
                self._finer(decoded - live, abs(live))
                run.restage(state, self.quality)
        except CannotMeasure as e:
            lossless = True
            warnings.warn(f"ckpress: step {step}: weights are saved losslessly: {e}", RuntimeWarning, stacklevel=5)
        self._missed = lossless
        self.last = Measured(step, live, decoded, self.quality, tries, lossless, time.perf_counter() - start)
        if not lossless:
            self._relax(decoded - live, abs(live), tries)
        return self.last

    def _finer(self, increase: float, live: float) -> None:
        """For small steps the loss grows with their square."""
        share = MARGIN * math.sqrt(self._budget * live / increase)
        self.quality = max(QUALITY_MIN, self.quality * min(FINER_AT_LEAST, max(FINER_AT_MOST, share)))

    def _relax(self, increase: float, live: float, tries: int) -> None:
        """Training changes what it needs: after a few easy saves the next may be coarser, and is measured when its time comes."""
        self._easy = self._easy + 1 if tries == 1 and increase <= EASY * self._budget * live else 0
        if self._easy >= EASY_SAVES and self.quality < self._coarsest:
            self.quality = min(self._coarsest, self.quality * 1.5)
            self._easy = 0
