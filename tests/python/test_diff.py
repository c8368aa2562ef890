# SPDX-License-Identifier: Apache-2.0
"""`ckpress diff`: its figures are numpy's, whatever kinds of file the two are."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import ckpress
import ml_dtypes
import numpy as np
import pytest
import torch
from helpers import steps, training
from safetensors.torch import save_file

COMMAND = shutil.which("ckpress")
pytestmark = pytest.mark.skipif(COMMAND is None, reason="no ckpress command in the path")


def diff(*args: Any) -> dict[str, Any]:
    done = subprocess.run([COMMAND, "diff", "--json", "--all", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {t["name"]: t for t in report["tensors"]}


def expected(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Of arrays of numbers that f64 or complex128 holds exactly, in that type; bits decide what differs. Squares need a longer exponent."""
    size = a.dtype.itemsize
    differ = (a.reshape(-1).view(np.uint8).reshape(-1, size) != b.reshape(-1).view(np.uint8).reshape(-1, size)).any(axis=1).reshape(a.shape)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        x, y = a.astype(wide), b.astype(wide)
        d = np.abs(y - x)
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(d)
    n = max(1, a.size)
    rms = float(np.sqrt((d[finite].astype(np.longdouble) ** 2).sum() / n))
    rms_a = float(np.sqrt(sum((p[np.isfinite(x)].astype(np.longdouble) ** 2).sum() for p in (x.real, x.imag)) / n))
    return {
        "differ": int(differ.sum()),
        "not_finite": int((differ & ~finite).sum()),
        "max_abs": float(d[finite].max(initial=0.0)),
        "rms": rms,
        "rms_a": rms_a,
        "relative": rms / rms_a if rms_a else (np.inf if rms else 0.0),
    }


