# SPDX-License-Identifier: Apache-2.0
"""Objects that people save with torch.save: what the readers of foreign files are tested with, and where their fuzz seeds come from."""

from __future__ import annotations

import collections
import io
import random
import re
from typing import Any

import numpy as np
import torch


def _dtypes() -> dict[str, Any]:
    out: dict[str, Any] = {}
    names = {str(v) for v in vars(torch).values() if isinstance(v, torch.dtype)}
    for name in sorted(names):
        short = name.removeprefix("torch.")
        if re.fullmatch(r"q.*|bit|u?int[1-7]", short):  # torch itself cannot save those plainly
            continue
        dtype = getattr(torch, short)
        raw = torch.arange(64, dtype=torch.uint8) % 2
        try:
            out[name] = raw.bool() if dtype == torch.bool else raw.view(dtype).clone()
        except RuntimeError:
            out[name] = raw.view(dtype)
    return out


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    for _ in range(3):
        opt.zero_grad()
        model(torch.randn(7, 4)).pow(2).sum().backward()
        opt.step()
    return model, opt


def _plain() -> dict[str, Any]:
    return {
        "size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cuda:0"), "cpu": torch.device("cpu"),
        "set": {1, 2, "a"}, "frozen": frozenset([1]), "ba": bytearray(b"x\xff3"), "c": 1 + 2j,
        "od": collections.OrderedDict(x=1, y=[1, 2, (3,)]), "counter": collections.Counter("aab"), "bytes": b"\xff\x00", "empty": b"",
        "big": 2**100, "small": -(2**70), "none": None, "true": True, "false": False, "floats": [1.5, float("inf"), -float("inf"), -0.0],
        "neg": -5, "i16": 300, "i32": 70000, "i64": 2**40, "i63": -(2**63), "str": "h\u00e9\U0001f600\ud800", "": 0, 1: 2, (1, "a"): 3,
        None: 4, "deep": [[[[[]]]]], "rng": random.Random(1).getstate(),
    }  # fmt: skip


def _numpy() -> dict[str, Any]:
    out = {
        "a": np.arange(3), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "scalar": np.float32(2), "dtype": np.dtype("f4"),
        "dates": np.array(["2020-01-01"], dtype="M8[D]"), "date": np.datetime64("2020-01-01"), "span": np.timedelta64(3, "25s"),
        "S": np.array([b"ab", b"c"]), "U": np.array(["ab", "c"]), "bool": np.array([True, False]), "empty": np.zeros((0, 3)),
        "0d": np.array(5.0), "type": np.float32, "rng": np.random.RandomState(3).get_state(), "long": np.longdouble(2), "b": np.bool_(True),
    }  # fmt: skip
    try:
        import ml_dtypes

        out["bf16"], out["fp8"] = np.arange(3).astype(ml_dtypes.bfloat16), np.ones(3, ml_dtypes.float8_e4m3fn)
    except ImportError:
        pass
    return out


def _attributes() -> dict[str, Any]:
    parameter, tensor = torch.nn.Parameter(torch.ones(2)), torch.ones(2)
    parameter.tag, tensor.tag = 3, "x"  # type: ignore[attr-defined]
    return {"parameter": parameter, "tensor": tensor}


def _tied() -> Any:
    m = torch.nn.ModuleDict({"a": torch.nn.Embedding(5, 4), "b": torch.nn.Linear(4, 5, bias=False)})
    m["b"].weight = m["a"].weight
    return m.state_dict()


def save(obj: Any, dst: Any, **how: Any) -> None:
    """torch.save; once in a while it takes a storage that it made and freed on the way for another one of the same address."""
    for attempt in range(5):
        try:
            torch.save(obj, dst, **how)
            return
        except RuntimeError:
            if attempt == 4:
                raise


def cases() -> dict[str, Any]:
    torch.manual_seed(1)
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    plain = parameter.detach()
    model, opt = trained()
    shared = [1, 2]
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]).double(), torch.tensor([0, 1, 2])
    c64 = torch.randn(4, dtype=torch.cfloat)
    return {
        "parameter": parameter,
        "views": [plain.view(-1)[2:7], plain, plain.t(), torch.randn(4, 6)[:, ::2], torch.randn(3).expand(4, 3),
                  torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)],
        "plain": _plain(),
        "python": {"dd": collections.defaultdict(list, {1: [2]}), "dn": collections.defaultdict(None, {1: 2}),
                   "dq": collections.deque([1, 2], 3), "slice": slice(1, 2, None), "range": range(3), "dots": ..., "type": float,
                   "io": io.BytesIO(b"abc\xff"), "shared": [shared, shared]},
        "numpy": _numpy(),
        "dtypes": _dtypes(),
        "small": {"0d": torch.tensor(3.0), "0i": torch.tensor(7), "e": torch.zeros(0), "e3": torch.zeros(3, 0, 2)},
        "grad": {"yes": torch.randn(2, requires_grad=True), "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False)},
        "attributes": _attributes(),
        "conj": {"conj": c64.conj(), "neg": c64.clone().conj().imag, "both": torch._neg_view(c64.clone().conj())},
        "sparse": {"coo": torch.eye(3).to_sparse(), "loose": torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)),
                   "csr": torch.eye(3).to_sparse_csr(), "csc": torch.eye(4).to_sparse_csc(), "bsr": torch.eye(4).to_sparse_bsr((2, 2)),
                   "bsc": torch.eye(4).to_sparse_bsc((2, 2))},
        "quantized": {"t": torch.quantize_per_tensor(torch.randn(3, 2), 0.1, 1, torch.qint8),
                      "c": torch.quantize_per_channel(torch.randn(3, 2), scales, zeros, 0, torch.quint8)},
        "odd": {"layout": torch.strided, "meta": torch.empty(2, device="meta")},
        "tied": _tied(),
        "train": {"model": model.state_dict(), "optimizer": opt.state_dict(), "step": 3, "rng": torch.get_rng_state()},
        "lightning": {"epoch": 1, "state_dict": {f"net.{k}": v for k, v in model.state_dict().items()},
                      "optimizer_states": [opt.state_dict()], "lr_schedulers": []},
        "tensor": torch.arange(5),
    }  # fmt: skip
