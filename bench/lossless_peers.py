# SPDX-License-Identifier: Apache-2.0
"""One peer on one set of bench/lossless_data.py, run by bench/lossless.py in the peers' own environment.

    python lossless_peers.py PEER SET DIR REPS     prints one JSON object

A peer gets all elements of the file's main dtype as one buffer (the kindest way: no cost per tensor); the few bytes of other dtypes
are counted as they are. Times are CPU seconds of the whole process, best of REPS, so threads don't help and other load doesn't
hurt; files go to memory (/dev/shm). Every result is decoded and compared bit for bit.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "BIGSMALL_WORKERS", "RAYON_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLOSC_NTHREADS"):
    os.environ[variable] = "1"
os.environ["FIREWORKS_DELTA_DECOMPRESS_THREADS"] = "0"

import numpy as np  # noqa: E402

WIDTH = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "i64": 8, "i32": 4, "u8": 1, "bool": 1}
SLOW = 30.0  # seconds; beyond this fewer repetitions


class Set:
    """A set's main dtype as one array, its base, and the bytes of the rest."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        listed = [line.split() for line in (folder / f"{name}.list").read_text().splitlines()]
        sizes: dict[str, int] = {}
        for dtype, n, *_ in listed:
            sizes[dtype] = sizes.get(dtype, 0) + int(n) * WIDTH[dtype]
        self.dtype = max(sizes, key=lambda d: sizes[d])
        self.raw = sum(sizes.values())
        self.other = self.raw - sizes[self.dtype]
        self.data = self._gather(folder / f"{name}.bin", listed)
        base = folder / f"{name}.base.bin"
        self.base = self._gather(base, listed) if base.exists() else None

    def _gather(self, path: pathlib.Path, listed: list[list[str]]) -> np.ndarray:
        raw = np.fromfile(path, np.uint8)
        width = WIDTH[self.dtype]
        parts = [raw[int(at) : int(at) + int(n) * width] for dtype, n, _, at, _ in listed if dtype == self.dtype]
        return np.concatenate(parts)

    @property
    def unsigned(self) -> np.dtype:
        return np.dtype(f"u{WIDTH[self.dtype]}")


Codec = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], int]]