def number(v: Any) -> float:
    return float({"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(v, v))


def check(got: dict[str, Any], a: np.ndarray, b: np.ndarray) -> None:
    want = expected(a, b)
    assert got["elements"] == a.size
    assert (got["kind"] == "identical") == (want["differ"] == 0), got
    for key, value in want.items():
        assert number(got[key]) == pytest.approx(value, rel=1e-12, abs=0), (got["name"], key)


def drawn(dtype: Any, shape: tuple[int, ...], seed: int, bits: bool = False) -> np.ndarray:
    """Values about 1, or any bits at all: NaN of every payload, infinities, denormals."""
    rng = np.random.default_rng(seed)
    if bits:
        return rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8).view(dtype).reshape(shape)
    return rng.standard_normal(shape).astype(dtype)


def touched(a: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Some elements replaced by others of the same kind."""
    rng = np.random.default_rng(seed)
    out = a.copy().reshape(-1)
    at = rng.random(out.shape) < share
    out[at] = rng.permutation(out)[at]
    return out.reshape(a.shape)


TORCH = {ml_dtypes.bfloat16: torch.bfloat16, ml_dtypes.float8_e4m3fn: torch.float8_e4m3fn, ml_dtypes.float8_e5m2: torch.float8_e5m2,
         ml_dtypes.float8_e4m3fnuz: torch.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz: torch.float8_e5m2fnuz,
         ml_dtypes.float8_e8m0fnu: torch.float8_e8m0fnu}
KINDS = [np.float32, np.float64, np.float16, np.complex64, np.complex128, *TORCH]


def as_torch(a: np.ndarray) -> torch.Tensor:
    for mine, theirs in TORCH.items():
        if a.dtype == mine:
            return torch.from_numpy(np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")).view(theirs)
    return torch.from_numpy(np.ascontiguousarray(a))


@pytest.mark.parametrize("dtype", KINDS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("bits", [False, True], ids=["values", "any bits"])
def test_floats(tmp_path, dtype, bits):
    """Also longer than a stretch and a chunk are; one side compressed, the other a .pt."""
    a = {n: drawn(dtype, shape, i, bits) for i, (n, shape) in enumerate({"long": (3, 400001) if dtype is np.float32 else (3, 43691), "short": (7,), "none": (0, 4), "scalar": ()}.items())}
    b = {n: touched(v, 0.3, 9) for n, v in a.items()}
    for name, side in (("a", a), ("b", b)):
        torch.save({k: as_torch(v) for k, v in side.items()}, tmp_path / f"{name}.pt")
    ckpress.compress(tmp_path / "a.pt")
    got = by_name(diff(tmp_path / "a.ckp", tmp_path / "b.pt"))
    for name in a:
        check(got[name], a[name], b[name])


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "?"])
def test_whole_numbers(tmp_path, dtype):
    """Differences are exact before they are rounded, over the whole range of a type."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, 1000).astype(bool) if dtype == "?" else rng.integers(0, 256, 1000 * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    b = touched(a, 0.5, 6)
    ckpress.save(tmp_path / "a.ckp", {"x": a})
    ckpress.save(tmp_path / "b.ckp", {"x": b})
    got = by_name(diff(tmp_path / "a.ckp", tmp_path / "b.ckp"))["x"]
    d = [abs(int(y) - int(x)) for x, y in zip(a, b)]
    assert got["differ"] == sum(v != 0 for v in d) and number(got["max_abs"]) == float(max(d)) and got["not_finite"] == 0
    assert number(got["rms"]) == pytest.approx((sum(v * v for v in d) / len(d)) ** 0.5, rel=1e-12)
    assert number(got["rms_a"]) == pytest.approx((sum(int(v) ** 2 for v in a) / len(a)) ** 0.5, rel=1e-12)


def test_counters_that_are_one_apart(tmp_path):
    ckpress.save(tmp_path / "a.ckp", {"x": np.array([2**62, -(2**63), 5], np.int64)})
    ckpress.save(tmp_path / "b.ckp", {"x": np.array([2**62 + 1, 2**63 - 1, 5], np.int64)})
    got = by_name(diff(tmp_path / "a.ckp", tmp_path / "b.ckp"))["x"]
    assert got["differ"] == 2 and number(got["max_abs"]) == 2.0**64


def test_very_large_and_very_small(tmp_path):
    """Squares that an f64 does not hold."""
    a = {"large": np.full(1000, 1e300), "small": np.full(1000, 1e-300), "zero": np.zeros(10), "mixed": np.array([1e300, 1.0, 1e-300])}
    b = {"large": np.full(1000, 1.5e300), "small": np.full(1000, 1.5e-300), "zero": np.ones(10), "mixed": np.array([1e300, 2.0, 1e-300])}
    for name, side in (("a", a), ("b", b)):
        torch.save({k: torch.from_numpy(v) for k, v in side.items()}, tmp_path / f"{name}.pt")
    got = by_name(diff(tmp_path / "a.pt", tmp_path / "b.pt"))
    assert number(got["large"]["rms"]) == pytest.approx(5e299, rel=1e-12) and number(got["large"]["relative"]) == pytest.approx(0.5, rel=1e-12)
    assert number(got["small"]["rms"]) == pytest.approx(5e-301, rel=1e-12) and number(got["small"]["rms_a"]) == pytest.approx(1e-300, rel=1e-12)
    assert got["zero"]["relative"] == "Infinity" and number(got["zero"]["rms"]) == 1.0
    assert number(got["mixed"]["rms"]) == pytest.approx(3**-0.5, rel=1e-12)
    assert [t["name"] for t in diff(tmp_path / "a.pt", tmp_path / "b.pt")["tensors"]] == ["zero", "large", "small", "mixed"]


def test_nan_and_zero_are_compared_by_bits(tmp_path):
    nan = np.array([0x7FC00000, 0x7FC00001, 0x7F800000, 0x80000000, 0], np.uint32).view(np.float32)
    other = np.array([0x7FC00000, 0x7FC00002, 0x7F800000, 0x00000000, 0x7FC00000], np.uint32).view(np.float32)
    for name, v in (("a", nan), ("b", other)):
        ckpress.save(tmp_path / f"{name}.ckp", {"x": v})
    got = by_name(diff(tmp_path / "a.ckp", tmp_path / "b.ckp"))["x"]
    assert (got["differ"], got["not_finite"], got["max_abs"], got["rms"]) == (3, 2, 0, 0)
    assert diff(tmp_path / "a.ckp", tmp_path / "a.ckp")["identical"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two saves of a training, and a .pt of each beside them."""
    where = tmp_path_factory.mktemp("diff")
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(where / "run") as ck:
        for step in (2, 4):
            steps(model, optimizer, scheduler, 2)
            ck.save(step, model=model, optimizer=optimizer, scheduler=scheduler)
            ck.wait()
    for step in (2, 4):
        ckpress.decompress(f"{where / 'run'}@{step}", where / f"{step}.pt")
    return where


def test_what_is_identical(run):
    ckpress.compress(run / "2.pt")
    assert diff(run / "2.ckp", run / "2.pt")["identical"] and diff(run / "2.pt", run / "2.ckp")["identical"]
    assert diff(run / "run", f"{run / 'run'}@4")["identical"]
    got = by_name(diff(f"{run / 'run'}@2", run / "2.pt"))
    assert {t["kind"] for n, t in got.items() if n.startswith("model/")} == {"identical"}


def test_one_object_of_a_run(run):
    """Its weights against themselves, against the other step's, and against files of weights alone."""
    weights = torch.load(run / "2.pt", weights_only=False)["model"]
    torch.save(weights, run / "w.pt")
    save_file({k: v.clone() for k, v in weights.items()}, run / "w.safetensors")
    at = f"{run / 'run'}@2"
    for other in (at, run / "w.pt", run / "w.safetensors", run / "2.pt"):
        for args in ((at, other), (other, at)):
            got = diff(*args, "--only", "model")
            assert got["identical"] and got["values"] == [] and set(by_name(got)) == set(weights), args
    whole, part = by_name(diff(at, f"{run / 'run'}@4")), by_name(diff(at, f"{run / 'run'}@4", "--only", "model"))
    assert part == {n: {**whole[f"model/{n}"], "name": n} for n in weights}
    done = subprocess.run([COMMAND, "diff", at, at, "--only", "mode"], capture_output=True, text=True)
    assert done.returncode == 2 and "'mode/...'" in done.stderr


def test_a_training(run):
    got = diff(f"{run / 'run'}@2", f"{run / 'run'}@4")
    a, b = (torch.load(run / f"{s}.pt", weights_only=False) for s in (2, 4))
    tensors = by_name(got)
    for name, v in a["model"].items():
        check(tensors[f"model/{name}"], v.detach().numpy(), b["model"][name].detach().numpy())
    assert tensors["model/frozen"]["kind"] == "identical" and tensors["model/frozen"]["role"] == "weight"
    assert [tensors[n]["alias"] for n in ("model/embed.weight", "model/head.weight")] in ([False, True], [True, False])
    values = {v["path"]: (v["a"], v["b"]) for v in got["values"]}
    assert values["scheduler/last_epoch"] == ("2", "4")
    assert all(values[p][0] != values[p][1] for p in values)
    lr = next(p for p in values if p.endswith("param_groups/0/lr"))
    assert [float(x) for x in values[lr]] == [a["optimizer"]["param_groups"][0]["lr"], b["optimizer"]["param_groups"][0]["lr"]]
    assert not any(p.startswith("model") for p in values)
    # by role: sums over the tensors, each once
    w = [t for t in got["tensors"] if t["role"] == "weight" and not t["alias"]]
    role = got["roles"]["weight"]
    assert role["tensors"] == len(w) and role["elements"] == sum(t["elements"] for t in w) and role["differ"] == sum(t["differ"] for t in w)
    assert role["rms"] == pytest.approx((sum(t["rms"] ** 2 * t["elements"] for t in w) / role["elements"]) ** 0.5, rel=1e-9)
    assert role["max_abs"] == max(t["max_abs"] for t in w)
    order = [t["relative"] for t in got["tensors"] if t["kind"] == "differs"]
    assert order == sorted(order, reverse=True)


def test_values(tmp_path):
    a = {"step": 1, "lr": 1e-3, "same": [1, 2], "name": "x", "long": "a" * 3000, "gone": None, "big": 1 << 70, "odd/key": {3: 1.5}, "flag": True,
         "c": 1 + 2j, "bytes": b"ab", "empty": {}, "np": np.float32(0.1), "size": torch.Size([2, 3]), "dtype": torch.float16, 7: "int key"}
    b = dict(a, step=1.0, lr=2e-3, name="y", long="a" * 2999 + "b", big=1 << 71, c=1 - 2j, bytes=b"ac", empty={"k": ()}, np=np.float32(0.2), dtype=torch.bfloat16,
             flag=1, size=torch.Size([2, 4]))
    b["odd/key"] = {3: 2.5}
    del b["gone"]
    ckpress.save(tmp_path / "a.ckp", a)
    ckpress.save(tmp_path / "b.ckp", b)
    values = {v["path"]: (v["a"], v["b"]) for v in diff(tmp_path / "a.ckp", tmp_path / "b.ckp")["values"]}
    long_a, long_b = values.pop("long")
    assert long_a.startswith('"aaa') and "3000 bytes" in long_a and long_a != long_b
    assert values.pop("big")[0].startswith("0x")
    assert values == {
        "step": ("1", "1.0"), "lr": ("0.001", "0.002"), "name": ('"x"', '"y"'), "gone": ("None", None), "odd~1key/3": ("1.5", "2.5"), "flag": ("True", "1"),
        "c": ("1.0 + 2.0i", "1.0 + -2.0i"), "bytes": ("0x6162", "0x6163"), "empty": ("{}", None), "empty/k": (None, "()"), "size/1": ("3", "4"),
        "np": ("0.10000000149011612 (numpy.float32)", "0.20000000298023224 (numpy.float32)"), "dtype": ("torch.float16", "torch.bfloat16")}  # fmt: skip


def test_safetensors_metadata(tmp_path):
    save_file({"w": torch.ones(3)}, tmp_path / "a.safetensors", metadata={"format": "pt", "note": "one", "only": "a"})
    save_file({"w": torch.ones(3)}, tmp_path / "b.safetensors", metadata={"note": "two", "format": "pt"})
    got = diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert [(v["path"], v["a"], v["b"]) for v in got["values"]] == [("__metadata__/note", '"one"', '"two"'), ("__metadata__/only", '"a"', None)]
    assert got["counts"]["identical"] == 1 and not got["identical"]


@pytest.mark.parametrize("kind", ["ckp", "safetensors"])
def test_memory_does_not_grow(tmp_path, kind):
    """Two files with a tensor of 160 MB each, in an address space of 128 MB."""
    for name in ("a", "b"):
        save_file({"w": torch.randn(20, 1 << 21)}, tmp_path / f"{name}.safetensors")
        if kind == "ckp":
            ckpress.compress(tmp_path / f"{name}.safetensors")
    limit = f"ulimit -v 131072; exec {COMMAND} diff {tmp_path}/a.{kind} {tmp_path}/b.{kind}"
    done = subprocess.run(["sh", "-c", limit], capture_output=True, text=True)
    assert done.returncode == 0 and "1 differ" in done.stdout, done.stderr


@pytest.mark.parametrize("kind", ["safetensors", "pt", "ckp"])
def test_every_truncation_is_told(tmp_path, kind):
    a, b = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    tensors = {"w": torch.randn(50, 40), "v": torch.arange(90)}
    if kind == "safetensors":
        save_file(tensors, a)
    elif kind == "pt":
        torch.save(tensors, a)
    else:
        ckpress.save(a, tensors)
    whole = a.read_bytes()
    for n in [*range(0, len(whole), 397), len(whole) - 1]:
        b.write_bytes(whole[:n])
        for args in ((a, b), (b, a)):
            done = subprocess.run([COMMAND, "diff", *map(str, args)], capture_output=True, text=True)
            assert done.returncode in (3, 4) and str(b) in done.stderr, (n, done)
