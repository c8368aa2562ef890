# SPDX-License-Identifier: Apache-2.0
"""make bench-sensitivity: what ckpress.torch.track_sensitivity costs a training step of a GPT of 9 million parameters.

Steps with and without it take turns, so that a busy machine slows both; medians are compared. The cost counts for the 50 batches before
a save only. Ends with lines `MUST name value bar ok|short`."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import sys
import time

import ckpress.torch
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "demo"))
import model as demo

WIDTH, LAYERS, BATCH = 384, 5, 4
PAIRS, WARM = 40, 3
BATCHES, EVERY = 50, 500  # gathered before each save; steps between saves


def main() -> None:
    torch.set_num_threads(int(os.environ.get("THREADS", "0")) or os.cpu_count() or 1)
    torch.manual_seed(0)
    net = demo.GPT(WIDTH, LAYERS, WIDTH // 32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    sampler = demo.Sampler(demo.split(demo.text()[1])[0], BATCH, 1)

    def step() -> float:
        x, y = sampler.next()
        started = time.perf_counter()
        optimizer.zero_grad()
        net(x, y).backward()
        optimizer.step()
        return time.perf_counter() - started

    watched = ckpress.torch.track_sensitivity(net, batches=1 << 20)
    watched.stop()
    times: dict[bool, list[float]] = {False: [], True: []}
    for n in range(2 * (PAIRS + WARM)):
        on = n % 4 in (1, 2)  # off on on off: a drift of the machine's speed cancels
        watched.resume() if on else watched.stop()
        times[on].append(step())
    watched.stop()
    off, on = (statistics.median(times[k][WARM:]) for k in (False, True))
    share = (on - off) / off * BATCHES / EVERY
    left = sum(bool(p._post_accumulate_grad_hooks) for p in net.parameters())
    found = {"params": sum(p.numel() for p in net.parameters()), "step_s": off, "step_gathering_s": on, "share": share, "hooks_left": left}
    out = ROOT / "build" / "bench" / "sensitivity.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"a step: {1e3 * off:.1f} ms, while gathering: {1e3 * on:.1f} ms; gathering {BATCHES} of {EVERY} steps costs {100 * share:.2f} % of the training")
    print(f"MUST sensitivity_share_of_training {share:.4g} 0.01 {'ok' if share < 0.01 else 'short'}")
    print(f"MUST hooks_left_when_stopped {left} 0 {'ok' if left == 0 else 'short'}")


if __name__ == "__main__":
    main()
