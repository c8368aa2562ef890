# SPDX-License-Identifier: Apache-2.0
"""Files that try something: each with the error that it must give. ``python hostile.py DIR`` writes them all, for use with the command."""

from __future__ import annotations

import io
import pathlib
import struct
import sys
import zipfile


def st(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of that header."""
    raw = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(shape: str, begin: int, end: int, dtype: str = "U8") -> str:
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


def pt(pickle: bytes, storages: dict[str, bytes] | None = None, *, method: int = zipfile.ZIP_STORED, extra: dict[str, bytes] | None = None) -> bytes:
    """A zip as torch.save makes it, around that pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        z.writestr("a/data.pkl", pickle)
        z.writestr("a/byteorder", b"little")
        for key, raw in (storages or {}).items():
            z.writestr(f"a/data/{key}", raw)
        for name, raw in (extra or {}).items():
            z.writestr(name, raw)
        z.writestr("a/version", b"3\n")
    return out.getvalue()


def tensor(numel: int, size: str, stride: str, first: int = 0) -> bytes:
    """The pickle of one float tensor."""
    return (
        f"ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nL{numel}L\ntQL{first}L\n({size}t({stride}tI00\n"
        "ccollections\nOrderedDict\n(tRtR."
    ).encode()


def files() -> dict[str, tuple[bytes, str]]:
    """Name to bytes and the name of the exception."""
    one = entry("[1]", 0, 1)
    good = pt(tensor(2, "I2\n", "I1\n"), {"0": bytes(8)})
    laugh = b"(lp0\n0" + b"".join(f"(g{i}\ng{i}\ntp{i + 1}\n".encode() + (b"0" if i < 59 else b".") for i in range(60))
    out = {
        # names twice, also escaped
        "duplicate.safetensors": (st(f'{{"a":{one},"a":{one}}}', b"x"), "CorruptError"),
        "duplicate-escaped.safetensors": (st(f'{{"a":{one},"\\u0061":{entry("[1]", 1, 2)}}}', b"xy"), "CorruptError"),
        # metadata of other things than strings
        "metadata-number.safetensors": (st('{"__metadata__":{"k":1}}'), "CorruptError"),
        "metadata-null.safetensors": (st('{"__metadata__":{"k":null}}'), "CorruptError"),
        "metadata-nested.safetensors": (st('{"__metadata__":{"k":{}}}'), "CorruptError"),
        # polyglots
        "trailing-byte.safetensors": (st(f'{{"a":{one}}}', b"xy"), "CorruptError"),
        "trailing-zeros.safetensors": (st(f'{{"a":{one}}}', b"x" + bytes(4096)), "CorruptError"),
        "trailing-zip.safetensors": (st(f'{{"a":{one}}}', b"x" + good), "CorruptError"),
        "trailing.pt": (good + b"x", "TruncatedError"),
        # halves of bytes
        "f4-odd.safetensors": (st(f'{{"a":{entry("[3,5]", 0, 8, "F4")}}}', bytes(8)), "CorruptError"),
        # resource bombs
        "shape-overflow.safetensors": (st(f'{{"a":{entry("[4294967296,4294967296]", 0, 0)}}}'), "CorruptError"),
        "claims-10^18.safetensors": (st(f'{{"a":{entry("[1000000000000000000]", 0, 10**18)}}}', bytes(1024)), "TruncatedError"),
        "length-2^63.safetensors": (st("{}", length=1 << 63), "LimitError"),
        "length-too-long.safetensors": (st("{}", length=1000), "TruncatedError"),
        "nested.safetensors": (st('{"a":{"x":' + "[" * 1_000_000), "CorruptError"),
        "overlap.safetensors": (st(f'{{"a":{entry("[2]", 0, 2)},"b":{entry("[2]", 1, 3)}}}', b"xyz"), "CorruptError"),
        "hole.safetensors": (st(f'{{"a":{entry("[1]", 1, 2)}}}', b"xy"), "CorruptError"),
        "nested.pt": (pt(b"]" * 200_000 + b"a" * 199_999 + b"."), "LimitError"),
        "laughs.pt": (pt(laugh), "LimitError"),
        "view-beyond.pt": (pt(tensor(2, "I3\n", "I1\n"), {"0": bytes(8)}), "CorruptError"),
        "view-10^18.pt": (pt(tensor(2, "L1000000000000000000L\n", "I1\n"), {"0": bytes(8)}), "CorruptError"),
        "storage-10^18.pt": (pt(tensor(10**18, "I2\n", "I1\n"), {"0": bytes(8)}), "CorruptError"),
        "storage-missing.pt": (pt(tensor(2, "I2\n", "I1\n")), "CorruptError"),
        "compressed.pt": (pt(tensor(2, "I2\n", "I1\n"), {"0": bytes(8)}, method=zipfile.ZIP_DEFLATED), "UnsupportedError"),
        # names that leave
        "path-up.pt": (pt(b"N.", extra={"../../x": b""}), "PathError"),
        "path-absolute.pt": (pt(b"N.", extra={"/etc/x": b""}), "PathError"),
        "storage-key-up.pt": (pt(tensor(2, "I2\n", "I1\n").replace(b"V0\n", b"V../../x\n"), {"0": bytes(8)}), "CorruptError"),
        # calls
        "os-system.pt": (pt(b"cos\nsystem\n(S'touch ran'\ntR."), "UnsafeError"),
        "posix-system.pt": (pt(b"cposix\nsystem\n(S'touch ran'\ntR."), "UnsafeError"),
        "eval.pt": (pt(b"c__builtin__\neval\n(S'1'\ntR."), "UnsafeError"),
        "partial.pt": (pt(b"cfunctools\npartial\n(cos\nsystem\ntR."), "UnsafeError"),
        "hub.pt": (pt(b"ctorch.hub\nload\n(S'x'\ntR."), "UnsafeError"),
        "instance.pt": (pt(b"(ios\nsystem\n."), "UnsafeError"),
        "nested-global.pt": (pt(b"\x80\x04\x8c\x05torch\x8c\x11hub.load.__call__\x93."), "UnsafeError"),
        "module-id.pt": (pt(b"(Vmodule\nN(ltQ."), "UnsafeError"),
        # other things
        "empty.pt": (b"", "TruncatedError"),
        "script.pt": (pt(b"N.", extra={"a/constants.pkl": b"N."}), "UnsupportedError"),
        "arrays.npz": (pt(b"N.", extra={}).replace(b"data.pkl", b"data.npy"), "UnsupportedError"),
    }
    for n in (1, 22, len(good) // 2, len(good) - 1):
        out[f"cut-{n}.pt"] = (good[:n], "TruncatedError")
    return out


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name, (raw, _) in files().items():
        (target / name).write_bytes(raw)
