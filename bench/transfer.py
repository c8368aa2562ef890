# SPDX-License-Identifier: Apache-2.0
"""make bench-transfer: all-MiniLM-L6-v2 (22.6 million parameters) passed on in a small file: cosines of its sentence embeddings with the
original's, and fine-tuning from the file beside fine-tuning from the original, in pairs of one seed.

Calibration and evaluation texts are disjoint: docstrings by module, verses by passage; licences and random pieces are of no kind that was
calibrated on. WHY=1 adds rows that say what each part of the method gives (3 minutes more each), and trains nothing. Ends with lines
`MUST name value bar ok|short`; all figures are in build/bench/transfer.json."""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import ckpress
import quality_data
import torch
import torch.nn.functional as F
from ckpress.torch import _calibrate, _plan
from quality_minilm import LENGTH, MiniLM
from torch import Tensor, nn

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS, SIZE, WORDS = 256, 16, 64  # of each kind for calibration; in a batch; pieces of a docstring at most
SEEDS, STEPS, BATCH, LR, HEAD = (1, 2, 3), 240, 12, 1e-4, 10.0
COSINE, SMALLEST, TRANSFER = 0.98, 9.0, 12.0
Row = dict[str, Any]


class Encoder(MiniLM):
    """What the published model is for: vectors of length 1."""

    def __init__(self) -> None:
        super().__init__(1)
        self.head = nn.Identity()
        self.load_published()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.embed(x), dim=-1)


# ---- texts ----


def docstrings() -> list[list[str]]:
    """Paragraphs of Python's own library, by module."""
    out = []
    for path in sorted(pathlib.Path(os.__file__).parent.glob("*.py")):
        nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Module))]
        texts = [" ".join(p.split()) for n in nodes for p in (ast.get_docstring(n) or "").split("\n\n")]
        out.append([t for t in texts if 40 < len(t) < 400])
    return [texts for texts in out if texts]


def licences() -> list[str]:
    texts = [p.read_text(errors="replace") for p in sorted(pathlib.Path("/usr/share/common-licenses").glob("*")) if not p.is_symlink()]
    return list(dict.fromkeys(" ".join(p.split()) for t in texts for p in t.split("\n\n") if 60 < len(p) < 600))


def shuffled(items: Any, count: int, seed: int) -> Any:
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed))[:count]
    return items[order] if isinstance(items, Tensor) else [items[i] for i in order.tolist()]


def in_batches(x: Tensor) -> list[Tensor]:
    """By length, without columns of padding."""
    x = x[(x != 0).sum(1).argsort()]
    return [b[:, : int((b != 0).sum(1).max())] for b in x.split(SIZE)]


def texts() -> tuple[list[Tensor], dict[str, list[Tensor]]]:
    """Batches to calibrate on, in an order that mixes kinds and lengths, and batches to evaluate on, by kind."""
    modules = docstrings()
    known = [t for i, m in enumerate(modules) if i % 3 for t in m]
    held = [t for i, m in enumerate(modules) if i % 3 == 0 for t in m if t not in set(known)]
    verses, _, verses_held, _, _ = quality_data.passages(LENGTH)
    pieces = torch.randint(1996, 30_522, (TEXTS, 18), generator=torch.Generator().manual_seed(3))
    pieces[:, 0], pieces[:, -1] = 101, 102  # [CLS], [SEP]
    fit = in_batches(quality_data.tokens(shuffled(known, TEXTS, 1), WORDS)) + in_batches(shuffled(verses, TEXTS, 1))
    return shuffled(fit, len(fit), 2), {
        "docstrings": in_batches(quality_data.tokens(shuffled(held, TEXTS, 1), WORDS)),
        "verses": in_batches(shuffled(verses_held, TEXTS, 1)),
        "licences": in_batches(quality_data.tokens(shuffled(licences(), TEXTS, 1), WORDS)),
        "random": in_batches(pieces),
    }


# ---- cosines ----


