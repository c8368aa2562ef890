# SPDX-License-Identifier: Apache-2.0
"""Evaluations shared among data-parallel ranks: one rank saves and codes, all evaluate, each in a copy of its own.

The rank that saves is rank 0 of the group. What the others evaluate comes from it, all of it: candidates' weights as they are coded there,
and once a search the model's other tensors and the random states. So a loss does not depend on which rank found it, as far as ``eval_fn``
and its batches are the same everywhere.

A save is one conversation: None (nothing to evaluate), or a Header, which every rank answers; the model; then groups of candidates until a
group of none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import _rng
from ._evaluate import CannotMeasure, Eval, copies_of, loss_of
from ._views import torch_module
from .errors import InvalidError, make

GROUP_MAX = 64  # of a search


Name = tuple[str, str]  # of a module, and of a tensor in it
Kind = tuple[Name, str, tuple[int, ...]]  # dtype, shape


@dataclass
class Header:
    """What a rank needs to know before it evaluates."""

    tensors: list[Kind]  # all parameters and buffers, in the order they are sent
    lossy: list[Name]  # of those that candidates differ in
    rng: Any


Answer = tuple[int, float, str]  # which candidate (-1: none), its loss, what went wrong


@contextmanager
def _talking() -> Iterator[None]:
    """Around every exchange: ranks that do not answer must not stop a training."""
    try:
        yield
    except RuntimeError as e:
        raise CannotMeasure(f"another rank does not answer ({e})") from e


class Alone:
    """No other rank."""

    size = 1

    def begin(self, copies: Mapping[str, Any], lossy: Sequence[Any]) -> None: ...

    def end(self) -> None: ...

    def evaluate(self, n: int, code: Callable[[int], None], loss: Callable[[], float]) -> list[float]:
        """Losses of n candidates: ``code(i)`` puts candidate i into the copies, ``loss()`` evaluates them."""
        losses = []
        for i in range(n):
            code(i)
            losses.append(loss())
        return losses


class Ranks:
    """The ranks of a process group, seen from the one that saves."""

    def __init__(self, group: Any) -> None:
        self._dist = _distributed(group)
        self._group = group
        self.size = min(self._dist.get_world_size(group), GROUP_MAX)
        self._lossy: list[Any] = []
        self._open = False
        self._told = False
        if self._dist.get_rank(group) != 0:
            raise make(InvalidError, "the rank that saves must be rank 0 of eval_group; the others call ckpress.assist")

    def begin(self, copies: Mapping[str, Any], lossy: Sequence[Any]) -> None:
        """Starts a search: the others copy the model and wait for candidates."""
        tensors = list(_tensors(copies))
        names = {id(t): name for name, t in tensors}
        if any(id(p) not in names for p in lossy):
            raise CannotMeasure("a lossy tensor is no parameter of a registered module")
        self._lossy = [p for p in lossy if p.numel() > 0]
        self._tell(Header([_kind(name, t) for name, t in tensors], [names[id(p)] for p in self._lossy], _rng.get()))
        _agree(self._dist, self._group, "")
        self._open = True
        for _, t in tensors:
            _broadcast_bytes(self._dist, _bytes_of(t), self._root(), self._group)

    def end(self) -> None:
        """Ends the search, or tells the others that this save has none. Once a save, whatever happened."""
        if self._open:
            self._broadcast(0)
        elif not self._told:
            self._tell(None)
        self._open = self._told = False

    def evaluate(self, n: int, code: Callable[[int], None], loss: Callable[[], float]) -> list[float]:
        """As of Alone; at most one candidate a rank. The others evaluate while the next is coded; the own comes last."""
        self._broadcast(n)
        mine: Answer = (-1, math.nan, "")
        failure: BaseException | None = None
        sent = 0
        try:
            for i in range(1, n):
                code(i)
                self._send(i)
                sent = i
            code(0)
            mine = (0, loss(), "")
        except BaseException as e:  # the others wait: they must hear of it before it goes on
            failure = e
        for i in range(sent + 1, n):
            self._post(_flag(0), i)
        answers = _gather(self._dist, self._group, mine)
        if failure is not None:
            raise failure
        losses = [math.nan] * n
        for i, value, problem in answers:
            if problem:
                raise CannotMeasure(problem)
            if i >= 0:
                losses[i] = value
        return losses

    def _send(self, rank: int) -> None:
        self._post(_flag(1), rank)
        for p in self._lossy:
            self._post(_bytes_of(p), rank)

    def _post(self, raw: Any, rank: int) -> None:
        with _talking():
            self._dist.send(raw, self._dist.get_global_rank(self._group, rank), group=self._group)

    def _root(self) -> int:
        return int(self._dist.get_global_rank(self._group, 0))

    def _broadcast(self, value: Any) -> None:
        with _talking():
            self._dist.broadcast_object_list([value], self._root(), group=self._group)

    def _tell(self, header: Header | None) -> None:
        self._told = True
        self._broadcast(header)


def assist(eval_fn: Eval, *, group: Any, **objects: Any) -> int:
    """Takes part in the evaluations of one save of another rank. Every other rank of ``eval_group`` calls it when that rank calls ``save()``::

        if rank == 0:
            ck.save(step, model=model, optimizer=optimizer)      # Checkpointer(..., eval_group=group)
        else:
            ckpress.assist(validate, group=group, model=model)

    Args:
        eval_fn: as of :class:`Checkpointer`, with the same batches on every rank; else the choice depends on who evaluates.
        group: the process group that the Checkpointer has as ``eval_group``.
        objects: modules under the names that the other rank saves them by; anything else is ignored. They are copied, not changed.

    Returns:
        how many candidates this rank evaluated; 0 when that save had nothing to measure.
    """
    dist = _distributed(group)
    root = dist.get_global_rank(group, 0)
    if dist.get_rank(group) == 0:
        raise make(InvalidError, "assist: this is rank 0 of the group, the one that saves")
    header = _received(dist, root, group)
    if header is None:
        return 0
    helper = _Helper(dist, group, root, eval_fn, objects, header)
    done = 0
    while (n := _received(dist, root, group)) != 0:
        done += helper.answer(n)
    return done


class _Helper:
    def __init__(self, dist: Any, group: Any, root: int, eval_fn: Eval, objects: Mapping[str, Any], header: Header) -> None:
        self._dist, self._group, self._root, self._eval, self._rng = dist, group, root, eval_fn, header.rng
        self._rank = dist.get_rank(group)
        self._copies: dict[str, Any] = {}
        self._lossy: list[Any] = []
        here: dict[Name, Any] = {}
        problem = ""
        try:
            self._copies, _ = copies_of(objects, [])
            here = dict(_tensors(self._copies))
            problem = _difference([_kind(name, t) for name, t in here.items()], header.tensors)
        except CannotMeasure as e:
            problem = str(e)
        try:
            _agree(dist, group, problem and f"rank {self._rank}: {problem}")
        except CannotMeasure as e:
            raise make(InvalidError, f"assist: {e}") from None
        self._lossy = [here[name] for name in header.lossy]
        for t in here.values():
            raw = _bytes_of(t)
            _broadcast_bytes(dist, raw, root, group)
            _put_bytes(t, raw)

    def answer(self, n: int) -> int:
        answer: Answer = (-1, math.nan, "")
        interrupt: BaseException | None = None
        if self._rank < n and self._receive():
            try:
                answer = (self._rank, self._loss(), "")
            except CannotMeasure as e:
                answer = (self._rank, math.nan, f"rank {self._rank}: {e}")
            except BaseException as e:
                answer, interrupt = (self._rank, math.nan, f"rank {self._rank} was interrupted: {type(e).__name__}"), e
        _gather(self._dist, self._group, answer)
        if interrupt is not None:
            raise interrupt
        return int(answer[0] >= 0)

    def _receive(self) -> bool:
        flag = _flag(0)
        self._dist.recv(flag, self._root, group=self._group)
        if not int(flag):
            return False
        for p in self._lossy:
            raw = _bytes_of(p)
            self._dist.recv(raw, self._root, group=self._group)
            _put_bytes(p, raw)
        return True

    def _loss(self) -> float:
        before = _rng.get()
        _rng.put(self._rng)
        try:
            return loss_of(self._eval, self._copies, finite=False)
        finally:
            _rng.put(before)


def _distributed(group: Any) -> Any:
    torch = torch_module()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise make(InvalidError, "eval_group needs torch.distributed to be initialised")
    if group is None or torch.distributed.get_rank(group) < 0:
        raise make(InvalidError, "this process is not in eval_group")
    return torch.distributed


def _flag(value: int) -> Any:
    torch = torch_module()
    assert torch is not None
    return torch.tensor([value], dtype=torch.uint8, device="cpu")


def _broadcast_bytes(dist: Any, raw: Any, root: int, group: Any) -> None:
    if raw.numel() > 0:
        with _talking():
            dist.broadcast(raw, root, group=group)


def _received(dist: Any, root: int, group: Any) -> Any:
    box = [None]
    dist.broadcast_object_list(box, root, group=group)
    return box[0]


def _gather(dist: Any, group: Any, answer: Answer) -> list[Answer]:
    answers: list[Any] = [None] * dist.get_world_size(group)
    with _talking():
        dist.all_gather_object(answers, answer, group=group)
    return answers


def _agree(dist: Any, group: Any, problem: str) -> None:
    """Hears from every rank whether it can take part.

    Raises:
        CannotMeasure: on all of them, if one cannot.
    """
    problems: list[Any] = [""] * dist.get_world_size(group)
    with _talking():
        dist.all_gather_object(problems, problem, group=group)
    for text in problems:
        if text:
            raise CannotMeasure(text)


def _kind(name: Name, t: Any) -> Kind:
    return name, str(t.dtype), tuple(t.shape)


def _difference(here: list[Kind], there: list[Kind]) -> str:
    if here == there:
        return ""
    names = sorted({".".join(name) for name, _, _ in set(here) ^ set(there)})
    return f"its model is another one than that of the rank that saves ({', '.join(names[:3]) or 'order of tensors'})"


def _tensors(copies: Mapping[str, Any]) -> Iterable[tuple[Name, Any]]:
    for module, obj in copies.items():
        for name, p in obj.named_parameters():
            yield (module, name), p
        for name, b in obj.named_buffers():
            yield (module, name), b


def _bytes_of(t: Any) -> Any:
    """A tensor's bytes on the CPU, its own memory where it is there and contiguous."""
    torch = torch_module()
    assert torch is not None
    return t.detach().contiguous().cpu().reshape(-1).view(torch.uint8)


def _put_bytes(t: Any, raw: Any) -> None:
    torch = torch_module()
    assert torch is not None
    with torch.no_grad():
        t.copy_(raw.view(t.dtype).reshape(t.shape))
