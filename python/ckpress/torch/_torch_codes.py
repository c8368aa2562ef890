# SPDX-License-Identifier: Apache-2.0
"""Packed codes, grids and random numbers of src/optim in torch's operations, for devices that the kernels in C do not reach.

Names and order of operations are those of pack.h, kern.h, grid.c and half.c there; a test compares the two, bit for bit.
"""

from __future__ import annotations

import dataclasses
import math
import struct

import torch
from torch import Tensor

WALK, MUL = 0x9E3779B9, 0x7FEB352D
ROW_MIN, FACTOR_MAX, BLOCK, GROUP = 17, 200, 64, 64
GRAD_END, HALF, ROOT = 0x53800000, 0x1FC00000, 0x001A827A
PER = 0x7F000000 - HALF + ROOT - 0x00400000
WORD = 0xFFFFFFFF
USE_STEP, USE_P, USE_REFIT = 0, 1, 2


def f32(x: float) -> float:
    """Rounded as a conversion to float in C."""
    if math.isinf(x) or abs(x) >= 3.5e38:
        return math.copysign(math.inf, x)
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


def bits_of(x: Tensor) -> Tensor:
    return x.view(torch.int32)


def float_of(bits: Tensor) -> Tensor:
    return bits.to(torch.int32).view(torch.float32)


def fma(a: Tensor, b: Tensor | float, c: Tensor | float) -> Tensor:
    """a * b + c with one rounding, where the device has doubles: the sum in double is rounded to odd, so that rounding it again is as if it never had been."""
    if a.device.type == "mps":
        return a * b + c
    wide = [t.double() if isinstance(t, Tensor) else t for t in (a, b, c)]
    product: Tensor = wide[0] * wide[1]
    total = product + wide[2]
    of_c = total - product
    lost = (product - (total - of_c)) + (wide[2] - of_c)  # by the sum (Knuth's TwoSum)
    even = (total.view(torch.int64) & 1) == 0
    step = torch.where((lost > 0) == (total > 0), 1, -1)
    odd = (total.view(torch.int64) + torch.where(even & (lost != 0) & torch.isfinite(total), step, 0)).view(torch.float64)
    return odd.float()


AGAIN = f32(0.970562748)

# ---- grids ----


@dataclasses.dataclass(frozen=True)
class MGrid:
    mant: int
    top: int
    h: float

    def value(self, k: Tensor) -> Tensor:
        """sign(k) * y(|k|)"""
        return self.times(k, 1.0)

    def times(self, k: Tensor, a: float) -> Tensor:
        """The same times a, rounded once."""
        y = fma(float_of((k.abs() << (23 - self.mant)) + 0x3F800000), a, -a)
        return torch.where(k < 0, -y, y)

    def code(self, m: Tensor, per_s: Tensor, y: Tensor) -> Tensor:
        """Rounded by the low bits of y."""
        shift = 23 - self.mant
        t = bits_of(fma(m.abs(), per_s, 1.0)).to(torch.int64) + (y & ((1 << shift) - 1))
        k = ((t >> shift) - (127 << self.mant)).clamp(max=self.top).to(torch.int32)
        return torch.where(m < 0, -k, k)

    @property
    def top_bits(self) -> int:
        y = struct.unpack("<f", struct.pack("<I", (self.top << (23 - self.mant)) + 0x3F800000))[0] - 1.0
        return int(struct.unpack("<I", struct.pack("<f", y))[0])

    @property
    def top_value(self) -> float:
        return float(struct.unpack("<f", struct.pack("<I", self.top_bits))[0])


def m_grid(bits: int) -> MGrid:
    mant, top = {2: (0, 0.5), 3: (1, 0.75), 4: (2, 1.0), 5: (3, 1.5), 6: (4, 2.5), 8: (6, 5.0)}[bits]
    grid = MGrid(mant, (1 << (bits - 1)) - 1, 1.0)
    return dataclasses.replace(grid, h=f32(f32(f32(top) / grid.top_value) / f32(1.17157288)))


def momentum_grid(bits: int) -> MGrid:
    return MGrid({4: 1, 5: 2, 6: 3, 8: 4}.get(bits, 0), (1 << (bits - 1)) - 1, 1.0)


@dataclasses.dataclass(frozen=True)
class VGrid:
    mant: int
    top: int
    noise: float


def v_grid(bits: int) -> VGrid:
    mant = {5: 1, 6: 2, 8: 3}.get(bits, 0)
    return VGrid(mant, (1 << bits) - 1, (f32(1.13), f32(1.055), f32(1.025), 1.0)[mant])


def v_code(vbits: Tensor, x: Tensor, e23: Tensor, mant: int) -> Tensor:
    shift = 23 - mant
    above = vbits + (x & ((1 << shift) - 1)).to(torch.int32) - e23
    return torch.where(vbits == 0, 0, (above >> shift).clamp(min=1))


def root(f22: Tensor) -> Tensor:
    return float_of(f22 + HALF + ROOT)


def per_root(f22: Tensor) -> Tensor:
    return float_of(PER - f22)


# ---- random numbers ----


def _absorb(h: int, word: int) -> int:
    mask = (1 << 64) - 1
    h = (h + word + 0x9E3779B97F4A7C15) & mask
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & mask
    h = (h ^ h >> 27) * 0x94D049BB133111EB & mask
    return h ^ h >> 31


def key_of(seed: int, step: int, number: int, use: int) -> int:
    h = 0
    for word in (seed, step, number, use):
        h = _absorb(h, word)
    return h >> 32


def random(z: Tensor) -> Tensor:
    """z and result: 32 bits in int64."""
    return (z ^ z >> 16) * MUL & WORD


def walk(key: int, index: Tensor) -> Tensor:
    """z of the elements with these indexes, in int64."""
    return (index * WALK + key) & WORD


