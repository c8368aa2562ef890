# SPDX-License-Identifier: Apache-2.0
"""A training process for the tests that kill it: plain Python and numpy, so that starting it costs little.

    python trainer.py DIR STEPS [OUT]

Says "restored N" and "save N", and at the end writes OUT.json (DIR.json) with a hash of the final state.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

import ckpress
import numpy as np


class Model:
    """A walk of an array by a generator: any lost or repeated step changes the end."""

    def __init__(self) -> None:
        self.w = np.zeros(40_000, dtype=np.float32)
        self.rng = np.random.default_rng(1)

    def step(self) -> None:
        self.w[self.rng.integers(0, len(self.w), 500)] += self.rng.standard_normal(500).astype(np.float32)


def say(text: str) -> None:
    os.write(1, (text + "\n").encode())


def main() -> None:
    folder, steps = sys.argv[1], int(sys.argv[2])
    out = sys.argv[3] if len(sys.argv) > 3 else folder
    model = Model()
    with ckpress.Checkpointer(folder, threads=1, rng=False, key_every=4) as ck:
        done = ck.restore(w=model.w, rng_state=model.rng) or 0
        say(f"restored {done}")
        while done < steps:
            model.step()
            done += 1
            say(f"save {done}")
            ck.save(done)
    digest = hashlib.sha256(model.w.tobytes()).hexdigest()
    with open(out + ".json", "w") as f:
        json.dump({"step": done, "sha256": digest}, f)


if __name__ == "__main__":
    main()
