# SPDX-License-Identifier: Apache-2.0
"""Bad input: a typed error that names the file, never a crash, never wrong data (rows 7, 57, 85)."""

from __future__ import annotations

import random

import ckpress
import pytest
import torch
from helpers import same
from hypothesis import given
from hypothesis import strategies as st

STATE = {"w": torch.arange(3000.0).sin(), "i": torch.arange(500), "name": "x", "nested": [{"a": (1, 2.5)}]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "x.ckp"
    ckpress.save(path, STATE)
    return path.read_bytes()


def check(path, raw):
    """Loads damaged bytes: the state as it was, or a typed error."""
    path.write_bytes(raw)
    try:
        got = ckpress.load(path)
    except ckpress.Error as e:
        assert str(path.name) in str(e), str(e)
        assert e.code and e.status < 0
    else:
        assert same(got, STATE), "wrong data without a word"


def test_every_kind_of_truncation(path, whole):
    cuts = {0, 1, 7, 8, 63, 64, len(whole) - 1, *random.Random(1).sample(range(len(whole)), 60)}
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(ckpress.Error) as caught:
            ckpress.load(path)
        assert isinstance(caught.value, (ckpress.CorruptError, ckpress.FormatError)), (cut, caught.value)
        assert caught.value.file


@given(seed=st.integers(0, 1 << 32))
def test_flipped_bits(tmp_path_factory, whole, seed):
    at = random.Random(seed)
    raw = bytearray(whole)
    for _ in range(at.choice([1, 1, 1, 3, 40])):
        raw[at.randrange(len(raw))] ^= 1 << at.randrange(8)
    check(tmp_path_factory.getbasetemp() / "flip.ckp", bytes(raw))


def test_more_bytes(path, whole):
    for more in (b"\0", b"\0" * 4096, whole):
        path.write_bytes(whole + more)
        with pytest.raises(ckpress.Error):
            ckpress.load(path)


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04", b"hello world" * 99, b"\x80\x02}q\x00."], ids=["empty", "zip", "text", "pickle"])
def test_not_a_file_of_ours(path, raw):
    path.write_bytes(raw)
    with pytest.raises(ckpress.Error):
        ckpress.load(path)


def test_wrong_base(tmp_path):
    """Row 85: another file of the same shapes is not the base."""
    t = torch.randn(20_000)
    ckpress.save(tmp_path / "a.ckp", {"t": t})
    ckpress.save(tmp_path / "other.ckp", {"t": t + 1})
    t[3] += 1
    ckpress.save(tmp_path / "b.ckp", {"t": t}, base=tmp_path / "a.ckp")
    assert same(ckpress.load(tmp_path / "b.ckp", base=tmp_path / "a.ckp")["t"], t)
    for base in (None, tmp_path / "other.ckp", tmp_path / "b.ckp"):
        with pytest.raises(ckpress.BaseMismatchError):
            ckpress.load(tmp_path / "b.ckp", base=base)


def test_not_there(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        ckpress.load(tmp_path / "no.ckp")
    assert isinstance(caught.value, ckpress.NotFoundError) and caught.value.errno and "no.ckp" in str(caught.value)
    with pytest.raises(ckpress.Error):
        ckpress.load(tmp_path / "run@100")


def test_overwrite(path):
    ckpress.save(path, {"a": 1})
    with pytest.raises(FileExistsError):
        ckpress.save(path, {"a": 2}, overwrite=False)
    with ckpress.open(path) as old:
        ckpress.save(path, {"a": 3})  # row 57: over the file that is open
        assert old.load() == {"a": 1}
    assert ckpress.load(path) == {"a": 3}
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_verify(path, whole):
    path.write_bytes(whole)
    for level in ("structure", "data", "decode"):
        assert all(f.error is None for f in ckpress.verify(path, level=level))
    raw = bytearray(whole)
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ckpress.CorruptError) as caught:
        ckpress.verify(path)
    assert caught.value.file
    with pytest.raises(ckpress.InvalidError):
        ckpress.verify(path, level="all")


def test_salvage(tmp_path, whole):
    path = tmp_path / "x.ckp"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    rows = ckpress.salvage(path, tmp_path / "out")
    assert {r.tensor for r in rows} >= {"w"} and all(0 <= r.have <= r.of for r in rows)


def test_stop_in_the_middle(path):
    seen = []

    def progress(done, total):
        seen.append((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ckpress.save(path, {"t": torch.randn(8_000_000)}, progress=progress)
    assert seen and not list(path.parent.iterdir())


def _steps(run):
    return sorted(p for p in run.iterdir() if p.name.startswith("step-"))


def _saved(run, steps):
    with ckpress.Checkpointer(run, rng=False) as ck:
        for step in range(1, steps + 1):
            ck.save(step, state={"w": torch.arange(5000.0).sin() + step * 1e-4}, wait=True)


def _move_away(path, to):
    path.rename(to)
    path.symlink_to(to)


def test_a_linked_checkpoint_is_not_followed_and_not_forgotten(tmp_path):
    """Somebody has moved the newest to another disk: a restore says so, and its bases stay."""
    run, away = tmp_path / "run", tmp_path / "away"
    _saved(run, 4)
    newest = _steps(run)[-1]
    _move_away(newest, away)
    state = {"w": torch.zeros(5000)}
    with ckpress.Checkpointer(run, rng=False, keep_last=1, final_on_close=False) as ck:
        with pytest.warns(RuntimeWarning, match="a symbolic link in the place"):
            assert ck.restore(state=state) == 3
        with pytest.warns(RuntimeWarning, match="nothing is deleted while"):
            ck.save(9, state=state, key=True, wait=True)
    assert [(row.step, row.fate) for row in ckpress.repair(run).checkpoints] == [(4, "left")]
    newest.unlink()
    away.rename(newest)
    assert all(row.health == "ok" for row in ckpress.list_run(run)) and len(ckpress.list_run(run)) == 5


def test_a_run_whose_checkpoints_are_all_linked_is_no_new_one(tmp_path):
    run = tmp_path / "run"
    _saved(run, 2)
    for i, path in enumerate(_steps(run)):
        _move_away(path, tmp_path / str(i))
    with ckpress.Checkpointer(run, rng=False, final_on_close=False) as ck, pytest.raises(ckpress.NotFoundError, match="links are not followed"):
        ck.restore(state={"w": torch.zeros(5000)})
    with pytest.raises(ckpress.CorruptError):
        ckpress.verify(run)



def test_a_run_of_which_nothing_is_whole(tmp_path):
    """Training from scratch is not what was meant; what is damaged, and where, is what its user has to know."""
    run = tmp_path / "run"
    with ckpress.Checkpointer(run, rng=False) as ck:
        for step in (1, 2):
            ck.save(step, w=torch.arange(3000.0).sin() + step, wait=True)
    shard = sorted(run.glob("step-*1-*/*.ckp"))[0]
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 4
    shard.write_bytes(raw)
    live = torch.zeros(3000)
    with ckpress.Checkpointer(run, rng=False) as ck:
        with pytest.raises(ckpress.NotFoundError, match=rf"\(2\) but none is whole \({shard.parent.name}/{shard.name}: w: .*at byte \d+\)"):
            ck.restore(w=live)
    assert not live.any()
