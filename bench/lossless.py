# SPDX-License-Identifier: Apache-2.0
"""make bench-lossless: lossless coding beside every other way to store the same tensors.

    python bench/lossless.py [--only SET] [--reps N] [--no-peers] [--slow]

Writes build/bench/lossless.json (rows of data, peer, raw_bytes, stored_bytes, encode_mb_s, decode_mb_s, verified) and ends with a
line for each promise. One core each: times are CPU seconds, best of N; MB are 10^6 raw bytes. ckpress runs as bench_lossless
(bench/lossless.c): the engine's chunks through ckpi_codec_pick. Peers live in .venv-bench.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from typing import Any

import lossless_data as data

ROOT = data.ROOT
VENV = ROOT / ".venv-bench"
PROGRAM = pathlib.Path(os.environ.get("BENCH_LOSSLESS", ROOT / "build" / "release" / "bench" / "bench_lossless"))
PEERS = ["torch.save", "zstd -1", "zstd -3", "blosc2 shuffle + zstd", "pcodec", "pcodec on integer differences", "zipnn", "bigsmall", "z4ai",
         "fireworks", "moonclip"]
SPARSE_PEERS = ["zstd -1", "zstd -3", "pcodec on integer differences", "zipnn", "moonclip"]  # of the sets with random words; their XOR with the base
SLOWEST = ["z4ai effort=max"]  # 0.4 MB/s: ten minutes a pass over the largest set
PACKAGES = ["zstandard", "blosc2", "pcodec", "zipnn", "bigsmall", "z4ai", "fireworks-delta-compression", "moonclip", "safetensors"]
SLOW_MB_S = {"z4ai effort=max", "bigsmall", "fireworks"}
LIMIT = 1800  # seconds for one peer on one set
FRAME = 40  # bytes that a chunk's frame takes in a file
AIMS = {"astra-bf16": 0.665, "demo-f32": 0.81, "demo-f32-delta": 0.75, "demo-bf16-delta": 0.34}
Row = dict[str, Any]


def make_peers() -> None:
    """Their own environment: torch first, for some of their builds look at it."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        (VENV / ".gitignore").write_text("*\n")
    if (VENV / "complete").exists():
        return
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    print("peers: pip install into .venv-bench", flush=True)
    subprocess.run([*pip, os.environ.get("TORCH", "torch==2.13.0"), "numpy", "setuptools", "wheel"], check=True)
    for package in PACKAGES:
        if subprocess.run([*pip, package]).returncode != 0:
            print(f"peers: {package} cannot be installed here; its rows are left out", flush=True)
    (VENV / "complete").write_text("\n".join(PACKAGES))


