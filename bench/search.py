# SPDX-License-Identifier: Apache-2.0
"""The demo's training with a planner that searches: what it chooses and what the search costs, in evaluations and in training steps.

    python bench/search.py --planner neighbourhood --epsilon 0.05
    python bench/search.py --exhaustive            # at one save, beside the search: every configuration coded and evaluated

One thread. Losses are means over every 64th window of the held-out text, so differences below some thousandths are noise of the sample.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from branch import EVERY, Training

import ckpress
from ckpress import _core, _search
from ckpress._ranks import Alone

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "demo"))
from model import held_out_loss  # noqa: E402

WINDOWS = 64


class All(_search.Searcher):
    """Evaluates every configuration before it searches."""

    def _search(self, staging: Any, copies: dict[str, Any], sensitivity: bool, found: Any) -> None:
        self.results = {}
        for choice in _core.Search.grid():
            if choice[2] > 0 or choice[3] == 0:
                self.results[choice] = self._evaluate([choice], staging, copies)[0]
        super()._search(staging, copies, sensitivity, found)


def monotone(results: dict[Any, tuple[float, int]]) -> tuple[int, int, int]:
    """Pairs of neighbours; of them, where the more precise one loses more, and where it is smaller."""

    def pairs() -> Any:
        for axis, values in ((0, (4, 6, 8, 12, 16, 32)), (1, (16, 32)), (2, (0.5, 0.4, 0.3, 0.2, 0.1, 0.0)), (4, (0.0005, 0.005, 0.01))):
            for low, high in zip(values, values[1:]):
                for choice in results:
                    if choice[axis] == low:
                        other = (*choice[:axis], high, *choice[axis + 1 :])
                        yield results[choice], results[other if other in results else (*other[:3], 0, other[4])]

    listed = list(pairs())
    return len(listed), sum(b[0] > a[0] for a, b in listed), sum(b[1] < a[1] for a, b in listed)


def exhaustive(results: dict[Any, tuple[float, int]], m: Any, budget: float) -> None:
    good = {c: r for c, r in results.items() if r[0] - m.loss_live <= budget * abs(m.loss_live)}
    if not good:
        print(f"all {len(results)}: none is good enough")
        return
    best = min(good, key=lambda c: good[c][1])
    n, loses, smaller = monotone(results)
    print(f"all {len(results)}: {len(good)} good enough, the smallest {best} of {good[best][1]} bytes, loss {good[best][0]:.4f}")
    print(f"the search's choice is {m.bytes / good[best][1] - 1:.2%} larger, after {m.evaluations} evaluations")
    print(f"of {n} steps to a more precise neighbour, {loses} lose more and {smaller} are smaller")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planner", default="neighbourhood", choices=("guided", "neighbourhood"))
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exhaustive", action="store_true")
    o = parser.parse_args()
    torch.set_num_threads(1)
    t = Training(o.seed)
    how: dict[str, Any] = {"profile": "resume", "threads": 1, "final_on_close": False}

    def loss(model: Any) -> float:
        return held_out_loss(model, t.held_out, WINDOWS)

    found, step_s = [], []
    with tempfile.TemporaryDirectory() as dir:
        with ckpress.Checkpointer(dir, planner=o.planner, eval_fn=loss, max_loss_increase=o.epsilon, eval_every=1, **how) as ck:
            if o.exhaustive:
                ck._guard = All(o.planner, loss, o.epsilon, 1, 1.0, Alone())
            for done in range(1, o.steps + 1):
                start = time.perf_counter()
                t.step()
                step_s.append(time.perf_counter() - start)
                if done != o.steps if o.exhaustive else done % EVERY:
                    continue
                ck.save(done, model=t.model, optimizer=t.optimizer, wait=True)
                m = ck.measured
                found.append(m)
                bits = 8 * ck.stats["stored_by_role"]["weight"] / ck.stats["params_by_role"]["weight"]
                print(
                    f"{done:4} {'lossless' if m.lossless else m.config} {bits:.2f} bits, loss {m.loss_live:.4f} -> {m.loss_decoded:.4f}, {m.by_method}"
                    f"{' fell back' if m.fell_back else ''}, {m.seconds:.2f} s",
                    flush=True,
                )
            if o.exhaustive:
                exhaustive(ck._guard.results, m, o.epsilon)
    step = statistics.median(step_s)
    if not o.exhaustive:
        print(
            f"{sum(m.evaluations for m in found) / len(found):.2f} evaluations and {sum(m.seconds for m in found) / len(found) / step:.1f} steps a save"
            f" ({step:.3f} s a step), {sum(m.fell_back for m in found)} fall-backs in {len(found)} saves, {sum(m.lossless for m in found)} lossless"
        )


if __name__ == "__main__":
    main()
