# SPDX-License-Identifier: Apache-2.0
"""One parameter's moments as packed codes, and what goes out of them and comes in: codes of the parameter's own shape, or floats."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import _core
from ..errors import InvalidError

WIDTHS = (2, 3, 4, 5, 6, 8)
BLOCK = 256  # elements of a row where there are no rows to go by
MOMENTUM_BLOCK = 64  # elements under one factor of a momentum without v

#: Options `master`: what is kept of a bf16 weight's further bits.
MASTERS = {None: None, "split8": torch.int8, "split16": torch.int16}

_lock = threading.Lock()
_engines: dict[tuple[int, int], _core.Optim] = {}


def _after_fork() -> None:
    """A thread that does not exist in the child may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _engine() -> _core.Optim:
    """As many threads as torch uses; a forked child gets threads of its own. The caller holds the lock."""
    key = os.getpid(), torch.get_num_threads()
    if key not in _engines:
        for old in [k for k in _engines if k[0] == key[0]]:
            del _engines[old]
        _engines[key] = _core.Optim(key[1])
    return _engines[key]


def step(rule: str, settings: list[tuple[Any, ...]], tensors: list[tuple[Any, ...]]) -> list[tuple[float, float, int, int]]:
    """One step in C."""
    with _lock:
        return getattr(_engine(), rule)(settings, tensors)  # type: ignore[no-any-return]


def recode(packed: Packed, bits: tuple[int, int], settings: list[tuple[Any, ...]], tensor: tuple[Any, ...]) -> None:
    """Codes of a parameter, given as to step(), in other widths; nothing but the new codes is allocated."""
    cols, _ = layout(packed.shape)
    new = [
        have if b == was else torch.empty(_core.Optim.state_bytes(packed.numel, cols, b), dtype=torch.uint8)
        for have, was, b in zip((packed.m, packed.v), packed.bits, bits, strict=True)
    ]
    with _lock:
        _engine().recode(settings, tensor, *bits, new[0].data_ptr(), new[1].data_ptr())
    packed.m, packed.v = new
    packed.bits = bits


def layout(shape: tuple[int, ...]) -> tuple[int, bool]:
    """Elements of a row, and whether columns have factors too. From the shape of the whole parameter alone."""
    numel = math.prod(shape)
    if len(shape) >= 2 and shape[0] >= 16 and numel // shape[0] >= 32:
        return numel // shape[0], True
    return max(1, min(BLOCK, numel)), False


