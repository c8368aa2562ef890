# SPDX-License-Identifier: Apache-2.0
"""make bench-optim-policy: what state_bits="auto" costs, how it grows, which factors it goes by, and trainings beside fixed widths.

    python bench/optim_policy.py [--parts cost,growth,factors,train] [--seeds 2] [--steps 300]

Cost and growth are CPU time of all threads, of the policy's own part beside whole steps, which other programs disturb less. Factors: bench/optim_factors.py,
whose measurement takes 20 minutes the first time. Trainings: the demo's GPT, held-out loss. Writes build/bench/optim_policy.json; ends with lines `MUST name value bar ok|short`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "demo"))
import ckpress.torch  # noqa: E402
import model as demo  # noqa: E402

Row = dict[str, Any]
EVERY = 100
SIDE = 64  # rows and columns of the smallest tensor that is followed: the least work of a step beside a visit
BATCH = 128
SETTINGS: dict[str, dict[str, Any]] = {
    "4/4": {"state_bits": (4, 4)},
    "auto 4.0": {"state_bits": "auto", "budget_bits": 4.0},
    "3/3": {"state_bits": (3, 3)},
    "auto 3.4": {"state_bits": "auto", "budget_bits": 3.4},
    "f32": {"state_bits": 32},
    "auto 3.1": {"state_bits": "auto", "budget_bits": 3.1},
}


def clock_seconds() -> float:
    """What reading the clock adds to a time: as much as the policy itself, in a step in which nobody has his turn."""
    taken = []
    for _ in range(10_000):
        began = time.process_time()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def timed(optimizer: Any) -> list[float]:
    """Makes the policy's part add its CPU seconds to the list, one a step."""
    policy, taken = optimizer.policy, []
    inner: Callable[..., int] = policy.after_step

    def after_step(*args: Any) -> int:
        began = time.process_time()
        exchanged = inner(*args)
        taken.append(time.process_time() - began)
        return exchanged

    policy.after_step = after_step
    return taken


def filled(shapes: list[tuple[int, ...]]) -> list[torch.nn.Parameter]:
    """Parameters whose gradients differ in size from tensor to tensor."""
    g, params = torch.Generator().manual_seed(1), []
    for i, shape in enumerate(shapes):
        p = torch.nn.Parameter(torch.empty(shape).normal_(0, 0.02, generator=g))
        p.grad = torch.empty(shape).normal_(0, 1e-3 * 2.0 ** -(i % 7), generator=g)
        params.append(p)
    return params


def chain(params: list[torch.nn.Parameter]) -> Callable[[], None]:
    """Gradients of a net that has these for its layers, one after the other, whose outputs count the less the further they are from a multiple of seven."""
    x = torch.randn(BATCH, SIDE, generator=torch.Generator().manual_seed(2))

    def gradients() -> None:
        h = x
        for i, p in enumerate(params):
            p.grad = None
            h = torch.addmm(h, h, p, alpha=0.1 * 2.0 ** -(i % 7))
        torch.nn.functional.mse_loss(h, x).backward()

    return gradients


def rounds(params: list[torch.nn.Parameter], n: int, gradients: Callable[[], None] | None = None, budget: float = 4.0) -> Row:
    """CPU time of the optimizer's steps and of the policy in them, in the rounds in which widths settle, and in the last; in that also of whole training steps."""
    optimizer = ckpress.torch.AdamW(params, lr=1e-6, state_bits="auto", budget_bits=budget, every=EVERY, small=0)
    gradients = gradients or (lambda: None)
    gradients()
    optimizer.step()
    taken, clock = timed(optimizer), clock_seconds()
    of_round, of_training, policy = [], 0.0, []
    for _ in range(n):
        began, stepping = time.process_time(), 0.0
        taken.clear()
        for _ in range(EVERY):
            gradients()
            before = time.process_time()
            optimizer.step()
            stepping += time.process_time() - before
        of_round.append(stepping - 3 * clock * EVERY)
        of_training = time.process_time() - began - 4 * clock * EVERY
        policy.append(sum(taken) - clock * EVERY)
    report = optimizer.report()["policy"]
    return {
        "tensors": len(params), "elements": sum(p.numel() for p in params), "step_ms": 1e3 * of_round[-1] / EVERY, "share": policy[-1] / of_round[-1],
        "training_step_ms": 1e3 * of_training / EVERY, "share_of_training": policy[-1] / of_training,
        "share_all": sum(policy) / sum(of_round), "us_a_visit": 1e6 * policy[-1] / len(params), "bits": report["bits"], "raised": report["raised"],
        "lowered": report["lowered"], "last_change": report["history"][-1]["step"] if report["history"] else 0,
    }


