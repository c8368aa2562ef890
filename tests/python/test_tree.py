# SPDX-License-Identifier: Apache-2.0
"""Plain values: everything that is saved comes back as it was; everything else is refused by its path."""

from __future__ import annotations

import array
import collections
import ctypes
import enum
import io
import math

import ckpress
import numpy as np
import pytest
import torch
from helpers import same
from hypothesis import given, settings
from hypothesis import strategies as st


def through(path, obj):
    ckpress.save(path, obj)
    return ckpress.load(path)


floats = st.one_of(st.floats(allow_nan=False), st.just(math.nan), st.just(-0.0))
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), floats, st.complex_numbers(allow_nan=False), st.text(max_size=20), st.binary(max_size=600)
)
keys = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.tuples(st.integers(), st.text(max_size=3)),
)
numpy_scalars = st.sampled_from(
    [
        np.float32(1.5),
        np.int8(-3),
        np.bool_(True),
        np.complex128(1 + 2j),
        np.float16(np.nan),
        np.datetime64("2020-01-02T03", "h"),
        np.str_("abc"),
        np.bytes_(b"xy"),
    ]
)
torch_values = st.sampled_from(
    [torch.Size([2, 3]), torch.float32, torch.bfloat16, torch.device("cpu"), torch.device("cuda:1"), np.dtype("float64"), np.dtype(">i4")]
)
leaves = st.one_of(scalars, numpy_scalars, torch_values)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(keys, inner, max_size=5),
        st.dictionaries(keys, inner, max_size=5).map(collections.OrderedDict),
        st.frozensets(keys, max_size=5),
        st.sets(keys, max_size=5),
        st.lists(inner, max_size=4).map(lambda v: collections.deque(v, maxlen=9)),
    ),
    max_leaves=25,
)


@settings(max_examples=250)
@given(tree=trees)
def test_trees(tmp_path_factory, tree):
    path = tmp_path_factory.getbasetemp() / "tree.ckp"
    assert same(through(path, tree), tree)


@pytest.mark.parametrize(
    "value",
    [
        collections.Counter("abca"),
        collections.defaultdict(list, {"a": [1]}),
        collections.defaultdict(None, {"a": 1}),
        collections.deque([1, "x"], maxlen=4),
        bytearray(b"abc" * 500),
        b"x" * 100_000,
        (3, tuple(range(625)), None),
        1 << 4000,
        -(1 << 63),
        -(1 << 63) - 1,
        array.array("d", [1.0, math.inf, -0.0]),
        array.array("b", [-1, 2]),
        "surrogate \udc80 and NUL \0",
        {"": 1, "a/b": 2, "~": 3},
    ],
    ids=lambda v: type(v).__name__,
)
def test_known_types(path, value):
    got = through(path, {"v": value})["v"]
    assert type(got) is type(value) and got == value
    if isinstance(value, collections.defaultdict):
        assert got.default_factory is value.default_factory
    if isinstance(value, collections.deque):
        assert got.maxlen == value.maxlen


def test_bytes_io(path):
    got = through(path, {"extra": io.BytesIO(b"opaque" * 99)})["extra"]
    assert isinstance(got, io.BytesIO) and got.getvalue() == b"opaque" * 99


def test_memoryview(path):
    m = memoryview(bytes(range(24))).cast("H", [3, 4])
    got = through(path, m)
    assert got.format == "H" and got.shape == (3, 4) and got.tobytes() == m.tobytes()


@pytest.mark.parametrize("framework", [None, "torch", "numpy", "buffer"])
def test_buffers_whatever_the_framework(path, framework):
    """Their elements are read as bytes, not one by one as the framework's."""
    obj = {"array": array.array("d", [1.5, -300.0]), "ints": array.array("q", [1 << 40]), "view": memoryview(array.array("f", [0.5] * 6)).cast("B").cast("f", [2, 3])}
    ckpress.save(path, obj)
    got = ckpress.load(path, framework=framework)
    assert got["array"] == obj["array"] and got["ints"] == obj["ints"]
    assert (got["view"].format, got["view"].shape, got["view"].tolist()) == ("f", (2, 3), obj["view"].tolist())
    with ckpress.open(path) as f:
        assert isinstance(f["array"].read(), np.ndarray)


@pytest.mark.parametrize("view", [(ctypes.c_int * 3)(1, 2, 3), (ctypes.c_double * 2)(0.5, 1), ((ctypes.c_int * 3) * 0)(), ((ctypes.c_short * 0) * 3)(), (ctypes.c_long * 0)()])
def test_buffers_that_name_their_order_or_are_empty(path, view):
    view = memoryview(view)
    got = through(path, view)
    assert (got.format.lstrip("<"), got.shape, got.tobytes()) == (view.format.lstrip("<"), view.shape, view.tobytes())
    assert through(path, got).shape == view.shape