def factors(numel: int, cols: int, alone: bool) -> int:
    """How many there are for rows: one each; of a momentum alone one for each 64 elements of each."""
    whole, rest = divmod(numel, cols)
    return whole * -(-cols // MOMENTUM_BLOCK) + -(-rest // MOMENTUM_BLOCK) if alone else whole + (rest != 0)


@dataclasses.dataclass
class Packed:
    """What stays in memory. Tensors and numbers only, so that it can be copied and pickled. A momentum alone is m: v has 0 bits and no memory."""

    shape: tuple[int, ...]
    bits: tuple[int, int]
    m: Tensor
    v: Tensor
    row: Tensor
    col: Tensor | None
    rest: Tensor | None = None  # further bits of the weights, in their shape
    step: int = 0
    m_corr: float = 0.0
    v_corr: float = 0.0
    kept: tuple[int, ...] | None = None  # what a policy of widths keeps of it, while no policy holds that

    FIXED: ClassVar[int] = 3 * 8  # bytes of step and corrections

    @classmethod
    def empty(cls, shape: tuple[int, ...], bits: tuple[int, int]) -> Packed:
        numel, (cols, has_cols) = math.prod(shape), layout(shape)
        m, v = (torch.zeros(_core.Optim.state_bytes(numel, cols, b), dtype=torch.uint8) for b in bits)
        row = torch.zeros(factors(numel, cols, bits[1] == 0), dtype=torch.uint8)
        has_cols = has_cols and bits[1] != 0
        return cls(shape, bits, m, v, row, torch.zeros(cols, dtype=torch.int8) if has_cols else None)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Everything that is kept for the parameter, its step, corrections and further bits included."""
        return self.m.nbytes + self.v.nbytes + self.row.nbytes + sum(t.nbytes for t in (self.col, self.rest) if t is not None) + self.FIXED

    def to(self, device: torch.device | str) -> Packed:
        """The same on that device: itself where it is there."""
        where = torch.device(device)
        if self.m.device.type == where.type and where.index in (None, self.m.device.index):
            return self
        moved = {k: None if t is None else t.to(where) for k, t in (("m", self.m), ("v", self.v), ("row", self.row), ("col", self.col), ("rest", self.rest))}
        return dataclasses.replace(self, **moved)  # type: ignore[arg-type]

    def view(self, name: str | None = None) -> tuple[Any, ...]:
        """As _core takes it."""
        cols, _ = layout(self.shape)
        col = self.col.data_ptr() if self.col is not None else 0
        pointers = self.m.data_ptr(), self.v.data_ptr(), self.row.data_ptr(), col
        return (name, self.numel, cols, *self.bits, *pointers, self.m_corr, self.v_corr)

    def keep_rest(self, dtype: torch.dtype | None) -> tuple[int, int]:
        """From now on further bits of that many bits, or none; their width and address, as _core takes them."""
        if dtype is None:
            self.rest = None
            return 0, 0
        if self.rest is None:
            self.rest = torch.zeros(self.shape, dtype=dtype, device=self.m.device)
        elif self.rest.dtype != dtype:
            wide = self.rest.to(torch.int16)
            self.rest = wide * 256 if dtype == torch.int16 else ((wide.int() + 128) >> 8).clamp(max=127).to(dtype)
        return 8 * self.rest.element_size(), self.rest.data_ptr()

    # ---- codes of the parameter's own shape ----

    def codes(self, moments: tuple[str, ...]) -> dict[str, Tensor]:
        """For a state_dict: m's and v's codes in uint8 of the parameter's shape (m's modulo 256), and small tensors."""
        if self.m.device.type != "cpu":
            small = ("bits", "correction", "step")
            return {k: t if k in small else t.to(self.m.device) for k, t in self.to("cpu").codes(moments).items()}
        cols, _ = layout(self.shape)
        out = {}
        for moment, packed, bits, signed in zip(moments, (self.m, self.v), self.bits, (True, False), strict=False):
            code = out[f"{moment}_code"] = torch.empty(self.shape, dtype=torch.uint8)
            _core.Optim.unpack(code.data_ptr(), packed.data_ptr(), self.numel, cols, bits, signed)
        out["row_factor"] = self.row.clone()
        if self.col is not None:
            out["col_factor"] = self.col.clone()
        if self.rest is not None:
            out["master_rest"] = self.rest.clone()
        out["bits"] = torch.tensor(self.bits, dtype=torch.uint8)
        out["correction"] = torch.tensor([self.m_corr, self.v_corr], dtype=torch.float64)
        out["step"] = torch.tensor(float(self.step), dtype=torch.float32)
        return out

    @classmethod
    def from_codes(cls, shape: tuple[int, ...], saved: dict[str, Any], moments: tuple[str, ...], name: str) -> Packed:
        """The reverse, with the widths that were saved; everything is looked at before it is used."""
        numel, (cols, has_cols) = math.prod(shape), layout(shape)
        alone = len(moments) == 1
        has_cols = has_cols and not alone
        code = [_wanted(saved, f"{k}_code", shape, torch.uint8, name) for k in moments]
        row = _wanted(saved, "row_factor", (factors(numel, cols, alone),), torch.uint8, name)
        col = _wanted(saved, "col_factor", (cols,), torch.int8, name) if has_cols else None
        bits = tuple(_wanted(saved, "bits", (2,), torch.uint8, name).tolist())
        m_corr, v_corr = _wanted(saved, "correction", (2,), torch.float64, name).tolist()
        steps = float(saved["step"])
        if bits[0] not in WIDTHS or (bits[1] != 0 if alone else bits[1] not in WIDTHS):
            raise InvalidError(f"{name}: widths of {bits} bits are not known")
        if not (0 <= m_corr <= 1 and 0 <= v_corr <= 1 and steps >= 0 and steps == int(steps)):
            raise InvalidError(f"{name}: steps or corrections out of range")
        if numel and not bool(((row == 0) | ((row >= 17) & (row <= (200 if alone else 239)))).all()) or (col is not None and not bool(((col >= -16) & (col <= 15)).all())):
            raise InvalidError(f"{name}: factors out of range")
        signed = code[0].view(torch.int8)
        if numel and (int(signed.to(torch.int16).abs().max()) >= 1 << (bits[0] - 1) or (not alone and int(code[1].max()) >= 1 << bits[1])):
            raise InvalidError(f"{name}: codes that {bits} bits do not have")
        out = cls.empty(shape, (bits[0], bits[1]))
        if "master_rest" in saved:
            out.rest = _wanted(saved, "master_rest", shape, getattr(saved["master_rest"], "dtype", None), name).clone()
            if out.rest.dtype not in MASTERS.values():
                raise InvalidError(f"{name}: master_rest of {out.rest.dtype}")
        out.row, out.col = row.clone(), None if col is None else col.clone()
        out.step, out.m_corr, out.v_corr = int(steps), m_corr, v_corr
        for packed, c, b in zip((out.m, out.v), code, bits, strict=False):
            _core.Optim.pack(packed.data_ptr(), c.contiguous().data_ptr(), numel, cols, b)
        return out

    # ---- moments as torch keeps them ----

    def moments(self) -> list[Tensor]:
        if self.m.device.type != "cpu":
            return [t.to(self.m.device) for t in self.to("cpu").moments()]
        out = [torch.empty(self.shape, dtype=torch.float32) for b in self.bits if b != 0]
        _core.Optim.read(self.view(), out[0].data_ptr(), out[1].data_ptr() if len(out) > 1 else 0)
        return out

    @classmethod
    def from_moments(
        cls, shape: tuple[int, ...], bits: tuple[int, int], moments: list[Tensor], steps: int, correction: tuple[float, float], seed: int, number: int, name: str
    ) -> Packed:
        for t in moments:
            if tuple(t.shape) != shape:
                raise InvalidError(f"{name}: moments of shape {tuple(t.shape)} for a parameter of shape {shape}")
        out = cls.empty(shape, bits)
        out.step, (out.m_corr, out.v_corr) = steps, correction
        if steps:
            moments = [t.detach().to("cpu", torch.float32).contiguous() for t in moments]
            _core.Optim.write(out.view(name), seed, number, steps, moments[0].data_ptr(), moments[1].data_ptr() if len(moments) > 1 else 0)
        return out

    def coded(self, bits: tuple[int, int], seed: int, number: int, name: str) -> Packed:
        """The same moments in other widths."""
        if bits == self.bits:
            return self
        out = Packed.from_moments(self.shape, bits, self.moments(), self.step, (self.m_corr, self.v_corr), seed, number, name)
        out.rest = self.rest
        return out


def _wanted(saved: dict[str, Any], key: str, shape: tuple[int, ...], dtype: torch.dtype | None, name: str) -> Tensor:
    t = saved.get(key)
    if not isinstance(t, Tensor) or tuple(t.shape) != shape or t.dtype != dtype:
        what = f"{tuple(t.shape)} of {t.dtype}" if isinstance(t, Tensor) else type(t).__name__
        raise InvalidError(f"{name}: {key} should be {shape} of {dtype}, is {what}")
    return t.detach().cpu()
