# SPDX-License-Identifier: Apache-2.0
"""The container of a .ckp file, written from docs/format.md alone: header, sections, table, tree, frames, index, trailer.

Every hash is checked. A file that breaks a rule raises Bad, with the offset where that is known.
"""
import struct
from dataclasses import dataclass, field

import xxhash
import zstandard

MAGIC = b"\x89CKP\r\n\x1a\n"
TRAILER_MAGIC = b"CKPEND\x1a\n"
ZERO = bytes(16)
RAW, ZSTD, REF, ZSTD_PREFIX = range(4)
DELTA, LOSSY, COPIES, CLUSTERS = 1, 2, 4, 8
USES_BASE = 1
MAX_ELEMS = 1 << 20
ROLES = ["other", "weight", "master", "copy", "m", "v", "momentum", "average"]
COPY = 3

# id: (name, bits of an element, bytes of the smallest number inside)
DTYPES = {
    1: ("bool", 8, 1), 2: ("u8", 8, 1), 3: ("i8", 8, 1), 4: ("u16", 16, 2), 5: ("i16", 16, 2), 6: ("u32", 32, 4),
    7: ("i32", 32, 4), 8: ("u64", 64, 8), 9: ("i64", 64, 8), 10: ("f16", 16, 2), 11: ("bf16", 16, 2), 12: ("f32", 32, 4),
    13: ("f64", 64, 8), 14: ("f128", 128, 16), 15: ("c32", 32, 2), 16: ("c64", 64, 4), 17: ("c128", 128, 8),
    18: ("c256", 256, 16), 20: ("f8e4m3fn", 8, 1), 21: ("f8e5m2", 8, 1), 22: ("f8e4m3fnuz", 8, 1), 23: ("f8e5m2fnuz", 8, 1),
    24: ("f8e8m0fnu", 8, 1), 25: ("f8e4m3", 8, 1), 26: ("f8e3m4", 8, 1), 27: ("f8e4m3b11fnuz", 8, 1), 30: ("f6e2m3fn", 8, 1),
    31: ("f6e3m2fn", 8, 1), 32: ("f4e2m1fn", 8, 1), 33: ("i4", 8, 1), 34: ("u4", 8, 1), 35: ("i2", 8, 1), 36: ("u2", 8, 1),
    37: ("i1", 8, 1), 38: ("u1", 8, 1), 40: ("f4_packed", 4, 1), 41: ("f6e2m3_packed", 6, 1), 42: ("f6e3m2_packed", 6, 1),
    50: ("f4e2m1fn_x2", 8, 1), 51: ("bits8", 8, 1), 52: ("bits16", 16, 2), 53: ("qint8", 8, 1), 54: ("quint8", 8, 1),
    55: ("qint32", 32, 4), 56: ("quint4x2", 8, 1), 57: ("quint2x4", 8, 1), 60: ("datetime64", 64, 8), 61: ("timedelta64", 64, 8),
}


class Bad(Exception):
    """The file breaks the format."""


def need(ok, what, at=None):
    if not ok:
        raise Bad(what if at is None else f"{what} (at byte {at})")


def h64(b):
    return xxhash.xxh3_64_intdigest(b)


def id128(b):
    """An id as on disk: low half, then high half, each little-endian."""
    v = xxhash.xxh3_128_intdigest(b)
    return struct.pack("<QQ", v & (1 << 64) - 1, v >> 64)


def product(dims):
    n = 1
    for d in dims:
        n *= d
    return n


def byte_count(dtype, n):
    bits = DTYPES[dtype][1] * n
    need(bits % 8 == 0, "packed elements that do not end on a byte")
    return bits // 8


