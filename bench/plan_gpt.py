# SPDX-License-Identifier: Apache-2.0
"""Planned steps beside `quality` of the profile `resume`, where second moments say what matters: the demo's GPT in training.

    python bench/plan_gpt.py [--steps 300]

Trains, then codes weights and moments once for each setting (a key, alone) and measures the held-out loss of the decoded weights. Bits a parameter
are those of the weights' chunks: moments cost the same in all rows, and rows of one size have as many bytes. One trial has a noise of about
0.002. `planned` has h from second moments, `by size` from tensors' sizes alone
(scores of 1 / RMS), both with the steps' shape of the profile inside each tensor. Writes build/bench/plan_gpt.json; ends with lines
`MUST name value bar ok|short`."""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import ckpress
import quality_data

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "bench"
sys.path.insert(0, str(ROOT / "demo"))
import model as demo  # noqa: E402

BATCH, LR = 8, 1e-3
WIDTH, LAYERS, HEADS = 192, 4, 6


def train(steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(1)
    text, held_out = demo.split(quality_data.prose())
    net = demo.GPT(WIDTH, LAYERS, HEADS)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)
    for n in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LR * demo.learning_rate(n, 2 * steps)  # in the middle of its training
        optimizer.zero_grad()
        net(*demo.Sampler(text, BATCH, n).next()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return net, optimizer, held_out[: 64 * demo.CONTEXT + 1]


def weight_bits(path: Path) -> float:
    with ckpress.open(path) as f:
        own = [i for i in (f[name].info for name in f) if i["role"] in ("weight", "master") and i["lossy"]]
        return 8 * sum(i["stored_bytes"] for i in own) / sum(i["numel"] for i in own)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--steps", type=int, default=300)
    args = parse.parse_args()
    torch.set_num_threads(1)
    WORK.mkdir(parents=True, exist_ok=True)
    net, optimizer, held_out = train(args.steps)
    true = demo.held_out_loss(net, held_out)
    other = demo.GPT(WIDTH, LAYERS, HEADS)
    state = {"model": net, "optimizer": optimizer}
    by_size = {f"model/{k}": 1 / max(float(p.detach().square().mean().sqrt()), 1e-3) * (256 if p.ndim < 2 or p.numel() < 4096 else 1)
               for k, p in net.named_parameters()}
    rows: list[dict] = []
    print(f"true weights: {true:.4f}", flush=True)
    with tempfile.TemporaryDirectory(dir=WORK) as tmp:
        path = Path(tmp) / "x.ckp"

        def add(name: str, setting: float) -> dict:
            other.load_state_dict(ckpress.load(path)["model"])
            row = {"name": name, "setting": setting, "bits": weight_bits(path), "error": demo.held_out_loss(other, held_out) - true}
            rows.append(row)
            print(f"{name:8} {setting:6.3f}: {row['bits']:.3f} bits a weight, loss + {row['error']:.5f}", flush=True)
            return row

        for quality in (0.2, 0.3, 0.45, 0.7, 1.0, 1.5):
            ckpress.save(path, state, profile="resume", quality=quality, threads=1)
            size = path.stat().st_size
            add("quality", quality)
            for name, scores in (("planned", None), ("by size", by_size)):
                plan = ckpress.plan(state, max_bytes=size, profile="resume", scores=scores, threads=1, encodes=3)
                ckpress.save(path, state, profile="resume", steps=plan.steps, threads=1)
                add(name, size / 1e6)
    means = {name: float(np.mean([r["error"] for r in rows if r["name"] == name])) for name in ("quality", "planned", "by size")}
    (WORK / "plan_gpt.json").write_text(json.dumps({"true": true, "rows": rows, "means": means}, indent=1) + "\n")
    print(", ".join(f"{name}: loss + {mean:.5f} over all sizes" for name, mean in means.items()))
    worse = means["planned"] - means["quality"]
    print(f"MUST plan_gpt_worse_than_quality {worse:.4g} 0 {'ok' if worse <= 0 else 'short'}")


if __name__ == "__main__":
    main()
