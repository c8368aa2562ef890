# SPDX-License-Identifier: Apache-2.0
"""Weights by codebooks: a configuration of DynaQuant, checked, and bound to the parameters of one save."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ._coding import whole
from ._collect import Collector
from ._context import is_module
from ._views import torch_module
from .errors import InvalidError, make

Scores = Mapping[Any, Any]
Config = tuple[int, int, float, int, float, tuple[str, ...], tuple[tuple[str, int, int], ...]]
PRUNE_BY = {"magnitude": 0, "sensitivity": 1}


@dataclass(frozen=True)
class DynaQuant:
    """What ``ckp_dynaquant`` in run.h says, with names for numbers.

    Attributes:
        bins: centres of a weight, 1 to 32.
        bins_embedding: the same of the weights of ``torch.nn.Embedding`` (and of tensors that are tied to one).
        prune: fraction that becomes zero, from 0 to below 1; of all values of one kind of layer.
        prune_by: ``"magnitude"`` or ``"sensitivity"``.
        protect: fraction that is kept as bf16, by magnitude and by sensitivity each.
        sensitivity: averages of ``|g * w|``, float32 and of the parameter's shape, by parameter; or a function that gives such a mapping when
            a save begins. Without it, or for parameters that are not in it, Adam's second moment serves: ``sqrt(v) * |w|``.
    """

    bins: int = 16
    bins_embedding: int = 32
    prune: float = 0.2
    prune_by: str = "magnitude"
    protect: float = 0.005
    sensitivity: Scores | Callable[[], Scores] | None = None

    @classmethod
    def of(cls, given: object) -> DynaQuant | None:
        """From what the user gave: a mapping of the attributes above, one of these, or None.

        Raises:
            InvalidError: an option out of its range, or an unknown one; named.
        """
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise make(InvalidError, f"dynaquant must be a dict, not {type(given).__name__}")
        known = cls.__dataclass_fields__
        unknown = [str(k) for k in given if k not in known]
        if unknown:
            raise make(InvalidError, f"dynaquant: unknown option {unknown[0]!r}; there are {', '.join(known)}")
        return cls(**given)

    def __post_init__(self) -> None:
        whole("dynaquant: bins", self.bins, 1, 32)
        whole("dynaquant: bins_embedding", self.bins_embedding, 1, 32)
        for name, value in (("prune", self.prune), ("protect", self.protect)):
            if not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise make(InvalidError, f"dynaquant: {name} must be from 0 to below 1, not {value!r}")
        if self.prune_by not in PRUNE_BY:
            raise make(InvalidError, f"dynaquant: prune_by must be one of {', '.join(PRUNE_BY)}, not {self.prune_by!r}")
        if self.sensitivity is not None and not isinstance(self.sensitivity, Mapping) and not callable(self.sensitivity):
            raise make(InvalidError, "dynaquant: sensitivity must be a mapping of parameters to tensors, or a function that gives one")


class Bound:
    """A configuration's names and memory for one save. Keep it until the save has returned.

    Args:
        objects: what is saved, by name.
        collector: of this save; it knows the parameters' names.
    """

    def __init__(self, objects: Mapping[str, Any], collector: Collector, sensitivity: Scores | Callable[[], Scores] | None) -> None:
        self._keep: list[Any] = []
        self._embeddings = _embeddings(objects, collector)
        self._scores = self._memory(sensitivity, collector)

    def _memory(self, given: Scores | Callable[[], Scores] | None, collector: Collector) -> tuple[tuple[str, int, int], ...]:
        torch = torch_module()
        scores: Scores = {} if given is None else given() if callable(given) else given
        out = []
        for param, score in scores.items():
            name = collector.context.owner(param)
            if name is None:
                continue
            assert torch is not None
            if not isinstance(score, torch.Tensor) or score.shape != param.shape:
                raise make(InvalidError, f"dynaquant: the sensitivity of {name} must be a tensor of shape {tuple(param.shape)}")
            flat = score.detach().to(device="cpu", dtype=torch.float32).contiguous()
            self._keep.append(flat)
            out.append((name, flat.data_ptr(), math.prod(flat.shape)))
        return tuple(out)

    def config(self, d: DynaQuant) -> Config:
        """What ``_core.Run`` takes; pointers stay good while this object lives."""
        numbers = (int(d.bins), int(d.bins_embedding), float(d.prune), PRUNE_BY[d.prune_by], float(d.protect))
        return (*numbers, self._embeddings, self._scores)


def _embeddings(objects: Mapping[str, Any], collector: Collector) -> tuple[str, ...]:
    torch = torch_module()
    if torch is None:
        return ()
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    weights = [m.weight for obj in objects.values() if is_module(obj) for m in obj.modules() if isinstance(m, kinds)]
    names = [collector.context.owner(w) for w in weights]
    return tuple(dict.fromkeys(n for n in names if n is not None))
