# SPDX-License-Identifier: Apache-2.0
"""Training processes as the demo's parent sees them: started, listened to, killed."""

from __future__ import annotations

import json
import os
import pathlib
import random
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).parent


class Process:
    """One training process and the events that it writes to a pipe."""

    def __init__(self, arguments: list[str], log: pathlib.Path) -> None:
        self.read_fd, write_fd = os.pipe()
        os.set_inheritable(write_fd, True)
        command = [sys.executable, str(HERE / "train.py"), *arguments, "--events", str(write_fd)]
        with open(log, "ab") as out:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            self.process = subprocess.Popen(command, pass_fds=(write_fd,), stdout=out, stderr=subprocess.STDOUT, env=environment)
        os.close(write_fd)
        self._rest = b""
        self.ended = False

    def read(self) -> list[dict[str, Any]]:
        """Events that have come; at the end of the process :attr:`ended` is set."""
        data = os.read(self.read_fd, 1 << 16)
        if not data:
            self.ended = True
            os.close(self.read_fd)
            self.process.wait()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)


class Plain:
    """The run that is not interrupted."""

    def __init__(self, arguments: list[str], log: pathlib.Path) -> None:
        self.events: list[dict[str, Any]] = []
        self.process = Process([*arguments, "--plain"], log)
        self.step = 0

    def handle(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.step = max(self.step, event.get("step", 0))

    def process_ended(self) -> bool:
        """False: it has to be there and end by itself."""
        if self.process.process.returncode != 0:
            raise RuntimeError("the uninterrupted run failed; see its log")
        return False


class Interrupted:
    """The run that is killed ``kills`` times.

    Kills are spread evenly over the steps. Every second one comes 5 to 50 ms after the process has called save(), the others in the
    middle of training. None comes before a checkpoint has been committed since the last.
    """

    def __init__(self, arguments: list[str], log: pathlib.Path, *, kills: int, steps: int, committed: Callable[[], int]) -> None:
        self.events: list[dict[str, Any]] = []
        self.kills: list[dict[str, Any]] = []
        self.restores: list[dict[str, Any]] = []
        self.step = 0
        self._arguments, self._log = arguments, log
        self._targets = [steps * (i + 1) // (kills + 1) for i in range(kills)]
        self._committed = committed
        self._commits_before = 0
        self._random = random.Random(7)
        self.process = Process(arguments, log)

    def handle(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        self.step = event.get("step", self.step)
        if event["event"] == "restored":
            self.restores.append(event)
        if self._due(event):
            self._kill(event)

    def _due(self, event: dict[str, Any]) -> bool:
        if not self._targets or event.get("step", 0) < self._targets[0] or self.process.process.poll() is not None:
            return False
        in_save = len(self.kills) % 2 == 0
        return event["event"] == ("save" if in_save else "step") and self._committed() > self._commits_before

    def _kill(self, event: dict[str, Any]) -> None:
        if event["event"] == "save":
            time.sleep(max(0.0, event["t"] + self._random.uniform(0.005, 0.045) - time.monotonic()))
        self.process.kill()
        after = time.monotonic() - event["t"]
        self.process.process.wait()
        self._commits_before = self._committed()
        self._targets.pop(0)
        during = event["event"] == "save" and 0.005 <= after <= 0.050
        self.kills.append({"step": event["step"], "after_ms": after * 1e3, "during_save": during, "commits": self._commits_before})

    def process_ended(self) -> bool:
        """True: it was killed and has been started again."""
        code = self.process.process.returncode
        if code == -signal.SIGKILL:
            self.process = Process(self._arguments, self._log)
            return True
        if code != 0:
            raise RuntimeError("the interrupted run failed; see its log")
        return False


def run_all(runs: list[Any], progress: Callable[[], None]) -> None:
    """Listens to all runs until each has ended."""
    with selectors.DefaultSelector() as selector:
        for run in runs:
            selector.register(run.process.read_fd, selectors.EVENT_READ, run)
        while selector.get_map():
            for key, _ in selector.select(timeout=1.0):
                _listen(selector, key.data)
            progress()


def _listen(selector: selectors.BaseSelector, run: Any) -> None:
    process = run.process
    for event in process.read():
        run.handle(event)
    if process.ended:
        selector.unregister(process.read_fd)
        if run.process_ended():
            selector.register(run.process.read_fd, selectors.EVENT_READ, run)
