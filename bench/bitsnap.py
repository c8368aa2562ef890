# SPDX-License-Identifier: Apache-2.0
"""BitSnap's two parts on the demo's GPT: sparse deltas of bf16 weights, and clusters of optimizer states.

    make bench-bitsnap   (python bench/bitsnap.py [--steps 300])

Deltas: the GPT is trained with bf16 weights and fp32 masters (computed in fp32 from the bf16 values) to the end of its schedule, then on with steps of 1e-6, as
fine-tuning by reinforcement has them. At every save: the share of bf16 words as at the last one; bytes by raw words, planes, mask + values, planes of the XOR
and ordered differences, and what the picker takes; BitSnap's formula, 16 / (1 + 16 r); and the whole lossless checkpoint (bf16, masters, both moments: 14
bytes a parameter) against raw, where the bf16 words are derived from the masters and cost nothing.

States: an fp32 training with AdamW is saved in the middle, in clusters, by a codebook and by the profile `resume`. Bits of what is stored, errors of
the moments, and the held-out loss after going on from each, on the same batches, above that of going on from the live state.

Ends with lines `MUST name value bar ok|short`; all figures are in build/bench/bitsnap.json."""

import argparse
import copy
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ckpress
import torch

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "bench"
sys.path.insert(0, str(ROOT / "demo"))
import model as demo  # noqa: E402

LR, BATCH, SAVES, FINE = 1e-3, 8, 12, 3
Master = dict[str, torch.Tensor]