@torch.no_grad()
def embedded(model: nn.Module, batches: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    return {kind: torch.cat([model(x) for x in part]) for kind, part in batches.items()}


class Cosines:
    """Mean cosine with the original's vectors, by kind of text; ``mean`` is over the kinds that were calibrated on."""

    def __init__(self, batches: dict[str, list[Tensor]]) -> None:
        self.batches, self.original = batches, embedded(Encoder(), batches)

    def of(self, path: pathlib.Path) -> dict[str, float]:
        model = Encoder()
        ckpress.load_weights(path, model)
        got = {kind: float((z * self.original[kind]).sum(1).mean()) for kind, z in embedded(model, self.batches).items()}
        return {**got, "mean": (got["docstrings"] + got["verses"]) / 2}


def measured(name: str, path: pathlib.Path, cosines: Cosines, make: Callable[[], Any]) -> Row:
    """One row: a file made by ``make``."""
    started = time.perf_counter()
    make()
    seconds = time.perf_counter() - started
    raw = sum(p.numel() for p in Encoder().parameters())
    size = path.stat().st_size
    row = {"name": name, "ratio": 4 * raw / size, "bits": 8 * size / raw, "seconds": seconds, **cosines.of(path)}
    figures = [f"{row['ratio']:.2f}", f"{row['bits']:.2f}", *(f"{row[k]:.4f}" for k in cosines.batches), f"{seconds:.0f}"]
    print(f"| {name} | {' | '.join(figures)} |", flush=True)
    return row


def at_cosine(rows: list[Row], wanted: float) -> float:
    """The ratio at which rows of one kind reach a mean cosine: what is lost grows as a power of the ratio between two of them."""
    rows = sorted(rows, key=lambda r: r["ratio"])
    for a, b in itertools.pairwise(rows):
        if a["mean"] >= wanted >= b["mean"]:
            low, high, at = (math.log(1 - c) for c in (a["mean"], b["mean"], wanted))
            return a["ratio"] * (b["ratio"] / a["ratio"]) ** ((at - low) / (high - low))
    return math.nan


# ---- what each part gives ----


def without(drop: Callable[[Any], Any]) -> type[_plan.Matrix]:
    class Matrix(_plan.Matrix):
        @classmethod
        def of(cls, t: Tensor, metric: Any, damp: float) -> _plan.Matrix:
            return _plan.Matrix.of(t, drop(metric), damp)

    return Matrix


def _diagonal(t: Tensor) -> Tensor:
    return t.diagonal() if t.dim() == 2 else t


def _columns_alone(m: Any) -> Any:
    return dataclasses.replace(m, rows=_diagonal(m.rows))


def _each_alone(m: Any) -> Any:
    return dataclasses.replace(m, rows=_diagonal(m.rows), columns=_diagonal(m.columns))


VARIANTS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "steps by sensitivity, rounding to nearest": (_each_alone, 0.1),
    "feedback between columns only": (_columns_alone, 0.1),
    "feedback both ways, damp 0.01": (lambda m: m, 0.01),
    "feedback both ways, damp 0.03": (lambda m: m, 0.03),
    "feedback both ways, damp 0.3": (lambda m: m, 0.3),
}


def variants(fit: list[Tensor], path: pathlib.Path, cosines: Cosines) -> Iterator[Row]:
    for name, (drop, damp) in VARIANTS.items():

        def make(drop: Callable[[Any], Any] = drop, damp: float = damp) -> None:
            kept, _calibrate.Matrix = _calibrate.Matrix, without(drop)  # type: ignore[misc]
            try:
                made = ckpress.torch.calibrate(Encoder(), fit, ratio=SMALLEST, damp=damp)
            finally:
                _calibrate.Matrix = kept  # type: ignore[misc]
            ckpress.save(path, made.weights, profile="weights", steps=made.steps)

        yield measured(name, path, cosines, make)


# ---- fine-tuning ----


