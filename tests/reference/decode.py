#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference decoder of .ckp files: python3 decode.py FILE [BASE ...], a base model as safetensors

Written from docs/format.md alone, for reading and for checking the library; needs numpy, xxhash and zstandard. Checks every hash. Prints one line a
tensor: name, role, dtype, shape, hash64 of its decoded bytes. decode() gives the bytes themselves and the tree.
"""
import copy
import json
import re
import sys

import container
import quantizers as q
from container import DTYPES, File, byte_count, h64, need, product
import blocks

ROLE_V, ROLE_W = 5, (1, 2, 7)
QUANTIZED = {q.V: (5,), q.M: (4, 6), q.W: ROLE_W, q.INDEX: ROLE_W, q.CLUSTER: (4, 5, 6)}


class Level:
    """One file of a chain, and its base. Chunks are decoded once and kept."""

    def __init__(self, file, base):
        self.file, self.base = file, base
        self.like = {(c.role, c.dtype, tuple(c.pieces)): c for c in file.chunks}
        self.kept, self.states = {}, {}
        # moments by what they belong to: the owners' rows and ranges
        self.moments = {}
        for c in file.chunks:
            owners = [file.table[t].owner for t, _, _ in c.pieces]
            if c.quant in (q.V, q.M) and None not in owners:
                at = tuple((o, first, count) for o, (_, first, count) in zip(owners, c.pieces))
                self.moments[c.quant, at] = c

    def below(self, chunk):
        """The base's like chunk, when the chunk uses it."""
        if not chunk.uses_base:
            return None
        key = chunk.role, chunk.dtype, tuple(chunk.pieces)
        need(self.base is not None and key in self.base.like, "no like chunk in the base")
        return self.base.like[key]

    def v_state(self, chunk):
        if id(chunk) not in self.states:
            like = self.below(chunk)
            self.states[id(chunk)] = q.v_state(chunk, self.base.v_state(like) if like is not None else None)
        return self.states[id(chunk)]

    def index_state(self, chunk):
        if id(chunk) not in self.states:
            like = self.below(chunk)
            need(like is None or like.quant == q.INDEX, "indices under a base that has none")
            self.states[id(chunk)] = q.index_state(chunk, self.base.index_state(like) if like is not None else None)
        return self.states[id(chunk)]

    def m_factors(self, chunk):
        like = self.below(chunk)
        return q.m_factors(chunk, self.base.m_factors(like) if like is not None else None)

    def v_beside(self, pieces):
        c = self.moments.get((q.V, pieces))
        return self.v_state(c) if c is not None else None

    def plain(self, chunk):
        part = DTYPES[chunk.dtype][2]
        size = sum(byte_count(chunk.dtype, count) for _, _, count in chunk.pieces)
        like = self.below(chunk)
        # complex numbers are floats of half their size
        dtype = {15: 10, 16: 12, 17: 13}.get(chunk.dtype, chunk.dtype)
        return blocks.decode(chunk.codec, chunk.payload, size // part, part, dtype, self.base.decode(like) if like is not None else None)

    def quantized(self, chunk):
        owners = tuple((self.file.table[t].owner, first, count) for t, first, count in chunk.pieces)
        if chunk.quant == q.V:
            return q.v_values(chunk, self.v_state(chunk))
        if chunk.quant == q.M:
            return q.m_values(chunk, self.m_factors(chunk), self.v_beside(owners))
        if chunk.quant == q.INDEX:
            return q.index_values(chunk, self.index_state(chunk))
        if chunk.quant == q.CLUSTER:
            need(chunk.dtype == 12 and not chunk.uses_base, "clusters of another dtype, or with a base")
            return q.cluster_values(chunk)
        need(chunk.quant == q.W, f"quantizer {chunk.quant}")
        like = self.below(chunk)
        pieces = tuple(chunk.pieces)
        m = self.moments.get((q.M, pieces))
        return q.w_values(chunk, self.base.decode(like) if like is not None else None, self.v_beside(pieces), self.m_factors(m) if m is not None else None)

    def decode(self, chunk):
        """The bytes of a chunk's elements, proved by their hash."""
        if id(chunk) not in self.kept:
            need(chunk.quant == 0 or chunk.dtype in (10, 11, 12), "a quantized chunk of another dtype")
            need(chunk.quant == 0 or chunk.role in QUANTIZED.get(chunk.quant, ()), "a quantizer that is not for the chunk's role")
            raw = self.quantized(chunk) if chunk.quant else self.plain(chunk)
            need(h64(raw) == chunk.decoded_hash, f"decoded hash of a chunk of {self.file.table[chunk.pieces[0][0]].name}", chunk.offset)
            self.kept[id(chunk)] = raw
        return self.kept[id(chunk)]


class Weights:
    """A base model: the tensors of a safetensors file of f32, by every ending of their names."""

    def __init__(self, data):
        length = int.from_bytes(data[:8], "little")
        self.by_ending = {}
        for name, t in json.loads(data[8:8 + length]).items():
            need(t["dtype"] == "F32", f"{name}: a base model of {t['dtype']}")
            begin, end = (8 + length + at for at in t["data_offsets"])
            for ending in endings(name):
                self.by_ending.setdefault((ending, tuple(t["shape"])), []).append(data[begin:end])

    def like(self, table, index):
        """Bytes of a row in its own dtype, or None: of its name, or of those of its copies."""
        row = table[index]
        if row.role not in ROLE_W:
            return None
        of = [row.name] + [r.name for r in table if r.copy_of == index]
        return next((b for b in (self.named(name, row) for name in of) if b is not None), None)

    def named(self, name, row):
        for ending in endings(name):
            found = self.by_ending.get((ending, tuple(row.shape)), [])
            if found:
                return q.from_f32(q.to_f32(found[0], 12), row.dtype) if len(found) == 1 else None
        return None


def endings(name):
    return [name[m.end():] for m in re.finditer(r"^|[./]", name) if m.end() < len(name)]


class Model(Level):
    """The key that a base model stands for, under the first file of a chain."""

    def __init__(self, weights, above):
        self.kept, self.states, self.like, self.moments = {}, {}, {}, {}
        self.base, self.file = None, copy.copy(above)
        self.file.chunks = [copy.copy(c) for c in above.chunks]
        for c in self.file.chunks:
            raw = b""
            for tensor, first, count in c.pieces:
                begin, size = byte_count(c.dtype, first), byte_count(c.dtype, count)
                whole = weights.like(above.table, tensor)
                raw += whole[begin:begin + size] if whole is not None else bytes(size)
            c.quant, c.flags, c.decoded_hash = 0, 0, h64(raw)
            self.kept[id(c)] = raw
            self.like[c.role, c.dtype, tuple(c.pieces)] = c
        self.file.content = container.check_cover(self.file.chunks, above.table)


def chain(datas):
    """Files in any order but the newest first; gives its Level."""
    models = [Weights(d) for d in datas if d[:8] != container.MAGIC]
    datas = [d for d in datas if d[:8] == container.MAGIC]
    headers = [container.parse_header(d) for d in datas]
    order, files = [0], {}
    while headers[order[-1]].delta:
        chain_left = headers[order[-1]].chain - 1
        # the content id is known only after parsing: chain lengths find the candidate, the id proves it
        found = [i for i, h in enumerate(headers) if i not in order and h.chain == chain_left]
        if not found and chain_left == 0 and models:
            break
        need(found, "the base is missing")
        order.append(found[0])
    level = None
    for i in reversed(order):
        h = headers[i]
        table_file = files.get(h.table_content) if h.table_content != container.ZERO else None
        f = File(datas[i], table_file)
        if h.delta and level is None:
            level = Model(models[0], f)
        if h.delta:
            need(level is not None and level.file.content == h.base, "the base is another file")
            need(level.file.table_id == f.table_id, "the base has another table")
        files[f.content] = f
        level = Level(f, level)
    return level


def round_copy(raw, master, dtype):
    return q.from_f32(q.to_f32(raw, master), dtype)


def decode(datas):
    """(rows of the table, bytes of each tensor as the shard holds it, tree)."""
    level = chain(datas)
    table = level.file.table
    out = [bytearray(byte_count(r.dtype, r.numel)) if r.stored else None for r in table]
    for chunk in level.file.chunks:
        raw, at = level.decode(chunk), 0
        for tensor, first, count in chunk.pieces:
            begin, size = byte_count(chunk.dtype, first), byte_count(chunk.dtype, count)
            out[tensor][begin:begin + size] = raw[at:at + size]
            at += size
    for i, r in enumerate(table):
        if r.copy_of is not None:
            out[i] = round_copy(bytes(out[r.copy_of]), table[r.copy_of].dtype, r.dtype) if r.numel else b""
    for i, r in enumerate(table):
        if r.alias_of is not None:
            out[i] = out[r.alias_of]
    return table, [bytes(b) if b is not None else b"" for b in out], level.file.tree


def main(paths):
    if not paths:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    table, tensors, _ = decode([open(p, "rb").read() for p in paths])
    for row, raw in zip(table, tensors):
        need(len(raw) == byte_count(row.dtype, product(row.local_shape)), row.name)
        print(row.name, container.ROLES[row.role], DTYPES[row.dtype][0], "x".join(map(str, row.local_shape)) or "-", f"{h64(raw):016x}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
