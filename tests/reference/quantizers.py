# SPDX-License-Identifier: Apache-2.0
"""The quantizers of docs/format.md, section 12. numpy's f32 operations are single IEEE operations, rounded to nearest even."""
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt

import numpy as np

import blocks
from container import Cursor, need

NONE, V, M, W, INDEX, CLUSTER = range(6)
F32 = np.float32


def power_table():
    """2^(i/512) to 23 bits, rounded to nearest even, by integer roots: nine square roots of a number with 200 bits to spare."""
    root, out = 2 << 400, []
    roots = []
    for _ in range(9):
        root = isqrt(root << 400)        # sqrt, scaled by 2^400
        roots.append(root)
    for i in range(512):
        v = 1 << 400
        for k in range(9):
            if i >> 8 - k & 1:
                v = v * roots[k] >> 400
        out.append(round(Fraction(v, 1 << 377)))
    return out


_POWERS = power_table()


def power(k):
    """P(k) of section 12."""
    e, i = divmod(int(k), 512)
    if e >= 128:
        return F32(np.inf)
    if e < -149:
        return F32(0)
    if e >= -126:
        return np.array([(e + 127 << 23) + _POWERS[i] - (1 << 23)], np.uint32).view(F32)[0]
    return np.array([round(Fraction(_POWERS[i], 1 << -126 - e))], np.uint32).view(F32)[0]


def powers(k):
    values = {x: power(x) for x in set(np.asarray(k).reshape(-1).tolist())}
    return np.array([values[x] for x in np.asarray(k).reshape(-1).tolist()], F32)


# ---- dtypes


def to_f32(raw, dtype):
    if dtype == 12:
        return np.frombuffer(raw, "<f4").copy()
    if dtype == 10:
        return np.frombuffer(raw, "<f2").astype(F32)
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(F32)


def from_f32(x, dtype):
    if dtype == 12:
        return x.astype("<f4").tobytes()
    if dtype == 10:
        with np.errstate(over="ignore"):
            h = x.astype("<f2").view("<u2")
        b = x.view(np.uint32)                # numpy's payload of a NaN is the machine's
        nan = b >> 16 & 0x8000 | 0x7e00 | b >> 13 & 0x3ff
        return np.where((b & 0x7fffffff) > 0x7f800000, nan, h).astype("<u2").tobytes()
    b = x.view(np.uint32)
    rounded = b + 0x7fff + (b >> 16 & 1) >> 16
    return np.where((b & 0x7fffffff) > 0x7f800000, b >> 16 | 0x40, rounded).astype("<u2").tobytes()


# ---- parameters


@dataclass
class Factors:
    """One for each piece."""
    cols: int
    blocks: bool
    vstep: int
    row: np.ndarray
    col: np.ndarray | None
    lift: int = 0


