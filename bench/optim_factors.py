# SPDX-License-Identifier: Apache-2.0
"""Which factors tell where bits of moments do the most: part of make bench-optim-policy.

    python bench/optim_factors.py [--rows build/bench/optim_factors.json] [--measure]

The truth, measured on two small GPTs at three points of a training: one tensor's gradients of 24 steps are given to AdamW with one moment in 2 to 6 bits, the
other in 8; how far the weights end from those with moments in f32 is weighed by the curvature of the loss in that direction. What that is a parameter, log2, less the
mean over all tensors at that time, is what a score should give. Factors are what the policy's visits measure (nine, src/optim/policy.c).

Selection: the subset of factors whose linear fit explains most of the truth's variance. Greedy, one factor at a time until the next adds less than a
hundredth; beside it the best subset of as many out of all 512, and the bound: greedy explains at least 1 - exp(-g) of the best, g the submodularity ratio of the data (Das and
Kempe, 1102.3975), computed over all pairs of subsets that the bound speaks of.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "demo"))
import model as demo  # noqa: E402
from ckpress import _core  # noqa: E402
from ckpress.torch import AdamW  # noqa: E402
from ckpress.torch._optim_state import Packed  # noqa: E402
from ckpress.torch._sharded import Part  # noqa: E402

FACTORS = ("size of g", "dispersion of g", "size of v", "spread of v", "spread in rows", "depth in rows", "m beside sqrt(v)", "step beside p", "age")
NETS = ((96, 2, 1), (64, 4, 2))  # width, layers, seed
POINTS = (20, 80, 200)
STEPS = 24
BITS = (2, 3, 4, 5, 6)
SMALL = 4096
Row = dict[str, Any]
Array = np.ndarray[Any, Any]


# ---- the truth ----


class Snapshot:
    """A net in the middle of a training, and the next steps' gradients."""

    def __init__(self, net: Any, point: int, optimizer: Any) -> None:
        self.net, self.point = net, point
        self.params = {n: p for n, p in net.named_parameters() if p.numel() >= SMALL}
        self.start = {n: (p.detach().clone(), optimizer.state[p]["exp_avg"].clone(), optimizer.state[p]["exp_avg_sq"].clone()) for n, p in self.params.items()}
        self.grads: dict[str, list[torch.Tensor]] = {n: [] for n in self.params}
        self.lrs: list[float] = []

    def note(self, lr: float) -> None:
        self.lrs.append(lr)
        for n, p in self.params.items():
            assert p.grad is not None
            self.grads[n].append(p.grad.clone())


