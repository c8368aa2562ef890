# SPDX-License-Identifier: Apache-2.0
"""The codecs of docs/format.md, section 13, in plain Python: slow, and meant to be read beside the page."""
import numpy as np
import zstandard

from container import Cursor, need

LANES = (1, 4, 32, 64)
# dtype id: (exponent bits, mantissa bits), where sign, exponent and mantissa fill the word
FLOATS = {10: (5, 10), 11: (8, 7), 12: (8, 23), 13: (11, 52), 20: (4, 3), 21: (5, 2), 22: (4, 3), 23: (5, 2), 25: (4, 3), 26: (3, 4), 27: (4, 3)}


def decode(codec, payload, n, width, dtype, base=None):
    """n elements of width bytes. base: as many bytes, or None."""
    size = n * width
    if codec == 1:
        out = payload
    elif codec == 2:
        need(payload == b"", "zero: a payload")
        out = base if base is not None else bytes(size)
    elif codec == 3:
        out = rans(payload, size)
    elif codec == 4:
        out = planes(Cursor(payload), n, width, dtype)
    elif codec == 5:
        out = mask(Cursor(payload), n, width, base)
    elif codec == 6:
        need(base is not None, "diff without a base")
        out = diff(Cursor(payload), n, width, dtype, base)
    elif codec == 8:
        need(base is not None, "rearranged without a base")
        out = rearranged(Cursor(payload), n, width, base)
    else:
        need(codec == 7, f"codec {codec}")
        out = zstandard.ZstdDecompressor().decompress(payload, max_output_size=size) if size else b""
    need(len(out) == size, f"codec {codec}: {len(out)} bytes where {size} belong")
    return bytes(out)


# ---- strings of bits


class Bits:
    def __init__(self, c):
        self.c, self.have, self.count = c, 0, 0

    def get(self, n):
        while self.count < n:
            self.have |= self.c.u8() << self.count
            self.count += 8
        v = self.have & (1 << n) - 1
        self.have >>= n
        self.count -= n
        return v

    def unary(self, most):
        v = 0
        while self.get(1) == 0:
            v += 1
            need(v <= most, "unary number too large", self.c.at)
        return v

    def gamma(self):
        n = self.unary(8)
        return 1 << n | self.get(n)

    def end(self):
        need(self.have == 0, "bits that are not zero behind a table", self.c.at)


# ---- rANS


def shares(bits, count, b):
    out, prev = [], b - 2
    while len(out) < count:
        z = bits.unary(32)
        prev += (z + 1) // 2 if z & 1 else -(z // 2)
        need(0 <= prev <= b, "length of a share")
        if prev == 0:
            run = bits.gamma()
            need(run <= count - len(out), "a run of zeros that is too long")
            out += [0] * run
        else:
            out.append(1 << prev - 1 | bits.get(prev - 1))
    return out


def by_classes(f, b):
    freq = [f[bin(v).count("1")] if v else 0 for v in range(256)]
    freq[0] = (1 << b) - sum(freq)
    need(0 < freq[0] < 1 << b, "share of value 0")
    return freq, sorted(range(256), key=lambda v: (bin(v).count("1"), v))


def table(c, kind, b):
    """Shares by value, and the order in which values lie."""
    bits = Bits(c)
    if kind == 2:
        first, count = bits.get(8), bits.get(8) + 1
        need(count >= 2, "a span of one value")
        f = shares(bits, count - 1, b)
        f.append((1 << b) - sum(f))
        need(f[0] > 0 and f[-1] > 0, "shares of a span's ends")
        freq, order = [0] * 256, [(first + i) % 256 for i in range(256)]
        for i, share in enumerate(f):
            freq[(first + i) % 256] = share
    elif kind == 3:
        k = bits.get(3) + 1
        f = shares(bits, k, b)
        need(f[-1] > 0, "share of the last class")
        freq, order = by_classes([0] + f + [0] * (8 - k), b)
    else:
        p, k = bits.get(13), bits.get(3) + 1
        need(p > 0, "probability of a one")
        f = [0] * 9
        for i in range(1, k + 1):
            t = 1 << 32
            for j in range(8):
                t = t * (p if j < i else (1 << 13) - p) >> 13
            f[i] = max(1, (t << b) + (1 << 31) >> 32)
        freq, order = by_classes(f, b)
    bits.end()
    return [f << 16 - b for f in freq], order


