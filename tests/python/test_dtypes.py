# SPDX-License-Identifier: Apache-2.0
"""Every element type, shape and stride comes back bit for bit (rows 33, 59, 60, 61, 80)."""

from __future__ import annotations

import ckpress
import ml_dtypes
import numpy as np
import pytest
import torch
from ckpress import _dtypes
from helpers import bits, same
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def through(path, obj, **how):
    ckpress.save(path, obj, **how)
    return ckpress.load(path)


TORCH = sorted({str(v) for v in vars(torch).values() if isinstance(v, torch.dtype)})


def random_torch(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    raw = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8)
    if dtype == torch.bool:
        return raw[..., 0] > 127
    t = torch.empty(shape, dtype=dtype)
    if t.numel():
        t.untyped_storage().copy_(raw.flatten().untyped_storage())
    return t


@pytest.mark.parametrize("name", TORCH)
def test_every_torch_dtype(path, name):
    dtype = getattr(torch, name.removeprefix("torch."))
    if name.startswith(("torch.q", "torch.quint")):
        return  # test_quantized
    obj = {"a": random_torch(dtype, (7, 5)), "scalar": random_torch(dtype, ()), "empty": random_torch(dtype, (0, 3))}
    got = through(path, obj)
    for key, t in obj.items():
        assert got[key].dtype == dtype and got[key].shape == t.shape
        assert bytes(got[key].untyped_storage()) == bytes(t.untyped_storage())


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_quantized(path, dtype):
    x = torch.randn(4, 6)
    obj = {
        "tensor": torch.quantize_per_tensor(x, 0.1, 3, dtype),
        "channel": torch.quantize_per_channel(x, torch.rand(4).double() + 0.1, torch.zeros(4, dtype=torch.long), 0, dtype),
    }
    got = through(path, obj)
    for key, t in obj.items():
        assert got[key].dtype == dtype and got[key].qscheme() == t.qscheme() and torch.equal(got[key].int_repr(), t.int_repr())
        assert torch.equal(got[key].dequantize(), t.dequantize())


NUMPY = [np.dtype(c) for c in "?bBhHiIlLqQefdgFDG"]
ML = [np.dtype(getattr(ml_dtypes, n)) for n in _dtypes.ML_DTYPES if hasattr(ml_dtypes, n)]
ODD = [
    np.dtype(d) for d in (">f4", ">i2", "M8[ns]", "M8[D]", "m8[25s]", "S7", "U5", "V3", ">c8", [("a", "i4"), ("b", ">f8", (2,))], ">M8[us]")
]


@pytest.mark.parametrize("dtype", NUMPY + ML + ODD, ids=str)
def test_every_numpy_dtype(path, dtype):
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 2 if dtype.kind == "b" else 256, 15 * dtype.itemsize, dtype=np.uint8)
    if dtype.kind == "U":
        raw[:] = 65
        raw.view("u4")[:] = 65
    if dtype in ML and dtype.itemsize == 1 and dtype.name.startswith(("int", "uint", "float4", "float6")):
        raw &= 1  # bits beyond the number are not the type's
    a = raw.view(dtype)[:15].reshape(3, 5)
    obj = {"a": a, "scalar": a[:1, :1].reshape(()), "empty": a[:0], "rows": a[::-1, ::2]}
    assert same(through(path, obj), obj)


@settings(max_examples=100)
@given(
    a=hnp.arrays(
        dtype=st.sampled_from([np.dtype("f4"), np.dtype("f8"), np.dtype("i2"), np.dtype("u1"), np.dtype("c8")]),
        shape=hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6),
    )
)
def test_arrays(tmp_path_factory, a):
    path = tmp_path_factory.getbasetemp() / "array.ckp"
    t = torch.from_numpy(a.copy())
    assert same(through(path, [a, t]), [a, t])