def fine_tuned(seed: int, path: pathlib.Path | None) -> float:
    """Accuracy on all held-out passages after STEPS of AdamW; the same seed gives the same head and batches."""
    x, y, x_held, y_held, classes = quality_data.passages(LENGTH)
    torch.manual_seed(seed)
    net = MiniLM(classes)
    net.load_published()
    if path is not None:
        ckpress.load_weights(path, net, strict=False)  # the head is new
    body = [p for name, p in net.named_parameters() if not name.startswith("head.")]
    groups: list[dict[str, Any]] = [{"params": body}, {"params": list(net.head.parameters()), "scale": HEAD}]
    optimizer = torch.optim.AdamW(groups, lr=LR, weight_decay=0.01, fused=True)
    generator = torch.Generator().manual_seed(seed)
    for n in range(STEPS):
        rows = torch.randint(0, len(x), (BATCH,), generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = LR * group.get("scale", 1.0) * min(1.0, (n + 1) / 15) * (1 - n / STEPS)
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return sum(int((net(a).argmax(1) == b).sum()) for a, b in zip(x_held.split(64), y_held.split(64))) / len(y_held)


def transfer(path: pathlib.Path) -> Row:
    """Scores in pairs, and the noise of their mean difference: two standard errors of it, by the pooled spread between seeds."""
    scores: dict[str, list[float]] = {"original": [], "file": []}
    for seed in SEEDS:
        for name, source in (("original", None), ("file", path)):
            scores[name].append(fine_tuned(seed, source))
        print(f"seed {seed}: accuracy {scores['original'][-1]:.4f} from the original, {scores['file'][-1]:.4f} from the file", flush=True)
    spread = math.sqrt(statistics.mean(statistics.variance(s) for s in scores.values()))
    drop = statistics.mean(scores["original"]) - statistics.mean(scores["file"])
    return {**scores, "drop": drop, "noise": 2 * spread * math.sqrt(2 / len(SEEDS))}


def must(name: str, value: float, bar: float, holds: bool) -> None:
    print(f"MUST {name} {value:.4g} {bar:.4g} {'ok' if holds else 'short'}")


def main() -> None:
    torch.set_num_threads(int(os.environ.get("THREADS", "0")) or os.cpu_count() or 1)
    quality_data.DATA.mkdir(parents=True, exist_ok=True)
    why = os.environ.get("WHY", "") not in ("", "0")
    fit, held = texts()
    cosines = Cosines(held)
    print("| | ratio | bits | " + " | ".join(held) + " | seconds |\n|" + "---|" * (len(held) + 4))
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place) / "weights.ckp"

        def saved(name: str, **how: Any) -> Row:
            return measured(name, path, cosines, functools.partial(ckpress.save_weights, path, Encoder(), **how))

        plain = [saved(f"profile weights, quality {q:g}", quality=q) for q in (0.7, 1, 1.3)]
        fitted = [saved(f"calibrated, ratio {r:g}", calibrate=fit, ratio=r) for r in (SMALLEST, TRANSFER)]
        found = {"plain": plain, "calibrated": fitted, "why": list(variants(fit, path, cosines)) if why else []}
        if not why:
            found["transfer"] = moved = transfer(path)
    out = ROOT / "build" / "bench" / "transfer.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"plain grids have a mean cosine of {COSINE} at {at_cosine(plain, COSINE):.2f}x")
    small, smaller = fitted
    reached = smaller["ratio"] if smaller["mean"] >= COSINE else at_cosine(fitted, COSINE)
    must("cosine_at_9x", small["mean"], COSINE, small["mean"] >= COSINE and small["ratio"] >= SMALLEST)
    must("ratio_at_cosine_0.98", reached, SMALLEST, reached >= SMALLEST)
    if not why:
        must("transfer_ratio", smaller["ratio"], TRANSFER, smaller["ratio"] >= TRANSFER)
        must("transfer_drop", moved["drop"], moved["noise"], moved["drop"] <= moved["noise"])


if __name__ == "__main__":
    main()
