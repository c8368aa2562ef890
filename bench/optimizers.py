# SPDX-License-Identifier: Apache-2.0
"""Whether lossy moments hold for every optimizer: the demo's GPT by Adam, AdamW (b2 = 0.95, 0.999), SGD with momentum, and Lion.

    python bench/optimizers.py [--seeds 3] [--only lion] [--settings resume,small] [--restores 10,20]

Pairs of one seed with and without restores, as in bench/quality.py, of 1.8 million parameters and 294 steps with 42 saves; a row each, at the end a table:
bits a parameter of all and without moments, loss above the uninterrupted run's (mean and standard error over seeds), the deviation of the uninterrupted runs'
loss between seeds. JOBS (2) runs side by side, a thread each; three seeds take about half an hour of two cores.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import statistics
from typing import Any

import quality_data
import quality_gpt
import quality_runs
import torch
from quality_task import Model, Optimizer


class Lion(torch.optim.Optimizer):
    """Chen et al., Symbolic discovery of optimization algorithms (2302.06675), program 1."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(m.lerp(p.grad, 1 - b1).sign_(), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b2)


def adamw(net: Model, b2: float) -> Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, b2), weight_decay=0.1)


OPTIMIZERS: dict[str, tuple[float, Any]] = {  # learning rate at the peak, how it is made
    "adamw-0.95": (1e-3, lambda net: adamw(net, 0.95)),
    "adamw-0.999": (1e-3, lambda net: adamw(net, 0.999)),
    "adam": (1e-3, lambda net: torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.9, 0.95))),
    "sgd": (0.3, lambda net: torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)),
    "lion": (2e-4, lambda net: Lion(net.parameters(), lr=2e-4, weight_decay=0.5)),
}


class Task(quality_gpt.Task):
    def __init__(self, optimizer: str, seed: int) -> None:
        super().__init__(seed)
        self.lr, self.optimizer = OPTIMIZERS[optimizer]
        self.every = 7
        self.steps = self.every * 42
        self.width, self.layers = 160, 4

    def make(self) -> tuple[Model, Optimizer]:
        net = quality_gpt.demo.GPT(self.width, self.layers, self.width // 32)
        return net, self.optimizer(net)


def work(optimizer: str, seed: int, settings: list[str], restores: list[int]) -> list[dict[str, Any]]:
    """All runs of one seed."""
    torch.set_num_threads(1)
    alone = quality_runs.plain(Task(optimizer, seed))
    rows = [{"setting": "", "restores": 0, **alone}]
    for setting in settings:
        for n in restores:
            rows.append({"setting": setting, "restores": n, **quality_runs.interrupted(Task(optimizer, seed), "ckpress", setting, n, alone)})
    for row in rows:
        row |= {"optimizer": optimizer, "seed": seed}
        shown = ("optimizer", "seed", "setting", "restores", "bits", "bits_w", "loss", "gap", "slope", "run_s")
        print(" ".join(f"{k} {row[k]:.4g}" if isinstance(row[k], float) else str(row[k]) for k in shown if k in row), flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    print("\n| optimizer | setting, restores | bits a parameter: all, without moments | loss above the uninterrupted run's | steps lost per restore | deviation between seeds |")
    print("|---|---|---|---|---|---|")
    for name in OPTIMIZERS:
        own = [r for r in rows if r["optimizer"] == name]
        alone = [r["loss"] for r in own if not r["restores"]]
        if not alone:
            continue
        noise = f"{statistics.stdev(alone):.4f}" if len(alone) > 1 else "-"
        for key in sorted({(r["setting"], r["restores"]) for r in own if r["restores"]}):
            some = [r for r in own if (r["setting"], r["restores"]) == key]
            gaps = [r["gap"] for r in some]
            lost = statistics.mean(r["gap"] / -r["slope"] / r["restores"] for r in some)
            error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
            bits, without = (statistics.mean(r[k] for r in some) for k in ("bits", "bits_w"))
            print(f"| {name} | {key[0]}, {key[1]} | {bits:.3f}, {without:.3f} | {statistics.mean(gaps):+.4f} +- {error:.4f} | {lost:.1f} | {noise} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--settings", default="resume,small")
    parser.add_argument("--restores", default="10,20")
    args = parser.parse_args()
    quality_data.prepare()
    jobs = [(name, seed) for seed in range(1, args.seeds + 1) for name in OPTIMIZERS if args.only in ("", name)]
    restores = [int(n) for n in args.restores.split(",")]
    with concurrent.futures.ProcessPoolExecutor(int(os.environ.get("JOBS", "2")), mp_context=multiprocessing.get_context("spawn")) as pool:
        done = [pool.submit(work, name, seed, args.settings.split(","), restores) for name, seed in jobs]
        table([row for f in done for row in f.result()])


if __name__ == "__main__":
    main()
