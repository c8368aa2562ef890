# SPDX-License-Identifier: Apache-2.0
"""make bench-save, last part: a training is killed with SIGKILL; how long does the next process take to restore?

    python bench/save_killed.py [--mb 500] [--deltas 7] [--profiles lossless,resume]

From a run's directory, whose files the kernel still has in memory; from the copy in shared memory; and the same of a run behind s3:// on this machine
(moto, from the tests' requirements; a smaller state), alone and with 30 ms added to each request, as a bucket far away has. Best of three; the wall time of restore(),
which ends when all is in the live tensors.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import time
import uuid
from typing import Any

import ckpress
import torch
from save_training import OUT, ROOT, Training

FORK = multiprocessing.get_context("fork")
TRIES = 3
NEAR_MB, NEAR_DELTAS = 50, 2  # behind s3:// at most: a server in Python gives some 20 MB a second
FAR = 0.03  # seconds that a request takes more


def train(where: str, megabytes: int, deltas: int, how: dict[str, Any]) -> None:
    """A process of its own: saves a key and so many deltas, and is killed."""
    t = Training(megabytes)
    ck = ckpress.Checkpointer(where, final_on_close=False, key_every=64, **how)
    ck.register(model=t.model, optimizer=t.optimizer)
    for i in range(1 + deltas):
        ck.save(i, wait=True)
        t.step()
    os.kill(os.getpid(), signal.SIGKILL)


def restore(t: Training, where: str, how: dict[str, Any]) -> tuple[float, float]:
    """Seconds, and the share of the files that came from shared memory. The copy stays, as after a crash."""
    ck = ckpress.Checkpointer(where, final_on_close=False, **how)
    start = time.perf_counter()
    ck.restore(model=t.model, optimizer=t.optimizer)
    took = time.perf_counter() - start
    held = ck.stats["copy_bytes"]
    from_memory = ck.restored["memory_bytes"] if ck.restored is not None else 0
    ck._run.keep_memory()
    ck._end()
    return took, from_memory / held if held else 0.0


def measure(name: str, where: str, megabytes: int, deltas: int, **how: Any) -> None:
    child = FORK.Process(target=train, args=(where, megabytes, deltas, how))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL, child.exitcode
    t = Training(megabytes)
    found = [restore(t, where, how) for _ in range(TRIES)]
    best = min(took for took, _ in found)
    print(f"     restore_after_kill_ms_{name} {1e3 * best:.1f}   {t.bytes() / best / 1e9:.3g} GB/s, {found[0][1]:.0%} from shared memory", flush=True)
    ckpress.Checkpointer(where, **how).close()  # takes the copy away


def far_away(root: type) -> None:
    """Every request of s3fs takes so much longer."""
    call = root._call_s3  # type: ignore[attr-defined]

    async def later(self: Any, *args: Any, **kwargs: Any) -> Any:
        import asyncio

        await asyncio.sleep(FAR)
        return await call(self, *args, **kwargs)

    root._call_s3 = later  # type: ignore[attr-defined]


def behind_urls(args: argparse.Namespace, work: pathlib.Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "python"))
    import s3_servers

    if (name := s3_servers.missing("moto")) is not None:
        print(f"     s3:// is left out: no {name}")
        return
    megabytes, deltas = min(args.mb, NEAR_MB), min(args.deltas, NEAR_DELTAS)
    print(f"{Training(megabytes).bytes() / 1e6:.0f} MB of state, a key and {deltas} deltas")
    server = s3_servers.Server("moto", work / "moto")
    try:
        for distance in ("near", "far"):
            if distance == "far":
                import s3fs

                far_away(s3fs.S3FileSystem)
            for profile in args.profiles.split(","):
                for memory in (0, "4GB"):
                    where = f"s3://{s3_servers.BUCKET}/{uuid.uuid4().hex}"
                    name = f"s3_{distance}_{profile}_{'shared_memory' if memory else 'store'}"
                    measure(name, where, megabytes, deltas, profile=profile, memory=memory, storage={**server.options})
    finally:
        server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--deltas", type=int, default=7)
    parser.add_argument("--profiles", default="lossless,resume")
    args = parser.parse_args()
    work = OUT / "save-killed"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    torch.set_num_threads(1)
    print(f"{Training(args.mb).bytes() / 1e6:.0f} MB of state, a key and {args.deltas} deltas")
    for profile in args.profiles.split(","):
        for memory in (0, "4GB"):
            name = f"directory_{profile}_{'shared_memory' if memory else 'page_cache'}"
            measure(name, str(work / name), args.mb, args.deltas, profile=profile, memory=memory)
    behind_urls(args, work)
    shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
