# SPDX-License-Identifier: Apache-2.0
"""Signals that ask for a save, and those that must not cut short what cannot be taken back."""

from __future__ import annotations

import operator
import os
import signal
import sys
from collections.abc import Sequence, Sized
from typing import Any

from .errors import InvalidError, make


def _numbers(wanted: Any) -> list[int]:
    try:
        if isinstance(wanted, str):  # its letters would be names
            raise TypeError
        numbers = [int(signal.Signals[s]) if isinstance(s, str) else operator.index(s) for s in wanted]
        if not set(numbers) <= {int(s) for s in signal.valid_signals()}:
            raise ValueError
        return list(dict.fromkeys(numbers))
    except (TypeError, ValueError, KeyError):
        raise make(InvalidError, f"signals must be some of signal.Signals, such as (signal.SIGTERM,), not {wanted!r}") from None


def _handle(number: int, handler: Any) -> Any:
    try:
        return signal.signal(number, handler)
    except OSError:
        raise make(InvalidError, f"signals: no program can handle {signal.strsignal(number)} ({number})") from None


class Signals:
    """Handlers that only count what came: one may interrupt a save, or another handler. Made in the main thread.

    Args:
        numbers: ``signal.SIGTERM``, 15 or ``"SIGTERM"``.
        owner: lives as long as the handlers do.

    Raises:
        InvalidError: not such a sequence, or a signal that nobody can handle.
    """

    def __init__(self, numbers: Sequence[int | str], owner: Any) -> None:
        wanted = _numbers(numbers)
        self._owner = owner
        self._pid = os.getpid()
        self._came = self._served = 0
        self._before: dict[int, Any] = {}
        try:
            for number in wanted:
                self._before[number] = _handle(number, self._on)
        except BaseException:  # a handler that stays would keep the owner, and with it the run's lock
            self.end()
            raise

    @property
    def pending(self) -> bool:
        return self._came != self._served

    def mark(self) -> int:
        """For :meth:`served`, at the start of a save."""
        return self._came

    def served(self, mark: int) -> None:
        """That save has been made. What came meanwhile asks for another."""
        self._served = mark

    def end(self) -> None:
        """Puts the former handlers back. Elsewhere than in the main thread Python cannot: then ours pass on what comes."""
        for number, before in self._before.items():
            try:
                if signal.getsignal(number) == self._on:
                    signal.signal(number, signal.SIG_DFL if before is None else before)  # None: one that Python did not set
            except ValueError:
                pass
        self._owner = None

    def _on(self, number: int, frame: Any) -> None:
        before = self._before.get(number)
        if self._owner is None or os.getpid() != self._pid:  # over, or a forked child, which nobody asks for a save: one that must end would not
            self._pass_on(number, frame, before)
            return
        self._came += 1
        if callable(before) and before is not signal.default_int_handler:  # Python's own would end the process
            before(number, frame)

    @staticmethod
    def _pass_on(number: int, frame: Any, before: Any) -> None:
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


class Held:
    """Signals wait from the moment when there is something in ``since`` to the end of the block: a handler that raises would leave half done what cannot be
    taken back. Before that moment they do what they always do. In another thread than the main one no handler runs, and nothing is held."""

    def __init__(self, since: Sized) -> None:
        self._since = since
        self._ended = False
        self._before: dict[int, Any] = {}  # kept: a handler that was set inside of the block may go on calling ours
        self._ours: list[int] = []
        self._came: list[int] = []

    def __enter__(self) -> Held:
        try:
            for number in signal.valid_signals():
                before = signal.getsignal(number)
                if callable(before):
                    self._before[number] = before
                    self._ours.append(number)
                    signal.signal(number, self._on)
        except ValueError:  # not in the main thread
            self._put_back()
        except BaseException:
            self._put_back()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._put_back()
        finally:
            self._ended = True
            self._pass_on()

    def _put_back(self) -> None:
        """Each that is back may raise what comes now: the others go back all the same."""
        try:
            while self._ours:
                number = self._ours[-1]
                if signal.getsignal(number) == self._on:
                    signal.signal(number, self._before[number])
                self._ours.pop()
        except BaseException:
            self._put_back()
            raise

    def _pass_on(self) -> None:
        """To the handlers, not as new signals: whoever has a wakeup fd (asyncio) knows of these already."""
        try:
            if self._came:
                number = self._came.pop(0)
                self._before[number](number, sys._getframe())
        finally:
            if self._came:
                self._pass_on()

    def _on(self, number: int, frame: Any) -> None:
        if not self._since or self._ended:
            self._before[number](number, frame)
        elif number not in self._came:  # as a system does: a timer's would become thousands
            self._came.append(number)
