# SPDX-License-Identifier: Apache-2.0
"""make bench-optim: an optimizer step with state of 8, 5, 4 and 3 bits beside torch's AdamW (fused, foreach) and torchao's.

    python bench/optim.py [--steps 20] [--shapes 4096x4096,gpt2] [--no-peers]

Nanoseconds a parameter: medians over the steps, optimizers taking turns step by step, so that all see the same machine; gradients and
weights are far larger than caches. Beside them the two limits: bytes moved over the bandwidth of a copy in the same run, and the time of
the same step on a tensor that stays in the cache. torchao compiles its step and runs in an environment of its own (.venv-bench-optim).
Writes build/bench/optim.json; ends with lines `MUST name value bar ok|short`.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench-optim"
WIDTHS = (8, 5, 4, 3)
TORCHAO = {8: "AdamW8bit", 4: "AdamW4bit"}
GPT2 = [(50257, 768), (1024, 768)] + 12 * [(2304, 768), (2304,), (768, 768), (768,), (3072, 768), (3072,), (768, 3072), (768,)] + 50 * [(768,)]
SHAPES = {"4096x4096": [(4096, 4096)], "gpt2": GPT2}
Row = dict[str, Any]


def parameters(shapes: list[tuple[int, ...]]) -> list[Any]:
    import torch

    made = []
    g = torch.Generator().manual_seed(1)
    for shape in shapes:
        p = torch.nn.Parameter(torch.empty(shape).normal_(0, 0.02, generator=g))
        p.grad = torch.empty(shape).normal_(0, 1e-3, generator=g)
        made.append(p)
    return made


def take_turns(optimizers: dict[str, Any], steps: int, numel: int) -> dict[str, Row]:
    """Of each: median and best time, and median CPU time of all threads, which other programs on the machine disturb less; ns a parameter."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in optimizers}
    for i in range(3 + steps):
        for name, optimizer in optimizers.items():
            start, cpu = time.perf_counter(), time.process_time()
            optimizer.step()
            if i >= 3:
                times[name].append(((time.perf_counter() - start) / numel * 1e9, (time.process_time() - cpu) / numel * 1e9))
    out: dict[str, Row] = {}
    for name, pairs in times.items():
        wall, used = zip(*pairs, strict=True)
        out[name] = {"ns": statistics.median(wall), "best": min(wall), "cpu": statistics.median(used)}
    return out


def bandwidth() -> float:
    """Bytes read and written a nanosecond by a copy out of caches."""
    import torch

    a, b = torch.ones(1 << 26), torch.empty(1 << 26)
    best = 0.0
    for _ in range(8):
        start = time.perf_counter()
        b.copy_(a)
        best = max(best, 2 * a.nbytes / (time.perf_counter() - start) / 1e9)
    return best


def ours(params: list[Any], bits: int) -> Any:
    import ckpress.torch

    return ckpress.torch.AdamW(params, lr=1e-5, weight_decay=0.1, state_bits=bits)


def in_cache(bits: int) -> float:
    """ns a parameter of a step whose memory stays in the cache."""
    params = parameters([(32, 1024)])
    optimizer = ours(params, bits)
    best = float("inf")
    for _ in range(60):
        start = time.perf_counter()
        for _ in range(10):
            optimizer.step()
        best = min(best, (time.perf_counter() - start) / 10 / (32 << 10) * 1e9)
    return best


def measure(shapes: str, threads: int, steps: int) -> list[Row]:
    import torch

    torch.set_num_threads(threads)
    params = parameters(SHAPES[shapes])
    numel = sum(p.numel() for p in params)
    optimizers = {
        "torch fused": torch.optim.AdamW(params, lr=1e-5, weight_decay=0.1, fused=True),
        "torch foreach": torch.optim.AdamW(params, lr=1e-5, weight_decay=0.1, foreach=True),
        **{f"ckpress {b} bits": ours(params, b) for b in WIDTHS},
    }
    speed = bandwidth()
    rows = []
    for name, measured in take_turns(optimizers, steps, numel).items():
        row: Row = {"optimizer": name, "shapes": shapes, "threads": threads, **measured}
        if name.startswith("ckpress"):
            report = optimizers[name].report()
            # p out and in, g in, codes out and in.
            moved = 12 + 2 * report["bytes"] / numel
            row |= {"state_bits": report["bits"], "memory_limit": moved / speed}
        rows.append(row)
    return rows