def states(c, lanes):
    nibbles = c.take((lanes + 1) // 2)
    e = [nibbles[i // 2] >> 4 * (i & 1) & 15 for i in range(lanes)]
    need(lanes > 1 or nibbles[0] < 16, "a nibble of no lane")
    low = [c.num("H") for _ in range(lanes)]
    bits = Bits(c)
    x = [(1 << n | bits.get(n)) << 16 | l for n, l in zip(e, low)]
    bits.end()
    return x


def rans(data, n):
    if n == 0:
        need(data == b"", "a stream of nothing")
        return b""
    c = Cursor(data)
    head = c.u8()
    kind, lanes, b = head & 7, LANES[head >> 3 & 3], 8 + 2 * (head >> 5)
    need(kind <= 4 and b <= 16 and (kind > 1 or head < 8), "head of a rANS stream")
    if kind < 2:
        out = c.take(n) if kind == 0 else c.take(1) * n
        c.end()
        return out
    freq, order = table(c, kind, b)
    slot, start, at = np.zeros(65536, np.uint8), [0] * 256, 0
    for v in order:
        start[v] = at
        slot[at:at + freq[v]] = v
        at += freq[v]
    need(at == 65536, "shares")
    x, slot, out = states(c, lanes), slot.tobytes(), bytearray(n)
    words, w = c.data, c.at
    for i in range(n):
        lane = i % lanes
        y = x[lane]
        s = out[i] = slot[y & 65535]
        y = freq[s] * (y >> 16) + (y & 65535) - start[s]
        if y < 65536:
            need(w + 2 <= len(words), "rANS words run out")
            y = y << 16 | words[w] | words[w + 1] << 8
            w += 2
        x[lane] = y
    need(w == len(words) and all(y == 65536 for y in x), "end of a rANS stream")
    return bytes(out)


def stream(c, n):
    kind = c.u8()
    if kind == 0:
        return c.take(n)
    if kind == 1:
        return c.take(1) * n
    need(kind == 2, "kind of a stream", c.at)
    return rans(c.string(len(c.data)), n)


# ---- mask


def mask(c, n, width, base):
    need(width in (1, 2, 4), "mask: width")
    form, count = c.u8(), c.varint(n)
    most = len(c.data)
    if form == 0:
        bits = np.unpackbits(np.frombuffer(rans(c.string(most), (n + 7) // 8), np.uint8), bitorder="little")
        need(not bits[n:].any(), "mask: bits behind the last element")
        where = np.flatnonzero(bits)
        need(len(where) == count, "mask: ones and values differ in number")
    else:
        need(form == 1, "mask: form")
        where, place = [], -1
        for _ in range(count):
            place += 1 + c.varint(n)
            need(place < n, "mask: a place behind the last element")
            where.append(place)
        where = np.array(where, np.int64)
    out = np.zeros((n, width), np.uint8)
    for k in range(width):
        out[where, k] = np.frombuffer(rans(c.string(most), count), np.uint8)
    c.end()
    out = out.reshape(-1)
    return (out ^ np.frombuffer(base, np.uint8) if base is not None else out).tobytes()


# ---- planes


def planes(c, n, width, dtype):
    form = c.u8()
    if form == 0:
        out = np.zeros((n, width), np.uint8)
        for k in range(width):
            out[:, k] = np.frombuffer(stream(c, n), np.uint8)
        c.end()
        return out.tobytes()
    need(form == 1 and dtype in (10, 11, 12, 13) and n > 0, "planes: form")
    return floats(c, n, width, FLOATS[dtype][1])


def rest(c, count, bits):
    """The rest of one class as numbers."""
    out = np.zeros(count, np.uint64)
    whole, part = divmod(bits, 8)
    if count == 0:
        return out
    if whole:
        form = c.u8()
        need(form <= 1, "planes: form of bytes")
        data = np.frombuffer(c.take(count * whole), np.uint8).reshape(count, whole) if form == 0 else None
        for k in range(whole):
            plane = data[:, k] if form == 0 else np.frombuffer(stream(c, count), np.uint8)
            out |= plane.astype(np.uint64) << np.uint64(8 * k)
    if part:
        form = c.u8()
        need(form <= 1, "planes: form of bits")
        if form == 1:
            top = np.frombuffer(stream(c, count), np.uint8)
        else:
            string = np.unpackbits(np.frombuffer(c.take((count * part + 7) // 8), np.uint8), bitorder="little")[:count * part]
            top = (string.reshape(count, part).astype(np.uint64) << np.arange(part, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
        out |= top.astype(np.uint64) << np.uint64(8 * whole)
    return out


def floats(c, n, width, m):
    flags, esc, start = c.u8(), c.u8(), c.zigzag((1 << 32) - 1)
    keep, signs, sign = flags & 3, flags >> 2 & 1, flags >> 3 & 1
    need(keep <= 2 and not (signs and sign) and flags < 128, "planes: flags")
    length = c.varint(n) if flags & 0x70 else n
    need(length > 0, "planes: empty rows")
    rows, low = -(-n // length), m - keep
    cut = c.u8() if flags & 64 else 0
    need(cut <= low, "planes: cut")
    side = lambda bit, count: np.frombuffer(stream(c, count), np.uint8) if flags & bit else np.zeros(count, np.uint8)
    klass, row, col = side(64, rows), side(16, rows), side(32, length)
    need(klass.max() <= 2, "planes: class of a row")
    of_row = np.arange(n) // length
    k = klass[of_row]
    coded = np.flatnonzero(k < 2)
    sym = np.frombuffer(stream(c, len(coded)), np.uint8).astype(np.uint64)
    escaped = np.flatnonzero(sym == esc)
    if len(escaped):
        lo, hi = (np.frombuffer(stream(c, len(escaped)), np.uint8).astype(np.uint64) for _ in range(2))
        sym[escaped] = lo | hi << np.uint64(8)
    words = np.zeros(n, np.uint64)
    parts = np.zeros(len(coded), np.uint64)
    sign_bits = np.full(len(coded), sign, np.uint64)
    for a in (0, 1):
        at = np.flatnonzero(k[coded] == a)
        kept = low - (cut if a else 0)
        r = rest(c, len(at), kept + signs)
        parts[at] = (r & np.uint64((1 << kept) - 1)) << np.uint64(cut if a else 0)
        if signs:
            sign_bits[at] = r >> np.uint64(kept) & np.uint64(1)
    c.end()
    fine = np.uint64(m - 2)
    total = (sym << np.uint64(low)) + parts - np.uint64((start << low) % (1 << 64))
    total += (row[of_row[coded]].astype(np.uint64) << fine) + (col[coded % length].astype(np.uint64) << fine)
    top = np.uint64(8 * width - 1)
    words[coded] = total & np.uint64((1 << 8 * width - 1) - 1) | sign_bits << top
    return words.astype(f"<u{width}").tobytes()


# ---- diff


def diff(c, n, width, dtype, base):
    need(width in (1, 2, 4, 8), "diff: width")
    form = c.u8()
    if form == 0:
        out = c.take(n * width)
        c.end()
        return out
    need(form == 1 and n > 0, "diff: form")
    msb, contexts, top = c.u8(), c.u8(), c.num("H")
    is_float = dtype in FLOATS and width * 8 == 1 + sum(FLOATS[dtype])
    need(msb <= 2 and 1 <= contexts <= 16 and (contexts == 1 or is_float), "diff: header")
    word_bits = 8 * width
    sign, whole = 1 << word_bits - 1, (1 << word_bits) - 1
    words = [int(v) for v in np.frombuffer(base, f"<u{width}")]
    if contexts > 1:
        ctx = [min(max(top - ((w & sign - 1) >> FLOATS[dtype][1]), 0), contexts - 1) for w in words]
        streams = [iter(stream(c, ctx.count(k))) for k in range(contexts)]
        symbols = [next(streams[k]) for k in ctx]
    else:
        symbols = list(stream(c, n))
    most = word_bits - 1 - (msb if word_bits > 1 + msb else 0)
    bits, out = Bits(c), []
    for y, w in zip(symbols, words):
        t = y >> 1
        b = 0 if t < 2 << msb else (t >> msb) - 1
        b = b if b <= most else 0
        lead = t if b == 0 else (1 << msb) + (t & (1 << msb) - 1)
        d = lead << b | bits.get(b)
        if (y & 1) != (is_float and w >> word_bits - 1):
            d = -d
        o = ((whole ^ w & sign - 1) if is_float and w & sign else w) + d & whole
        out.append(~o & whole | sign if is_float and o & sign else o)
    c.end()
    return np.array(out, np.uint64).astype(f"<u{width}").tobytes()


# ---- rearranged


def runs(c, n):
    out, count = bytearray(n), c.varint(n)
    distances, symbols = stream(c, count), stream(c, count)
    bits, at = Bits(c), 0
    for t, symbol in zip(distances, symbols):
        need(t < 128, "runs: a distance")
        b = (t >> 2) - 1
        at += t if t < 8 else (4 + t % 4 << b) + bits.get(b)
        need(at < n, "runs: a place behind the last symbol")
        out[at] = symbol
        at += 1
    bits.end()
    c.end()
    return bytes(out)


def part(c, n):
    kind = c.u8()
    if kind == 2:
        return bytes(n)
    need(kind in (0, 3, 5), "rearranged: kind of a part")
    payload = c.string(len(c.data))
    return runs(Cursor(payload), n) if kind == 0 else decode(kind, payload, n, 1, 3)


def rearranged(c, n, width, base):
    need(width == 1, "rearranged: width")
    form = c.u8()
    if form == 0:
        out = c.take(n)
        c.end()
        return out
    need(form == 1 and n > 0, "rearranged: form")
    own = c.u8()
    need(own <= 40, "rearranged: parts")
    values = list(c.take(own))
    need(values == sorted(set(values)), "rearranged: values of parts")
    before = np.frombuffer(base, np.uint8)
    which = np.zeros(n, np.int64)
    for k, v in enumerate(values):
        which[before == v] = k + 1
    symbols = np.zeros(n, np.uint8)
    for k in range(own + 1):
        at = np.flatnonzero(which == k)
        if len(at):
            symbols[at] = np.frombuffer(part(c, len(at)), np.uint8)
    c.end()
    return (symbols + before).tobytes()
