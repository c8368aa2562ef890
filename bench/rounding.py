# SPDX-License-Identifier: Apache-2.0
"""How the deltas of weights could be rounded: schemes beside each other on the trajectory that bench/branch.py recorded.

    python bench/rounding.py DIR SCHEME [--step 1.2] [--least 0.1] [--no-branch]

Weights alone are coded, in plain torch, with the steps of DESIGN section 3 (from the true v); bits are order-0 entropies by tensor. At ten
points the decoded weights train on as in branch.py, and then the run counts as restored: the next save is coded against the true weights.

  phase    d = floor(x + phase), phases frozen between restores: what the library does
  nearest  d = rint(x)
  early    a weight is coded, by a whole step, from `near` steps on, and then stays until it is 0.9 off; near, per tensor and save, is such
           that the errors cancel along the momentum, sum m * (w - w^) = 0; at least --least
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
from dataclasses import dataclass, field

import torch
from branch import BRANCH, EVERY, POINTS, STEPS, Training

Tensor = torch.Tensor


@dataclass
class Scheme:
    name: str
    least: float
    kept: dict[str, Tensor] = field(default_factory=dict)  # of one life: phases, or what was coded early
    random: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(5))

    def codes(self, name: str, x: Tensor, pull: Tensor) -> Tensor:
        """Codes of x steps; pull: what a step up is worth along the momentum."""
        if self.name == "nearest":
            return torch.round(x)
        if self.name == "phase":
            if name not in self.kept:
                self.kept[name] = torch.rand(x.shape, generator=self.random)
            return torch.floor(x + self.kept[name])
        far = self.kept.setdefault(name, torch.zeros_like(x, dtype=torch.bool))
        size = x.abs()
        code = torch.sign(x) * size.round().clamp_min(1)
        near = self.near(x, size, code, pull, far)
        coded = torch.where(far, size >= 0.9, size >= near)
        far &= size >= near
        far |= coded
        return torch.where(coded, code, torch.zeros_like(x))

    def near(self, x: Tensor, size: Tensor, code: Tensor, pull: Tensor, far: Tensor) -> float:
        sure = torch.where(far, size >= 0.9, size >= 0.5)
        need = float((x * pull).sum()) - float((code * pull)[sure].sum())
        free = ~far & (size < 0.5) & (size >= self.least)
        sizes, order = size[free].sort(descending=True)
        enough = ((torch.sign(x) * pull)[free][order].cumsum(0) >= need).nonzero()
        return 0.5 if need <= 0 else float(sizes[enough[0, 0]]) if len(enough) else self.least


def entropy(codes: Tensor) -> float:
    p = codes.unique(return_counts=True)[1].double() / codes.numel()
    return float(-(p * p.log2()).sum()) * codes.numel()


def steps(w: dict[str, Tensor], root: dict[str, Tensor], f: float) -> dict[str, Tensor]:
    count = sum(t.numel() for t in w.values())
    rms = (sum(float((t**2).sum()) for t in w.values()) / count) ** 0.5
    mean = 2 ** (sum(float(t.log2().sum()) for t in root.values()) / count)
    out = {}
    for name, t in w.items():
        own = f * float((t**2).mean().sqrt())
        out[name] = (f * rms * (root[name] / mean) ** -0.5).clamp(own / 4, own * 1.5)
    return out


def measure(dir: pathlib.Path, scheme: Scheme, f: float, branches: bool) -> str:
    about = torch.load(dir / "after.pt")
    live, branch = Training(about["seed"]), Training(about["seed"])
    params = sum(p.numel() for p in live.model.parameters())
    base: dict[str, Tensor] = {}
    bits, error, later, at_once = [], [], [], []
    for step in range(EVERY, STEPS + 1, EVERY):
        saved = torch.load(dir / f"{step}.pt")
        live.set(saved)
        large = {n: p for n, p in live.model.named_parameters() if p.dim() > 1 and p.numel() >= 4096}
        w = {n: p.detach() for n, p in large.items()}
        root = {n: live.optimizer.state[p]["exp_avg_sq"].sqrt().clamp_min(1e-12) for n, p in large.items()}
        total = squares = 0.0
        for name, q in steps(w, root, f if base else f / 2).items():
            momentum = live.optimizer.state[large[name]]["exp_avg"]
            old = base.get(name, torch.zeros_like(q))
            x = (w[name] - old) / q
            d = scheme.codes(name, x, -momentum * q) if base.get(name) is not None else torch.round(x)
            base[name] = old + d * q
            total += entropy(d)
            squares += float((root[name] * (w[name] - base[name]) ** 2).sum())
        bits.append(total / params)
        error.append(squares)
        if step not in POINTS:
            continue
        if branches:
            branch.set(saved)
            with torch.no_grad():
                for name, p in branch.model.named_parameters():
                    p.copy_(base.get(name, p))
            at_once.append(branch.validate() - live.validate())
            for _ in range(BRANCH):
                branch.step()
            later.append(branch.validate() - about["after"][step])
        base = {name: t.clone() for name, t in w.items()}
        scheme.kept.clear()
    text = f"{scheme.name} step {f:g}: {statistics.mean(bits):.4f} bits ({statistics.mean(bits[1:]):.4f} a delta), error {statistics.mean(error[1:]):.3g}"
    if later:
        spread = statistics.stdev(later) / len(later) ** 0.5
        text += f"; loss at once {statistics.mean(at_once):+.4f}, {BRANCH} steps later {statistics.mean(later):+.4f} +- {spread:.4f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("scheme", choices=("phase", "nearest", "early"))
    parser.add_argument("--step", type=float, default=1.2, help="in RMS of the weights")
    parser.add_argument("--least", type=float, default=0.1)
    parser.add_argument("--no-branch", action="store_true", help="bits and error alone: a tenth of the time")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(measure(args.dir, Scheme(args.scheme, args.least), args.step, not args.no_branch))


if __name__ == "__main__":
    main()
