# SPDX-License-Identifier: Apache-2.0
"""Steps of parameters on NVIDIA GPUs by the kernel of src/optim/cuda, where ``ckpress/_cuda.so`` is beside the module and the device can run it; else, and
for moments in f32, by torch's operations.

The kernel gives the bits of the kernels for CPUs. It has not run on a GPU yet: what runs it in tests is a CPU. So a device has to show that it does, in a few
steps of small parameters, before any other parameter is given to it.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import _core, errors
from . import _torch_step
from ._optim_state import DTYPES, Packed
from ._torch_step import Done, Job


class AdamWSettings(ctypes.Structure):
    """ckp_adamw; fields in the order of the tuples that _core takes."""

    _fields_: ClassVar = [
        *((k, c_double) for k in ("lr", "beta1", "beta2", "eps", "weight_decay")), ("coupled", c_bool), ("maximize", c_bool), ("seed", c_uint64),
    ]  # fmt: skip


class MomentumSettings(ctypes.Structure):
    """ckp_momentum."""

    _fields_: ClassVar = [
        *((k, c_double) for k in ("lr", "momentum", "dampening", "weight_decay")), *((k, c_bool) for k in ("nesterov", "maximize", "lion")),
        ("beta1", c_double), ("seed", c_uint64),
    ]  # fmt: skip


class TensorStep(ctypes.Structure):
    """ckp_optim_tensor."""

    _fields_: ClassVar = [
        ("name", c_char_p), ("how", POINTER(AdamWSettings)), ("momentum", POINTER(MomentumSettings)),
        *((k, c_uint64) for k in ("id", "step", "numel", "cols", "first")), ("p_dtype", c_int), ("g_dtype", c_int), ("p", c_void_p),
        ("rest_bits", c_uint), ("rest", c_void_p), ("g", c_void_p), ("m_bits", c_uint), ("v_bits", c_uint),
        *((k, c_void_p) for k in ("m", "v", "row", "col", "sums")), ("m_corr", c_double), ("v_corr", c_double), ("unusable", c_uint64), ("raised", c_uint64),
    ]  # fmt: skip


class Failure(ctypes.Structure):
    """ckp_error."""

    _fields_: ClassVar = [
        ("code", c_int), ("sys_errno", c_int), ("offset", c_uint64), ("file", c_char * 512), ("tensor", c_char * 256), ("text", c_char * 768),
    ]  # fmt: skip

    def error(self, status: int) -> errors.Error:
        cls = errors.BY_STATUS.get(status, errors.InternalError)
        return errors.make(cls, self.text.decode(errors="backslashreplace"), tensor=self.tensor.decode(errors="backslashreplace"))


def load(path: pathlib.Path) -> ctypes.CDLL:
    """OSError: there is none, or not one of this version."""
    lib = ctypes.CDLL(str(path))
    try:
        lib.ckpress_cuda_sizes.argtypes, lib.ckpress_cuda_sizes.restype = [POINTER(c_uint64)], None
        lib.ckpress_cuda_ready.argtypes = [c_int, POINTER(Failure)]
        lib.ckpress_cuda_scratch.argtypes, lib.ckpress_cuda_scratch.restype = [POINTER(TensorStep), c_size_t], c_uint64
        lib.ckpress_cuda_step.argtypes = [POINTER(TensorStep), c_size_t, c_int, *[c_void_p] * 3, c_uint64, POINTER(Failure)]
    except AttributeError as e:
        raise OSError(f"{path}: {e}") from None
    sizes = (c_uint64 * 4)()
    lib.ckpress_cuda_sizes(sizes)
    if list(sizes) != [ctypes.sizeof(c) for c in (TensorStep, AdamWSettings, MomentumSettings, Failure)]:
        raise OSError(f"{path}: of another version")
    return lib


def path() -> pathlib.Path:
    return pathlib.Path(str(_core.__file__)).with_name("_cuda.so")


@functools.cache
def library() -> ctypes.CDLL | None:
    if not path().exists():
        return None
    try:
        return load(path())
    except OSError as e:
        warnings.warn(f"ckpress: no kernel for GPUs: {e}; their steps are torch's operations", stacklevel=2)
        return None


_lock = threading.RLock()
_usable: dict[torch.device, bool] = {}


def usable(device: torch.device) -> bool:
    """Whether the kernel can run there, and gives what it should."""
    with _lock:
        if device not in _usable:
            _usable[device] = _ready(device)  # for the trial's own steps
            try:
                wrong = trial(device) if _usable[device] else ""
            except errors.Error as e:
                wrong = str(e)
            if wrong:
                _usable[device] = False
                warnings.warn(f"ckpress: the kernel for GPUs failed its trial on {device} ({wrong}): steps there are torch's operations. Please report this", stacklevel=3)
        return _usable[device]


def trial(device: torch.device, prepare: Callable[[Any], None] = lambda optimizer: None) -> str:
    """A few steps there and on the CPU, with rows that rise and gradients of no use. "": the same bits; else what differs first.

    Args:
        prepare: told of each optimizer whose parameters are there.
    """
    from ._adamw import AdamW
    from ._momentum import SGD

    random = torch.Generator("cpu").manual_seed(1)
    for ours, dtype, bits in ((AdamW, torch.float32, 4), (AdamW, torch.bfloat16, 8), (AdamW, torch.float32, (3, 5)), (SGD, torch.float32, 6)):
        made = []
        for where in (torch.device("cpu"), device):
            params = [torch.nn.Parameter(torch.ones(shape, dtype=dtype, device=where)) for shape in ((40, 96), (3, 27), (5, 512))]
            made.append((params, ours(params, lr=1e-2, state_bits=bits, small=0, seed=1, **({"momentum": 0.9} if ours is SGD else {}))))
        (here, a), (there, b) = made
        prepare(b)
        for step in range(6):
            for p, q in zip(here, there, strict=True):
                p.grad = (torch.randn(p.shape, generator=random, device="cpu") * 10.0 ** (step % 3 - 3)).to(dtype)
                p.grad.view(-1)[step] = torch.inf
                q.grad = p.grad.to(device)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                a.step()
                b.step()
            for p, q in zip(here, there, strict=True):
                one, other = a.ckpress_state(p)[0], b.ckpress_state(q)[0]
                pairs = [("the parameter", p, q), *((k, t, other[k]) for k, t in one.items())]
                wrong = next((name for name, x, y in pairs if not torch.equal(x, y.to("cpu"))), None)
                if wrong is not None:
                    return f"{ours.__name__}, {dtype}, {bits} bits, {tuple(p.shape)}, step {step}: {wrong}"
        if (a.skipped, a.rows_raised) != (b.skipped, b.rows_raised):
            return f"{ours.__name__}, {dtype}, {bits} bits: counts"
    return ""


def _ready(device: torch.device) -> bool:
    if device.type != "cuda" or torch.version.cuda is None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    lib = library()
    if lib is None:
        return False
    why = Failure()
    with guard(device):
        ready = bool(lib.ckpress_cuda_ready(_index(device), why) == 0)
    if not ready:
        warnings.warn(f"ckpress: {why.error(0)}; steps on {device} are torch's operations", stacklevel=2)
    return ready


def _index(device: torch.device) -> int:
    return device.index if device.index is not None else 0


def guard(device: torch.device) -> AbstractContextManager[Any]:
    return torch.cuda.device(device)


def stream_of(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


def step(rule: str, settings: list[tuple[Any, ...]], jobs: list[Job], by_torch: bool = False) -> list[tuple[float, float, int, int]]:
    """As ``_core.Optim``'s steps, of parameters that these do not reach. ``by_torch``: by torch's operations wherever they are."""
    done: list[Done | None] = [None] * len(jobs)
    places: dict[torch.device, list[int]] = {}
    for i, job in enumerate(jobs):
        if not by_torch and isinstance(job.held, Packed) and usable(job.p.device):
            places.setdefault(job.p.device, []).append(i)
    for device, which in places.items():
        with guard(device):
            for i, result in zip(which, _launch(device, rule, settings, [jobs[i] for i in which]), strict=True):
                done[i] = result
    for i, job in enumerate(jobs):
        if done[i] is None:
            done[i] = _torch_step.one(rule, settings[job.group], job)
    return _torch_step.read([d for d in done if d is not None])


def tensors_of(rule: str, settings: Sequence[tuple[Any, ...]], jobs: Sequence[Job]) -> ctypes.Array[TensorStep]:
    """Jobs as the library takes them; they must outlive it."""
    kind, field = (AdamWSettings, "how") if rule == "adamw" else (MomentumSettings, "momentum")
    hows = [kind(*s) for s in settings]
    out = (TensorStep * len(jobs))()
    for t, job in zip(out, jobs, strict=True):
        packed = job.packed
        t.name = job.name.encode() or None
        setattr(t, field, ctypes.pointer(hows[job.group]))
        t.id, t.step, t.numel, t.cols, t.first = job.number, job.step, packed.numel, packed.cols, packed.part.first
        t.p_dtype, t.g_dtype, t.p, t.g = DTYPES[job.p.dtype][1], DTYPES[job.g.dtype][1], job.p.data_ptr(), job.g.data_ptr()
        t.m_bits, t.v_bits = packed.bits
        t.m, t.v, t.row = packed.m.data_ptr(), packed.v.data_ptr() if packed.bits[1] else None, packed.row.data_ptr()
        t.col = None if packed.col is None else packed.col.data_ptr()
        if packed.rest is not None:
            t.rest_bits, t.rest = 8 * packed.rest.element_size(), packed.rest.data_ptr()
        t.m_corr, t.v_corr = packed.m_corr, packed.v_corr
    return out


def _launch(device: torch.device, rule: str, settings: list[tuple[Any, ...]], jobs: list[Job]) -> list[Done]:
    lib, why = library(), Failure()
    assert lib is not None
    for job in jobs:
        _torch_step.fit_columns(settings[job.group], job)
    tensors = tensors_of(rule, settings, jobs)
    counts = torch.zeros((len(jobs), 2), dtype=torch.int64, device=device)
    # freed when this returns: the allocator gives it to nothing that does not come later on the same stream
    scratch: Tensor = torch.empty(lib.ckpress_cuda_scratch(tensors, len(jobs)), dtype=torch.uint8, device=device)
    memory = counts.data_ptr(), scratch.data_ptr(), scratch.numel()
    status = lib.ckpress_cuda_step(tensors, len(jobs), _index(device), stream_of(device), *memory, why)
    if status != 0:
        raise why.error(status)
    return [(t.m_corr, t.v_corr, count[0], count[1]) for t, count in zip(tensors, counts, strict=True)]
