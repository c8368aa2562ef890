# SPDX-License-Identifier: Apache-2.0
"""`make test-s3`: a training that saves to S3 through a proxy which throttles, fails and cuts requests, and that is killed again and again.

Over each server of s3_servers.py: the training is left alone once, without faults; then it is killed (SIGKILL) at random moments of its saves, each time
started anew, until it has ended. After each kill, and at the end, a reader that meets no faults judges what lies there. Then every kind of
request meets silence. Ends with lines `MUST name value bar ok|short`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import ckpress
import s3_servers
from s3_servers import BUCKET, Proxy, Server, Silence

TRAINER = pathlib.Path(__file__).parent / "url_trainer.py"
SHARES = {"throttled": 0.05, "failed": 0.01, "refused": 0.005, "hung": 0.002, "lost": 0.01, "cut": 0.01}
TRY_SECONDS = 2.0
UNCOMMITTED = ("incomplete", "deleting")
TIME_LIMIT = 600  # seconds of one training, all its lives together


@dataclasses.dataclass
class Found:
    """What the judge saw."""

    kills: int = 0
    damaged: int = 0  # checkpoints with a manifest that are not whole, seen after any kill or at the end
    lost: int = 0  # kills after which something is not restored that had been committed
    left: int = 0  # attempts of the dead that are there after one more start
    committed: int = 0  # checkpoints that are there at the end
    same_end: bool = False  # as the training that was left alone

    def sound(self) -> bool:
        return self.same_end and not (self.damaged or self.lost or self.left)


def start(url, steps, out, options):
    storage = {"options": options, "try_seconds": TRY_SECONDS}
    command = [sys.executable, "-W", "ignore", str(TRAINER), url, str(steps), str(out), json.dumps(storage)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def judge(found, url, options):
    """Restorable steps. An attempt, and a deletion that was cut short, are no checkpoints."""
    rows = ckpress.list_run(url, storage=options)
    bad = [r for r in rows if r.health.partition(":")[0] not in ("ok", *UNCOMMITTED)]
    for r in bad:
        print(f"{url}: {r.dir}: {r.health}", flush=True)
    found.damaged += len(bad)
    return [r.step for r in rows if r.health == "ok"]


def attempts(url, options):
    return sum(r.health.partition(":")[0] in UNCOMMITTED for r in ckpress.list_run(url, storage=options))


def saves_till_kill(left, kills, chance):
    """0: no more kills. A life does not take steps from those that come after it, and has two to spare: a training that has ended can't be killed."""
    return min(chance.randint(2, 5), max((left - 2) // kills, 1)) if kills else 0


def one_life(process, steps, kills, chance):
    """Until it ends or is killed within the time of one step; what it restored, and the highest step that it called committed."""
    first = process.stdout.readline()
    if not first.startswith("restored "):
        raise RuntimeError(f"the training does not start (exit {process.wait()})")
    restored = committed = int(first.split()[1])
    more = saves_till_kill(steps - restored, kills, chance)
    target = f"save {restored + more}\n" if more else None
    shortest, before = 0.3, None
    for line in process.stdout:
        if line.startswith("committed "):
            committed = int(line.split()[1])
        if line.startswith("save "):
            now = time.monotonic()
            shortest, before = min(shortest, now - before if before else shortest), now
        if line == target:
            time.sleep(chance.uniform(0, shortest))
            process.send_signal(signal.SIGKILL)
            # what it said before it died
            committed = max([committed] + [int(x.split()[1]) for x in process.stdout if x.startswith("committed ")])
            break
    process.stdout.close()
    return restored, committed


def run(options, direct, url, folder, steps, kills, seed):
    """options: as the training reaches the server; direct: as the judge does."""
    found, chance, safe = Found(), random.Random(seed), 0
    whole, end = pathlib.Path(folder) / "whole", pathlib.Path(folder) / "end"
    alone = start(url + "-whole", steps, whole, direct)
    alone.communicate(timeout=TIME_LIMIT)
    if alone.returncode != 0:
        raise RuntimeError("the training does not end even when it is left alone")
    limit = time.monotonic() + TIME_LIMIT
    while True:
        process = start(url, steps, end, options)
        watch = threading.Timer(max(limit - time.monotonic(), 1), process.kill)
        watch.start()
        try:
            restored, committed = one_life(process, steps, kills - found.kills, chance)
            found.lost += restored < safe
            code = process.wait(timeout=max(limit - time.monotonic(), 1))
        finally:
            watch.cancel()
            process.kill()
            process.wait()
        if time.monotonic() > limit:
            raise RuntimeError(f"the training has not ended in {TIME_LIMIT} s")
        there = judge(found, url, direct)
        found.lost += max(there, default=0) < max(safe, committed)
        safe = max([safe, committed, *there])
        print(f"{url}: restored {restored}, {'killed' if code else 'ended'}; there: {there}, attempts: {attempts(url, direct)}", flush=True)
        if code == 0:
            break
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the training failed by itself (exit {code})")
        found.kills += 1
    # A run that is killed in its first saves keeps whole shards, which may be all that is left of it, until a start that finds a checkpoint beside them.
    ckpress.Checkpointer(url, storage=direct).close()
    found.left = attempts(url, direct)
    found.committed = len(judge(found, url, direct))
    try:
        ckpress.verify(url, level="decode", storage=direct)
    except ckpress.Error as e:
        print(e, flush=True)
        found.damaged += 1
    found.same_end = json.loads(end.read_text()) == json.loads(whole.read_text())
    return found


def silence(deadline):
    """Every kind of request to a server that takes it and never answers: the longest that one took in units of its deadline, and how many said what they were."""
    from ckpress import _url

    class Bytes:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

        def read(self, offset, n):
            return b"x" * n

    silent = Silence()
    store = _url.Store(f"s3://{BUCKET}/run", ckpress.Storage(options=s3_servers.options(silent.port), deadline=deadline, try_seconds=deadline / 3))
    requests = {
        "stat": lambda: store.stat("key"),
        "get": lambda: store.get("key", 0, 10),
        "put": lambda: store.put("key", Bytes(10), False),
        "replace": lambda: store.put("key", Bytes(10), True),
        "parts": lambda: store.put("key", Bytes(_url.WHOLE + 1), True),
        "list": lambda: store.list(""),
        "remove": lambda: store.remove("key"),
    }
    longest, named = 0.0, 0
    for request in requests.values():
        start_time = time.monotonic()
        try:
            request()
        except ckpress.FileError as e:
            named += f"the deadline is {deadline:.3g} s" in str(e) and "no answer" in str(e)
        longest = max(longest, (time.monotonic() - start_time) / deadline)
    silent.close()
    return longest, named, len(requests)


def must(name, value, bar, ok):
    return f"MUST s3_{name} {value:.4g} {bar:g} {'ok' if ok else 'short'}"


def over(kind, steps, kills, seed):
    with tempfile.TemporaryDirectory() as folder:
        return over_in(folder, kind, steps, kills, seed)


def over_in(folder, kind, steps, kills, seed):
    server = Server(kind, folder)
    proxy = Proxy(server.port, seed, **SHARES)
    try:
        began = time.monotonic()
        # one try of the client's own, so that it is ckpress that tries again
        found = run(s3_servers.options(proxy.port, tries=1), server.options, f"s3://{BUCKET}/run", folder, steps, kills, seed)
        unfinished = len(server.unfinished())
    finally:
        proxy.close()
        server.close()
    counts = ", ".join(f"{proxy.count[name]} {name}" for name in s3_servers.FAULTS)
    print(f"{kind}: {found.kills} kills, {found.committed} checkpoints at the end; {proxy.count['requests']} requests: {counts}; {time.monotonic() - began:.0f} s", flush=True)
    return [
        must(f"{kind}_kills_survived", found.kills, kills, found.kills >= kills),
        must(f"{kind}_faults", proxy.faults(), kills * 10, proxy.faults() >= kills * 10),
        must(f"{kind}_checkpoints_damaged", found.damaged, 0, found.damaged == 0),
        must(f"{kind}_commits_lost", found.lost, 0, found.lost == 0),
        must(f"{kind}_attempts_left", found.left + unfinished, 0, found.left + unfinished == 0),
        must(f"{kind}_end_as_left_alone", found.same_end, 1, found.same_end),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CKP_SEED") or 1))
    parser.add_argument("--server", choices=s3_servers.SERVERS, action="append")
    args = parser.parse_args()
    print(f"seed {args.seed}; of all requests: " + ", ".join(f"{share:.1%} {name}" for name, share in SHARES.items()))
    kinds = args.server or s3_servers.SERVERS
    for needs in map(s3_servers.missing, kinds):
        if needs is not None:
            raise SystemExit(f"needs {needs}: pip install {needs}")
    # side by side: each is one training on one thread, and waits half of the time
    with concurrent.futures.ThreadPoolExecutor() as pool:
        lines = [line for found in pool.map(lambda kind: over(kind, args.steps, args.kills, args.seed), kinds) for line in found]
    longest, named, n = silence(deadline=2.0)
    lines.append(must("silence_in_deadlines", longest, 1.25, longest <= 1.25))
    lines.append(must("silence_named", named, n, named == n))
    print("\n".join(lines), flush=True)
    os._exit(0 if all(line.endswith(" ok") for line in lines) else 1)  # threads that still wait for the silent server


if __name__ == "__main__":
    main()
