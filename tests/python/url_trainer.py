# SPDX-License-Identifier: Apache-2.0
"""A training of a small torch model that saves to a URL, for the tests that kill it.

    python url_trainer.py URL STEPS OUT STORAGE

STORAGE: ckpress.Storage's fields, as JSON. Says "restored N", "save N" and, of every third, "committed N", and at the end writes OUT with a hash of everything that was trained.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import sys

import ckpress
import torch
from helpers import bits, steps, training


def say(text: str) -> None:
    os.write(1, (text + "\n").encode())


def main() -> None:
    url, last, out, storage = sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    torch.set_num_threads(1)
    model, optimizer, scheduler = training()
    with ckpress.Checkpointer(url, threads=1, key_every=4, keep_last=3, storage=ckpress.Storage(**storage)) as ck:
        done = ck.restore(model=model, optimizer=optimizer, scheduler=scheduler) or 0
        say(f"restored {done}")
        while done < last:
            steps(model, optimizer, scheduler, 1)
            done += 1
            say(f"save {done}")
            ck.save(done, wait=done % 3 == 0)
            if done % 3 == 0:
                say(f"committed {done}")
    digest = hashlib.sha256(b"".join(bits(t) for t in model.state_dict().values()))
    for state in optimizer.state_dict()["state"].values():
        digest.update(b"".join(bits(t) for t in state.values()))
    pathlib.Path(out).write_text(json.dumps({"step": done, "sha256": digest.hexdigest()}))


if __name__ == "__main__":
    main()