def snapshots(width: int, layers: int, seed: int) -> Iterator[tuple[Snapshot, tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(seed)
    net = demo.GPT(width, layers, width // 32)
    tokens, _ = demo.split(demo.text()[1])
    sampler, measured = demo.Sampler(tokens, 8, seed), demo.Sampler(tokens, 16, 99).next()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: demo.learning_rate(s, 400))
    step = 0

    def one(snapshot: Snapshot | None) -> None:
        nonlocal step
        optimizer.zero_grad()
        net(*sampler.next()).backward()
        if snapshot is not None:
            snapshot.note(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        step += 1

    for point in POINTS:
        while step < point:
            one(None)
        snapshot = Snapshot(net, point, optimizer)
        for _ in range(STEPS):
            one(snapshot)
        yield snapshot, measured


def correction(step: int) -> tuple[float, float]:
    return 1 - 0.9**step, 1 - 0.999**step


def replayed(s: Snapshot, name: str, bits: tuple[int, int], seed: int) -> torch.Tensor:
    """The tensor's weights after the steps, with moments of these widths."""
    w, m, v = s.start[name]
    p = torch.nn.Parameter(w.clone())
    optimizer = AdamW([p], lr=1.0, betas=(0.9, 0.999), weight_decay=0.1, state_bits=bits, small=0, seed=seed)
    optimizer.state[p]["packed"] = Packed.from_moments(Part.all_of(tuple(p.shape)), None, bits, [m, v], s.point, correction(s.point), seed, 0, name)
    for g, lr in zip(s.grads[name], s.lrs, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        p.grad = g
        optimizer.step()
    return p.detach()


@torch.no_grad()
def damage(s: Snapshot, p: torch.Tensor, away: torch.Tensor, measured: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Half the curvature of the loss times the square of the way; the way is scaled so that the loss differs in digits that f32 has."""
    w, scale, out = p.clone(), 1.0, 0.0
    here = s.net(*measured).item()
    for _ in range(2):
        sides = []
        for sign in (1, -1):
            p.copy_(w + sign * scale * away)
            sides.append(s.net(*measured).item())
        curve = sum(sides) / 2 - here
        out = curve / scale**2
        if curve > 3e-3:
            break
        scale *= min(math.sqrt(1e-2 / max(curve, 1e-6)), 100.0)
    p.copy_(w)
    return out


def factors(s: Snapshot, name: str) -> list[int]:
    w, m, v = s.start[name]
    packed = Packed.from_moments(Part.all_of(tuple(w.shape)), None, (4, 4), [m, v], s.point, correction(s.point), 0, 0, name)
    g = s.grads[name][0]
    tensor = (packed.view(name), 0, 0, s.point, 0, "f32", "f32", w.data_ptr(), g.data_ptr(), 0, 0, 0)
    found = _core.Policy.factors(_core.Optim.look([(s.lrs[0], 0.9, 0.999, 1e-8, 0.1, False, False, 7)], [tensor], [w.numel()]), s.lrs[0], s.point)
    assert found is not None
    return list(found)


def measure() -> list[Row]:
    rows: list[Row] = []
    began = time.time()
    for width, layers, seed in NETS:
        for s, measured in snapshots(width, layers, seed):
            for name, p in s.params.items():
                row: Row = {"net": width, "point": s.point, "name": name, "numel": p.numel(), "f": factors(s, name), "d": {}}
                for bits in [(8, 8)] + [(b, 8) for b in BITS] + [(8, b) for b in BITS]:
                    found = [damage(s, p.data, replayed(s, name, bits, seed) - p.data, measured) for seed in (1, 2)]
                    row["d"][f"{bits[0]}/{bits[1]}"] = sum(found) / 2
                rows.append(row)
            print(f"net {width}, step {s.point}: {len(s.params)} tensors, {time.time() - began:.0f} s", flush=True)
    return rows


# ---- the fit ----


def tables(rows: list[Row], which: int) -> tuple[Array, Array, Array, Array]:
    """Factors and truth, each less its snapshot's mean; log2 of damage by width; the truth as it was, NaN where a width did no damage that can be seen."""
    f = np.array([r["f"] for r in rows]) / 256
    d = np.full((len(rows), len(BITS)), np.nan)
    for i, r in enumerate(rows):
        floor = r["d"]["8/8"]
        for k, b in enumerate(BITS):
            more = (r["d"][f"{b}/8" if which == 0 else f"8/{b}"] - floor) / r["numel"]
            d[i, k] = np.log2(more) if more > 0.05 * abs(floor) / r["numel"] else np.nan
    by_width = np.array([np.nanmean(d[:, k]) for k in range(len(BITS))])
    y = np.nanmean((d - by_width)[:, :4], axis=1)
    good = ~np.isnan(y)
    place = np.array([r["net"] * 1000 + r["point"] for r in rows])
    for at in set(place):
        here = (place == at) & good
        y[here] -= y[here].mean()
        f[place == at] -= f[here].mean(axis=0)
    return f[good], y[good], by_width, d


def explained(f: Array, y: Array, subset: tuple[int, ...]) -> float:
    if not subset:
        return 0.0
    x = f[:, subset]
    a = np.linalg.solve(x.T @ x + 1e-3 * len(y) * np.eye(len(subset)), x.T @ y)
    return 1 - float(((y - x @ a) ** 2).sum() / (y**2).sum())


def weights(f: Array, y: Array, subset: tuple[int, ...]) -> Array:
    x = f[:, subset]
    return np.linalg.solve(x.T @ x + 1e-3 * len(y) * np.eye(len(subset)), x.T @ y)


def held_out(f: Array, y: Array, good_rows: list[Row], subset: tuple[int, ...]) -> float:
    """Explained on one net by the weights of the other."""
    nets = np.array([r["net"] for r in good_rows])
    left = 0.0
    for net in set(nets):
        a = weights(f[nets != net], y[nets != net], subset)
        left += float(((y[nets == net] - f[nets == net][:, subset] @ a) ** 2).sum())
    return 1 - left / float((y**2).sum())


def greedy(f: Array, y: Array, least: float = 0.01) -> tuple[int, ...]:
    chosen: tuple[int, ...] = ()
    while len(chosen) < f.shape[1]:
        best = max((i for i in range(f.shape[1]) if i not in chosen), key=lambda i: explained(f, y, (*chosen, i)))
        if explained(f, y, (*chosen, best)) - explained(f, y, chosen) < least:
            break
        chosen = (*chosen, best)
    return chosen


def ratio(f: Array, y: Array, chosen: tuple[int, ...]) -> float:
    """Submodularity ratio: the least, over L within what greedy took and S of as many others, of (sum of single gains) / (gain of all)."""
    k, least = len(chosen), math.inf
    for n in range(k + 1):
        base = tuple(sorted(chosen[:n]))
        others = [i for i in range(f.shape[1]) if i not in base]
        for size in range(1, k + 1):
            for s in itertools.combinations(others, size):
                whole = explained(f, y, (*base, *s)) - explained(f, y, base)
                if whole > 1e-3:
                    least = min(least, sum(explained(f, y, (*base, i)) - explained(f, y, base) for i in s) / whole)
    return min(least, 1.0)


def select(rows: list[Row]) -> None:
    for which, name in enumerate(("m", "v")):
        f, y, by_width, d = tables(rows, which)
        good = [r for r, ok in zip(rows, ~np.isnan(np.nanmean(d[:, :4], axis=1)), strict=True) if ok]
        print(f"\n{name}: {len(y)} tensors; variance of the truth {y.var():.2f} (log2)")
        print("  damage a parameter by width, log2: " + ", ".join(f"{b}: {x:.2f}" for b, x in zip(BITS, by_width, strict=True)))
        print("  alone: " + ", ".join(f"{FACTORS[i]} {explained(f, y, (i,)):.2f}" for i in range(f.shape[1])))
        chosen = greedy(f, y)
        best = max(itertools.combinations(range(f.shape[1]), len(chosen)), key=lambda s: explained(f, y, s))
        g = ratio(f, y, chosen)
        print(f"  greedy: {', '.join(FACTORS[i] for i in chosen)}: {explained(f, y, chosen):.3f}, on the other net {held_out(f, y, good, chosen):.3f}")
        print(f"  best of all {math.comb(f.shape[1], len(chosen))} of as many: {', '.join(FACTORS[i] for i in best)}: {explained(f, y, best):.3f}; all nine: {explained(f, y, tuple(range(f.shape[1]))):.3f}")
        print(f"  submodularity ratio {g:.2f}: greedy has at least {1 - math.exp(-g):.2f} of the best; it has {explained(f, y, chosen) / explained(f, y, best):.3f}")
        print("  weights: " + ", ".join(f"{FACTORS[i]} {a:+.2f}" for i, a in zip(chosen, weights(f, y, chosen), strict=True)))
    for budget in (3.0, 3.5, 4.0):
        regret(rows, budget)


# ---- what it is good for ----


def share_out(damage: Array, numel: Array, budget: float) -> Array:
    """Indices of widths, m's then v's of each tensor, with the least sum of damage within the budget: by a price of a bit, found by halving."""
    bits, low, high = np.array([*BITS, 8.0]), -200.0, 50.0
    out = np.zeros(len(damage), dtype=int)
    for _ in range(60):
        price = (low + high) / 2
        taken = np.argmin(damage + 2.0**price * numel[:, None] * bits, axis=1)
        if (bits[taken] * numel).sum() <= budget * numel.sum():
            high, out = price, taken
        else:
            low = price
    return out


def regret(rows: list[Row], budget: float) -> None:
    """Sums of measured damage where bits are shared out by the fit's scores, by the table of widths alone, and by the measurements themselves."""
    measured, fitted, table, numel, place = [], [], [], [], []
    for which in (0, 1):
        f, y, by_width, d = tables(rows, which)
        chosen = greedy(f, y)
        a = weights(f, y, chosen)
        every = np.array([r["f"] for r in rows]) / 256
        at = np.array([r["net"] * 1000 + r["point"] for r in rows])
        for k in set(at):
            every[at == k] -= every[at == k].mean(axis=0)
        score = every[:, chosen] @ a
        for i, r in enumerate(rows):
            real = np.minimum.accumulate(np.where(np.isnan(d[i]), 0.0, 2.0 ** d[i]))
            measured.append([*(real * r["numel"]), 0.0])
            fitted.append([*(2.0 ** (by_width + score[i]) * r["numel"]), 0.0])
            table.append([*(2.0**by_width * r["numel"]), 0.0])
            numel.append(r["numel"])
            place.append(at[i])
    real, sizes, at = np.array(measured), np.array(numel, dtype=float), np.array(place)
    sums: dict[str, list[float]] = {"same width for all": [], "by the table of widths": [], "by scores": [], "by the measurements": []}
    same = {3.0: (1, 1), 3.5: (2, 1), 4.0: (2, 2)}[budget]  # 3/3, 4/3, 4/4
    half = len(rows)
    for k in set(at):
        here = np.flatnonzero(at == k)
        best = share_out(real[here], sizes[here], budget)
        least = real[here, best].sum()
        uniform = np.array([same[0] if i < half else same[1] for i in here])
        sums["same width for all"].append(real[here, uniform].sum() / least)
        for name, by in (("by the table of widths", table), ("by scores", fitted), ("by the measurements", measured)):
            sums[name].append(real[here, share_out(np.array(by)[here], sizes[here], budget)].sum() / least)
    print(f"  at {budget} bits, damage over the least there is, geometric mean of {len(set(at))} points: " + ", ".join(f"{n} {np.exp(np.mean(np.log(x))):.2f}" for n, x in sums.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=pathlib.Path, default=ROOT / "build" / "bench" / "optim_factors.json")
    parser.add_argument("--measure", action="store_true", help="even if there are rows")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.measure or not args.rows.exists():
        args.rows.parent.mkdir(parents=True, exist_ok=True)
        args.rows.write_text(json.dumps(measure()))
    select(json.loads(args.rows.read_text()))


if __name__ == "__main__":
    main()