def peers_main(shapes: str, threads: int, steps: int) -> None:
    """In torchao's environment: rows as JSON lines."""
    import torch
    from torchao import optim

    torch.set_num_threads(threads)
    params = parameters(SHAPES[shapes])
    for bits, name in TORCHAO.items():
        optimizer = getattr(optim, name)(params, lr=1e-5, weight_decay=0.1)
        measured = take_turns({name: optimizer}, steps, sum(p.numel() for p in params))[name]
        print(json.dumps({"optimizer": f"torchao {bits} bits", "shapes": shapes, "threads": threads, **measured}), flush=True)


def environment() -> None:
    """Makes torchao's, whose python sees the project's packages too, where it is missing."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        (VENV / ".gitignore").write_text("*\n")
        (packages() / "torch_of_the_project.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        if subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "torchao"]).returncode != 0:
            print("torchao cannot be installed here; its rows are left out", flush=True)


def packages() -> pathlib.Path:
    return next((VENV / "lib").glob("python*")) / "site-packages"


def peers(shapes: str, threads: int, steps: int) -> list[Row]:
    environment()
    done = subprocess.run(
        [str(VENV / "bin" / "python"), __file__, "--peers", "--shapes", shapes, "--threads", str(threads), "--steps", str(steps)],
        capture_output=True, text=True, timeout=3600,
    )
    if done.returncode != 0:
        print("torchao does not run here:", done.stderr.strip().splitlines()[-1:], flush=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def show(rows: list[Row]) -> None:
    print(f"{'optimizer':<16}{'shapes':<12}threads  ns/param   best    CPU  state bits  of memory's limit  of arithmetic's limit")
    for r in rows:
        limits = f"{r['state_bits']:12.2f}  {r['memory_limit'] / r['ns']:17.0%}  {r['cache_limit'] / r['ns']:21.0%}" if "state_bits" in r else ""
        print(f"{r['optimizer']:<16}{r['shapes']:<12}{r['threads']:>7}{r['ns']:10.2f}{r['best']:7.2f}{r['cpu']:7.2f}{limits}")


def must(name: str, value: float, bar: float) -> None:
    print(f"MUST {name} {value:.3g} {bar:g} {'ok' if value >= bar else 'short'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--threads", default=",".join(str(t) for t in (1, 2) if t <= (os.cpu_count() or 1)))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peers", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peers:
        peers_main(args.shapes, int(args.threads), args.steps)
        return 0
    rows: list[Row] = []
    for threads in map(int, args.threads.split(",")):
        for shapes in args.shapes.split(","):
            mine = measure(shapes, threads, args.steps)
            limit = {f"ckpress {b} bits": in_cache(b) for b in WIDTHS}
            for row in mine:
                if row["optimizer"] in limit:
                    row["cache_limit"] = limit[row["optimizer"]]
            rows += mine
        if not args.no_peers:
            rows += peers("4096x4096", threads, min(args.steps, 20))
    show(rows)
    out = ROOT / "build" / "bench" / "optim.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1))
    ns = {(r["optimizer"], r["shapes"], r["threads"]): r["ns"] for r in rows}
    for (name, shapes, threads), value in ns.items():
        fused, where = ns["torch fused", shapes, threads], f"{shapes}_{threads}_threads"
        if name in ("ckpress 4 bits", "ckpress 8 bits"):
            must(f"{name.replace(' ', '_')}_times_as_fast_as_fused_{where}", fused / value, 1.0)
        if name.startswith("torchao"):
            mine = ns[name.replace("torchao", "ckpress"), shapes, threads]
            must(f"{name.replace(' ', '_')}_times_slower_{where}", value / mine, 20.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