def ours(name: str, reps: int, isa: str, probe: bool) -> Row:
    base = data.DATA / f"{name}.base.bin"
    args = [str(PROGRAM), str(data.DATA / f"{name}.list"), str(data.DATA / f"{name}.bin"), str(base) if base.exists() else "", str(reps), isa, "0"]
    done = subprocess.run([*args, "probe"] if probe else args, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def peer(which: str, name: str, reps: int) -> Row:
    if which in SLOW_MB_S:
        reps = min(reps, 3)
    command = [str(VENV / "bin" / "python"), str(ROOT / "bench" / "lossless_peers.py"), which, name, str(data.DATA), str(reps)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"skipped": f"took more than {LIMIT} s"}
    except (IndexError, json.JSONDecodeError):
        return {"skipped": (done.stderr.strip().splitlines() or [f"died with status {done.returncode}"])[-1][:120]}
    finally:
        for left in pathlib.Path("/dev/shm").glob("lossless-*"):
            shutil.rmtree(left, ignore_errors=True)


def show(name: str, who: str, r: Row) -> None:
    if "skipped" in r:
        print(f"{name:16} {who:32} -  {r['skipped']}", flush=True)
        return
    ratio = r["stored_bytes"] / r["raw_bytes"]
    few = f"  best of {r['reps']}" if r.get("reps", 5) < 5 else ""
    print(f"{name:16} {who:32} {ratio:7.4f} {r['encode_mb_s']:8.0f} {r['decode_mb_s']:8.0f}  {'' if r['verified'] else 'NOT VERIFIED'}{few}", flush=True)


def must(name: str, value: float, bar: float, below: bool) -> bool:
    ok = value <= bar if below else value >= bar
    print(f"MUST {name} {value:.4f} {bar:.4f} {'ok' if ok else 'short'}")
    return ok


def judge_sparse(rows: list[Row]) -> None:
    """Of weights with a share r of random words: at least 0.9 of what is possible, 16 / (H(r) + 16 r), and BitSnap's 16 / (1 + 16 r) beside it."""
    for name in dict.fromkeys(r["data"] for r in rows):
        own = next(r for r in rows if r["data"] == name and r["peer"] == "ckpress")
        others = [r["stored_bytes"] for r in rows if r["data"] == name and not r["peer"].startswith("ckpress") and r["verified"]]
        r = float(name.rpartition("-")[2]) / 100
        ratio, key = own["raw_bytes"] / (own["stored_bytes"] + FRAME * own["chunks"]), name.replace("-", "_").replace(".", "_")
        if r == 0:
            must(f"{key}_ratio", ratio, 5000, False)
        else:
            entropy = -r * math.log2(r) - ((1 - r) * math.log2(1 - r) if r < 1 else 0)
            must(f"{key}_share_of_possible", ratio * (entropy + 16 * r) / 16, 0.9, False)
        must(f"{key}_vs_bitsnap_formula", ratio * (1 + 16 * r) / 16, 0.999, False)  # at a half the formula is what is possible
        if others:
            must(f"{key}_size_vs_smallest", own["stored_bytes"] / min(others), 1.01, True)
        must(f"{key}_encode_gb_s", own["encode_mb_s"] / 1000, 1.5, False)
        must(f"{key}_decode_gb_s", own["decode_mb_s"] / 1000, 2.5, False)
        must(f"{key}_verified", float(own["verified"]), 1, False)


def judge(rows: list[Row], picks: dict[str, tuple[int, int]]) -> None:
    for name in dict.fromkeys(r["data"] for r in rows):
        own = next(r for r in rows if r["data"] == name and r["peer"] == "ckpress")
        others = [r for r in rows if r["data"] == name and not r["peer"].startswith("ckpress") and r["verified"]]
        key = name.replace("-", "_")
        if name in AIMS:
            must(f"{key}_ratio", own["stored_bytes"] / own["raw_bytes"], AIMS[name], True)
        if others:
            must(f"{key}_size_vs_smallest", own["stored_bytes"] / min(r["stored_bytes"] for r in others), 1.01, True)
        z = [r for r in others if r["peer"] == "zipnn"]
        if z:
            must(f"{key}_encode_vs_zipnn", own["encode_mb_s"] / z[0]["encode_mb_s"], 1.0, False)
            must(f"{key}_decode_vs_zipnn", own["decode_mb_s"] / z[0]["decode_mb_s"], 1.0, False)
        must(f"{key}_verified", float(own["verified"]), 1, False)
    if picks:
        must("picks_vs_best", sum(p for p, _ in picks.values()) / sum(b for _, b in picks.values()), 1.005, True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", help="one set, or `sparse`: those with random words")
    p.add_argument("--reps", type=int, default=7)
    p.add_argument("--no-peers", action="store_true")
    p.add_argument("--slow", action="store_true", help="also " + ", ".join(SLOWEST))
    o = p.parse_args()
    sets = data.prepare(o.only)
    if not o.no_peers:
        make_peers()
    rows: list[Row] = []
    picks: dict[str, tuple[int, int]] = {}
    print(f"{'data':16} {'':32} {'size':>7} {'in MB/s':>8} {'out MB/s':>8}")
    for name in sets:
        for isa in ("best", "avx2"):
            r = ours(name, o.reps, isa, probe=isa == "best")
            who = "ckpress" if isa == "best" else "ckpress (AVX2)"
            if isa == "best" and name in data.SETS:
                picks[name] = (r["stored_bytes"], r["best_bytes"])
            rows.append({"data": name, "peer": who, **{k: r[k] for k in ("raw_bytes", "stored_bytes", "encode_mb_s", "decode_mb_s", "verified", "isa", "chunks")}})
            show(name, who, r)
        for which in [] if o.no_peers else SPARSE_PEERS if name in data.SPARSE else PEERS + (SLOWEST if o.slow else []):
            r = peer(which, name, o.reps)
            show(name, which, r)
            if "skipped" not in r:
                rows.append({"data": name, "peer": which, **r})
    out = ROOT / "build" / "bench" / "lossless.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    if o.only and out.exists():
        rows = [r for r in json.loads(out.read_text())["rows"] if r["data"] not in sets] + rows
    out.write_text(json.dumps({"machine": cpu, "reps": o.reps, "clock": "cpu seconds of one process", "rows": rows}, indent=1))
    rows = [r for r in rows if r["data"] in sets]
    judge([r for r in rows if r["data"] in data.SETS], picks)
    judge_sparse([r for r in rows if r["data"] in data.SPARSE])


if __name__ == "__main__":
    main()