class Cursor:
    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, n):
        need(0 <= n <= len(self.data) - self.at, f"{n} bytes wanted, {len(self.data) - self.at} left", self.at)
        self.at += n
        return self.data[self.at - n:self.at]

    def u8(self):
        return self.take(1)[0]

    def num(self, fmt):
        return struct.unpack("<" + fmt, self.take(struct.calcsize(fmt)))[0]

    def varint(self, most=(1 << 64) - 1):
        value = shift = 0
        while True:
            b = self.u8()
            value |= (b & 127) << shift
            if b < 128:
                break
            shift += 7
            need(shift < 64, "a varint of more than 64 bits", self.at)
        need(b != 0 or shift == 0, "a varint that is longer than it need be", self.at)
        need(value <= most, f"{value} where {most} is the most", self.at)
        return value

    def zigzag(self, most):
        z = self.varint(most)
        return -(z >> 1) - 1 if z & 1 else z >> 1

    def string(self, most):
        return self.take(self.varint(most))

    def end(self):
        need(self.at == len(self.data), "bytes left over", self.at)


# ---- header, sections, trailer


@dataclass
class Header:
    features: int
    optional: int
    delta: bool
    profile: int
    chain: int
    base: bytes
    table_content: bytes
    hash: int


def parse_header(data):
    need(data[:8] == MAGIC, "not a .ckp file", 0)
    need(len(data) >= 128, "cut inside the header")
    major, _minor, size = struct.unpack_from("<HHI", data, 8)
    need(major == 1, f"format version {major}", 8)
    need(size == 128, "header length", 12)
    (own,) = struct.unpack_from("<Q", data, 120)
    need(own == h64(data[:120]), "header hash", 120)
    read, check, _delete, optional, flags, chain, profile = struct.unpack_from("<QQQQHHB", data, 16)
    need(read & ~(DELTA | LOSSY | COPIES | CLUSTERS) == 0 and check == 0, "a feature bit that this reader does not know", 16)
    need(flags & ~1 == 0 and data[53:56] == bytes(3) and data[88:120] == bytes(32), "reserved bytes", 48)
    base, table = data[56:72], data[72:88]
    delta = flags == 1
    need((read & DELTA != 0) == delta == (chain > 0) == (base != ZERO) and chain <= 4096, "delta fields contradict each other", 48)
    return Header(read, optional, delta, profile, chain, base, table, own)


@dataclass
class Section:
    coding: int
    raw_len: int
    raw_id: bytes
    stored: bytes
    end: int


def parse_section(data, at, magic, most):
    head = data[at:at + 56]
    need(len(head) == 56 and head[:4] == b"\xf5" + magic, f"section {magic.decode()}", at)
    stored_len, raw_len, stored_hash = struct.unpack_from("<QQQ", head, 8)
    (own,) = struct.unpack_from("<Q", head, 48)
    need(own == h64(head[:48]), "hash of a section head", at)
    need(head[4] <= 3 and head[5:8] == bytes(3), "coding of a section", at)
    need(raw_len <= most and stored_len <= most, "section beyond its limit", at)
    stored = data[at + 56:at + 56 + stored_len]
    need(len(stored) == stored_len and h64(stored) == stored_hash, "stored bytes of a section", at + 56)
    return Section(head[4], raw_len, head[32:48], stored, at + 56 + stored_len)


