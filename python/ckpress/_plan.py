# SPDX-License-Identifier: Apache-2.0
"""A restore, planned before anything is touched and carried out so that a failure leaves the live bits as they were.

Order: (1) every name, dtype and shape is compared; (2) values for objects that load themselves are read into fresh memory; (3) those
objects load, each with its former state kept to go back to; (4) the live tensors are read in place by one call that writes nothing
unless every hash has been checked, from files kept in memory where they fit; (5) assignments that cannot fail. A failure in (3) or (4) takes back what (3) did.
Once (4) has written there is no way back: signals whose handlers might raise wait from its beginning to the end of (5), as they do while something is taken back.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _dtypes
from ._decode import Leaf, build, leaves
from ._signals import Held
from ._tensors import builder, read_all
from ._views import is_torch_tensor, torch_module
from .errors import LimitError, NoMemoryError, PartlyWrittenError, mismatch

HOLD_MAX = 1 << 30  # bytes of memory for the files of a chain; a third of what is restored, which a lossy chain does not exceed, if that is less
LIST_MAX = 5  # names in a message


@dataclass
class Step:
    """Something that may fail, and how to take it back."""

    apply: Callable[[], Any]
    undo: Callable[[], Any]


class _Value:
    """A plain value: with leaves first, then built. All are built before anything live is touched, since building can fail."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.built: Any = None