# ---- packed rows ----


def _group_out(x: Tensor, size: int, bits: int) -> Tensor:
    """(..., bytes of a group) to (..., size)."""
    code, at, off = torch.zeros((*x.shape[:-1], size), dtype=torch.uint8, device=x.device), 0, 0
    for w in (4, 2, 1):
        if bits & w:
            plane, s = x[..., off : off + size * w // 8], size * w // 8
            if w == 1:
                parts = torch.stack([plane >> i & 1 for i in range(8)], -1).reshape(code.shape)
            else:
                parts = torch.cat([plane >> w * i & ((1 << w) - 1) for i in range(8 // w)], -1)
            code |= parts << at
            at, off = at + w, off + s
    return code


def _group_in(code: Tensor, bits: int) -> Tensor:
    size, at, planes = code.shape[-1], 0, []
    for w in (4, 2, 1):
        if bits & w:
            part = code >> at & ((1 << w) - 1)
            s = size * w // 8
            pieces = part.reshape((*part.shape[:-1], s, 8)).unbind(-1) if w == 1 else part.split(s, -1)
            plane = pieces[0].clone()
            for i, piece in enumerate(pieces[1:], 1):
                plane |= piece << w * i
            planes.append(plane)
            at += w
    return torch.cat(planes, -1)


def row_bytes(n: int, bits: int) -> int:
    return n if bits == 8 else (n + 7) // 8 * bits


def unpack_rows(packed: Tensor, n: int, bits: int) -> Tensor:
    """(rows, bytes) to codes (rows, n)."""
    if bits == 8:
        return packed
    whole, rows = n // GROUP, packed.shape[0]
    code = _group_out(packed[:, : whole * 8 * bits].reshape(rows, whole, 8 * bits), GROUP, bits).reshape(rows, whole * GROUP)
    if n % GROUP:
        code = torch.cat([code, _group_out(packed[:, whole * 8 * bits :], (n % GROUP + 7) // 8 * 8, bits)], 1)
    return code[:, :n]


def pack_rows(code: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return code
    rows, n = code.shape
    whole = n // GROUP
    packed = _group_in(code[:, : whole * GROUP].reshape(rows, whole, GROUP), bits).reshape(rows, whole * 8 * bits)
    if n % GROUP:
        rest = torch.nn.functional.pad(code[:, whole * GROUP :], (0, -n % 8))
        packed = torch.cat([packed, _group_in(rest, bits)], 1)
    return packed


def unpack(packed: Tensor, numel: int, cols: int, bits: int, signed: bool) -> Tensor:
    """Codes as int32 (rows, cols); what a shorter last row lacks is 0."""
    rows, rest = divmod(numel, cols)
    code = unpack_rows(packed[: rows * row_bytes(cols, bits)].reshape(rows, row_bytes(cols, bits)), cols, bits)
    if rest:
        last = unpack_rows(packed[rows * row_bytes(cols, bits) :].reshape(1, -1), rest, bits)
        code = torch.cat([code, torch.nn.functional.pad(last, (0, cols - rest))])
    wide = code.to(torch.int32)
    return torch.where(wide >= 1 << (bits - 1), wide - (1 << bits), wide) if signed else wide


def pack(code: Tensor, numel: int, cols: int, bits: int) -> Tensor:
    low = (code & ((1 << bits) - 1)).to(torch.uint8)
    rows, rest = divmod(numel, cols)
    packed = pack_rows(low[:rows], bits).reshape(-1)
    return torch.cat([packed, pack_rows(low[rows:, :rest], bits).reshape(-1)]) if rest else packed


# ---- weights of 16 bits ----

INF = 0x7F80


def weights_up(p: Tensor, rest: Tensor | None) -> Tensor:
    """In f32, with the further bits of a split master."""
    if rest is None or p.dtype != torch.bfloat16:
        return p.float()
    high, r = p.view(torch.int16).to(torch.int32), rest.to(torch.int32) * (256 if rest.dtype == torch.int8 else 1)
    size = high & 0x7FFF
    alone = (size >= INF) | ((size == 0) & (r < 0))
    return float_of((high << 16) + torch.where(alone, 0, r))


def _high(bits: Tensor) -> Tensor:
    """Upper halves, in int64 as unsigned words, as bf16."""
    return torch.where(bits >= 0x8000, bits - 0x10000, bits).to(torch.int16).view(torch.bfloat16)


def weights_down(x: Tensor, p: Tensor, rest: Tensor | None, z: Tensor) -> None:
    """x into p and rest, in place."""
    if p.dtype != torch.bfloat16:
        p.copy_(x)
        return
    bits = bits_of(x).to(torch.int64) & WORD
    finite, nan = (bits >> 23 & 0xFF) != 0xFF, (bits & 0x7FFFFFFF) > 0x7F800000
    plain = bits >> 16 | torch.where(nan, 0x40, 0)
    if rest is None:
        p.copy_(_high(torch.where(finite, (bits + (random(z) >> 16)) >> 16, plain)))
        return
    kept = bits
    if rest.dtype == torch.int8:
        rounded = ((bits & 0x7FFFFFFF) + (random(z) >> 24)) & ~0xFF
        kept = (bits & 0x80000000) | torch.where(rounded < 0x7F800000, rounded, 0x7F7FFF00)
    high = (kept + 0x8000) >> 16
    high = torch.where((high & 0x7FFF) == INF, high - 1, high)
    r = kept - (high << 16)
    if rest.dtype == torch.int8:
        r = torch.where(r > 0x7FFF, 0x7F00, r) >> 8
    rest.copy_(torch.where(finite, r.clamp(max=0x7FFF), 0))
    p.copy_(_high(torch.where(finite, high, plain)))