def read_factors(c, pieces):
    heads = [(c.varint(1 << 20), c.u8()) for _ in pieces]
    need(all(k <= 12 for _, k in heads), "log2 of a step")
    need(all(cols <= count for (cols, _), (_, _, count) in zip(heads, pieces)), "more columns than elements")
    shapes = [(cols or 128, -(-count // (cols or 128))) for (cols, _), (_, _, count) in zip(heads, pieces)]
    total = sum(rows + (cols if head[0] else 0) for (cols, rows), head in zip(shapes, heads))
    codec, payload = c.u8(), c.string(1 << 24)
    numbers = np.frombuffer(blocks.decode(codec, payload, total, 2, 5), "<i2").astype(np.int64)
    out, at = [], 0
    for (cols, rows), (given, log) in zip(shapes, heads):
        row = numbers[at:at + rows]
        col = numbers[at + rows:at + rows + cols] if given else None
        at += rows + (cols if given else 0)
        out.append(Factors(cols, not given, 1 << log, row, col))
    return out


def read_moves(c, factors):
    """The base's factors, each moved by 32 times an i8."""
    total = sum(len(f.row) + (0 if f.blocks else f.cols) for f in factors)
    codec, payload = c.u8(), c.string(1 << 24)
    moves = np.frombuffer(blocks.decode(codec, payload, total, 1, 3), np.int8).astype(np.int64) * 32
    out, at = [], 0
    clamp = lambda x: np.clip(x, -32768, 32767)
    for f in factors:
        rows = len(f.row)
        row = clamp(f.row + moves[at:at + rows])
        col = None if f.blocks else clamp(f.col + moves[at + rows:at + rows + f.cols])
        at += rows + (0 if f.blocks else f.cols)
        out.append(Factors(f.cols, f.blocks, f.vstep, row, col))
    return out


def read_escapes(data, n, width):
    c, out, at = Cursor(data), [], 0
    if not data:
        return out
    for i in range(c.varint(n)):
        gap = c.varint(n)
        need(i == 0 or gap > 0, "escapes out of order")
        at += gap
        need(at < n, "an escape behind the last element")
        out.append((at, c.num("I" if width == 4 else "H")))
    c.end()
    return out


def patch(raw, escapes, width):
    words = np.frombuffer(raw, f"<u{width}").copy()
    for at, bits in escapes:
        words[at] = bits
    return words.tobytes()


def keep_kind(raw, values, dtype, positive):
    """Half dtypes: what is finite stays finite, and with `positive` what is above zero stays there."""
    if dtype == 12:
        return raw
    h, inf = np.frombuffer(raw, "<u2").copy(), 0x7f80 if dtype == 11 else 0x7c00
    h[(h & 0x7fff == inf) & np.isfinite(values)] -= 1
    if positive:
        h[(h == 0) & (values > 0)] = 1
    return h.tobytes()


def escaped(chunk, values, moment=False, positive=False):
    width = 4 if chunk.dtype == 12 else 2
    raw = from_f32(values, chunk.dtype)
    return patch(keep_kind(raw, values, chunk.dtype, positive) if moment else raw, read_escapes(chunk.escapes, chunk.n, width), width)


# ---- the scale field


def scale(unit, n, f, c):
    """(P(unit r) * P(unit c vstep)) * P(unit k) for each element; f or c may be None."""
    if f is None:
        return np.ones(n, F32)
    i = np.arange(n)
    codes = c.astype(np.int64) * f.vstep if c is not None else np.zeros(n, np.int64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        s = powers(unit * (f.row + f.lift))[i // f.cols] * powers(unit * codes)
        return s * (powers(unit * f.col)[i % f.cols] if f.col is not None else F32(1))


def codes_of(chunk):
    return np.frombuffer(blocks.decode(chunk.codec, chunk.payload, chunk.n, 1, 3), np.int8)


def split(pieces, *arrays):
    """Each piece's share of arrays that run over the chunk (None stays None)."""
    at = 0
    for i, (_, _, count) in enumerate(pieces):
        yield (i, count) + tuple(a[at:at + count] if a is not None else None for a in arrays)
        at += count


# ---- values


def v_state(chunk, base):
    """(codes, factors) of a v chunk. base: the like chunk's, if the flag is set."""
    c = Cursor(chunk.params)
    flags = c.u8()
    need(flags & ~9 == 0 and (flags & 1 or base is not None), "flags of v")
    factors = read_factors(c, chunk.pieces) if flags & 1 else base[1]
    if flags & 8:
        factors = read_moves(c, factors)
    factors = [replace(f, lift=int(np.int8(np.uint8(c.u8())))) for f in factors]
    c.end()
    codes = codes_of(chunk)
    if chunk.uses_base:
        codes = (codes.view(np.uint8) + base[0].view(np.uint8)).view(np.int8)
    return codes, factors


def v_values(chunk, state):
    out = []
    for i, count, c in split(chunk.pieces, state[0]):
        s = scale(2, count, state[1][i], c)
        with np.errstate(over="ignore", under="ignore"):
            out.append(np.where(c == -128, F32(0), s * s))
    return escaped(chunk, np.concatenate(out), True, True)


def m_factors(chunk, base):
    """Factors that an m chunk carries or has from its base; None when it is scaled by v."""
    c = Cursor(chunk.params)
    flags = c.u8()
    need(flags & ~39 == 0, "flags of m")
    c.take(4 * len(chunk.pieces))
    factors = read_factors(c, chunk.pieces) if flags & 1 else base if flags & 4 else None
    if not flags & 32:
        c.end()
    return factors


def read_directions(c, factors):
    """For each piece None, or (gain, a, b) with a number of a for each direction and row, of b for each direction and column."""
    heads = []
    for f in factors:
        rank = c.u8()
        need(rank <= (0 if f.blocks else 4), "directions of a piece")
        heads.append((rank, F32(c.num("f")) if rank else None))
    need(all(gain is None or np.isfinite(gain) for _, gain in heads), "a gain that is not finite")
    total = sum(rank * (len(f.row) + f.cols) for (rank, _), f in zip(heads, factors))
    codec, payload = c.u8(), c.string(1 << 24)
    numbers = np.frombuffer(blocks.decode(codec, payload, total, 1, 3), np.int8).astype(np.int64)
    out, at = [], 0
    for (rank, gain), f in zip(heads, factors):
        a, b = numbers[at:at + rank * len(f.row)], numbers[at + rank * len(f.row):at + rank * (len(f.row) + f.cols)]
        at += rank * (len(f.row) + f.cols)
        out.append((gain, a.reshape(rank, -1), b.reshape(rank, -1)) if rank else None)
    return out


def m_values(chunk, factors, state):
    """state: of the v chunk, where flag bit 1 is set; else factors."""
    c = Cursor(chunk.params)
    flags = c.u8()
    by_v = flags & 2
    mg = np.frombuffer(c.take(4 * len(chunk.pieces)), "<f4")
    need(np.isfinite(mg).all() and (state is not None if by_v else factors is not None), "what scales m?")
    codes, out = codes_of(chunk), []
    f = state[1] if by_v else factors
    if flags & 1:
        read_factors(c, chunk.pieces)
    along = read_directions(c, f) if flags & 32 else [None] * len(f)
    c.end()
    for i, count, code, vc in split(chunk.pieces, codes, state[0] if by_v else None):
        s = scale(2, count, f[i], vc)
        if vc is not None:
            s = np.where(vc == -128, F32(0), s)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            x = code.astype(F32) * mg[i]
            if along[i] is None:
                out.append(np.where(code == 0, F32(0), x * s))
                continue
            gain, a, b = along[i]
            x = (x + (a.T @ b).reshape(-1)[:count].astype(F32) * gain) * s
            out.append(np.where(x == 0, F32(0), x))
    return escaped(chunk, np.concatenate(out), True)


@dataclass
class Indices:
    """Of an index chunk: its indices, a codebook for each piece, values before they are rounded to the dtype."""
    codes: np.ndarray
    books: list
    values: np.ndarray


def read_book(c, base):
    head = c.u8()
    how, levels = head >> 6, head & 63
    if how == 2:
        need(levels == 0 and base is not None, "the base's codebook")
        return base
    need(how < 2 and levels <= 32, "a codebook")
    book = np.frombuffer(c.take(levels * (4 if how else 2)), "<f4" if how else "<f2").astype(F32)
    need(np.isfinite(book).all() and (np.diff(book) > 0).all(), "centres")
    return book


def index_state(chunk, base):
    """base: the like chunk's Indices, if the flag is set."""
    c = Cursor(chunk.params)
    flags = c.u8()
    need(flags & ~3 == 0 and (flags == 0 or base is not None), "flags of index")
    under = base.codes.tobytes() if flags & 1 else None
    codes = np.frombuffer(blocks.decode(chunk.codec, chunk.payload, chunk.n, 1, 3, under), np.uint8)
    books = [read_book(c, base.books[i] if base is not None else None) for i in range(len(chunk.pieces))]
    levels = np.repeat([len(b) for b in books], [count for _, _, count in chunk.pieces])
    need((codes <= levels + 1).all(), "an index beyond its codebook")
    kept = codes == levels + 1
    count = int(kept.sum())
    values = np.zeros(chunk.n, F32)
    for i, n, code, out in split(chunk.pieces, codes, values):
        out[:] = np.concatenate([np.zeros(1, F32), books[i], np.zeros(1, F32)])[code]
    if count:
        codec, payload = c.u8(), c.string(1 << 24)
        under = from_f32(base.values[kept], 11) if flags & 2 else None
        values[kept] = to_f32(blocks.decode(codec, payload, count, 2, 11, under), 11)
    c.end()
    return Indices(codes, books, values)


def index_values(chunk, state):
    return escaped(chunk, state.values)


def cluster_values(chunk):
    c = Cursor(chunk.params)
    kind = c.u8()
    need(kind in (1, 2), "kind of clusters")
    width, dtype = (2, 4) if kind == 1 else (1, 2)
    codes = np.frombuffer(blocks.decode(chunk.codec, chunk.payload, chunk.n, width, dtype, None), "<u2" if kind == 1 else np.uint8).astype(np.uint32)
    out = []
    for _, _, codes_of_piece in split(chunk.pieces, codes):
        k = c.varint(256)
        need(k >= 1, "no clusters")
        c.take(16)                           # the errors
        low = np.frombuffer(c.take(4 * k), "<f4")
        step = np.frombuffer(c.take(4 * k), "<f4") if kind == 1 else np.zeros(k, F32)
        with np.errstate(over="ignore", invalid="ignore"):
            need((np.isfinite(low + F32(255) * step)).all() and (step >= 0).all(), "clusters of values that are not finite")
        label, along = codes_of_piece & 255, (codes_of_piece >> 8).astype(F32)
        need((label < k).all(), "a label of no cluster")
        out.append(low[label] + along * step[label])
    c.end()
    return patch(np.concatenate(out).astype("<f4").tobytes(), read_escapes(chunk.escapes, chunk.n, 4), 4)


def w_values(chunk, base, state, factors):
    """base: the like chunk's decoded bytes, or None. state or factors: what the scale field is made of."""
    c = Cursor(chunk.params)
    flags, pieces = c.u8(), len(chunk.pieces)
    need(flags & ~18 == 0, "flags of w")
    qmul = np.broadcast_to(np.frombuffer(c.take(4 * (pieces if flags & 16 else 1)), "<f4"), pieces)
    steps = np.frombuffer(c.take(8 * pieces), "<f4").reshape(-1, 2)
    c.end()
    need(np.isfinite(steps).all() and np.isfinite(qmul).all() and (steps[:, 0] <= steps[:, 1]).all() and (steps > 0).all(), "steps of w")
    need(not flags & 2 or state is not None or factors is not None, "what scales w?")
    before = to_f32(base, chunk.dtype) if chunk.uses_base else np.zeros(chunk.n, F32)
    codes, out = codes_of(chunk), []
    f, vcodes = ((state[1], state[0]) if state is not None else (factors, None)) if flags & 2 else (None, None)
    for i, count, code, vc, b in split(chunk.pieces, codes, vcodes, before):
        lo, hi = steps[i]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            q = qmul[i] * scale(-1, count, f[i] if f is not None else None, vc)
            q = np.where(q > lo, q, lo)
            q = np.where(q < hi, q, hi)
            if vc is not None:
                q = np.where(vc == -128, hi, q)
            moved = to_f32(from_f32(b + code.astype(F32) * q, chunk.dtype), chunk.dtype)
        out.append(np.where(code == 0, b, moved).astype(F32))
    return escaped(chunk, np.concatenate(out))