class Mixed:
    """bf16 weights, fp32 masters and moments: the state of a mixed-precision training, as plain dicts."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.net = net
        self.master: Master = {n: p.detach().clone() for n, p in net.named_parameters()}
        self.m = {n: torch.zeros_like(p) for n, p in self.master.items()}
        self.v = {n: torch.zeros_like(p) for n, p in self.master.items()}
        self.weight = {n: p.bfloat16() for n, p in self.master.items()}
        self.n = 0
        self.round()

    def round(self) -> None:
        for n, p in self.net.named_parameters():
            self.weight[n].copy_(self.master[n])
            p.data.copy_(self.weight[n])

    @torch.no_grad()
    def step(self, lr: float) -> None:
        self.n += 1
        for n, p in self.net.named_parameters():
            assert p.grad is not None
            self.m[n].lerp_(p.grad, 0.1)
            self.v[n].lerp_(p.grad.square(), 0.05)
            move = (self.m[n] / (1 - 0.9**self.n)) / ((self.v[n] / (1 - 0.95**self.n)).sqrt() + 1e-8)
            self.master[n].mul_(1 - 0.1 * lr).sub_(lr * move)
        self.round()

    def words(self, path: Path) -> Path:
        path.write_bytes(b"".join(w.view(torch.int16).numpy().tobytes() for w in self.weight.values()))
        return path

    def objects(self) -> dict[str, Any]:
        return {"model": self.weight, "optimizer": {"masters": list(self.master.values()), "exp_avg": list(self.m.values()), "exp_avg_sq": list(self.v.values())}}


def backward(net: torch.nn.Module, sampler: demo.Sampler) -> None:
    net.zero_grad()
    net(*sampler.next()).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)


def cosine(n: int, steps: int) -> float:
    """To zero: the end of a training is where words stop to change."""
    return LR * min(1.0, (n + 1) / 50) * 0.5 * (1 + math.cos(math.pi * n / steps))


def tool() -> Path:
    found = sorted(ROOT.glob("build/*/bench/bench_bitsnap"), key=lambda p: p.stat().st_mtime)
    if not found:
        sys.exit("build bench_bitsnap first: make bench-bitsnap")
    return found[-1]


def deltas(steps: int, work: Path) -> list[dict[str, Any]]:
    torch.manual_seed(1)
    tokens, _ = demo.split(demo.text()[1])
    net, sampler = demo.GPT(), demo.Sampler(tokens, BATCH, 1)
    training, rows = Mixed(net), []
    ck = ckpress.Checkpointer(work / "run", "lossless", rng=False, final_on_close=False)
    ck.restore(**training.objects())
    before = training.words(work / "words-0")
    every = steps // SAVES
    # the last ones: fine-tuning, one step apart
    plan = [(n, cosine(n, steps)) for n in range(steps)] + [(steps + n, 1e-6) for n in range(FINE)]
    for n, lr in plan:
        backward(net, sampler)
        training.step(lr)
        if n < steps and (n + 1) % every:
            continue
        after = training.words(work / f"words-{n + 1}")
        row = json.loads(subprocess.run([tool(), after, before], check=True, capture_output=True, text=True).stdout)
        ck.save(n + 1, wait=True)
        stats = ck.stats
        rows.append(row | {"step": n + 1, "lr": lr, "stored": stats["stored_bytes"], "whole": stats["raw_bytes"], "key": stats["is_key"]})
        before = after
    ck.close()
    return rows


def show_deltas(rows: list[dict[str, Any]]) -> None:
    print("| step | learning rate | unchanged | formula | planes | mask | XOR planes | differences | taken | ratio | whole checkpoint |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|")
    for r in rows:
        ways = " | ".join(f"{r[k] / r['raw']:.4f}" for k in ("planes", "mask", "xor", "diff"))
        formula = 16 / (1 + 16 * (1 - r["unchanged"]))
        print(f"| {r['step']} | {r['lr']:.1e} | {100 * r['unchanged']:.2f} % | {formula:.2f}x | {ways} | {r['took']} | {r['raw'] / r['pick']:.2f}x | "
              f"{r['whole'] / r['stored']:.2f}x{' (key)' if r['key'] else ''} |")  # fmt: skip


# ---- optimizer states ----


def go_on(net: torch.nn.Module, optimizer: torch.optim.Optimizer, sampler: demo.Sampler, n: int) -> None:
    for _ in range(n):
        backward(net, sampler)
        optimizer.step()


def adamw(net: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)


def errors(live: torch.optim.Optimizer, got: torch.optim.Optimizer, key: str) -> dict[str, float]:
    a, b = (torch.cat([s[key].flatten().double() for s in o.state.values()]) for o in (live, got))
    return {"mre": ((a - b).abs() / a.abs())[a != 0].mean().item(), "mse": (a - b).square().mean().item()}


def states(steps: int, work: Path) -> list[dict[str, Any]]:
    torch.manual_seed(2)
    tokens, held_out = demo.split(demo.text()[1])
    net, sampler = demo.GPT(), demo.Sampler(tokens, BATCH, 2)
    optimizer = adamw(net)
    go_on(net, optimizer, sampler, steps)
    place = copy.deepcopy(sampler.state_dict())
    live = {"net": copy.deepcopy(net.state_dict()), "optimizer": copy.deepcopy(optimizer.state_dict())}
    rows: list[dict[str, Any]] = []
    ways: list[tuple[str, dict[str, Any]]] = [("live", {}), ("lossless", {}), ("cluster", {"optimizer_states": "cluster"}),
                                              ("codebook", {"optimizer_states": "codebook"}), ("resume", {"profile": "resume"})]  # fmt: skip
    for name, how in ways:
        net.load_state_dict(live["net"])
        optimizer.load_state_dict(copy.deepcopy(live["optimizer"]))
        row: dict[str, Any] = {"way": name}
        if name != "live":
            run = work / name
            with ckpress.Checkpointer(run, rng=False, final_on_close=False, **how) as ck:
                ck.restore(model=net, optimizer=optimizer)
                ck.save(1, wait=True)
                row |= {k: ck.stats[k] for k in ("stored_by_role", "params_by_role", "raw_bytes", "stored_bytes")}
            other = demo.GPT()
            other_optimizer = adamw(other)
            with ckpress.Checkpointer(run, rng=False, final_on_close=False, **how) as ck:
                ck.restore(model=other, optimizer=other_optimizer)
            row |= {"m": errors(optimizer, other_optimizer, "exp_avg"), "v": errors(optimizer, other_optimizer, "exp_avg_sq")}
            net, optimizer = other, other_optimizer
        sampler.load_state_dict(place)
        go_on(net, optimizer, sampler, steps // 3)
        row["loss"] = demo.held_out_loss(net, held_out, every=16)
        rows.append(row)
    return rows


def show_states(rows: list[dict[str, Any]]) -> None:
    live = rows[0]["loss"]
    print("| way | bits w, m, v | whole | MRE m, v | MSE m, v | loss after going on |\n|---|---|--:|---|---|--:|")
    for r in rows[1:]:
        bits = ", ".join(f"{8 * r['stored_by_role'][k] / r['params_by_role'][k]:.2f}" for k in ("weight", "m", "v"))
        print(f"| {r['way']} | {bits} | {r['raw_bytes'] / r['stored_bytes']:.2f}x | {r['m']['mre']:.2g}, {r['v']['mre']:.2g} | {r['m']['mse']:.2g}, "
              f"{r['v']['mse']:.2g} | {r['loss'] - live:+.4f} |")  # fmt: skip


def must(name: str, value: float, bar: float, ok: bool) -> None:
    print(f"MUST bitsnap_{name} {value:.4g} {bar:g} {'ok' if ok else 'short'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as work:
        rows = deltas(args.steps, Path(work))
        show_deltas(rows)
        print()
        found = states(args.steps, Path(work))
        show_states(found)
    print()
    (WORK / "bitsnap.json").write_text(json.dumps({"deltas": rows, "states": found}, indent=1) + "\n")
    by = {r["way"]: r for r in found}
    worst = max(r["pick"] / min(r["raw"], *(r[k] for k in ("planes", "mask", "xor", "diff"))) for r in rows)
    must("pick_over_best", worst, 1.02, worst <= 1.02)
    over = min(r["raw"] / r["pick"] * (1 + 16 * (1 - r["unchanged"])) / 16 for r in rows)
    must("deltas_over_formula", over, 1, over >= 1)
    best = max(r["raw"] / r["pick"] for r in rows)
    must("best_delta_of_weights", best, 16, best > 16)
    whole = min(r["whole"] / r["stored"] for r in rows if not r["key"])
    must("whole_lossless_delta", whole, 2.29, whole >= 2.29)
    for way, bits in (("cluster", 16), ("codebook", 8)):
        most = max(8 * by[way]["stored_by_role"][k] / by[way]["params_by_role"][k] for k in ("m", "v"))
        must(f"{way}_bits", most, bits * 1.01, most <= bits * 1.01)
    smaller = by["codebook"]["stored_bytes"] / by["resume"]["stored_bytes"]
    must("codebook_over_resume_bytes", smaller, 1, smaller > 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