def test_attributes_of_a_state_dict(path):
    state = torch.nn.BatchNorm1d(3).state_dict()
    got = through(path, state)
    assert type(got) is collections.OrderedDict and got._metadata == state._metadata and same(dict(got), dict(state))
    torch.nn.BatchNorm1d(3).load_state_dict(got)


def saved_as(path, name, value):
    """A file with a NAMED value that save() would not make."""
    from ckpress import _coding, _core
    from ckpress._collect import Collector

    collector = Collector({})
    collector.named(name, value, ())
    _core.save(path, collector.done(), _coding.coding("lossless", 1.0, 0, 0, None), None, True, None)
    return path


FORGED = {"data": (8, False), "shape": (4,), "typestr": "|u1", "version": 3}


@pytest.mark.parametrize(("name", "value"), [("collections.OrderedDict", collections.OrderedDict(a=1)), ("torch.attributes", torch.ones(2))])
def test_attributes_that_others_believe(path, name, value):
    """numpy reads whatever address ``__array_interface__`` says."""
    attrs = {"__array_interface__": FORGED}
    saved_as(path, name, (value, attrs) if name.startswith("collections") else (value, "torch.Tensor", attrs))
    with pytest.raises(ckpress.CorruptError, match="bad attribute"):
        ckpress.load(path)
    state = collections.OrderedDict(a=1)
    state.__array_interface__ = FORGED
    with pytest.raises(ckpress.UnsupportedError, match=r"\['k'\].__array_interface__: cannot save an attribute"):
        ckpress.save(path, {"k": state})


class Color(enum.IntEnum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "value",
    [
        Color.RED,
        Pair(1, 2),
        object(),
        lambda: 0,
        type,
        np.array([object()]),
        np.ma.masked_array([1], [True]),
        collections.ChainMap(),
        collections.defaultdict(lambda: 0),
    ],
    ids=lambda v: type(v).__name__,
)
def test_refused_by_path(path, value):
    with pytest.raises(ckpress.UnsupportedError, match=r"optimizer'\]\['groups'\]\[0\]\['foo'\]"):
        ckpress.save(path, {"optimizer": {"groups": [{"foo": value}]}})
    assert not path.exists()


def test_a_tensor_as_key_is_refused(path):
    with pytest.raises(ckpress.UnsupportedError):
        ckpress.save(path, {torch.ones(1): 1})


@pytest.mark.parametrize("depth", [99, 101, 100_000])
def test_depth(path, depth):
    value = None
    for _ in range(depth - 1):
        value = [value]
    if depth <= 100:
        assert same(through(path, value), value)
    else:
        with pytest.raises(ckpress.LimitError):
            ckpress.save(path, value)


def test_a_container_in_itself(path):
    loop = {}
    loop["loop"] = loop
    with pytest.raises(ckpress.LimitError):
        ckpress.save(path, loop)


def test_names_stay_apart(path):
    """Row 47: keys that look the same when they are flattened."""
    t = [torch.full((2,), float(i)) for i in range(9)]
    obj = {"a.b": t[0], "a": {"b": t[1], "/": t[2]}, "a/b": t[3], 0: t[4], "0": t[5], "": {"": t[6]}, "a//": t[7], "~": t[8]}
    got = through(path, obj)
    assert same(got, obj)
    with ckpress.open(path) as f:
        assert len(f) == len(set(f)) == 9


def test_long_and_odd_names(path):
    obj = {
        "x" * 5000: torch.ones(1),
        "x" * 5000 + "y": torch.zeros(1),
        "\0": torch.ones(2),
        "\ud800": torch.ones(3),
        "\u00e9": torch.ones(1),
        "e\u0301": torch.ones(2),
        "..": torch.ones(1),
    }
    assert same(through(path, obj), obj)


def test_containers_keep_their_shape(path):
    """Row 46: a list of dicts is one value, not a set of flattened keys."""
    obj = {"k": [{"a": torch.ones(1)}, {"b": 2}], "e": [], "n": {}}
    assert same(through(path, obj), obj)


def test_bytes_do_not_depend_on_the_hash_seed(tmp_path):
    import os
    import subprocess
    import sys

    files = []
    for seed in ("1", "2"):
        files.append(tmp_path / seed)
        code = f"import ckpress; ckpress.save({str(files[-1])!r}, {{'s': {{'a', 'b', 'c', 'd'}}, 'f': frozenset('xyz')}})"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert files[0].read_bytes() == files[1].read_bytes()
