# SPDX-License-Identifier: Apache-2.0
"""Signals that wait for the end of a block."""

from __future__ import annotations

import signal

import pytest
from ckpress._signals import Held


@pytest.fixture
def came():
    """Numbers of those that were handled, once each was."""
    numbers, seen = (signal.SIGUSR1, signal.SIGUSR2), []
    before = [signal.signal(number, lambda n, frame: seen.append(n)) for number in numbers]
    yield seen
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_they_come_after_the_block(came):
    since: list[None] = []
    with Held(since):
        signal.raise_signal(signal.SIGUSR1)
        assert came == [signal.SIGUSR1]
        since.append(None)
        signal.raise_signal(signal.SIGUSR2)
        assert came == [signal.SIGUSR1]
    assert came == [signal.SIGUSR1, signal.SIGUSR2]


def test_a_timer(came):
    """Many of one number are one, as where the system holds them."""
    with Held([None]):
        for _ in range(2000):
            signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
    assert came == [signal.SIGUSR1, signal.SIGUSR2]


def test_a_block_in_a_block(came):
    since: list[None] = []
    with Held(since):
        with Held(since):
            since.append(None)
            signal.raise_signal(signal.SIGUSR1)
        assert came == []
    assert came == [signal.SIGUSR1]


def test_a_handler_set_inside_that_calls_the_one_before(came):
    with Held([None]):
        before = signal.getsignal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, lambda n, frame: before(n, frame))
        signal.raise_signal(signal.SIGUSR1)
        assert came == []
    assert came == [signal.SIGUSR1]
    signal.raise_signal(signal.SIGUSR1)
    assert came == [signal.SIGUSR1] * 2


def test_a_handler_that_raises(came):
    """The others have their turn all the same."""

    def refuse(number, frame):
        raise ZeroDivisionError

    signal.signal(signal.SIGUSR1, refuse)
    with pytest.raises(ZeroDivisionError), Held([None]):
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR2)
    assert came == [signal.SIGUSR2] and signal.getsignal(signal.SIGUSR1) is refuse
