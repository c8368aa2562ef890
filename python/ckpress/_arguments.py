# SPDX-License-Identifier: Apache-2.0
"""What a Checkpointer is given, checked; and how it ends when nobody closes it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import Error, ForkError, InvalidError, make


def names_of(averages: Sequence[str]) -> tuple[str, ...]:
    if isinstance(averages, (str, bytes)) or not all(isinstance(name, str) for name in averages):
        raise make(InvalidError, f"averages must be names, as in averages=('ema',), not {averages!r}")
    return tuple(averages)


def floats(metrics: Mapping[str, float]) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            out[str(name)] = float(value.detach() if hasattr(value, "detach") else value)  # of a loss that has a gradient torch would warn
            str(name).encode()
        except (TypeError, ValueError, OverflowError, RuntimeError) as e:  # a tensor of many elements is a RuntimeError
            raise make(InvalidError, f"metrics: {name!r} must be a number ({e})") from None
    return out


def close_quietly(run: Any) -> None:
    try:
        run.keep_memory()  # nobody has said that the training has ended
        run.close()
    except ForkError:  # the end of a forked child, in which there is nothing to close
        pass
    except Error as e:
        warnings.warn(f"ckpress: the last save failed: {e}", RuntimeWarning, stacklevel=2)
