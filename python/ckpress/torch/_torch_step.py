# SPDX-License-Identifier: Apache-2.0
"""The steps of src/optim in torch's operations, for weights on devices that the kernels in C do not reach: the same arithmetic in the same order.

On a CPU it gives the kernels' very bits; elsewhere as far as the device's f32 addition, multiplication, division and square root are rounded as IEEE 754 asks.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from . import _torch_codes as tc
from ._optim_state import Packed, Wide
from ._sharded import Ranks
from ._torch_codes import f32

PART = 1 << 22  # elements at a time: temporaries take 8 bytes each
FLT_MIN = 2.0**-126


@dataclasses.dataclass
class Job:
    """A parameter's step, in C or here; alive until it is done."""

    held: Packed | Wide
    of: Tensor  # the parameter itself
    here: Tensor  # what of it is here
    p: Tensor  # that, contiguous, changed in place
    g: Tensor
    group: int
    number: int
    ranks: Ranks | None = None  # who has the rest
    name: str = ""  # for errors
    sums: Tensor | None = None  # by column, of all ranks: int64 (cols, 2)

    @property
    def packed(self) -> Packed:
        assert isinstance(self.held, Packed)
        return self.held

    @property
    def wide(self) -> Wide:
        assert isinstance(self.held, Wide)
        return self.held

    @property
    def step(self) -> int:
        return self.held.step + 1


@dataclasses.dataclass
class _Rows:
    """Some whole rows, as (rows, cols); what a shorter last row lacks is 0."""

    p: Tensor
    g: Tensor
    rest: Tensor | None
    m: Tensor
    z: Tensor
    p_z: Tensor


Done = tuple[float, float, Tensor, Tensor]  # corrections, and what the device counts: elements without use, factors raised


def one(rule: str, settings: tuple[Any, ...], job: Job) -> Done:
    rules = {("adamw", False): _adamw, ("adamw", True): _wide_adamw, ("momentum", False): _momentum, ("momentum", True): _wide_momentum}
    return rules[rule, isinstance(job.held, Wide)](settings, job)


def read(done: list[Done]) -> list[tuple[float, float, int, int]]:
    """As ``_core.Optim``'s steps give it. All numbers come from the device at once."""
    counts = [c for _, _, *both in done for c in both]
    numbers = torch.stack([c.to(counts[0].device) for c in counts]).tolist() if counts else []
    return [(m, v, int(numbers[2 * i]), int(numbers[2 * i + 1])) for i, (m, v, *_) in enumerate(done)]


