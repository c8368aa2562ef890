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
from .._views import Coded
from ..errors import InvalidError, UnsupportedError
from . import _sharded
from ._sharded import Part

#: Of parameters and gradients: names and numbers of ckp_dtype.
DTYPES = {torch.float16: ("f16", 10), torch.bfloat16: ("bf16", 11), torch.float32: ("f32", 12)}
WIDTHS = (2, 3, 4, 5, 6, 8)
BLOCK = 256  # elements under a factor where a row has a multiple of them, and there are no columns
WIDE_ROW = 1024  # elements that a step takes at a time where there are no rows
MOMENTUM_BLOCK = 64  # elements under one factor of a momentum without v

#: Largest |m| / sqrt(v) that codes of m have, by their width (src/optim/grid.c), of those that an outlier outgrows.
TOP = {2: 0.5, 3: 0.75, 4: 1.0, 5: 1.5, 6: 2.5}
ROOM = 8  # width of an m that has outgrown its own
SETTLES = 32  # steps until it is back: what it came with is 3 % of its size then (b1 = 0.9)
IN_ROOM = 16  # from here on the first byte of a state's `bits` says of such an m its own width and the steps that are left

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


def sums(tensors: list[tuple[Any, ...]]) -> None:
    """Sums by column of parameters, given as to step()."""
    with _lock:
        _engine().sums([(0.0, 0.0, 0.0, 0.0, 0.0, False, False, 0)] * (1 + max(t[1] for t in tensors)), tensors)


def recode(packed: Packed, bits: tuple[int, int], settings: list[tuple[Any, ...]], tensor: tuple[Any, ...]) -> None:
    """Codes of a parameter, given as to step(), in other widths; nothing but the new codes is allocated."""
    new = [
        have if b == was else torch.empty(_core.Optim.state_bytes(packed.numel, packed.cols, b), dtype=torch.uint8, device="cpu")
        for have, was, b in zip((packed.m, packed.v), packed.bits, bits, strict=True)
    ]
    with _lock:
        _engine().recode(settings, tensor, *bits, new[0].data_ptr(), new[1].data_ptr())
    packed.m, packed.v = new
    packed.bits, packed.settle = bits, None


def refuse(p: Tensor, who: str) -> tuple[Part, _sharded.Ranks | None]:
    """UnsupportedError where a parameter can't have state of a few bits; else what of it is here, and who has the rest."""
    if type(p) not in (torch.nn.Parameter, Tensor) and not _sharded.is_dtensor(p):
        raise UnsupportedError(f"{who} is a {type(p).__name__}: only plain tensors and DTensors have state of a few bits; give its group state_bits=32")
    if p.dtype not in DTYPES or p.device.type == "meta" or p.layout != torch.strided:
        raise UnsupportedError(f"{who} is {p.dtype} on {p.device}: not supported with state of a few bits; give its group state_bits=32")
    placed = _sharded.place_of(p, who)
    _sharded.refuse_expanded(p, who)
    return placed


def refuse_twice(named: list[tuple[Tensor, str]], who: str) -> None:
    """InvalidError where two parameters are one, or begin at one place in memory: a step would change it by two threads at once. Views of one storage that
    begin elsewhere are what sharding makes of it."""
    first: dict[Any, str] = {}
    for p, name in named:
        at = _address(p) or id(p)
        if first.setdefault(at, name) != name:
            raise InvalidError(f"{who}: {first[at]} and {name} are one in memory: an optimizer takes it once")


def _address(p: Tensor) -> tuple[Any, int] | None:
    """None: there is nothing that a step would write."""
    here = _sharded.local(p)
    if not p.requires_grad or type(here) not in (torch.nn.Parameter, Tensor) or here.layout != torch.strided or here.device.type not in ("cpu", "cuda"):
        return None
    return (here.device, here.data_ptr()) if here.numel() and here.untyped_storage().nbytes() else None


def is_wide(shape: torch.Size | tuple[int, ...]) -> bool:
    """Whether moments stay f32: what has no rows may be cut anywhere, so that no factors could be the same however it is."""
    return len(shape) < 2


def layout(shape: tuple[int, ...]) -> tuple[int, bool]:
    """Elements under a factor, and whether columns have factors too. From the shape of the whole parameter alone, and never across rows of its first dimension."""
    cols = max(1, math.prod(shape[1:]))
    if shape[0] >= 16 and cols >= 32:
        return cols, True
    return BLOCK if cols % BLOCK == 0 else cols, False


