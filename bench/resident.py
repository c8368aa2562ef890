# SPDX-License-Identifier: Apache-2.0
"""The demo's GPT with moments of few bits *and* `resume` checkpoints, killed ten times, beside torch's AdamW in f32 that is left alone.

    make bench-resident   (python bench/resident.py [--state-bits 4] [--seeds 3])

Per seed one run of the demo (demo/run.py): both trainings side by side, the one with ckpress.torch.AdamW killed and restored. The seed noise is the standard
deviation of the uninterrupted trainings' final held-out losses, of these seeds and three more. All figures are in build/bench/resident.json.

Ends with lines `MUST name value bar ok|short`."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "bench"
MORE = 3  # seeds for the noise alone


def interrupted(seed: int, state_bits: str, steps: int) -> dict[str, Any]:
    """Both trainings of a seed; the demo's own bars are those of torch's optimizer, and its status says no more than whether they hold."""
    out = WORK / "resident" / f"seed-{seed}"
    command = [sys.executable, str(ROOT / "demo" / "run.py"), "--state-bits", state_bits, "--seed", str(seed), "--steps", str(steps), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    result = out / "result.json"
    if not result.exists():
        sys.exit(f"seed {seed}: the demo did not end:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def alone(seeds: list[int], steps: int) -> list[float]:
    """Final losses of uninterrupted trainings, side by side."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "demo" / "train.py"), "--run", "none", "--plain", "--steps", str(steps), "--seed"]
    losses: list[float] = []
    for at in range(0, len(seeds), 2):
        running = [subprocess.Popen([*command, str(s)], stdout=subprocess.PIPE, text=True, env=environment) for s in seeds[at : at + 2]]
        for process in running:
            said = process.communicate()[0].splitlines()
            last = json.loads(said[-1]) if said else {}
            if process.returncode != 0 or last.get("event") != "end":
                sys.exit("an uninterrupted training failed")
            losses.append(last["loss"])
    return losses


def must(name: str, value: float, bar: float, ok: bool) -> None:
    print(f"MUST resident_{name} {value:.4g} {bar:g} {'ok' if ok else 'short'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-bits", default="4")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    seeds = list(range(1, args.seeds + 1))
    rows = []
    print("| seed | f32, left alone | few bits, killed | kills | restores | bits a parameter in checkpoints (weights, m, v) |\n|--:|--:|--:|--:|--:|---|", flush=True)
    for seed in seeds:
        r = interrupted(seed, args.state_bits, args.steps)
        rows.append(r)
        b = r["bits_per_param"]
        print(f"| {seed} | {r['loss_uninterrupted']:.4f} | {r['loss_interrupted']:.4f} | {r['kills']} | {r['restores_from_lossy']} | "
              f"{b['total']:.3f} ({b['weights']:.3f}, {b['m']:.3f}, {b['v']:.3f}) |", flush=True)  # fmt: skip
    more = alone([args.seeds + 1 + i for i in range(MORE)], args.steps)
    plain = [r["loss_uninterrupted"] for r in rows] + more
    noise = statistics.stdev(plain)
    gap = statistics.mean(r["loss_interrupted"] - r["loss_uninterrupted"] for r in rows)
    print(f"\nnoise of {len(plain)} seeds: {noise:.4f}; mean gap {gap:+.4f}\n")
    figures = {"state_bits": args.state_bits, "rows": rows, "plain": plain, "noise": noise, "gap": gap}
    (WORK / "resident.json").write_text(json.dumps(figures, indent=1) + "\n")
    must("gap_sd", gap / noise, 2, gap <= 2 * noise)
    must("kills", min(r["kills"] for r in rows), 10, min(r["kills"] for r in rows) >= 10)
    must("restores_from_lossy", min(r["restores_from_lossy"] for r in rows), 10, min(r["restores_from_lossy"] for r in rows) >= 10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
