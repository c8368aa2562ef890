# SPDX-License-Identifier: Apache-2.0
"""What coded running averages cost and lose: the demo's GPT with an EMA of its weights (docs/decisions/0013).

    python bench/averages.py [--decay 0.99] [--steps 300] [--seed 1]

One training, saved every 25 steps by several runs that differ in quality only, so in steps of the average. A row each: bits a parameter of the average over all
saves, and the held-out loss of the decoded average above that of the true one, mean and worst over the saves of the second half.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import tempfile

import ckpress
import quality_data
import quality_gpt
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = {q: 0.2 * q for q in (0.25, 0.5, 1.0, 2.0, 4.0)}  # quality: step of resume, in RMS of each tensor (src/run/profile.c)
EVERY = 25


class Task(quality_gpt.Task):
    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed)
        self.every, self.steps, self.width, self.layers = EVERY, steps, 160, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decay", type=float, default=0.99)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    quality_data.prepare()
    torch.set_num_threads(1)
    task = Task(args.seed, args.steps)
    model, optimizer = task.build()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(args.decay))
    copy = AveragedModel(task.build()[0])
    params = sum(p.numel() for p in model.parameters())
    lost: dict[float, list[float]] = {q: [] for q in STEPS}
    with tempfile.TemporaryDirectory() as tmp:
        place = {q: pathlib.Path(tmp) / str(q) for q in STEPS}
        saver = {q: ckpress.Checkpointer(place[q], "resume", quality=q, averages=("ema",), final_on_close=False) for q in STEPS}
        for n in range(1, task.steps + 1):
            task.step(model, optimizer, n - 1)
            ema.update_parameters(model)
            if n % EVERY:
                continue
            true = task.evaluate(ema, 4) if n > task.steps // 2 else None
            for q, ck in saver.items():
                ck.save(n, wait=True, model=model, optimizer=optimizer, ema=ema)
                if true is not None:
                    copy.load_state_dict({f"module.{k}" if k != "n_averaged" else k: v for k, v in ckpress.load(place[q])["ema"].items()})
                    lost[q].append(task.evaluate(copy, 4) - true)
        bits = {}
        for q, ck in saver.items():
            ck.close()
            stored = 0
            for entry in ckpress.list_run(place[q]):
                with ckpress.open(f"{place[q]}@{entry.step}") as f:
                    stored += f.info["stored_by_role"]["average"]
            bits[q] = stored * 8 / params / (task.steps // EVERY)
    print(f"decay {args.decay}, {task.steps} steps, {params} parameters, seed {args.seed}; loss of the average at the end {task.evaluate(ema, 4):.4f}")
    print("| step, in RMS | bits a parameter of the average | loss above the true average's: mean, worst |\n|--:|--:|---|")
    for q, step in STEPS.items():
        print(f"| {step:g} | {bits[q]:.3f} | {statistics.mean(lost[q]):+.5f}, {max(lost[q]):+.5f} |")


if __name__ == "__main__":
    main()
