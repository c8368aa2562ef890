# SPDX-License-Identifier: Apache-2.0
"""Whole checkpoints of mixed-precision trainings, bf16 weights and f32 masters with AdamW, beside BitSnap's 2.29x and torch.save.

    make bench-mixed   (python bench/mixed.py [--steps 400])

Three trainings on one thread, computed in bf16: a GPT on text, a ResNet on Fashion-MNIST whose BatchNorm stays f32, and a next-byte predictor of which 98 % are
embeddings of hashed n-grams. 14 bytes a parameter: bf16, master, both moments. Each is saved every 10 steps as `lossless`, as `lossless` with
`optimizer_states="cluster"` (what BitSnap's 2.29x is of: exact weights, moments in 16 bits), and as `resume`. In the first 5 % of the steps, the middle and the last 5 %:
how much smaller than raw; seconds and peak memory (above what was in use before) of a save and of a load beside torch.save and torch.load; how tensors were coded.

Ends with lines `MUST name value bar ok|short`; all figures are in build/bench/mixed.json."""

from __future__ import annotations

import argparse
import collections
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ckpress
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "bench"
sys.path.insert(0, str(ROOT / "demo"))
import model as demo  # noqa: E402
import quality_data  # noqa: E402
import quality_images  # noqa: E402

EVERY, LR, WARM = 10, 1e-3, 20
WAYS: dict[str, dict[str, Any]] = {"lossless": {}, "cluster": {"optimizer_states": "cluster"}, "resume": {"profile": "resume"}}
BITSNAP = 2.29


class NGrams(nn.Module):
    """The next byte from the last one to six, each hashed into a table of its own."""

    ORDERS, ROWS, WIDTH = 6, 1 << 15, 24

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(self.ROWS, self.WIDTH) for _ in range(self.ORDERS))
        self.inner, self.head = nn.Linear(self.ORDERS * self.WIDTH, 256), nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        key, rows = torch.zeros(len(x), dtype=torch.int64), []
        for n, table in enumerate(self.tables, 1):
            key = (key * 1000003 + x[:, -n] + 1) % 2147483647
            rows.append(table(key % self.ROWS))
        out: Tensor = self.head(F.gelu(self.inner(torch.cat(rows, 1))))
        return out


