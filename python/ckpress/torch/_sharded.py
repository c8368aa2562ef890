# SPDX-License-Identifier: Apache-2.0
"""Parameters of which each rank has some rows (FSDP2's DTensors): which ones, and integers added up over the ranks that have the others.

Grids, factors, random numbers and decisions are the whole parameter's, so that a training does not depend on how many ranks share it. docs/decisions/0023.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import InvalidError, UnsupportedError


class Ranks(NamedTuple):
    """Who has the rest of a parameter, and where tensors are that these ranks exchange."""

    group: Any
    device: str
    size: int


@dataclasses.dataclass(frozen=True)
class Part:
    """What is here of a parameter: whole rows of the first dimension."""

    whole: tuple[int, ...]  # shape of the parameter
    row: int  # the first one that is here
    rows: int  # and how many are

    @staticmethod
    @functools.cache
    def all_of(shape: tuple[int, ...]) -> Part:
        return Part(shape, 0, shape[0] if shape else 1)

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self.whole[1:]) if self.whole else ()

    @property
    def total(self) -> int:
        return math.prod(self.whole)

    @functools.cached_property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def first(self) -> int:
        """Index in the whole parameter of the first element that is here."""
        return self.row * math.prod(self.whole[1:])


_PLAIN = (Tensor, torch.nn.Parameter)


def is_dtensor(t: Any) -> bool:
    if type(t) in _PLAIN:  # a step asks many times
        return False
    module = sys.modules.get("torch.distributed.tensor")  # whoever has such a tensor has imported it
    return module is not None and isinstance(t, module.DTensor)


def local(t: Tensor) -> Tensor:
    """Its part that is here; the tensor itself where that is all. For code without gradients."""
    return t.detach().to_local() if is_dtensor(t) else t


def place_of(p: Any, name: str) -> tuple[Part, Ranks | None]:
    """What of a parameter is here, and who has the rest; None: nobody."""
    shape = tuple(p.shape)
    if not is_dtensor(p):
        return Part.all_of(shape), None
    mesh, placements = p.device_mesh, p.placements
    shard = sys.modules["torch.distributed.tensor"].Shard
    cut = [i for i, placement in enumerate(placements) if not placement.is_replicate()]
    if len(cut) > 1 or any(type(placements[i]) is not shard or placements[i].dim != 0 for i in cut):
        raise UnsupportedError(f"{name} is placed {tuple(placements)}: state of a few bits needs whole rows, Shard(0) along one dimension of the mesh at most")
    if not cut:
        return Part.all_of(shape), None
    size, rows = mesh.size(cut[0]), p.to_local().shape[0]
    each = -(-shape[0] // size)
    row = min(shape[0], each * mesh.get_local_rank(cut[0]))
    if rows != min(each, shape[0] - row):
        raise UnsupportedError(f"{name}: {rows} rows are here where {min(each, shape[0] - row)} were expected")
    return Part(shape, row, rows), Ranks(mesh.get_group(cut[0]), mesh.device_type, size) if size > 1 else None


def refuse_expanded(p: Tensor, name: str) -> None:
    if not is_dtensor(p) and not p.is_contiguous() and any(n > 1 and step == 0 for n, step in zip(p.shape, p.stride(), strict=True)):
        raise UnsupportedError(f"{name} is expanded: several of its elements are one in memory; give its group state_bits=32")


def gradient_of(p: Any, name: str) -> Tensor:
    """Its part that is here."""
    if is_dtensor(p) != is_dtensor(p.grad) or (is_dtensor(p) and (p.grad.placements != p.placements or p.grad.device_mesh != p.device_mesh)):
        what = tuple(p.grad.placements) if is_dtensor(p.grad) else "a plain tensor"
        raise UnsupportedError(f"{name}: its gradient is not placed as it is: {what}")
    return local(p.grad)


def like(p: Any, here: Tensor, shape: tuple[int, ...]) -> Tensor:
    """As p is placed: its part of a tensor of that shape, whose rows are p's."""
    if not is_dtensor(p):
        return here
    stride = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    made: Tensor = sys.modules["torch.distributed.tensor"].DTensor.from_local(
        here, p.device_mesh, p.placements, run_check=False, shape=torch.Size(shape), stride=tuple(stride)
    )
    return made


def whole(t: Any) -> Any:
    """All of it, which every rank asks for at once."""
    return t.full_tensor() if is_dtensor(t) else t


def here(t: Any, p: Any, part: Part) -> Any:
    """Of a tensor whose rows are p's, those that are here; however it is placed."""
    if not isinstance(t, Tensor):
        return t
    if is_dtensor(t) and is_dtensor(p) and t.placements == p.placements and t.device_mesh == p.device_mesh:
        return local(t)
    t = whole(t).detach()
    return t[part.row : part.row + part.rows] if t.dim() and t.shape[0] == part.whole[0] else t


def add_up(pieces: list[tuple[Ranks | None, Tensor]]) -> int:
    """Adds int64 tensors up over their ranks, in place: one exchange for all that the same ranks share. The bytes of it."""
    taken, groups = 0, {id(ranks.group): ranks for ranks, _ in pieces if ranks is not None}
    for key, ranks in groups.items():
        mine = [t for r, t in pieces if r is not None and id(r.group) == key]
        flat = torch.cat([t.reshape(-1).to(ranks.device) for t in mine])
        torch.distributed.all_reduce(flat, group=ranks.group)
        for t, summed in zip(mine, flat.split([t.numel() for t in mine]), strict=True):
            t.copy_(summed.view(t.shape))
        taken += flat.nbytes
    return taken


def agree(who: str, said: list[tuple[Ranks, Any]]) -> int:
    """InvalidError, on every rank, where not all ranks say the same; before anything is exchanged whose size depends on it. Bytes as add_up()."""
    pieces: list[tuple[Ranks | None, Tensor]] = []
    for r, what in said:
        h = int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=3).digest(), "little")
        pieces.append((r, torch.tensor([h, h * h], dtype=torch.int64, device="cpu")))
    taken = add_up(pieces)
    for (r, _), (_, t) in zip(said, pieces, strict=True):
        total, squares = t.tolist()
        if r.size * squares != total * total:  # only equal numbers have as large a square of their mean as a mean of their squares
            raise InvalidError(f"{who}: the {r.size} ranks do not step the same parameters: shapes, gradients, steps or widths differ")
    return taken
