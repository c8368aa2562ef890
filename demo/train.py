# SPDX-License-Identifier: Apache-2.0
"""One training process of the demo: trains to the last step from wherever the run stands.

Events go to a file descriptor as lines of JSON, so that the parent can kill this process in the middle of a save. With --plain there
are no checkpoints: the run that is not interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from typing import Any

import ckpress
import ckpress.torch
import torch
from model import GPT, Sampler, held_out_loss, learning_rate, split, text


class Trainer:
    """Model, optimizer, schedule and batches; and what is told to the parent."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        torch.manual_seed(args.seed)
        train, self.held_out = split(text()[1])
        self.model = GPT()
        how: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}
        if args.state_bits != "32" and not args.plain:
            how["state_bits"] = "auto" if args.state_bits == "auto" else int(args.state_bits)
            self.optimizer: torch.optim.Optimizer = ckpress.torch.AdamW(self.model.parameters(), **how)
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), **how)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: learning_rate(s, args.steps))
        self.sampler = Sampler(train, 16, args.seed)
        self.checkpointer: ckpress.Checkpointer | None = None
        self.pending = False  # a save whose figures are still to come

    def tell(self, **event: Any) -> None:
        os.write(self.args.events, (json.dumps({**event, "t": time.monotonic()}) + "\n").encode())

    def restore(self) -> int:
        """Finished steps."""
        if self.args.plain:
            return 0
        started = time.monotonic()
        # No lossless save at the end: the demo counts what a run in the middle of training writes, and says so.
        self.checkpointer = ckpress.Checkpointer(self.args.run, self.args.profile, threads=1, final_on_close=False)
        done = self.checkpointer.restore(model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, sampler=self.sampler)
        if done is not None:
            restored = self.checkpointer.restored or {}
            seconds = time.monotonic() - started
            self.tell(event="restored", step=done, lossy=restored["lossy"], name=restored["name"], seconds=seconds)
        return done or 0

    def step(self) -> float:
        loss = self.model(*self.sampler.next())
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def save(self, done: int) -> None:
        if self.checkpointer is None:
            return
        self.report_save(wait=True)
        self.tell(event="save", step=done)
        self.checkpointer.save(done)
        self.pending = True

    def report_save(self, *, wait: bool) -> None:
        """Figures of a save that has been committed."""
        if self.checkpointer is None or not self.pending or (self.checkpointer.busy and not wait):
            return
        self.checkpointer.wait()
        s = self.checkpointer.stats
        self.pending = False
        self.tell(event="saved", step=s["step"], stall=s["stall"], total=s["total"], encode=s["encode"], write=s["write"], cpu=s["cpu"])

    def evaluate(self, done: int) -> None:
        """The curve: a quarter of the held-out text, more often in the last quarter of the run, whose slope is wanted."""
        every = 25 if done >= self.args.steps * 3 // 4 else 50
        if done % every == 0:
            self.tell(event="held_out", step=done, loss=held_out_loss(self.model, self.held_out, every=4))

    def run(self) -> None:
        done = self.restore()
        while done < self.args.steps:
            loss = self.step()
            done += 1
            if done % self.args.every == 0:
                self.save(done)
            self.report_save(wait=False)
            self.tell(event="step", step=done, loss=loss)
            self.evaluate(done)
        self.report_save(wait=True)
        if self.checkpointer is not None:
            self.checkpointer.close()
        self.tell(event="end", step=done, loss=held_out_loss(self.model, self.held_out), weights=fingerprint(self.model))


def fingerprint(model: torch.nn.Module) -> str:
    """Hash of every bit of the weights."""
    digest = hashlib.sha256()
    for name, t in model.state_dict().items():
        digest.update(name.encode())
        digest.update(t.numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True, help="directory of the run")
    parser.add_argument("--profile", default="resume")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=25, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state-bits", default="32", help="of the optimizer's moments, or auto; not with --plain")
    parser.add_argument("--plain", action="store_true", help="no checkpoints")
    parser.add_argument("--events", type=int, default=1, help="file descriptor for events")
    args = parser.parse_args()
    torch.set_num_threads(1)
    Trainer(args).run()


if __name__ == "__main__":
    main()