class Training:
    """bf16 weights in the model, f32 masters under AdamW; what is f32 in the model is trained as it is."""

    def __init__(self, net: nn.Module, loss: Callable[[nn.Module, int], Tensor], steps: int) -> None:
        self.net, self.loss, self.steps = net.bfloat16(), loss, steps
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.float()
        self.low = [p for p in net.parameters() if p.dtype == torch.bfloat16]
        self.masters = nn.ParameterList(p.detach().float() for p in self.low)
        whole = [p for p in net.parameters() if p.dtype == torch.float32]
        self.optimizer = torch.optim.AdamW([*self.masters, *whole], lr=LR, betas=(0.9, 0.95), weight_decay=0.1)

    def step(self, n: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = LR * min(1.0, (n + 1) / WARM) * 0.5 * (1 + math.cos(math.pi * n / self.steps))
        self.net.zero_grad()
        self.loss(self.net, n).backward()
        for p, m in zip(self.low, self.masters, strict=True):
            assert p.grad is not None
            m.grad = p.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for p, m in zip(self.low, self.masters, strict=True):
                p.copy_(m)

    def objects(self) -> dict[str, Any]:
        return {"model": self.net, "masters": self.masters, "optimizer": self.optimizer}


def gpt(steps: int) -> Training:
    sampler = demo.Sampler(demo.split(demo.text()[1])[0], 8, 1)
    return Training(demo.GPT(), lambda net, n: net(*sampler.next()).float(), steps)


def resnet(steps: int) -> Training:
    images = quality_images.Residuals(1)

    def loss(net: nn.Module, n: int) -> Tensor:
        x, y = images.batch(n)
        return F.cross_entropy(net(x[:64].bfloat16()).float(), y[:64])

    return Training(quality_images.ResNet(32, 2), loss, steps)


def embeddings(steps: int) -> Training:
    tokens = demo.split(demo.text()[1])[0].flatten()

    def loss(net: nn.Module, n: int) -> Tensor:
        at = torch.randint(NGrams.ORDERS, len(tokens), (512,), generator=torch.Generator().manual_seed(n))
        x = torch.stack([tokens[at - k] for k in range(NGrams.ORDERS, 0, -1)], 1).long()
        return F.cross_entropy(net(x).float(), tokens[at].long())

    return Training(NGrams(), loss, steps)


NETS = {"transformer": gpt, "cnn": resnet, "embeddings": embeddings}


# ---- measuring ----


def memory(field: str) -> float:
    """MB, of this process: VmRSS or VmHWM."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) / 1e3


def measured(do: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it returns, seconds, and the peak of memory above what was in use."""
    Path("/proc/self/clear_refs").write_text("5")
    before, start = memory("VmRSS"), time.perf_counter()
    out = do()
    return out, time.perf_counter() - start, memory("VmHWM") - before


def codecs(run: Path, step: int) -> dict[str, dict[str, int]]:
    """How many tensors of each role were coded in which way."""
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with ckpress.open(f"{run}@{step}") as f:
        for t in f.tensors.values():
            found[t["role"]][t["codec"]] += 1
    return {role: dict(count.most_common()) for role, count in found.items()}


def exact(training: Training, run: Path, step: int) -> bool:
    loaded = ckpress.load(f"{run}@{step}")
    masters = list(loaded["masters"].values())
    same = all(torch.equal(a, b) for a, b in zip(training.masters, masters, strict=True))
    return same and all(torch.equal(t, loaded["model"][k]) for k, t in training.net.state_dict().items())


def stage(training: Training, checkpointers: dict[str, ckpress.Checkpointer], work: Path, step: int) -> dict[str, Any]:
    """One save each way, and what torch does of the same."""
    row: dict[str, Any] = {"step": step}
    for way, ck in checkpointers.items():
        _, seconds, peak = measured(lambda ck=ck: ck.save(step, wait=True))
        s = ck.stats
        run = work / way
        _, load_seconds, load_peak = measured(lambda run=run: ckpress.load(f"{run}@{step}"))
        row[way] = {"times": s["raw_bytes"] / s["stored_bytes"], "key": s["is_key"], "raw": s["raw_bytes"], "save_s": seconds, "save_mb": peak, "load_s": load_seconds,
                    "load_mb": load_peak, "codecs": codecs(run, step)}  # fmt: skip
    row["exact"] = exact(training, work / "lossless", step)
    states = {"model": training.net.state_dict(), "masters": training.masters.state_dict(), "optimizer": training.optimizer.state_dict()}
    _, save_s, save_mb = measured(lambda: torch.save(states, work / "torch.pt"))
    _, load_s, load_mb = measured(lambda: torch.load(work / "torch.pt", weights_only=True))
    row["torch.save"] = {"times": row["lossless"]["raw"] / (work / "torch.pt").stat().st_size, "save_s": save_s, "save_mb": save_mb, "load_s": load_s, "load_mb": load_mb}
    return row


def run_net(name: str, steps: int, work: Path) -> list[dict[str, Any]]:
    torch.manual_seed(1)
    training = NETS[name](steps)
    checkpointers = {way: ckpress.Checkpointer(work / way, rng=False, final_on_close=False, threads=1, **how) for way, how in WAYS.items()}
    rows = []
    try:
        for ck in checkpointers.values():
            ck.restore(**training.objects())
        shown = {steps // 20: "first 5 %", steps // 2: "middle", steps: "last 5 %"}
        for n in range(steps):
            training.step(n)
            if (n + 1) in shown:
                rows.append({"net": name, "stage": shown[n + 1], **stage(training, checkpointers, work, n + 1)})
            elif (n + 1) % EVERY == 0:
                for ck in checkpointers.values():
                    ck.save(n + 1, wait=True)
    finally:
        for ck in checkpointers.values():
            ck.close()
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print("| net | stage | way | times smaller | save, s | load, s | peak of a save, MB | peak of a load, MB |\n|---|---|---|--:|--:|--:|--:|--:|")
    for r in rows:
        for way in (*WAYS, "torch.save"):
            w = r[way]
            print(f"| {r['net']} | {r['stage']} | {way} | {w['times']:.2f} | {w['save_s']:.2f} | {w['load_s']:.2f} | {w['save_mb']:.0f} | {w['load_mb']:.0f} |")
    print("\n| net | stage | way | tensors by role and codec |\n|---|---|---|---|")
    for r in rows:
        for way in WAYS:
            text = "; ".join(f"{role}: " + ", ".join(f"{n} {c}" for c, n in by.items()) for role, by in r[way]["codecs"].items() if role != "other")
            print(f"| {r['net']} | {r['stage']} | {way} | {text} |")


def must(name: str, value: float, bar: float, ok: bool) -> None:
    print(f"MUST mixed_{name} {value:.4g} {bar:g} {'ok' if ok else 'short'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    torch.set_num_threads(1)
    WORK.mkdir(parents=True, exist_ok=True)
    quality_data.prepare()
    rows: list[dict[str, Any]] = []
    for name in NETS:
        with tempfile.TemporaryDirectory(dir=WORK) as work:
            rows += run_net(name, args.steps, Path(work))
    show(rows)
    print()
    (WORK / "mixed.json").write_text(json.dumps(rows, indent=1) + "\n")
    must("masters_exact", sum(r["exact"] for r in rows), len(rows), all(r["exact"] for r in rows))
    for way in WAYS:
        least = min(r[way]["times"] for r in rows)
        must(f"{way}_least_times", least, BITSNAP, least >= BITSNAP)
    return 0


if __name__ == "__main__":
    sys.exit(main())