def unpack(section, prefix=b""):
    if section.coding == RAW:
        raw = section.stored
    else:
        use = prefix if section.coding == ZSTD_PREFIX else b""
        need(section.raw_len <= 1024 * len(section.stored) + 4 * len(use) + 65536, "section unpacks to more than is believed")
        words = zstandard.ZstdCompressionDict(use, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if use else None
        raw = zstandard.ZstdDecompressor(dict_data=words).decompress(section.stored, max_output_size=section.raw_len)
    need(len(raw) == section.raw_len and id128(raw) == section.raw_id, "unpacked bytes of a section")
    return raw


# ---- table


@dataclass
class Row:
    name: str
    role: int
    dtype: int
    owner: int | None
    alias_of: int | None
    copy_of: int | None
    place: int                   # 0 whole, 1 box, 2 range
    shape: tuple
    box_first: tuple = ()
    box_shape: tuple = ()
    flat_first: int = 0
    numel: int = 0

    @property
    def stored(self):
        return self.alias_of is None and self.copy_of is None and self.numel > 0

    @property
    def local_shape(self):
        return (self.shape, self.box_shape, (self.numel,))[self.place]


def parse_ref(c, i, n):
    z = c.varint(1 << 25)
    if z == 0:
        return None
    to = i + (-(z >> 1) - 1 if z & 1 else z >> 1)
    need(0 <= to < n and to != i, "a reference outside the table", c.at)
    return to


def parse_row(c, i, n):
    name = c.string(4096)
    need(name and 0 not in name, "a name", c.at)
    role, dtype = c.u8(), c.u8()
    need(role < len(ROLES) and dtype in DTYPES, "a role or dtype", c.at)
    refs = [parse_ref(c, i, n) for _ in range(3)]
    place = c.u8()
    need(place <= 2, "whole, box or range", c.at)
    ndim = c.varint(64)
    dims = lambda: tuple(c.varint() for _ in range(ndim))
    row = Row(name.decode("utf-8"), role, dtype, *refs, place, dims())
    row.numel = product(row.shape)
    if place == 1:
        row.box_first, row.box_shape = dims(), dims()
        need(all(f + s <= g for f, s, g in zip(row.box_first, row.box_shape, row.shape)), "a box that leaves its tensor")
        row.numel = product(row.box_shape)
    elif place == 2:
        row.flat_first, count = c.varint(), c.varint()
        need(row.flat_first + count <= row.numel, "a range that leaves its tensor")
        row.numel = count
    byte_count(dtype, row.numel)
    return row


def parse_table(raw):
    c = Cursor(raw)
    n = c.varint(1 << 24)
    need(n <= len(raw) // 9, "more rows than bytes")
    rows = [parse_row(c, i, n) for i in range(n)]
    c.end()
    need(len({r.name for r in rows}) == n, "two tensors of one name")
    for i, r in enumerate(rows):
        if r.alias_of is not None:
            a = rows[r.alias_of]
            need(r.alias_of < i and a.alias_of is None and (a.dtype, a.numel) == (r.dtype, r.numel), f"{r.name}: alias")
        if r.copy_of is not None:
            m = rows[r.copy_of]
            need(r.role == COPY and r.alias_of is None and m.stored | (m.numel == 0) and m.copy_of is None and m.numel == r.numel
                 and m.dtype == 12 and r.dtype in (10, 11), f"{r.name}: copy")
    return rows


# ---- state tree


@dataclass
class Tensor:
    """A place in the tree where a tensor belongs."""
    index: int
    made_as: int


@dataclass
class Named:
    name: str
    value: object


@dataclass
class Typed:
    """dtype, device, numpy scalar: what a plain reader does not turn into an object."""
    kind: str
    name: str
    data: bytes = b""


def parse_tree(raw, n_tensors):
    if not raw:
        return None
    c = Cursor(raw)
    value = parse_node(c, n_tensors, 0)
    c.end()
    return value


def parse_values(c, n_tensors, depth, count):
    need(depth + 1 < 128 or count == 0, "nested too deep", c.at)
    need(count <= len(c.data) - c.at, "more values than bytes", c.at)
    return [parse_node(c, n_tensors, depth + 1) for _ in range(count)]


def parse_node(c, n_tensors, depth):
    tag = c.u8()
    if tag in (0, 1, 2):
        return (None, False, True)[tag]
    if tag == 3:
        return c.zigzag((1 << 64) - 1)
    if tag == 4:
        return int.from_bytes(c.string(1 << 30), "little", signed=True)
    if tag == 5:
        return c.num("d")
    if tag == 6:
        return complex(c.num("d"), c.num("d"))
    if tag == 7:
        return c.string(1 << 30).decode("utf-8", "surrogatepass")
    if tag in (8, 21):
        return (bytes if tag == 8 else bytearray)(c.string(1 << 30))
    if tag in (11, 12):
        count = c.varint(1 << 29)
        flat = parse_values(c, n_tensors, depth, 2 * count)
        return dict(zip(flat[::2], flat[1::2]))
    if tag in (9, 10, 13, 14, 15):
        values = parse_values(c, n_tensors, depth, c.varint(1 << 29))
        need(tag != 15 or all(type(v) is int for v in values), "a torch.Size of other things", c.at)
        return {9: list, 10: tuple, 13: set, 14: frozenset, 15: tuple}[tag](values)
    if tag in (16, 17):
        return Typed({16: "dtype", 17: "device"}[tag], c.string(255).decode())
    if tag == 18:
        return Typed("scalar", c.string(255).decode(), c.string(1 << 30))
    if tag == 19:
        t = Tensor(c.varint(1 << 24), c.u8())
        need(t.index < n_tensors and t.made_as <= 6, "a tensor of the tree", c.at)
        return t
    need(tag == 20, f"tag {tag}", c.at)
    name = c.string(255).decode()
    return Named(name, parse_values(c, n_tensors, depth, 1)[0])


# ---- frames and index


@dataclass
class Chunk:
    role: int
    quant: int
    codec: int
    flags: int
    dtype: int
    pieces: list                 # of (tensor, first, count)
    lengths: tuple               # params, escapes, payload
    stored_hash: int
    decoded_hash: int
    head: bytes
    offset: int = 0
    params: bytes = b""
    escapes: bytes = b""
    payload: bytes = b""
    n: int = field(default=0)

    @property
    def uses_base(self):
        return self.flags & USES_BASE != 0


def parse_pieces(c, table):
    n = c.varint(1 << 16)
    need(n > 0, "a chunk of nothing", c.at)
    pieces, at, step = [], 0, 1
    while len(pieces) < n:
        tensor = at + c.zigzag(1 << 26)
        k = c.varint(n - len(pieces))
        if k == 0:
            need(0 <= tensor < len(table), "a piece of no tensor", c.at)
            pieces.append((tensor, c.varint(), c.varint(MAX_ELEMS)))
            k = 1
        else:
            if k > 1:
                step = c.zigzag(1 << 25)
                need(step != 0, "a run that stands still", c.at)
            run = [tensor + step * i for i in range(k)]
            need(min(run) >= 0 and max(run) < len(table), "a run that leaves the table", c.at)
            pieces += [(t, 0, table[t].numel) for t in run]
        at = pieces[-1][0] + step
    return pieces


def parse_head(head, table, header):
    c = Cursor(head)
    chunk = Chunk(c.u8(), c.u8(), c.u8(), c.u8(), c.u8(), parse_pieces(c, table), tuple(c.varint(1 << 27) for _ in range(3)), c.num("Q"),
                  c.num("Q"), head)
    c.end()
    need(chunk.flags & ~USES_BASE == 0 and chunk.role < len(ROLES) and chunk.dtype in DTYPES, "flags, role or dtype of a chunk")
    need(not chunk.uses_base or header.delta, "a chunk against a base where there is none")
    need(chunk.quant == 0 or header.features & LOSSY, "a quantized chunk that was not announced")
    for tensor, first, count in chunk.pieces:
        row = table[tensor]
        need(row.stored and (row.role, row.dtype) == (chunk.role, chunk.dtype), f"{row.name}: in a chunk where it does not belong")
        need(count > 0 and first + count <= row.numel, f"{row.name}: a piece that leaves it")
        byte_count(chunk.dtype, first), byte_count(chunk.dtype, count)
    chunk.n = sum(p[2] for p in chunk.pieces)
    need(chunk.n <= MAX_ELEMS, "a chunk of too many elements")
    return chunk


def read_frame(data, chunk, at):
    """Frame against the index's copy of its head, body against its hash. Gives the next place."""
    size = 8 + len(chunk.head)
    need(data[at:at + 4] == b"\xf5FRM" and data[at + 4:at + 8] == struct.pack("<I", len(chunk.head)), "a frame", at)
    need(data[at + 8:at + size] == chunk.head, "head of a frame differs from the index", at)
    need(data[at + size:at + size + 8] == struct.pack("<Q", h64(data[at:at + size])), "hash of a frame's head", at)
    c = Cursor(data, at + size + 8)
    chunk.offset = at
    chunk.params, chunk.escapes, chunk.payload = (c.take(n) for n in chunk.lengths)
    need(h64(data[at + size + 8:c.at]) == chunk.stored_hash, "body of a frame", at + size + 8)
    return c.at


def bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def parse_index(raw, front, table, header):
    c = Cursor(raw)
    need(c.take(40) == front, "the index belongs to another header, table or tree")
    chunks = [parse_head(c.string(1 << 21), table, header) for _ in range(c.varint(len(raw)))]
    errors, tensor = {}, 0
    for _ in range(c.varint(len(table))):
        head = c.varint(1 << 25)
        tensor += head >> 1
        need(tensor < len(table), "an error record of no tensor", c.at)
        errors[tensor] = (bf16(c.num("H")), bf16(c.num("H"))) + ((c.varint(), c.varint()) if head & 1 else (0, 0))
        tensor += 1
    c.end()
    return chunks, errors


def varint_bytes(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def check_cover(chunks, table):
    """Every stored element in exactly one chunk; gives the content id."""
    spans = sorted((t, first, count, k.decoded_hash) for k in chunks for t, first, count in k.pieces)
    content, next_of = xxhash.xxh3_128(), {}
    for t, first, count, decoded in spans:
        need(first == next_of.get(t, 0), f"{table[t].name}: a gap or overlap at element {first}")
        next_of[t] = first + count
        name = table[t].name.encode("utf-8")
        content.update(varint_bytes(len(name)) + name + struct.pack("<QQQ", first, count, decoded))
    for i, r in enumerate(table):
        need(not r.stored or next_of.get(i) == r.numel, f"{r.name}: not all of it is there")
    v = content.intdigest()
    return struct.pack("<QQ", v & (1 << 64) - 1, v >> 64)


class File:
    """One file, whole and proved. base: the File that its table lies in, when it lies elsewhere."""

    def __init__(self, data, table_file=None):
        self.header = parse_header(data)
        section = parse_section(data, 128, b"TAB", 1 << 30)
        elsewhere = section.coding == REF
        need(elsewhere == (self.header.table_content != ZERO) and section.coding != ZSTD_PREFIX, "where is the table?")
        if elsewhere:
            need(section.stored == b"" and section.raw_len == 0, "a table that is and is not here")
            need(table_file is not None and table_file.content == self.header.table_content, "the file with the table is missing")
            need(table_file.table_id == section.raw_id, "the table is another one")
            self.table = table_file.table
        else:
            self.table = parse_table(unpack(section))
        self.table_id = section.raw_id
        section = parse_section(data, section.end, b"TRE", 1 << 30)
        need(section.coding != REF and (elsewhere or section.coding != ZSTD_PREFIX), "coding of the tree")
        self.tree_bytes = unpack(section, table_file.tree_bytes if elsewhere else b"")
        self.tree = parse_tree(self.tree_bytes, len(self.table))
        front = struct.pack("<Q", self.header.hash) + self.table_id + section.raw_id
        self._back(data, section.end, front)

    def _back(self, data, at, front):
        end = len(data) - 72
        need(end >= at and data[end:end + 8] == TRAILER_MAGIC, "no trailer", max(end, 0))
        index_at, index_len = struct.unpack_from("<QQ", data, end + 8)
        length, own = struct.unpack_from("<QQ", data, end + 56)
        need(own == h64(data[end:end + 64]), "hash of the trailer", end)
        need(length == len(data) and at <= index_at and index_at + index_len == end, "places in the trailer", end)
        section = parse_section(data, index_at, b"IDX", 1 << 30)
        need(section.coding <= ZSTD and section.end == end and section.raw_id == data[end + 24:end + 40], "the index", index_at)
        self.chunks, self.errors = parse_index(unpack(section), front, self.table, self.header)
        for chunk in self.chunks:
            at = read_frame(data, chunk, at)
        need(at == index_at, "frames do not end where the index begins", at)
        self.content = check_cover(self.chunks, self.table)
        need(self.content == data[end + 40:end + 56], "content id", end + 40)