class Plan:
    """What a restore of one checkpoint will do.

    Args:
        ck: open checkpoint.
        strict: names that one side lacks are errors.
        other_shapes: a live tensor of another shape is left as it is, as if the other side lacked it.
    """

    def __init__(self, ck: Any, strict: bool, other_shapes: bool = False) -> None:
        self.ck = ck
        self.strict = strict
        self._other_shapes = other_shapes
        self.infos = [ck.tensor(i) for i in range(len(ck))]
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.mismatched: list[str] = []
        self._targets: list[tuple[Leaf, Any, str]] = []
        self._where: dict[Any, tuple[int, str]] = {}
        self.memory: set[int] = set()  # what live tensors of torch that are restored in place lie in
        self._fresh: list[Leaf] = []
        self._shared: list[tuple[Leaf, Any, str]] = []  # of _fresh: live tensors of which several elements lie in one place
        self._made: dict[int, Any] = {}
        self._steps: list[Step] = []
        self._last: list[Step] = []
        self._finals: list[Callable[[], Any]] = []
        self._values: list[_Value] = []
        self._holding: list[Any] = []  # something, as soon as signals must wait: live tensors are being read into, or taken back

    # ---- planning ----

    def names(self, live: Any, saved: Any, label: str) -> None:
        """Notes the names that one of the two lacks."""
        self.missing += [f"{label}/{k}" for k in live if k not in saved]
        self.unexpected += [f"{label}/{k}" for k in saved if k not in live]

    def fits(self, leaf: Leaf, live: Any) -> str | None:
        """Why a live torch tensor cannot hold a saved one; None when it can."""
        info = self.infos[leaf.index]
        if _dtypes.of_torch(live.dtype) != info["dtype"]:
            return f"dtype {info['dtype']} saved, {live.dtype} here"
        if tuple(live.shape) != info["shape"]:
            return f"shape {list(info['shape'])} saved, {list(live.shape)} here"
        return None

    def in_place(self, leaf: Leaf, live: Any, label: str) -> None:
        """A saved tensor into the memory of a live torch tensor of the same dtype and shape."""
        why = self.fits(leaf, live)
        if why is not None and self._other_shapes and tuple(live.shape) != self.infos[leaf.index]["shape"]:
            self.missing.append(label)
            return
        if why is not None:
            self.mismatched.append(f"{label} ({why})")
            return
        if live.device.type == "meta":
            self.mismatched.append(f"{label} (a meta tensor has no memory to restore into)")
            return
        self.memory.add(memory_of(live))
        if elements_share(live):
            self._fresh.append(leaf)
            self._shared.append((leaf, live, label))
            return
        if live.device.type != "cpu" or live.is_conj() or live.is_neg():
            self._by_copy(leaf, live)
            return
        self._target(leaf, live, label, (live.data_ptr(), tuple(live.shape), tuple(live.stride())))

    def in_place_array(self, leaf: Leaf, live: Any, label: str) -> None:
        """The same for a numpy array."""
        info = self.infos[leaf.index]
        if _dtypes.of_numpy(live.dtype) != info["dtype"] or live.shape != info["shape"] or not live.dtype.isnative:
            self.mismatched.append(f"{label} ({info['dtype']} {list(info['shape'])} saved, {live.dtype} {list(live.shape)} here)")
        elif not live.flags.writeable or any(s % live.dtype.itemsize for s in live.strides):
            self.mismatched.append(f"{label} (a read-only or unaligned array)")
        else:
            self._target(leaf, live, label, (live.__array_interface__["data"][0], live.shape, live.strides))

    def _target(self, leaf: Leaf, live: Any, label: str, place: Any) -> None:
        # Tied here but saved as two: the second would silently overwrite the first.
        info = self.infos[leaf.index]
        root = info["alias_of"] if info["alias_of"] is not None else leaf.index
        other = self._where.setdefault(place, (root, label))
        if other[0] != root and info["numel"] > 0:
            self.mismatched.append(f"{label} (shares its memory with {other[1]} here, but they were saved as two tensors)")
        self._targets.append((leaf, live, label))

    def _by_copy(self, leaf: Leaf, live: Any) -> None:
        self._fresh.append(leaf)
        self._finals.append(lambda: _copy_into(live, self._made[leaf.index]))

    def _share(self) -> None:
        """What expand() made takes what it was saved from: each of its elements once, where the saved ones are alike."""
        for leaf, live, label in self._shared:
            made = self._made[leaf.index]
            here, first = once(live, live), once(made, live)
            if not bool((bits(made) == bits(first.expand_as(made))).all()):
                self.mismatched.append(f"{label} (elements share memory here, as expand() makes them, and were saved as different ones)")
            self._finals.append(functools.partial(_copy_into, here, first))
        self.check()

    def fresh(self, raw: Any) -> Callable[[], Any]:
        """Tensors of a value into memory of their own; the result gives the value once they are read."""
        self._fresh += leaves(raw)
        value = _Value(raw)
        self._values.append(value)
        return lambda: value.built

    def step(self, apply: Callable[[], Any], undo: Callable[[], Any]) -> None:
        self._steps.append(Step(apply, undo))

    def last_step(self, apply: Callable[[], Any], undo: Callable[[], Any]) -> None:
        """One that perhaps cannot be undone: after all others that can fail."""
        self._last.append(Step(apply, undo))

    def final(self, assign: Callable[[], Any]) -> None:
        self._finals.append(assign)

    # ---- carrying out ----

    def check(self) -> None:
        """Raises MismatchError with counts and names when the two do not fit."""
        found = [(self.mismatched, "of another kind, dtype or shape")]
        if self.strict:
            found += [(self.missing, "missing in the checkpoint"), (self.unexpected, "in the checkpoint only")]
        parts = [f"{len(names)} {what}: {_some(names)}" for names, what in found if names]
        if not parts:
            return
        hint = " (strict=False restores what both have)" if self.strict and not self.mismatched else ""
        where = self.ck.info()["name"]
        raise mismatch(f"{where}: nothing was restored; {'; '.join(parts)}{hint}", self.missing, self.unexpected, self.mismatched)

    def run(self, threads: int) -> None:
        """Checks, reads and applies."""
        self.prepare(threads)
        self.apply(threads)

    def prepare(self, threads: int) -> None:
        """All that can be known to fail before anything live is touched, but for the proof of what is read in place."""
        self.check()
        if self._targets:
            self._hold()
        if self._fresh:
            self._made.update(read_all(self.ck, self._fresh, None, threads))
        self._share()
        leaf = builder(self._made)
        for value in self._values:
            value.built = build(value.raw, leaf)

    def held(self) -> Held:
        """Around :meth:`apply` and what belongs to it: what signals' handlers might raise once live tensors are read into comes at the end."""
        return Held(self._holding)

    def apply(self, threads: int) -> None:
        with self.held():
            self._apply(threads)

    def _apply(self, threads: int) -> None:
        undo: list[Callable[[], Any]] = []
        try:
            for step in [*self._steps, *self._last]:
                undo.append(step.undo)
                step.apply()
            self._read_in_place(threads)
        except BaseException:
            self._holding.append(None)
            for back in reversed(undo):
                with contextlib.suppress(Exception):  # what has just refused a state may refuse its own: the others go back all the same
                    back()
            raise
        for assign in self._finals:
            assign()

    def _hold(self) -> None:
        raw = sum(self.infos[leaf.index]["raw_bytes"] for leaf, _, _ in self._targets)
        try:
            self.ck.hold(min(HOLD_MAX, (64 << 20) + raw // 3))
        except (LimitError, NoMemoryError):
            pass

    def _read(self, targets: list[Any], threads: int) -> None:
        """The one moment in which a live tensor could be left half written. With the files in memory nothing can go wrong in it; where
        they are too large for that, a disk that fails just then is told with all names."""
        self._holding.append(None)  # before it: of a run behind a URL it makes requests, in Python, while it writes
        try:
            self.ck.read(targets, threads)
        except PartlyWrittenError as e:
            e.tensors = [label for _, _, label in self._targets]
            raise

    def _read_in_place(self, threads: int) -> None:
        targets = []
        for leaf, live, _ in self._targets:
            info = self.infos[leaf.index]
            if is_torch_tensor(live):
                strides = None if live.is_contiguous() else tuple(live.stride())
                pointer = live.data_ptr()
            else:
                strides = None if live.flags.c_contiguous else tuple(s // live.dtype.itemsize for s in live.strides)
                pointer = live.__array_interface__["data"][0]
            targets.append((leaf.index, info["dtype"], info["shape"], strides, pointer))
        if targets:
            self._read(targets, threads)
        else:
            self._holding.append(None)
        _tell_autograd([live for _, live, _ in self._targets if is_torch_tensor(live)])


def elements_share(t: Any) -> bool:
    """Whether elements of a tensor lie where others do, as expand() makes them."""
    return t.numel() > 1 and any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride()))


def once(t: Any, like: Any) -> Any:
    """The view of a tensor with each of those elements once that lie in one place in another of its shape."""
    return t[tuple(slice(0, 1) if n > 1 and s == 0 else slice(None) for n, s in zip(like.shape, like.stride()))]


def bits(t: Any) -> Any:
    """As bytes, so that NaN is like itself, and 0 not like -0."""
    torch = torch_module()
    assert torch is not None
    return t.contiguous().view(-1).view(torch.uint8)


def _copy_into(live: Any, made: Any) -> None:
    torch = torch_module()
    assert torch is not None
    with torch.no_grad():
        live.copy_(made)


def memory_of(t: Any) -> int:
    """The same for all views of one storage."""
    return int(t.untyped_storage().data_ptr())


def _tell_autograd(tensors: list[Any]) -> None:
    """Memory was written behind torch's back: count it as an in-place change, as copy_() would."""
    torch = torch_module()
    graph = getattr(getattr(torch, "autograd", None), "graph", None)
    increment = getattr(graph, "increment_version", None)
    if increment is None:
        return
    for t in tensors:
        if not t.is_inference():
            increment(t)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - LIST_MAX} more" if len(names) > LIST_MAX else ""
    return ", ".join(names[:LIST_MAX]) + more