def show(row: Row) -> Row:
    print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    return row


def gpt_shapes(width: int, layers: int) -> list[tuple[int, ...]]:
    return [(8192, width), (512, width), *[s for _ in range(layers) for s in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))]]


def cost() -> list[Row]:
    """The policy's share of a step, of a GPT of 6 million parameters."""
    return [show(rounds(filled(gpt_shapes(256, 4)), 8))]


def growth() -> list[Row]:
    """Many tensors of the smallest size in a training by batches of 128 rows. A first round, in which no width changes."""
    rows = []
    for n in (10, 100, 1000, 10000):
        params = filled(n * [(SIDE, SIDE)])
        rows.append(show(rounds(params, 1, chain(params))))
    return rows


def training(name: str, seed: int, steps: int) -> Row:
    """Held-out loss after a short training."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = demo.GPT(96, 2, 3)
    tokens, held = demo.split(demo.text()[1])
    sampler = demo.Sampler(tokens, 8, seed)
    options = {**SETTINGS[name], "every": 15} if "auto" in name else SETTINGS[name]
    optimizer = ckpress.torch.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1, seed=seed, **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: demo.learning_rate(s, steps))
    most = 0.0
    for i in range(steps):
        optimizer.zero_grad()
        net(*sampler.next()).backward()
        optimizer.step()
        schedule.step()
        if i % 10 == 0:
            most = max(most, optimizer.report()["bits"])
    report = optimizer.report()
    row: Row = {"setting": name, "seed": seed, "loss": demo.held_out_loss(net, held, 8), "bits": report["bits"], "most_bits": most}
    if "policy" in report:
        row |= {k: report["policy"][k] for k in ("raised", "lowered")}
        row["widths"] = " ".join(f"{r['bits'][0]}{r['bits'][1]}" for r in report["parameters"] if len(r["shape"]) == 2)
    return show(row)


def trainings(first: int, seeds: int, steps: int, only: str) -> list[Row]:
    return [training(name, seed, steps) for seed in range(first, first + seeds) for name in SETTINGS if not only or name in only.split(",")]


def must(name: str, value: float, bar: float, most: bool = True) -> None:
    print(f"MUST {name} {value:.4g} {bar:g} {'ok' if (value <= bar) == most or value == bar else 'short'}")


def judge(done: dict[str, list[Row]]) -> None:
    for row in done.get("cost", []):
        must("optim_policy_share_of_a_step", row["share"], 0.01)
        must("optim_policy_bits_over_budget", row["bits"] / 4.0, 1.0)
        must("optim_policy_bits_under_budget", row["bits"] / 4.0, 0.98, most=False)
    sizes = {r["tensors"]: r for r in done.get("growth", [])}
    for n, row in sizes.items():
        must(f"optim_policy_share_of_a_training_step_{n}_tensors", row["share_of_training"], 0.01)
    if sizes:
        must("optim_policy_growth_from_1000_to_10000_tensors", sizes[10000]["us_a_visit"] / sizes[1000]["us_a_visit"], 1.5)
    loss: dict[str, list[float]] = {}
    for row in done.get("train", []):
        loss.setdefault(row["setting"], []).append(row["loss"])
    for auto, fixed in (("auto 4.0", "4/4"), ("auto 3.4", "3/3")):
        if auto in loss and fixed in loss:
            # seeds differ by 0.012 (docs/decisions/0018)
            must(f"optim_policy_loss_{auto.replace(' ', '_')}_above_{fixed}", statistics.mean(loss[auto]) - statistics.mean(loss[fixed]), 0.02)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="cost,growth,factors,train")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--first-seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="settings of trainings, with commas")
    args = parser.parse_args()
    torch.set_num_threads(1)
    done: dict[str, list[Row]] = {}
    for part in args.parts.split(","):
        print(f"\n{part}", flush=True)
        if part == "factors":
            subprocess.run([sys.executable, str(ROOT / "bench" / "optim_factors.py")], check=True)
        else:
            done[part] = {"cost": cost, "growth": growth, "train": lambda: trainings(args.first_seed, args.seeds, args.steps, args.only)}[part]()
    out = ROOT / "build" / "bench" / "optim_policy.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(done, indent=1))
    judge(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