STRIDED = {
    "transposed": lambda: torch.arange(35.0).view(5, 7).t(),
    "every second": lambda: torch.arange(40.0)[::2],
    "expanded": lambda: torch.arange(5.0).unsqueeze(1).expand(5, 4),
    "expanded from nothing": lambda: torch.tensor(3.5).expand(3, 2),
    "channels last": lambda: torch.arange(120.0).view(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "conjugate": lambda: torch.view_as_complex(torch.arange(12.0).view(6, 2)).conj(),
    "negative": lambda: torch.view_as_complex(torch.arange(12.0).view(6, 2)).conj().imag,
    "real part": lambda: torch.view_as_real(torch.randn(4, dtype=torch.complex64))[:, 1],
    "middle of a buffer": lambda: torch.arange(1000.0)[100:110],
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides(path, name):
    t = STRIDED[name]()
    got = through(path, {"t": t})["t"]
    assert got.shape == t.shape and bits(got) == bits(t)


def test_negative_numpy_strides_and_field_views(path):
    a = np.arange(24.0).reshape(4, 6)
    fields = np.zeros(9, dtype=[("x", "i1"), ("y", "f4")])
    fields["y"] = np.arange(9)
    obj = [a[::-1], a[:, ::-2], np.flip(a), fields["y"], np.broadcast_to(np.float32(2), (3, 4)), np.asfortranarray(a)]
    assert same(through(path, obj), obj)


def test_views_of_one_buffer_cost_their_elements(path):
    """Row 64: 200 views of a big buffer."""
    buffer = torch.randn(4_000_000)
    ckpress.save(path, [buffer[i * 1000 : i * 1000 + 500] for i in range(200)])
    assert path.stat().st_size < 200 * 500 * 4 + 100_000


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_not_finite(path, dtype):
    """Every NaN payload, infinity, negative zero and denormal that fits 16 bits; a sample beyond."""
    size = getattr(torch, dtype).itemsize
    words = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16) if size >= 2 else torch.arange(256, dtype=torch.uint8)
    raw = words.view(torch.uint8)
    if size > 2:
        high = raw.view(-1, 2)
        raw = torch.cat([torch.randint(0, 256, (len(high), size - 2), dtype=torch.uint8), high], 1).flatten()
    t = raw.view(getattr(torch, dtype))
    assert bits(through(path, t)) == bits(t)


def test_a_state_of_many_dimensions(path):
    a = np.arange(2.0).reshape((1,) * 31 + (2,))
    assert same(through(path, a), a)


@pytest.mark.parametrize("wrap", [torch.nn.Parameter, lambda t: t.requires_grad_()])
def test_sparse_tensors_with_gradients_are_refused(path, wrap):
    t = torch.eye(3).to_sparse()
    with pytest.raises(ckpress.UnsupportedError, match=r"\['k'\]: cannot save a sparse tensor that requires gradients"):
        ckpress.save(path, {"k": wrap(t)})
    ckpress.save(path, {"k": t.detach()})


def test_no_framework_has_it(path):
    ckpress.save(path, {"a": np.arange(3, dtype="g")})
    with pytest.raises(ckpress.UnsupportedError, match="f128"):
        ckpress.load(path, framework="torch")


def test_frameworks(path):
    obj = {"t": torch.arange(6.0).view(2, 3), "n": np.arange(4)}
    ckpress.save(path, obj)
    as_torch, as_numpy, raw = (ckpress.load(path, framework=f) for f in ("torch", "numpy", "buffer"))
    assert all(isinstance(v, torch.Tensor) for v in as_torch.values()) and all(isinstance(v, np.ndarray) for v in as_numpy.values())
    assert raw["t"].tolist() == [[0, 1, 2], [3, 4, 5]] and raw["n"].tolist() == [0, 1, 2, 3]


ONLY = {
    "sparse": (torch.eye(3).to_sparse(), ("numpy", "buffer")),
    "quantized": (torch.quantize_per_tensor(torch.ones(2), 0.1, 3, torch.qint8), ("numpy", "buffer")),
    "opaque": (torch.empty(2, dtype=torch.bits1x8), ("numpy", "buffer")),
    "dates": (np.array(["2020-01-01"], dtype="M8[D]"), ("torch", "buffer")),
    "records": (np.zeros(2, dtype=[("a", "i4")]), ("torch", "buffer")),
}


@pytest.mark.parametrize("name", ONLY)
def test_what_a_framework_cannot_hold(path, name):
    """It is whole, and says so."""
    value, others = ONLY[name]
    ckpress.save(path, {"x": value, "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False)})
    for framework in others:
        with pytest.raises(ckpress.UnsupportedError, match="no other framework has it|nothing installed here has"):
            ckpress.load(path, framework=framework)
    assert type(ckpress.load(path)["frozen"]) is torch.nn.Parameter


def test_a_frozen_parameter_as_an_array(path):
    ckpress.save(path, {"frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False)})
    assert same(ckpress.load(path, framework="numpy")["frozen"], np.ones(2, "f4"))
    assert ckpress.load(path, framework="buffer")["frozen"].tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("?"), np.dtype("c8"), np.dtype(ml_dtypes.bfloat16)], ids=str)
@pytest.mark.parametrize("first", [0, 1])
def test_torch_and_numpy_over_the_same_memory(path, dtype, first):
    """Both come back as what they were, and still share it."""
    raw = np.arange(48, dtype=np.uint8) % 2 if dtype == bool else np.arange(48, dtype=np.uint8)
    a = raw.view(dtype).reshape(2, -1)
    both = [a, torch.from_numpy(raw).view(_dtypes.to_torch(_dtypes.of_numpy(dtype))).reshape(a.shape)]
    obj = both[::-1] if first else both
    got = through(path, obj)
    assert same(got, obj)
    got[first][:] = 0
    assert not bits(got[1 - first]).strip(b"\0")
    assert all(isinstance(t, torch.Tensor) for t in ckpress.load(path, framework="torch"))


def test_bytes_and_arrays_over_the_same_memory(path):
    whole = bytes(range(256)) * 4
    obj = {"t": torch.frombuffer(bytearray(8), dtype=torch.uint8), "b": whole, "n": np.frombuffer(whole, dtype=np.uint8), "m": memoryview(whole)}
    got = through(path, obj)
    assert type(got["b"]) is bytes and got["b"] == whole and same(got["n"], obj["n"]) and got["m"] == whole and same(got["t"], obj["t"])


@pytest.fixture
def elsewhere():
    """As torch.set_default_device("cuda") does, tensors that nobody gives a device lie where the library cannot write."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_the_default_device_does_not_matter(run, elsewhere):
    with torch.device("cpu"):
        model = torch.nn.Linear(40, 40)
        optimizer = ckpress.torch.AdamW(model.parameters(), lr=0.1)
        tensors = {"t": torch.arange(4.0), "sparse": torch.eye(3).to_sparse(), "csr": torch.eye(3).to_sparse_csr()}
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    with ckpress.Checkpointer(run) as ck:
        ck.save(1, model=model, optimizer=optimizer, tensors=tensors)
        before = model.weight.detach().clone()
        optimizer.step()
        live = {}
        assert ck.restore(model=model, optimizer=optimizer, tensors=live) == 1
    assert torch.equal(model.weight, before) and len(optimizer.state_dict()["state"]) == 2
    assert torch.equal(live["t"], tensors["t"]) and torch.equal(live["sparse"].to_dense(), live["csr"].to_dense()) and live["csr"].device.type == "cpu"
    assert optimizer.torch_state_dict()["state"][0]["exp_avg"].device.type == "cpu"


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("default", ["elsewhere", "double"])
def test_weights_whatever_the_default_is(tmp_path, default, request):
    with torch.device("cpu"):
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 64))
        batches = [torch.randn(8, 64) for _ in range(6)]
    request.getfixturevalue(default)
    made = ckpress.save_weights(tmp_path / "w.ckp", model, calibrate=batches, ratio=3)
    assert made.error < 0.1
    ckpress.load_weights(tmp_path / "w.ckp", model)
    assert torch.equal(model[0].weight, made.weights["0.weight"])
