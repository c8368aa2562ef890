# SPDX-License-Identifier: Apache-2.0
"""Reading parts of a file: any index gives what torch and numpy would give, and no more is read than is needed."""

from __future__ import annotations

import ckpress
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    path = tmp_path_factory.mktemp("lazy") / "x.ckp"
    t = torch.randn(50, 6, 4)
    ckpress.save(path, {"t": t, "n": t.numpy(), "scalar": torch.tensor(3.0), "empty": torch.zeros(0, 3)})
    with ckpress.open(path) as f:
        yield f, t


slices = st.builds(slice, st.none() | st.integers(-60, 60), st.none() | st.integers(-60, 60), st.none() | st.integers(1, 7))
indexes = st.one_of(
    st.integers(-50, 49),
    slices,
    st.just(Ellipsis),
    st.tuples(st.integers(-50, 49), st.integers(-6, 5)),
    st.tuples(st.integers(-50, 49), slices),
    st.tuples(slices, slices, st.integers(0, 3)),
    st.tuples(st.integers(-50, 49), st.integers(-6, 5), slices),
    st.tuples(st.just(Ellipsis), st.integers(0, 3)),
    st.lists(st.integers(0, 49), min_size=1, max_size=4),
    st.tuples(st.none(), slices),
)


@given(index=indexes)
def test_every_index(opened, index):
    f, t = opened
    assert torch.equal(f["t"][index], t[index])
    got = f["n"][index]
    assert isinstance(got, (np.ndarray, np.generic)) and np.array_equal(got, t.numpy()[index])


def test_edges(opened):
    f, t = opened
    assert f["scalar"][()].item() == 3.0 and f["scalar"].read().shape == () and f["empty"][0:0].shape == (0, 3)
    assert len(f["t"]) == 50 and f["t"].ndim == 3 and f["t"].dtype == "f32" and torch.equal(f["t"].read(), t)
    assert np.array_equal(np.asarray(f["t"]), t.numpy())
    for bad in (50, -51, (0, 6)):
        with pytest.raises(IndexError):
            f["t"][bad]
    with pytest.raises(ValueError):
        f["t"][::-1]
    with pytest.raises(KeyError):
        f["no"]
    with pytest.raises(TypeError):
        len(f["scalar"])


def test_mapping(opened):
    f, _ = opened
    assert sorted(f) == ["empty", "n", "scalar", "t"] and len(f) == 4 and "t" in f and set(f.keys()) == set(f)


def test_only_what_is_asked_for_is_read(tmp_path):
    """Damage elsewhere in the tensor does not matter to a slice."""
    path = tmp_path / "x.ckp"
    t = torch.randn(8, 1 << 20)
    ckpress.save(path, {"t": t})
    raw = bytearray(path.read_bytes())
    raw[len(raw) * 3 // 4] ^= 1
    path.write_bytes(raw)
    with ckpress.open(path) as f:
        assert torch.equal(f["t"][0], t[0]) and torch.equal(f["t"][1, 5:9], t[1, 5:9])
        with pytest.raises(ckpress.CorruptError):
            f["t"].read()


def test_closed(tmp_path):
    ckpress.save(tmp_path / "x.ckp", {"t": torch.ones(3)})
    f = ckpress.open(tmp_path / "x.ckp")
    t = f["t"]
    f.close()
    f.close()
    with pytest.raises(ValueError, match="closed"):
        t[:]
    assert "closed" in repr(f)


def test_threads(opened):
    from concurrent.futures import ThreadPoolExecutor

    f, t = opened
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda i: f["t"][i % 50], range(400)))
    assert all(torch.equal(row, t[i % 50]) for i, row in enumerate(rows))


def test_rows_of_a_delta(tmp_path):
    t = torch.randn(100, 1000)
    ckpress.save(tmp_path / "a.ckp", {"t": t})
    t[50] += 1
    ckpress.save(tmp_path / "b.ckp", {"t": t}, base=tmp_path / "a.ckp")
    assert (tmp_path / "b.ckp").stat().st_size * 5 < (tmp_path / "a.ckp").stat().st_size
    with ckpress.open(tmp_path / "b.ckp", base=tmp_path / "a.ckp") as f:
        assert torch.equal(f["t"][49:52], t[49:52])


def test_looking_at_all_names_parses_once(tmp_path, monkeypatch):
    """The tree was gone through for each name: a minute for ten thousand of them."""
    from ckpress import _file

    ckpress.save(tmp_path / "x.ckp", {str(i): torch.ones(1) for i in range(50)})
    calls, leaves = [], _file.leaves
    monkeypatch.setattr(_file, "leaves", lambda raw: calls.append(1) or leaves(raw))
    with ckpress.open(tmp_path / "x.ckp") as f:
        assert {name: f[name].shape for name in f} == {str(i): (1,) for i in range(50)}
    assert len(calls) == 1
