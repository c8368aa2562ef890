#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py KIND PATH [SEED]: writes a safetensors file for the tests, with the standard library only.

KIND: tricky (odd names, dtypes, shapes, metadata, header order and padding), model (2.4 M f32 and bf16 elements),
next (that model some steps later)."""
import json
import random
import sys

BITS = {"F32": 32, "BF16": 16, "F16": 16, "I64": 64, "U8": 8, "BOOL": 8, "F64": 64, "F8_E4M3": 8}


def floats(rng, n, width):
    """Random mantissas under exponents as weights have them: no array library needed."""
    data = bytearray(rng.randbytes(n * width))
    table = bytes(rng.choice((0x3B, 0x3C, 0x3C, 0x3D, 0xBB, 0xBC, 0xBC, 0xBD)) for _ in range(256))
    data[width - 1 :: width] = rng.randbytes(n).translate(table)
    return data


def write(path, tensors, metadata=None, pad=0):
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, ensure_ascii=False, separators=(", ", " : ")).encode() + b" " * pad
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            f.write(tensor[3])


def tricky(path, rng):
    odd = [
        ("z.last", "F32", [3, 4], floats(rng, 12, 4)),
        ("empty", "F32", [0, 7], b""),
        ("scalar", "F64", [], b"\x00\x00\x00\x00\x00\x00\xf8\x7f"),
        ("../evil", "U8", [5], b"evil!"),
        ("a[0:2]", "I64", [2], bytes(range(16))),
        ("größe \"quoted\"", "BF16", [8], floats(rng, 8, 2)),
        ("tab\tname", "BOOL", [3], b"\x01\x00\x01"),
        ("f8", "F8_E4M3", [16], rng.randbytes(16)),
        ("nan", "F32", [4], b"\x01\x00\x80\x7f\x00\x00\x80\xff\x00\x00\x00\x80\x01\x00\x00\x00"),
    ]
    write(path, odd, {"format": "pt", "note": "line\nbreak"}, pad=3)


def model(path, rng, later):
    tensors = []
    for name, dtype, shape in (("wte.weight", "F32", [9000, 128]), ("head.weight", "BF16", [9000, 128]), ("ln.bias", "F32", [512])):
        n = 1
        for extent in shape:
            n *= extent
        data = floats(rng, n, BITS[dtype] // 8)
        if later:
            data[0 :: BITS[dtype] // 8] = random.Random(99).randbytes(n)
        tensors.append((name, dtype, shape, data))
    write(path, tensors, {"format": "pt"})


def main():
    kind, path = sys.argv[1:3]
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    if kind == "tricky":
        tricky(path, rng)
    else:
        model(path, rng, kind == "next")


main()
