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
BLOCK = 256  # elements under one factor where there are no rows to go by

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


def step(settings: list[tuple[Any, ...]], tensors: list[tuple[Any, ...]]) -> list[tuple[float, float, int, int]]:
    """One step in C."""
    with _lock:
        return _engine().adamw(settings, tensors)


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


@dataclasses.dataclass
class Packed:
    """What stays in memory. Tensors and numbers only, so that it can be copied and pickled."""

    shape: tuple[int, ...]
    bits: tuple[int, int]
    m: Tensor
    v: Tensor
    row: Tensor
    col: Tensor | None
    step: int = 0
    m_corr: float = 0.0
    v_corr: float = 0.0
    kept: tuple[int, ...] | None = None  # what a policy of widths keeps of it, while no policy holds that

    FIXED: ClassVar[int] = 3 * 8  # bytes of step and corrections

    @classmethod
    def empty(cls, shape: tuple[int, ...], bits: tuple[int, int]) -> Packed:
        numel, (cols, has_cols) = math.prod(shape), layout(shape)
        m, v = (torch.zeros(_core.Optim.state_bytes(numel, cols, b), dtype=torch.uint8) for b in bits)
        row = torch.zeros(-(-numel // cols), dtype=torch.uint8)
        return cls(shape, bits, m, v, row, torch.zeros(cols, dtype=torch.int8) if has_cols else None)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Everything that is kept for the parameter, its step and corrections included."""
        return self.m.nbytes + self.v.nbytes + self.row.nbytes + (self.col.nbytes if self.col is not None else 0) + self.FIXED

    def view(self, name: str | None = None) -> tuple[Any, ...]:
        """As _core takes it."""
        cols, _ = layout(self.shape)
        col = self.col.data_ptr() if self.col is not None else 0
        pointers = self.m.data_ptr(), self.v.data_ptr(), self.row.data_ptr(), col
        return (name, self.numel, cols, *self.bits, *pointers, self.m_corr, self.v_corr)

    # ---- codes of the parameter's own shape ----

    def codes(self) -> dict[str, Tensor]:
        """For a state_dict: m's and v's codes in uint8 of the parameter's shape (m's modulo 256), and small tensors."""
        cols, _ = layout(self.shape)
        out = {}
        for name, packed, bits, signed in (("exp_avg_code", self.m, self.bits[0], True), ("exp_avg_sq_code", self.v, self.bits[1], False)):
            out[name] = torch.empty(self.shape, dtype=torch.uint8)
            _core.Optim.unpack(out[name].data_ptr(), packed.data_ptr(), self.numel, cols, bits, signed)
        out["row_factor"] = self.row.clone()
        if self.col is not None:
            out["col_factor"] = self.col.clone()
        out["bits"] = torch.tensor(self.bits, dtype=torch.uint8)
        out["correction"] = torch.tensor([self.m_corr, self.v_corr], dtype=torch.float64)
        out["step"] = torch.tensor(float(self.step), dtype=torch.float32)
        return out

    @classmethod
    def from_codes(cls, shape: tuple[int, ...], saved: dict[str, Any], name: str) -> Packed:
        """The reverse, with the widths that were saved; everything is looked at before it is used."""
        numel, (cols, has_cols) = math.prod(shape), layout(shape)
        rows = -(-numel // cols)
        code = {k: _wanted(saved, k, shape, torch.uint8, name) for k in ("exp_avg_code", "exp_avg_sq_code")}
        row = _wanted(saved, "row_factor", (rows,), torch.uint8, name)
        col = _wanted(saved, "col_factor", (cols,), torch.int8, name) if has_cols else None
        bits = tuple(int(b) for b in _wanted(saved, "bits", (2,), torch.uint8, name))
        m_corr, v_corr = _wanted(saved, "correction", (2,), torch.float64, name).tolist()
        steps = float(saved["step"])
        if not all(b in WIDTHS for b in bits):
            raise InvalidError(f"{name}: widths of {bits} bits are not known")
        if not (0 <= m_corr <= 1 and 0 <= v_corr <= 1 and steps >= 0 and steps == int(steps)):
            raise InvalidError(f"{name}: steps or corrections out of range")
        if rows and not bool(((row == 0) | ((row >= 17) & (row <= 239))).all()) or (col is not None and not bool(((col >= -16) & (col <= 15)).all())):
            raise InvalidError(f"{name}: factors out of range")
        signed = code["exp_avg_code"].view(torch.int8)
        if numel and (int(signed.to(torch.int16).abs().max()) >= 1 << (bits[0] - 1) or int(code["exp_avg_sq_code"].max()) >= 1 << bits[1]):
            raise InvalidError(f"{name}: codes that {bits} bits do not have")
        out = cls.empty(shape, (bits[0], bits[1]))
        out.row, out.col = row.clone(), None if col is None else col.clone()
        out.step, out.m_corr, out.v_corr = int(steps), m_corr, v_corr
        for packed, c, b in ((out.m, code["exp_avg_code"], bits[0]), (out.v, code["exp_avg_sq_code"], bits[1])):
            _core.Optim.pack(packed.data_ptr(), c.contiguous().data_ptr(), numel, cols, b)
        return out

    # ---- moments as torch keeps them ----

    def moments(self) -> tuple[Tensor, Tensor]:
        m, v = (torch.empty(self.shape, dtype=torch.float32) for _ in range(2))
        _core.Optim.read(self.view(), m.data_ptr(), v.data_ptr())
        return m, v

    @classmethod
    def from_moments(
        cls, shape: tuple[int, ...], bits: tuple[int, int], m: Tensor, v: Tensor, steps: int, correction: tuple[float, float], seed: int, number: int, name: str
    ) -> Packed:
        for t in (m, v):
            if tuple(t.shape) != shape:
                raise InvalidError(f"{name}: moments of shape {tuple(t.shape)} for a parameter of shape {shape}")
        out = cls.empty(shape, bits)
        out.step, (out.m_corr, out.v_corr) = steps, correction
        if steps:
            m, v = (t.detach().to("cpu", torch.float32).contiguous() for t in (m, v))
            _core.Optim.write(out.view(name), seed, number, steps, m.data_ptr(), v.data_ptr())
        return out

    def coded(self, bits: tuple[int, int], seed: int, number: int, name: str) -> Packed:
        """The same moments in other widths."""
        if bits == self.bits:
            return self
        return Packed.from_moments(self.shape, bits, *self.moments(), self.step, (self.m_corr, self.v_corr), seed, number, name)


def _wanted(saved: dict[str, Any], key: str, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tensor:
    t = saved.get(key)
    if not isinstance(t, Tensor) or tuple(t.shape) != shape or t.dtype != dtype:
        what = f"{tuple(t.shape)} of {t.dtype}" if isinstance(t, Tensor) else type(t).__name__
        raise InvalidError(f"{name}: {key} should be {shape} of {dtype}, is {what}")
    return t.detach().cpu()
