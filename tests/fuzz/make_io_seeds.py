#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_safetensors, fuzz_zip and fuzz_pickle, and the files that the unit tests of io read. Needs torch and safetensors.

Checksums of the zip seeds are left out (0), as torch can: no fuzzer guesses them.
"""

import io
import pathlib
import pickle
import struct
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

import foreign_cases  # noqa: E402
import torch  # noqa: E402

SMALL = ("parameter", "views", "plain", "python", "numpy", "grad", "attributes", "conj", "sparse", "quantized", "odd", "tied", "tensor", "train")


def without_checksums(blob: bytes) -> bytes:
    out = bytearray(blob)
    at = blob.find(b"PK\1\2")
    while at >= 0:
        out[at + 16 : at + 20] = bytes(4)
        at = blob.find(b"PK\1\2", at + 46)
    return bytes(out)


def save(obj: object, **how: object) -> bytes:
    f = io.BytesIO()
    foreign_cases.save(obj, f, **how)
    return f.getvalue()


def safetensors() -> dict[str, bytes]:
    def file(header: str, data: bytes) -> bytes:
        return struct.pack("<Q", len(header)) + header.encode() + data

    return {
        "two": file('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}', bytes(10)),
        "meta": file('{"__metadata__":{"format":"pt","\\u00e9":"x\\n"},"e":{"dtype":"I64","shape":[0,3],"data_offsets":[0,0]}}  ', b""),
        "packed": file('{"f":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3],"x":[1.5e3,{"y":null}]}}', bytes(3)),
    }


def main() -> None:
    torch.manual_seed(0)
    cases = foreign_cases.cases()
    out: dict[str, dict[str, bytes]] = {"zip": {}, "pickle": {}, "safetensors": safetensors()}
    for name in SMALL:
        blob = save(cases[name])
        with zipfile.ZipFile(io.BytesIO(blob)) as z:
            out["pickle"][name + ".pkl"] = next(z.read(n) for n in z.namelist() if n.endswith("/data.pkl"))
        out["zip"][name + ".pt"] = without_checksums(blob)
    out["zip"]["checked.pt"] = save(cases["tied"])
    out["zip"]["legacy.pt"] = save(cases["train"], _use_new_zipfile_serialization=False)
    for protocol in (0, 1, 3, 4, 5):
        plain = {"a": [1, 2.5, None, True, "h\u00e9", 10**6, -(2**63), (), (1, 2, 3)], "s": {1}, "f": frozenset([2]), "b": b"x", "t": 10**4}
        out["pickle"][f"protocol{protocol}.pkl"] = pickle.dumps(plain if protocol else {"a": [1, 2.5, None, "h\u00e9", (1, 2)]}, protocol)
    for kind, files in out.items():
        (HERE / "seeds" / kind).mkdir(parents=True, exist_ok=True)
        for name, blob in files.items():
            (HERE / "seeds" / kind / name).write_bytes(blob)


if __name__ == "__main__":
    main()