def _parts(job: Job, seed: int) -> Any:
    """(slice of elements, their rows) of parts of the parameter, in order."""
    numel, cols, before = job.packed.numel, job.packed.cols, job.packed.part.first
    height = max(1, PART // cols)
    keys = [tc.key_of(seed, job.step, job.number, use) for use in (tc.USE_STEP, tc.USE_P)]
    for first in range(0, numel, height * cols):
        end = min(first + height * cols, numel)
        where = slice(first, end)

        def rows_of(t: Tensor, where: slice = where) -> Tensor:
            flat = t.view(-1)[where]
            return torch.nn.functional.pad(flat, (0, -flat.numel() % cols)).view(-1, cols)

        rest = None if job.packed.rest is None else rows_of(job.packed.rest)
        index = torch.arange(before + first, before + first + -(-(end - first) // cols) * cols, device=job.p.device).view(-1, cols)
        at = slice(*(_bytes(b, cols, job.packed.bits[0]) for b in (first, end)))
        m = tc.unpack(job.packed.m[at], end - first, cols, job.packed.bits[0], True)
        yield where, _Rows(rows_of(job.p), rows_of(job.g).float(), rest, m, tc.walk(keys[0], index), tc.walk(keys[1], index))


def _bytes(elements: int, cols: int, bits: int) -> int:
    """Of packed rows up to that element, the end of a row or of all."""
    return elements // cols * tc.row_bytes(cols, bits) + tc.row_bytes(elements % cols, bits)


def _weights_back(job: Job, where: slice, rows: _Rows, p: Tensor) -> None:
    flat = p.view(-1)[: where.stop - where.start]
    rest = None if job.held.rest is None else job.held.rest.view(-1)[where]
    tc.weights_down(flat, job.p.view(-1)[where], rest, rows.p_z.view(-1)[: flat.numel()])


def _put(to: Tensor, code: Tensor, where: slice, cols: int, bits: int) -> None:
    to[slice(*(_bytes(b, cols, bits) for b in (where.start, where.stop)))] = tc.pack(code, where.stop - where.start, cols, bits)


def _usable(g: Tensor) -> Tensor:
    return (tc.bits_of(g) & 0x7FFFFFFF) < tc.GRAD_END


# ---- AdamW and Adam ----


def _power(b: float, n: int) -> float:
    r = 1.0
    while n > 0:
        if n & 1:
            r *= b
        n >>= 1
        b *= b
    return r


@dataclasses.dataclass
class _Par:
    """ckpi_o_par, and the corrections after the step."""

    m_corr: float
    v_corr: float
    gs: float
    l2: float
    am: float
    bm: float
    av: float
    decay: float
    root: float
    add: float


def _parameters(settings: tuple[Any, ...], packed: Packed, step: int, mg: tc.MGrid, vg: tc.VGrid) -> _Par:
    lr, beta1, beta2, eps, weight_decay, coupled, maximize, _ = settings
    m_corr, v_corr = 1.0 - _power(beta1, step), 1.0 - _power(beta2, step)
    unit, gs, bm = mg.h, math.sqrt((1.0 - beta2) / v_corr), (1.0 - beta1) / m_corr
    l2 = weight_decay if coupled else 0.0
    root = f32(vg.noise / lr / unit) if lr > 0 else math.inf
    add = f32(eps / lr / unit) if lr > 0 else math.inf
    if not root <= 2.0**100:
        root, add = 0.0, math.inf
    elif not add >= FLT_MIN:
        add = FLT_MIN
    return _Par(
        m_corr, v_corr, f32(gs), f32(-l2 if maximize else l2), f32(beta1 * packed.m_corr / m_corr * tc.AGAIN), f32((-bm if maximize else bm) / gs / unit),
        f32(beta2 * packed.v_corr / v_corr), f32(1.0 if coupled else 1.0 - lr * weight_decay), root, add,
    )  # fmt: skip


def _adamw(settings: tuple[Any, ...], job: Job) -> Done:
    packed, seed = job.packed, settings[-1]
    cols, mg, vg = packed.cols, tc.m_grid(packed.bits[0]), tc.v_grid(packed.bits[1])
    par = _parameters(settings, packed, job.step, mg, vg)
    fit_columns(settings, job)
    unusable, raised = (torch.zeros((), dtype=torch.int64, device=job.p.device) for _ in range(2))
    for where, rows in _parts(job, seed):
        factors = slice(where.start // cols, -(-where.stop // cols))
        at = slice(*(_bytes(b, cols, packed.bits[1]) for b in (where.start, where.stop)))
        v = tc.unpack(packed.v[at], where.stop - where.start, cols, packed.bits[1], False)
        row = packed.row[factors].to(torch.int32)
        p, m, raw, bad = _elements(par, mg, vg, rows, v, row.clamp(min=tc.ROW_MIN), packed.col)
        m, v, packed.row[factors], up = _row_end(mg, vg, ~rows.z[:, :1] & tc.WORD, raw, m, row)
        _weights_back(job, where, rows, p)
        _put(packed.m, m, where, cols, packed.bits[0])
        _put(packed.v, v, where, cols, packed.bits[1])
        unusable += bad.view(-1)[: where.stop - where.start].sum()
        raised += up.sum()
    return par.m_corr, par.v_corr, unusable, raised


def _elements(par: _Par, mg: tc.MGrid, vg: tc.VGrid, rows: _Rows, c: Tensor, row: Tensor, col: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """step_ref.c: weights, codes of m, raw codes of v, and where the gradient is of no use."""
    e22 = (row[:, None] + (0 if col is None else col.to(torch.int32)) << 22).expand(c.shape)
    e23, x = e22 << 1, tc.random(rows.z)
    was = torch.where(c != 0, (c << (23 - vg.mant)) + e23, 0)
    s = tc.root((c >> vg.mant << 22) + e22)
    old = tc.weights_up(rows.p, rows.rest)
    whole = rows.g + par.l2 * old if par.l2 != 0 else rows.g
    usable, g = _usable(whole), par.gs * whole
    m = tc.fma(g, par.bm, mg.times(rows.m, par.am) * s)
    v = tc.fma(g, g, par.av * tc.float_of(was))
    p = tc.fma(old, par.decay, -(m / tc.fma(_sqrt(v), par.root, par.add)))
    raw = torch.where(usable, tc.v_code(tc.bits_of(v), x, e23, vg.mant), c)
    code = mg.code(m, tc.per_root((raw >> vg.mant << 22) + e22), x ^ rows.z)
    return torch.where(usable, p, old), torch.where(usable, code, rows.m), raw, ~usable


def _sqrt(v: Tensor) -> Tensor:
    """To nearest. torch's own on a CPU is off by a last place in one of six; through double it is not."""
    return v.double().sqrt().float() if v.device.type == "cpu" else v.sqrt()


def _row_end(mg: tc.MGrid, vg: tc.VGrid, z: Tensor, raw: Tensor, m: Tensor, row: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """row.c: codes of m and v and the rows' factors, and which were raised. z: ~z of each row's first element."""
    most, old, octave = raw.amax(1), row.clamp(min=tc.ROW_MIN), 1 << vg.mant
    more, room = (most - vg.top + octave - 1) >> vg.mant, (most + 2 * octave <= vg.top) & (old > tc.ROW_MIN)
    up = torch.where(most > vg.top, more, -room.to(torch.int32))
    up = torch.where(most == 0, 0, up)
    below = raw - up[:, None] * octave
    code = torch.where(raw == 0, 0, below.clamp(min=1))
    again = (raw != 0) & (below < 1) & (m != 0) & (up[:, None] != 0)
    x = tc.random(z + torch.arange(raw.shape[1], device=raw.device) * tc.WALK & tc.WORD)
    now = torch.where(again, 100 + (1 >> vg.mant) + up[:, None] - (raw >> vg.mant), 100)
    s = tc.root(torch.full((), 100 << 22, dtype=torch.int32, device=raw.device))
    followed = mg.code(mg.value(m) * tc.AGAIN * s, tc.per_root(now << 22), x)
    return torch.where(again, followed, m), code, torch.where(most != 0, old + up, row).to(torch.uint8), (up > 0) & (row != 0)


# ---- columns' factors ----


def fit_columns(settings: tuple[Any, ...], job: Job) -> None:
    """Where this step does."""
    packed = job.packed
    if not packed.fits_columns():
        return
    assert packed.col is not None
    now = _cols_fit(column_sums(job) if job.sums is None else job.sums)
    if packed.v_corr == 0.0:
        packed.col.copy_(now)
    else:
        _refit(job, now, tc.key_of(settings[-1], job.step, job.number, tc.USE_REFIT), packed.cols, tc.m_grid(packed.bits[0]), tc.v_grid(packed.bits[1]))


def column_sums(job: Job) -> Tensor:
    """Sums and counts of exponents by column, of what is here: columns.c."""
    packed = job.packed
    if packed.v_corr == 0.0:
        g = job.g.view(-1, packed.cols).float()
        bits = tc.bits_of(g * g) & 0x7FFFFFFF
        exponents, counted = bits >> 23, (bits != 0) & (bits < 0x7F800000)
    else:
        assert packed.col is not None
        v = tc.unpack(packed.v, packed.numel, packed.cols, packed.bits[1], False)
        exponents, counted = packed.row.to(torch.int32)[:, None] + packed.col.to(torch.int32) + (v >> tc.v_grid(packed.bits[1]).mant), v != 0
    return torch.stack([torch.where(counted, exponents, 0).sum(0, dtype=torch.int64), counted.sum(0, dtype=torch.int64)], 1)


def _nearest(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(2 * a + torch.where(a < 0, -b, b), 2 * b, rounding_mode="trunc")


def _cols_fit(both: Tensor) -> Tensor:
    sums, counts = both.unbind(1)
    mean = torch.where(counts.sum() != 0, _nearest(256 * sums.sum(), counts.sum().clamp(min=1)), 0)
    own = torch.where(counts != 0, _nearest(256 * sums, counts.clamp(min=1)), mean)
    return _nearest(own - mean, torch.full_like(own, 256)).clamp(-16, 15).to(torch.int8)


def _refit(job: Job, now: Tensor, key: int, cols: int, mg: tc.MGrid, vg: tc.VGrid) -> None:
    packed, col = job.packed, job.packed.col
    assert col is not None
    v = tc.unpack(packed.v, packed.numel, cols, packed.bits[1], False)
    row = packed.row.to(torch.int32)
    change = now.to(torch.int32) - col.to(torch.int32)
    if not bool((change != 0).any()):
        return
    lift = torch.minimum(row - tc.ROW_MIN, change.amax().clamp(min=0))[:, None]
    raw = torch.where(v == 0, 0, (v + ((lift - change) << vg.mant)).clamp(min=1))
    if not row.numel():
        packed.col = now
        return
    first = packed.part.first + torch.arange(row.numel(), device=row.device)[:, None] * cols
    m = tc.unpack(packed.m, packed.numel, cols, packed.bits[0], True)
    m, v, rows, _ = _row_end(mg, vg, ~tc.walk(key, first) & tc.WORD, raw, m, torch.where(row != 0, row - lift[:, 0], 0))
    packed.m.copy_(tc.pack(m, packed.numel, cols, packed.bits[0]))
    packed.v.copy_(tc.pack(v, packed.numel, cols, packed.bits[1]))
    packed.row.copy_(torch.where(row != 0, rows, packed.row))
    packed.col = now


# ---- SGD and Lion ----


def _momentum(settings: tuple[Any, ...], job: Job) -> Done:
    packed, grid = job.packed, tc.momentum_grid(job.packed.bits[0])
    cols = packed.cols
    per_row = -(-cols // tc.BLOCK)
    unusable, raised = (torch.zeros((), dtype=torch.int64, device=job.p.device) for _ in range(2))
    for where, rows in _parts(job, settings[-1]):
        factors = slice(where.start // cols * per_row, packed.row.numel() if where.stop == packed.numel else where.stop // cols * per_row)
        there = packed.row[factors].to(torch.int32)
        factor = torch.nn.functional.pad(there, (0, -there.numel() % per_row)).view(-1, per_row)
        p, fresh, bad = _move(_momentum_parameters(settings, packed.m_corr == 0.0), grid, rows, _spread(factor.clamp(min=tc.ROW_MIN) << 23, cols))
        blocks = torch.nn.functional.pad(tc.bits_of(fresh) & 0x7FFFFFFF, (0, -cols % tc.BLOCK)).view(-1, per_row, tc.BLOCK)
        now = (127 + (blocks.amax(2).to(torch.int64) - grid.top_bits + 0x7FFFFF >> 23)).clamp(tc.ROW_MIN, tc.FACTOR_MAX).to(torch.int32)
        code = grid.code(fresh, _spread(254 - now << 23, cols), tc.random(rows.z))
        _weights_back(job, where, rows, p)
        _put(packed.m, code, where, cols, packed.bits[0])
        grew = (factor > tc.ROW_MIN) & (now > factor)
        packed.row[factors] = now.view(-1)[: there.numel()].to(torch.uint8)
        unusable += bad.view(-1)[: where.stop - where.start].sum()
        raised += grew.sum()
    return 1.0, 0.0, unusable, raised


def _spread(bits: Tensor, cols: int) -> Tensor:
    """A float of each block, over its elements."""
    return tc.float_of(bits).repeat_interleave(tc.BLOCK, 1)[:, :cols]


def _momentum_parameters(settings: tuple[Any, ...], fresh: bool) -> tuple[float, ...]:
    """ckpi_o_mpar's numbers in its order; the last one is not 0 for Lion."""
    lr, momentum, dampening, weight_decay, nesterov, maximize, lion, beta1, _ = settings
    sign = -1.0 if maximize else 1.0
    if lion:
        return sign, 0.0, f32(momentum), f32(1.0 - momentum), f32(beta1), f32(1.0 - beta1), f32(1.0 - lr * weight_decay), f32(lr), 1.0
    keeps = f32(momentum) if nesterov else 1.0
    return sign, f32(weight_decay), f32(momentum), 1.0 if fresh else f32(1.0 - dampening), keeps, float(nesterov), 1.0, f32(lr), 0.0


def _move(par: tuple[float, ...], grid: tc.MGrid, rows: _Rows, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sign, l2, am, bm, cm, cg, decay, lr, lion = par
    old, m = tc.weights_up(rows.p, rows.rest), grid.value(rows.m) * s
    g = sign * rows.g + l2 * old
    now = am * m + bm * g
    u = cm * (m if lion else now) + cg * g
    p = old * decay - (u.sign() * lr if lion else lr * u)
    usable = _usable(g)
    return torch.where(usable, p, old), torch.where(usable, now, m), ~usable


# ---- moments in f32 ----


def _wide_adamw(settings: tuple[Any, ...], job: Job) -> Done:
    """wide.c."""
    lr, beta1, beta2, eps, weight_decay, coupled, maximize, seed = settings
    m_corr, v_corr = 1.0 - _power(beta1, job.step), 1.0 - _power(beta2, job.step)
    m, v = (t.view(-1) for t in job.wide.moments)
    p, g, usable = _wide_elements(job, -1.0 if maximize else 1.0, weight_decay if coupled else 0.0)
    now = f32(beta1) * m + f32(1.0 - beta1) * g
    squares = f32(beta2) * v + f32(1.0 - beta2) * (g * g)
    by = f32(lr / m_corr) * now / (_sqrt(squares) * f32(1.0 / math.sqrt(v_corr)) + max(f32(eps), FLT_MIN))
    _wide_back(job, seed, torch.where(usable, p * f32(1.0 if coupled else 1.0 - lr * weight_decay) - by, p))
    m.copy_(torch.where(usable, now, m))
    v.copy_(torch.where(usable, squares, v))
    return m_corr, v_corr, (~usable).sum(), torch.zeros((), dtype=torch.int64, device="cpu")


def _wide_momentum(settings: tuple[Any, ...], job: Job) -> Done:
    sign, l2, am, bm, cm, cg, decay, lr, lion = _momentum_parameters(settings, job.held.m_corr == 0.0)
    m = job.wide.moments[0].view(-1)
    p, g, usable = _wide_elements(job, sign, l2, True)
    now = am * m + bm * g
    u = cm * (m if lion else now) + cg * g
    _wide_back(job, settings[-1], torch.where(usable, p * decay - (u.sign() * lr if lion else lr * u), p))
    m.copy_(torch.where(usable, now, m))
    return 1.0, 0.0, (~usable).sum(), torch.zeros((), dtype=torch.int64, device="cpu")


def _wide_elements(job: Job, sign: float, l2: float, always: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    rest = job.held.rest
    p, g = tc.weights_up(job.p.view(-1), None if rest is None else rest.view(-1)), sign * job.g.view(-1).float()
    if l2 != 0 or always:
        g = g + f32(l2) * p
    return p, g, _usable(g)


def _wide_back(job: Job, seed: int, p: Tensor) -> None:
    first = job.held.part.first
    z = tc.walk(tc.key_of(seed, job.step, job.number, tc.USE_P), torch.arange(first, first + p.numel(), device=p.device))
    rest = job.held.rest
    tc.weights_down(p, job.p.view(-1), None if rest is None else rest.view(-1), z)