def xor(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.bitwise_xor(a.view(np.uint64) if len(a) % 8 == 0 else a, b.view(np.uint64) if len(b) % 8 == 0 else b).view(np.uint8)


def with_base(s: Set, encode: Callable[[np.ndarray], Any], decode: Callable[[Any], np.ndarray], size: Callable[[Any], int] = len) -> Codec:
    """A codec of plain buffers; with a base it gets the XOR."""
    if s.base is None:
        return (lambda: encode(s.data)), (lambda c: decode(c)), size
    base = s.base
    return (lambda: encode(xor(s.data, base))), (lambda c: xor(np.frombuffer(decode(c), np.uint8), base)), size


def tensor_of(a: np.ndarray, dtype: str) -> Any:
    import torch

    return torch.from_numpy(a).view({"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype])


def torch_save(s: Set) -> Codec:
    import torch

    torch.set_num_threads(1)
    t = tensor_of(s.data.copy(), s.dtype)

    def encode() -> bytes:
        out = io.BytesIO()
        torch.save({"t": t}, out)
        return out.getvalue()

    return encode, lambda c: torch.load(io.BytesIO(c), weights_only=True)["t"].view(torch.uint8).numpy(), len


def zstd(level: int) -> Callable[[Set], Codec]:
    def make(s: Set) -> Codec:
        import zstandard

        c, d = zstandard.ZstdCompressor(level=level), zstandard.ZstdDecompressor()
        return with_base(s, lambda a: c.compress(a), lambda x: np.frombuffer(d.decompress(x), np.uint8))

    return make


def blosc2(s: Set) -> Codec:
    import blosc2 as b

    b.set_nthreads(1)
    size = WIDTH[s.dtype]
    params = {"codec": b.Codec.ZSTD, "clevel": 1, "filters": [b.Filter.SHUFFLE], "filters_meta": [0], "typesize": size, "nthreads": 1}

    def encode(a: np.ndarray) -> bytes:
        return b.SChunk(chunksize=4 << 20, data=a, cparams=params, dparams={"nthreads": 1}).to_cframe()

    def decode(c: bytes) -> np.ndarray:
        chunk = b.schunk_from_cframe(c)
        out = np.empty(chunk.nchunks * chunk.chunkshape * chunk.typesize if False else len(s.data), np.uint8)
        chunk.get_slice(0, len(s.data) // size, out=out)
        return out

    return with_base(s, encode, decode)


def pcodec(s: Set) -> Codec:
    from pcodec import ChunkConfig, standalone

    kind = np.dtype(np.float32) if s.dtype == "f32" and s.base is None else s.unsigned
    config = ChunkConfig(compression_level=8)
    return with_base(s, lambda a: standalone.simple_compress(a.view(kind), config),
                     lambda c: np.asarray(standalone.simple_decompress(c)).view(np.uint8))


def pcodec_integers(s: Set) -> Codec | None:
    """pcodec on differences of ordered integers: our own mapping with their coder."""
    from pcodec import ChunkConfig, standalone

    if s.base is None:
        return None
    signed = np.dtype(f"i{WIDTH[s.dtype]}")
    top = np.array(np.iinfo(signed).max, signed)

    def ordered(a: np.ndarray) -> np.ndarray:
        i = a.view(signed)
        return np.where(i < 0, i ^ top, i)

    config, base = ChunkConfig(compression_level=8), ordered(s.base)

    def decode(c: bytes) -> np.ndarray:
        o = np.asarray(standalone.simple_decompress(c)) + base
        return np.where(o < 0, o ^ top, o).view(np.uint8)

    return (lambda: standalone.simple_compress(ordered(s.data) - base, config)), decode, len


def zipnn(s: Set) -> Codec:
    from zipnn import ZipNN

    z = ZipNN(bytearray_dtype={"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[s.dtype], input_format="byte", threads=1)
    # it changes its input in place: a copy, which its user would have to make too
    return with_base(s, lambda a: z.compress(bytearray(a)), lambda c: np.frombuffer(z.decompress(c), np.uint8))


def z4ai(effort: str | None) -> Callable[[Set], Codec]:
    def make(s: Set) -> Codec:
        import z4ai as z

        dtype = {"f32": "fp32", "bf16": "bf16"}[s.dtype]
        data = s.data.tobytes()
        if s.base is not None:
            base = s.base.tobytes()
            return (lambda: z.compress_delta(data, base, dtype=dtype, threads=1), lambda c: np.frombuffer(z.decompress_delta(c, base), np.uint8),
                    len)
        return (lambda: z.compress(data, dtype=dtype, threads=1, effort=effort), lambda c: np.frombuffer(z.decompress(c), np.uint8), len)

    return make


def scratch() -> pathlib.Path:
    return pathlib.Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None, prefix="lossless-"))


def bigsmall(s: Set) -> Codec:
    import bigsmall as b
    from safetensors.torch import save_file

    where = scratch()
    save_file({"t": tensor_of(s.data, s.dtype)}, where / "a.safetensors")
    packed = where / "a.bs"
    if s.base is not None:
        save_file({"t": tensor_of(s.base, s.dtype)}, where / "b.safetensors")

    def encode() -> int:
        if s.base is not None:
            b.compress_delta(where / "a.safetensors", where / "b.safetensors", packed, workers=1, progress=False, force_delta=True)
        else:
            b.compress(where / "a.safetensors", packed, workers=1, progress=False)
        return packed.stat().st_size

    def decode(_: int) -> np.ndarray:
        out = b.decompress_delta(packed, where / "b.safetensors", progress=False) if s.base is not None else b.decompress(packed, progress=False)
        t = out["t"]
        return np.ascontiguousarray(t).view(np.uint8).reshape(-1)

    return encode, decode, lambda size: size


def moonclip(s: Set) -> Codec:
    from moonclip import MoonclipManager

    where = scratch()
    count = len(s.data) // WIDTH[s.dtype]
    kind = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[s.dtype]
    data = {"t": ([count], kind, s.data.tobytes())}
    runs = [0]

    def files(root: pathlib.Path) -> int:
        return sum(p.stat().st_size for p in root.rglob("*") if p.is_file())

    def fresh() -> tuple[Any, pathlib.Path, int]:
        root = where / str(runs[0])
        manager = MoonclipManager(storage_root=str(root), async_save=False, full_every_steps=1 << 30)
        before = 0
        if s.base is not None:
            manager.save_tensors(0, {"t": ([count], kind, s.base.tobytes())})
            before = files(root)
        return manager, root, before

    made = [fresh()]

    def encode() -> tuple[Any, pathlib.Path, int, str]:
        manager, root, before = made[0]
        return manager, root, before, manager.save_tensors(1, data)

    def prepare() -> None:
        shutil.rmtree(made[0][1], ignore_errors=True)
        runs[0] += 1
        made[0] = fresh()

    encode.prepare = prepare  # type: ignore[attr-defined]
    return encode, lambda c: np.frombuffer(c[0].load(c[3])["t"], np.uint8), lambda c: files(c[1]) - c[2]


def fireworks(s: Set) -> Codec | None:
    import torch
    from fireworks_delta_compression import compression as f

    if s.base is None:
        return None
    torch.set_num_threads(1)
    new, old = tensor_of(s.data.copy(), s.dtype), tensor_of(s.base.copy(), s.dtype)
    form = "arc_v3" if s.dtype == "bf16" else "arc_v2"

    def decode(c: Any) -> np.ndarray:
        return f.delta_decompress(src=old, compressed_diff=c[0], checksum=c[1], compression_format=form).contiguous().view(-1).view(torch.uint8).numpy()

    return (lambda: f.delta_compress(src=old, dst=new, compression_format=form)), decode, lambda c: c[0].numel() * c[0].element_size()


PEERS: dict[str, Callable[[Set], Codec | None]] = {
    "torch.save": torch_save, "zstd -1": zstd(1), "zstd -3": zstd(3), "blosc2 shuffle + zstd": blosc2, "pcodec": pcodec,
    "pcodec on integer differences": pcodec_integers, "zipnn": zipnn, "bigsmall": bigsmall, "z4ai": z4ai(None), "z4ai effort=max": z4ai("max"),
    "fireworks": fireworks, "moonclip": moonclip,
}


def measure(codec: Codec, s: Set, reps: int) -> dict[str, Any]:
    encode, decode, size = codec
    best_in = best_out = float("inf")
    done, began, same, stored = 0, time.monotonic(), True, 0
    while done < reps and (done < 3 or time.monotonic() - began < SLOW) and (done == 0 or time.monotonic() - began < 8 * SLOW):
        if done and hasattr(encode, "prepare"):
            encode.prepare()
        t = time.process_time()
        coded = encode()
        best_in = min(best_in, time.process_time() - t)
        stored = size(coded)
        t = time.process_time()
        back = decode(coded)
        best_out = min(best_out, time.process_time() - t)
        same = same and np.array_equal(np.frombuffer(memoryview(np.ascontiguousarray(back)).cast("B"), np.uint8), s.data)
        done += 1
    raw = len(s.data)
    return {"raw_bytes": s.raw, "stored_bytes": stored + s.other, "encode_mb_s": round(raw / best_in / 1e6, 1),
            "decode_mb_s": round(raw / best_out / 1e6, 1), "verified": bool(same), "reps": done}


def main() -> None:
    peer, name, folder, reps = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])
    s = Set(name, folder)
    codec = PEERS[peer](s)
    print(json.dumps({"skipped": "has no such mode"} if codec is None else measure(codec, s, reps)))


if __name__ == "__main__":
    main()
