# SPDX-License-Identifier: Apache-2.0
"""Several ranks that save one checkpoint together: how they talk, and which of them saves what.

The library asks for one thing, an all-gather of some bytes, from a thread of its own while a save is in flight. It runs in a process group of its own (gloo),
so that it meets no collective of the training.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ._views import torch_module
from .errors import BusyError, Error, InvalidError, MismatchError, make

WORLD = "world"


class Talk:
    """The ranks of a process group, as the library talks to them (``ckp_group`` in run_group.h). Made by all of its ranks at once.

    Args:
        group: ``"world"``, or a process group of torch.distributed; it may be one of NCCL, for it only says who belongs together.
        alike: options that must be the same on all ranks.
        alone: options that are for a single writer only, refused by name where they are given.
    """

    def __init__(self, group: Any, seconds: float, join_seconds: float, alike: Mapping[str, Any], **alone: Any) -> None:
        refused = next((name for name, given in alone.items() if given is not None), None)
        if refused is not None:
            raise make(InvalidError, f"{refused} is not for a group of writers yet")
        dist = _distributed()
        every = isinstance(group, str) and group == WORLD
        if not every and not isinstance(group, dist.ProcessGroup):
            raise make(InvalidError, f"group must be {WORLD!r} or a process group of torch.distributed, not {group!r}")
        members = list(range(dist.get_world_size())) if every else dist.get_process_group_ranks(group)
        if dist.get_rank() not in members:
            raise make(InvalidError, "this process is not in the group")
        self.seconds, self.join_seconds = float(seconds), float(join_seconds)
        self.world = len(members)
        longest = timedelta(seconds=self.join_seconds + self.seconds + 60)  # the deadlines are those of each exchange
        self._own = _within(
            lambda: dist.new_group(members, timeout=longest, backend="gloo", use_local_synchronization=not every), self.join_seconds, dist.get_rank()
        )
        self.rank = int(dist.get_rank(self._own))
        self._compare(alike)

    def _compare(self, alike: Mapping[str, Any]) -> None:
        mine = b"".join(_mark(value) for value in alike.values())
        of = self.exchange(mine, self.join_seconds)
        for i, name in enumerate(alike):
            marks = [of[rank * len(mine) + 8 * i :][:8] for rank in range(self.world)]
            other = next((rank for rank, mark in enumerate(marks) if mark != marks[0]), None)
            if other is not None:
                raise make(InvalidError, f"{name} is not the same on ranks 0 and {other} of the group")

    def exchange(self, mine: bytes, seconds: float) -> bytes:
        """What every rank has given, one after another. From one thread at a time."""
        torch = torch_module()
        assert torch is not None
        out = [torch.empty(len(mine), dtype=torch.uint8, device="cpu") for _ in range(self.world)]
        work = self._own.allgather([out], [torch.frombuffer(bytearray(mine), dtype=torch.uint8)])
        if not work.wait(timedelta(seconds=seconds)):
            raise make(BusyError, f"a rank has not answered for {seconds:g} s")
        return b"".join(ctypes.string_at(t.data_ptr(), len(mine)) for t in out)


def _mark(value: Any) -> bytes:
    """Eight bytes of a setting; of numbers, whatever their type."""
    same = float(value) if isinstance(value, (int, float)) else value
    return hashlib.blake2b(repr(same).encode(), digest_size=8).digest()


class Division:
    """Which rank saves which of the tensors that all ranks hold alike: parameters by size, each with all that belongs to it.

    Ranks decide alone, and alike: each tensor, in the order of the state, goes to the rank that has least so far. What was decided once stays, so that
    a rank's next save finds its base.
    """

    def __init__(self, rank: int, world: int) -> None:
        self._rank = rank
        self._load = [0] * world
        self._of: dict[str, int] = {}
        self._hash = hashlib.blake2b(digest_size=8)

    def begin(self) -> None:
        """A save begins."""
        self._hash = hashlib.blake2b(digest_size=8)

    def absent(self, key: str | None, name: str, dtype: str, shape: tuple[int, ...]) -> bool:
        """Whether another rank saves this tensor. ``key``: what it belongs to; None: rank 0 has it."""
        rank = 0 if key is None else self._of.get(key, -1)
        if rank < 0:
            rank = min(range(len(self._load)), key=self._load.__getitem__)
            self._of[key or ""] = rank
            count = 1
            for extent in shape:
                count *= extent
            self._load[rank] += count
        self._hash.update(repr((name, dtype, shape, rank)).encode())
        return rank != self._rank

    def alike(self) -> int:
        """A number that is the same on all ranks if they have divided the same."""
        return int.from_bytes(self._hash.digest(), "little")


def too_few(info: Mapping[str, Any], talk: Talk) -> str:
    """What to say where a checkpoint of fewer ranks has no random state for this one; "" where it has."""
    if talk.rank < info["shards"]:
        return ""
    return f"ckpress: {info['name']} has random states of {info['shards']} ranks: rank {talk.rank} keeps its own"


def status_of(problem: BaseException) -> tuple[int, str]:
    """A failure of this rank, for the others."""
    text = str(problem) or type(problem).__name__
    if isinstance(problem, Error) and problem.status < 0:
        return problem.status, text
    return make(InvalidError, "").status, f"{type(problem).__name__}: {text}"


def written_by(talk: Talk | None, division: Division | None) -> dict[str, Any]:
    """For a checkpoint of ranks: whether what all hold alike was divided among them."""
    return {} if talk is None else {"divided": division is not None}


def check_writers(meta: Mapping[str, Any], info: Mapping[str, Any], talk: Talk | None, division: Division | None) -> None:
    """What ranks have saved of their own goes back to as many ranks, or to none: others would go on with a stranger's part."""
    name, world, own = info["name"], info["shards"], talk is not None and division is None
    if "divided" not in meta:
        return
    if meta["divided"]:
        if own:
            raise make(MismatchError, f"{name}: saved by {world} ranks that have divided it: restore with divide=True")
    elif world > 1 and not (own and talk is not None and talk.world == world):
        raise make(MismatchError, f"{name}: parts of {world} ranks, each of its own (divide=False): they go back to {world} ranks with divide=False")


def _within(join: Callable[[], Any], seconds: float, rank: int) -> Any:
    """``join()``, which waits for all ranks and for as long as torch likes."""
    done: list[Any] = []

    def run() -> None:
        try:
            done.append((join(), None))
        except BaseException as e:
            done.append((None, e))

    thread = threading.Thread(target=run, name="ckpress-join", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        raise make(BusyError, f"rank {rank} has waited {seconds:g} s for all ranks of the group to open the run (join_seconds)")
    result, problem = done[0]
    if isinstance(problem, RuntimeError) and not isinstance(problem, Error):
        raise make(BusyError, f"rank {rank}: the ranks of the group did not meet: {problem}") from problem
    if problem is not None:
        raise problem
    return result


def _distributed() -> Any:
    torch = torch_module()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise make(InvalidError, "group needs torch.distributed to be initialised")
    return torch.distributed
