# SPDX-License-Identifier: Apache-2.0
"""Global random number generators of torch (CPU and CUDA), numpy and random, as one plain value.

Arrays in numpy's states become tuples of ints, which numpy takes as well: so ``torch.load(weights_only=True)`` reads a run that was
decompressed to ``.pt`` although it knows no numpy arrays. Early checkpoints have the arrays.
"""

from __future__ import annotations

import random
from typing import Any

from ._views import is_ndarray, numpy_module, torch_module
from .errors import MismatchError, make


def get() -> dict[str, Any]:
    """States of the generators of every library that is loaded."""
    out: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = numpy_module(), torch_module()
    if numpy is not None and hasattr(numpy, "random"):
        out["numpy"] = plain(numpy.random.get_state(legacy=False))
    if torch is not None and hasattr(torch, "get_rng_state"):
        out["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            out["cuda"] = torch.cuda.get_rng_state_all()
    return out


def plain(state: Any) -> Any:
    """A state of a numpy bit generator without arrays."""
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    return tuple(state.tolist()) if is_ndarray(state) else state


def put(state: dict[str, Any]) -> None:
    """Sets what :func:`get` gave; generators of libraries that are not loaded here stay as they are."""
    numpy, torch = numpy_module(), torch_module()
    try:
        if "python" in state:
            random.setstate(state["python"])
        if "numpy" in state and numpy is not None and hasattr(numpy, "random"):
            numpy.random.set_state(state["numpy"])
        if "torch" in state and torch is not None:
            torch.set_rng_state(state["torch"])
        if "cuda" in state and torch is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
    except (TypeError, ValueError, RuntimeError) as e:
        raise make(MismatchError, f"rng: the saved state cannot be set ({e})") from None