def blocks(shape: tuple[int, ...]) -> int:
    """Elements under a factor as it was in states that have no rows."""
    return max(1, min(BLOCK, math.prod(shape)))


def factors(numel: int, cols: int, alone: bool) -> int:
    """How many there are for rows: one each; of a momentum alone one for each 64 elements of each."""
    whole, rest = divmod(numel, cols)
    return whole * -(-cols // MOMENTUM_BLOCK) + -(-rest // MOMENTUM_BLOCK) if alone else whole + (rest != 0)


def rest_as(rest: Tensor | None, dtype: torch.dtype | None, shape: tuple[int, ...], device: torch.device) -> Tensor | None:
    """Further bits of weights in that type, or none; row by row, as C and the weights that it is given are."""
    if dtype is None:
        return None
    if rest is None:
        return torch.zeros(shape, dtype=dtype, device=device)
    if rest.dtype == dtype:
        return rest.contiguous()
    wide = rest.contiguous().to(torch.int16)
    return wide * 256 if dtype == torch.int16 else ((wide.int() + 128) >> 8).clamp(max=127).to(dtype)


class Wide:
    """Moments in f32 of a parameter that has no rows, as torch keeps them, for as long as a step takes: the memory is a state's."""

    def __init__(self, state: dict[str, Any], p: Tensor, part: Part, moments: tuple[str, ...]) -> None:
        self.state, self.of, self.part, self.device = state, p, part, _sharded.local(p).device
        self.moments = [self._there(k) for k in moments]
        self.bits = (32, 32 if len(moments) > 1 else 0)
        self.step = int(state["step"])
        self.m_corr, self.v_corr = float(self.step != 0), 0.0  # a momentum begins as the first gradient
        self.rest = None if state.get("master_rest") is None else self._there("master_rest")

    def _there(self, key: str) -> Tensor:
        """What is here of a state's tensor, where the parameter is: a model moves without its optimizer."""
        here = _sharded.local(self.state[key])
        if here.device != self.device:
            here = here.to(self.device)
            self.state[key] = _sharded.like(self.of, here, self.part.whole)
        return here

    def fits(self) -> bool:
        return all(t.shape == self.part.shape and t.dtype == torch.float32 and t.device == self.device for t in self.moments)

    @staticmethod
    def open(state: dict[str, Any], p: Tensor, moments: tuple[str, ...]) -> None:
        """The state before the first step."""
        state["step"] = torch.tensor(0.0, dtype=torch.float32, device="cpu")
        state.update({k: torch.zeros_like(p, dtype=torch.float32, memory_format=torch.contiguous_format).detach() for k in moments})

    def view(self, name: str | None = None) -> tuple[Any, ...]:
        v = self.moments[1].data_ptr() if len(self.moments) > 1 else 0
        numel = self.part.numel
        return (name, numel, max(1, min(WIDE_ROW, numel)), *self.bits, self.moments[0].data_ptr(), v, 0, 0, self.m_corr, self.v_corr)

    def keep_rest(self, dtype: torch.dtype | None) -> tuple[int, int]:
        rest = rest_as(self.rest, dtype, self.part.shape, self.moments[0].device)
        if rest is not self.rest:
            self.rest = rest
            self.state.pop("master_rest", None)
            if rest is not None:
                self.state["master_rest"] = _sharded.like(self.of, rest, self.part.whole)
        return _rest_of(rest)

    def fits_columns(self) -> bool:
        return False

    def stepped(self, m_corr: float, v_corr: float) -> None:
        self.state["step"].fill_(self.step + 1)


def wide_state(saved: dict[str, Any], p: Tensor, part: Part, moments: dict[str, Tensor], dtype: torch.dtype, name: str) -> dict[str, Any]:
    """A state of moments that have no codes, in memory of its own."""
    for t in moments.values():
        if tuple(t.shape) != part.shape:
            raise InvalidError(f"{name}: moments of shape {tuple(t.shape)} for a parameter of shape {part.shape}")
    out: dict[str, Any] = {k: _sharded.like(p, t.detach().to(p.device, dtype, copy=True), part.whole) for k, t in moments.items()}
    rest = _sharded.here(saved.get("master_rest"), p, part)
    if rest is not None:
        if tuple(rest.shape) != part.shape or rest.dtype not in MASTERS.values():
            raise InvalidError(f"{name}: master_rest of {tuple(rest.shape)} and {rest.dtype}")
        out["master_rest"] = _sharded.like(p, rest.detach().to(p.device, copy=True), part.whole)
    return out


def copied(state: Any) -> Any:
    """A state without codes as it is now, as codes are: the optimizer goes on writing into its tensors."""
    return {k: t.detach().clone() if isinstance(t, Tensor) else t for k, t in state.items()} if isinstance(state, dict) else state


def steps_of(saved: Any, name: str) -> int:
    """Finished steps, as a state has them."""
    try:
        steps = float(saved)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidError(f"{name}: its number of steps is {saved!r}") from None
    if not (0 <= steps <= 1 << 53 and steps == int(steps)):
        raise InvalidError(f"{name}: {steps} is no number of steps")
    return int(steps)


def mixed(name: str) -> InvalidError:
    """torch's helpers put what comes into a state that is here, key by key: codes of before stay beside steps of another class. On one rank, which has read the
    file, beside its moments too: all must say the same."""
    return InvalidError(
        f"{name}: a state of torch's class among codes that are not of it: set_optimizer_state_dict(full_state_dict=True) is for this class's own; "
        "give that of torch's to load_state_dict(), on every rank and whole"
    )


def check_tensors(moments: list[Any], name: str) -> None:
    for t in moments:
        if not isinstance(t, Tensor):
            raise InvalidError(f"{name}: its moments should be tensors, one is {type(t).__name__}")


def widths_of(saved: dict[str, Any], moments: int, name: str) -> tuple[int, int] | None:
    """Of moments that were saved as floats; None: nothing says so."""
    if "bits" not in saved:
        return None
    bits = tuple(_wanted(saved, "bits", (2,), torch.uint8, name).tolist())
    if bits[0] not in WIDTHS or (bits[1] != 0 if moments == 1 else bits[1] not in WIDTHS):
        raise InvalidError(f"{name}: widths of {bits} bits are not known")
    return bits


def _room_byte(bits: int, left: int) -> int:
    """In the place of ROOM, so that a state has the same tensors with room and without: torch.distributed.checkpoint reads into a state that has none."""
    return IN_ROOM + (SETTLES + 1) * list(TOP).index(bits) + left


def _room_of(byte: int) -> tuple[int, int] | None:
    """The reverse; None: no such."""
    which, left = divmod(byte - IN_ROOM, SETTLES + 1)
    return (list(TOP)[which], left) if 0 <= which < len(TOP) else None


def _outgrows(moments: list[Tensor], correction: tuple[float, float], bits: int) -> bool:
    """Whether codes of that width would lose a twentieth of m's share in the step's direction, m^2 / v."""
    lost, whole = 0.0, 0.0
    for m, v in zip(*(t.detach().cpu().float().reshape(-1).split(1 << 20) for t in moments), strict=True):
        u = (m / correction[0]).abs() / (v / correction[1]).sqrt().clamp(min=1e-30)
        u[(v <= 0) | ~u.isfinite()] = 0
        lost += float(((u - TOP.get(bits, float("inf"))).clamp(min=0) * u).sum())
        whole += float((u * u).sum())
    return lost > 0.05 * whole


def _rest_of(rest: Tensor | None) -> tuple[int, int]:
    return (0, 0) if rest is None else (8 * rest.element_size(), rest.data_ptr())


@dataclasses.dataclass
class Packed:
    """What stays in memory. Tensors and numbers only, so that it can be copied and pickled. A momentum alone is m: v has 0 bits and no memory."""

    part: Part
    cols: int
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
    settle: tuple[int, int, int] | None = None  # the widths that it is to have, and after which step

    FIXED: ClassVar[int] = 3 * 8  # bytes of step and corrections

    @classmethod
    def empty(cls, part: Part, bits: tuple[int, int], cols: int = 0) -> Packed:
        """`cols`: in blocks as states were that have no rows."""
        by_shape, has_cols = layout(part.whole) if not cols else (cols, False)
        m, v = (torch.zeros(_core.Optim.state_bytes(part.numel, by_shape, b), dtype=torch.uint8, device="cpu") for b in bits)
        row = torch.zeros(factors(part.numel, by_shape, bits[1] == 0), dtype=torch.uint8, device="cpu")
        has_cols = has_cols and bits[1] != 0
        return cls(part, by_shape, bits, m, v, row, torch.zeros(by_shape, dtype=torch.int8, device="cpu") if has_cols else None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "part" not in state:  # pickled when parameters had no parts
            shape = state.pop("shape")
            cols = layout(shape)[0] if state["col"] is not None or (len(shape) > 1 and layout(shape)[1]) else blocks(shape)
            state = {**state, "part": Part.all_of(shape), "cols": cols}
        self.__dict__.update(state)

    @property
    def in_blocks(self) -> bool:
        """As they were in states that have no rows: such codes are for reading alone."""
        return is_wide(self.part.whole) or self.cols != layout(self.part.whole)[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.part.shape

    @property
    def numel(self) -> int:
        return self.part.numel

    def fits_columns(self) -> bool:
        """ckp_optim_sums_due, of the next step."""
        return self.col is not None and self.part.total > self.cols and (self.v_corr == 0.0 or self.step + 1 & self.step == 0)

    def stepped(self, m_corr: float, v_corr: float) -> None:
        self.m_corr, self.v_corr, self.step = m_corr, v_corr, self.step + 1

    @property
    def aim(self) -> tuple[int, int]:
        """Its widths, or those that it is to have."""
        return self.bits if self.settle is None else self.settle[:2]

    def settled(self, seed: int, number: int, name: str) -> Packed:
        """Itself, or where its time has come the same in the widths that it is to have."""
        return self if self.settle is None or self.step < self.settle[2] else self.settled_now(None, seed, number, name)

    def settled_now(self, ranks: _sharded.Ranks | None, seed: int, number: int, name: str) -> Packed:
        """The same before its time: ranks that share a parameter would have to settle it together."""
        return dataclasses.replace(dataclasses.replace(self, settle=None).coded(ranks, self.aim, seed, number, name), kept=self.kept)

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
        col = self.col.data_ptr() if self.col is not None else 0
        pointers = self.m.data_ptr(), self.v.data_ptr(), self.row.data_ptr(), col
        return (name, self.numel, self.cols, *self.bits, *pointers, self.m_corr, self.v_corr)

    def keep_rest(self, dtype: torch.dtype | None) -> tuple[int, int]:
        """From now on further bits of that many bits, or none; their width and address, as _core takes them."""
        self.rest = rest_as(self.rest, dtype, self.shape, self.m.device)
        return _rest_of(self.rest)

    # ---- codes of the parameter's own shape ----

    def codes(self, p: Tensor, moments: tuple[str, ...]) -> dict[str, Tensor]:
        """For a state_dict: m's and v's codes in uint8 of the parameter's shape (m's modulo 256), factors of rows (of those without columns as (rows, factors
        of each)), all placed as the parameter is; and small tensors, which are where it is too but for a step: torch's helpers want one device alone."""
        device = _sharded.local(p).device
        return {k: t if k == "step" or t.device == device else t.to(device) for k, t in self.to("cpu")._codes(p, moments).items()}

    def _codes(self, p: Tensor, moments: tuple[str, ...]) -> dict[str, Tensor]:
        out, shape = {}, self.part.whole
        for moment, packed, bits, signed in zip(moments, (self.m, self.v), self.bits, (True, False), strict=False):
            code = torch.empty(self.shape, dtype=torch.uint8, device="cpu")
            _core.Optim.unpack(code.data_ptr(), packed.data_ptr(), self.numel, self.cols, bits, signed)
            out[f"{moment}_code"] = _sharded.like(p, code, shape)
        row = self.row.clone()
        if self.col is not None or self.in_blocks:
            out["row_factor"] = _sharded.like(p, row, shape[:1])
        else:
            each = self._factors_of_a_row(shape, self.cols, self.bits[1] == 0)
            out["row_factor"] = _sharded.like(p, row.view(self.part.rows, each), (shape[0], each))
        if self.col is not None:
            out["col_factor"] = self.col.clone()
        if self.rest is not None:
            out["master_rest"] = _sharded.like(p, self.rest.clone(), shape)
        m = self.bits[0] if self.settle is None else _room_byte(self.settle[0], max(0, self.settle[2] - self.step))
        out["bits"] = torch.tensor((m, self.bits[1]), dtype=torch.uint8, device="cpu")
        out["correction"] = torch.tensor([self.m_corr, self.v_corr], dtype=torch.float64, device="cpu")
        out["step"] = torch.tensor(float(self.step), dtype=torch.float32, device="cpu")
        return out

    @staticmethod
    def _factors_of_a_row(shape: tuple[int, ...], cols: int, alone: bool) -> int:
        return factors(math.prod(shape[1:]), cols, alone)

    @classmethod
    def from_codes(cls, p: Tensor, part: Part, saved: dict[str, Any], moments: tuple[str, ...], name: str) -> Packed:
        """The reverse, with the widths that were saved; everything is looked at before it is used. What was saved in blocks without rows comes whole."""
        if moments[0] in saved:
            raise mixed(name)
        alone, shape = len(moments) == 1, part.whole
        row = saved.get("row_factor")
        has_cols = not is_wide(shape) and layout(shape)[1] and not alone
        cols = 0
        if is_wide(shape) or (isinstance(row, Tensor) and row.dim() == 1 and not layout(shape)[1] and layout(shape)[0] != BLOCK):
            part, cols = Part.all_of(shape), blocks(shape)
        saved = {k: _sharded.whole(t) if k in ("bits", "correction", "step", "col_factor") or cols else t for k, t in saved.items()}
        if not cols:
            if isinstance(row, Tensor) and not has_cols:
                each = cls._factors_of_a_row(shape, layout(shape)[0], alone)
                if row.dim() == 1 and row.numel() == shape[0] * each:
                    saved["row_factor"] = _sharded.whole(row).reshape(shape[0], each)
            rows = (*(f"{k}_code" for k in moments), "row_factor", "master_rest")
            saved = {k: _sharded.here(t, p, part) if k in rows else t for k, t in saved.items()}
            if isinstance(saved.get("row_factor"), Tensor) and not has_cols:
                saved["row_factor"] = saved["row_factor"].reshape(-1)
        return cls._from_codes(part, saved, moments, name, cols)

    @classmethod
    def _from_codes(cls, part: Part, saved: dict[str, Any], moments: tuple[str, ...], name: str, blocks_of: int) -> Packed:
        shape, numel, alone = part.shape, part.numel, len(moments) == 1
        cols, has_cols = (blocks_of, False) if blocks_of else layout(part.whole)
        has_cols = has_cols and not alone
        code = [_wanted(saved, f"{k}_code", shape, torch.uint8, name) for k in moments]
        row = _wanted(saved, "row_factor", (factors(numel, cols, alone),), torch.uint8, name)
        col = _wanted(saved, "col_factor", (cols,), torch.int8, name) if has_cols else None
        said = _wanted(saved, "bits", (2,), torch.uint8, name)
        room = None if alone else _room_of(int(said[0]))
        bits = widths_of({"bits": said if room is None else torch.tensor((ROOM, int(said[1])), dtype=torch.uint8, device="cpu")}, len(moments), name)
        assert bits is not None
        m_corr, v_corr = _wanted(saved, "correction", (2,), torch.float64, name).tolist()
        steps = steps_of(saved.get("step"), name)
        if not (0 <= m_corr <= 1 and 0 <= v_corr <= 1):
            raise InvalidError(f"{name}: corrections out of range")
        if steps and m_corr == 0:
            raise mixed(name)
        if numel and not bool(((row == 0) | ((row >= 17) & (row <= (200 if alone else 239)))).all()) or (col is not None and not bool(((col >= -16) & (col <= 15)).all())):
            raise InvalidError(f"{name}: factors out of range")
        signed = code[0].view(torch.int8)
        if numel and (int(signed.to(torch.int16).abs().max()) >= 1 << (bits[0] - 1) or (not alone and int(code[1].max()) >= 1 << bits[1])):
            raise InvalidError(f"{name}: codes that {bits} bits do not have")
        out = cls.empty(part, bits, blocks_of)
        if "master_rest" in saved:
            rest = _wanted(saved, "master_rest", shape, getattr(saved["master_rest"], "dtype", None), name)
            out.rest = rest.clone(memory_format=torch.contiguous_format)  # clone() alone keeps strides
            if out.rest.dtype not in MASTERS.values():
                raise InvalidError(f"{name}: master_rest of {out.rest.dtype}")
        out.row, out.col = row.clone(), None if col is None else col.clone()
        out.step, out.m_corr, out.v_corr = steps, m_corr, v_corr
        out.settle = None if room is None else (room[0], bits[1], steps + room[1])
        for packed, c, b in zip((out.m, out.v), code, bits, strict=False):
            rows = c.contiguous()  # a copy lives as long as its name
            _core.Optim.pack(packed.data_ptr(), rows.data_ptr(), numel, cols, b)
        return out

    # ---- moments as torch keeps them ----

    def moments(self) -> list[Tensor]:
        if self.m.device.type != "cpu":
            return [t.to(self.m.device) for t in self.to("cpu").moments()]
        out = [torch.empty(self.shape, dtype=torch.float32, device="cpu") for b in self.bits if b != 0]
        _core.Optim.read(self.view(), out[0].data_ptr(), out[1].data_ptr() if len(out) > 1 else 0)
        return out

    def as_floats(self, moments: tuple[str, ...], widths: bool) -> dict[str, Any]:
        """For a checkpoint that rounds moments: what they stand for, made when it is read; and of which width they are, where the parameter's group does not say."""
        here = self.to("cpu")
        out: dict[str, Any] = {k: Coded(self.shape, here.view(), i == 1, here) for i, k in enumerate(moments)}
        out["step"] = torch.tensor(float(self.step), dtype=torch.float32, device="cpu")
        if widths:
            out["bits"] = torch.tensor(self.aim, dtype=torch.uint8, device="cpu")
        return out

    @classmethod
    def with_room(
        cls, part: Part, ranks: _sharded.Ranks | None, bits: tuple[int, int], moments: list[Tensor], steps: int, correction: tuple[float, float], seed: int, number: int, name: str
    ) -> Packed:
        """As from_moments(), of moments that other optimizers or lossy checkpoints had: an m that is in part far above sqrt(v), which codes of few bits would cut off,
        is wider for the next steps. Of whole parameters: ranks would have to agree."""
        fit = all(tuple(t.shape) == part.shape for t in moments)  # from_moments() says so of others
        if ranks is not None or len(moments) == 1 or not steps or not fit or not _outgrows(moments, correction, bits[0]):
            return cls.from_moments(part, ranks, bits, moments, steps, correction, seed, number, name)
        out = cls.from_moments(part, ranks, (ROOM, bits[1]), moments, steps, correction, seed, number, name)
        out.settle = (*bits, steps + SETTLES)
        return out

    @classmethod
    def from_moments(
        cls, part: Part, ranks: _sharded.Ranks | None, bits: tuple[int, int], moments: list[Tensor], steps: int, correction: tuple[float, float], seed: int, number: int, name: str
    ) -> Packed:
        """`ranks` that have the rest of the parameter do the same at the same time."""
        for t in moments:
            if tuple(t.shape) != part.shape:
                raise InvalidError(f"{name}: moments of shape {tuple(t.shape)} for a parameter of shape {part.shape}")
        out = cls.empty(part, bits)
        out.step, (out.m_corr, out.v_corr) = steps, correction
        if steps:
            moments = [t.detach().to("cpu", torch.float32).contiguous() for t in moments]
            sums = out._sums_of(moments[1], ranks) if out.col is not None and ranks is not None and part.total > out.cols else None
            at = out.part.first, 0 if sums is None else sums.data_ptr()
            _core.Optim.write(out.view(name), seed, number, steps, moments[0].data_ptr(), moments[1].data_ptr() if len(moments) > 1 else 0, *at)
        return out

    def _sums_of(self, v: Tensor, ranks: _sharded.Ranks) -> Tensor:
        """Of v's exponents by column, over all ranks."""
        bits = v.view(-1, self.cols).view(torch.int32) & 0x7FFFFFFF
        counted = (bits != 0) & (bits < 0x7F800000)
        sums = torch.stack([torch.where(counted, bits >> 23, 0).sum(0, dtype=torch.int64), counted.sum(0, dtype=torch.int64)], 1).contiguous()
        _sharded.add_up([(ranks, sums)])
        return sums

    def coded(self, ranks: _sharded.Ranks | None, bits: tuple[int, int], seed: int, number: int, name: str) -> Packed:
        """The same moments in other widths; itself where it has those, or is to have them."""
        if bits == self.aim:
            return self
        if bits == self.bits:
            return dataclasses.replace(self, settle=None)
        out = Packed.from_moments(self.part, ranks, bits, self.moments(), self.step, (self.m_corr, self.v_corr), seed, number, name)
        out.rest = self.rest
        return out


def _wanted(saved: dict[str, Any], key: str, shape: tuple[int, ...], dtype: torch.dtype | None, name: str) -> Tensor:
    t = saved.get(key)
    if not isinstance(t, Tensor) or tuple(t.shape) != shape or t.dtype != dtype:
        what = f"{tuple(t.shape)} of {t.dtype}" if isinstance(t, Tensor) else type(t).__name__
        raise InvalidError(f"{name}: {key} should be {shape} of {dtype}, is {what}")
    return t.detach().cpu()
