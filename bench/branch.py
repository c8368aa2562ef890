# SPDX-License-Identifier: Apache-2.0
"""What a lossy save costs, with a tenth of the noise of whole runs: decoded states train on, beside the true ones.

    python bench/branch.py --record DIR              trains the demo's GPT on the King James Bible once and stores its state every 25 steps
    python bench/branch.py DIR [--profile resume] [--quality 1] [--what wmv]

The stored states are saved as one run; at ten of them the decoded state (of weights, m, v: those that --what names; the rest is true)
trains 15 steps on the batches that the true one trained on. Prints bits a parameter, the loss right after decoding and 15 steps later,
each minus the true one's. One thread; recording takes about five minutes, a row about one and a half.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
from typing import Any

import ckpress
import quality_data
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "demo"))
from model import GPT, Sampler, held_out_loss, learning_rate, split  # noqa: E402

STEPS, EVERY, BRANCH = 600, 25, 15
POINTS = range(50, 501, 50)


class Training:
    """The demo's, in one object."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        train, self.held_out = split(quality_data.prose())
        self.model = GPT()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        self._scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: learning_rate(s, STEPS))
        self._sampler = Sampler(train, 16, seed)

    def step(self) -> None:
        loss = self.model(*self._sampler.next())
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self._scheduler.step()

    def validate(self) -> float:
        return held_out_loss(self.model, self.held_out, 4)

    def _parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self._scheduler, "sampler": self._sampler}

    def state(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()}

    def set(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])


def record(out: pathlib.Path, seed: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    training = Training(seed)
    after: dict[int, float] = {}
    for step in range(STEPS + 1):
        if step and step % EVERY == 0:
            torch.save(training.state(), out / f"{step}.pt")
        if step - BRANCH in POINTS:
            after[step - BRANCH] = training.validate()
        if step < STEPS:
            training.step()
    torch.save({"after": after, "seed": seed}, out / "after.pt")


def mix(t: Training, decoded: dict[str, Any], what: str) -> None:
    """Decoded parts over the true ones that are there."""
    moments = decoded["optimizer"]["state"]
    with torch.no_grad():
        for name, p in t.model.named_parameters():
            if "w" in what:
                p.copy_(decoded["model"][name])
            for letter, key in (("m", "exp_avg"), ("v", "exp_avg_sq")):
                if letter in what:
                    t.optimizer.state[p][key].copy_(moments[name][key])


def measure(dir: pathlib.Path, profile: Any, quality: float, what: str) -> str:
    about = torch.load(dir / "after.pt")
    live, branch = Training(about["seed"]), Training(about["seed"])
    params = sum(p.numel() for p in live.model.parameters())
    bits: list[dict[str, float]] = []
    at_once, later = [], []
    with tempfile.TemporaryDirectory() as run:
        ck = ckpress.Checkpointer(run, profile=profile, quality=quality, threads=1, rng=False, final_on_close=False)
        for step in range(EVERY, STEPS + 1, EVERY):
            saved = torch.load(dir / f"{step}.pt")
            live.set(saved)
            ck.save(step, model=live.model, optimizer=live.optimizer, wait=True)
            stats = ck.stats
            bits.append({k: 8 * stats["stored_by_role"][k] / params for k in ("weight", "m", "v")} | {"all": 8 * stats["stored_bytes"] / params})
            if step not in POINTS:
                continue
            branch.set(saved)
            mix(branch, ckpress.load(run), what)
            at_once.append(branch.validate() - live.validate())
            for _ in range(BRANCH):
                branch.step()
            later.append(branch.validate() - about["after"][step])
        ck.close()
    mean = {k: statistics.mean(b[k] for b in bits) for k in bits[0]}
    error = statistics.stdev(later) / len(later) ** 0.5
    shown = ", ".join(f"{k} {v:.3f}" for k, v in mean.items())
    return (
        f"{profile} quality {quality:g}, decoded {what}: bits {shown}; loss at once {statistics.mean(at_once):+.4f}, "
        f"{BRANCH} steps later {statistics.mean(later):+.4f} +- {error:.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", default="resume", choices=("resume", "small", "weights", "lossless"))
    parser.add_argument("--quality", type=float, default=1.0)
    parser.add_argument("--what", default="wmv", help="letters of what is decoded: w, m, v")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.record:
        record(args.dir, args.seed)
    else:
        print(measure(args.dir, args.profile, args.quality, args.what))


if __name__ == "__main__":
    main()
