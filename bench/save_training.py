# SPDX-License-Identifier: Apache-2.0
"""make bench-save, second half: saves and restores beside a training, through the Python package.

    python bench/save_training.py [--mb 500] [--quick] [--only stall,beside,wall,peak,restore,total]

Of a state of 500 MB (a chain of linear layers with AdamW's moments, f32): how long save() holds the training, beside one memcpy of the state by as many
threads; a training's steps while a save is being written, beside a plain busy loop of as many threads of the lowest priority (and beside nothing); what a
save every 30 s costs in wall time; peak memory; restores from shared memory, page cache and disk beside torch.load and safetensors; whole saves
beside torch.save, DCP and moonclip (in an environment of its own, .venv-bench-save).

Ends with lines `MUST name value bar ok|short`; build/bench/save_training.json has all figures.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ckpress
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench"
VENV = ROOT / ".venv-bench-save"
PROFILES = ("lossless", "resume", "small")
CPUS = len(os.sched_getaffinity(0))
WIDTH = 2048
TRIES = 5
Figures = dict[str, float]


# ---- a training -------------------------------------------------------------------------------------------------------------


class Net(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + torch.nn.functional.gelu(layer(x)) / 4
        return x


class Training:
    """A step takes some 100 ms on one core: half of it is the optimizer's pass over memory."""

    def __init__(self, megabytes: int) -> None:
        torch.manual_seed(1)
        self.model = Net(max(1, round(megabytes * 1e6 / (12 * WIDTH * WIDTH))))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.x, self.y = torch.randn(16, WIDTH), torch.randn(16, WIDTH)
        self.step()

    def step(self) -> None:
        loss = (self.model(self.x) - self.y).square().mean()
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()

    def tensors(self) -> list[torch.Tensor]:
        params = list(self.model.parameters())
        return [t for p in params for t in (p.data, self.optimizer.state[p]["exp_avg"], self.optimizer.state[p]["exp_avg_sq"])]

    def bytes(self) -> int:
        return sum(t.nbytes for t in self.tensors())

    def change_half(self) -> None:
        """Every other layer and its moments."""
        tensors = self.tensors()
        for i in range(0, len(tensors), 6):
            for t in tensors[i : i + 3]:
                t.mul_(1.0 + 1e-3 * torch.rand(1).item())

    def open(self, where: pathlib.Path, profile: str, **how: Any) -> ckpress.Checkpointer:
        shutil.rmtree(where, ignore_errors=True)
        ck = ckpress.Checkpointer(where, profile=profile, final_on_close=False, keep_last=2, **how)
        ck.register(model=self.model, optimizer=self.optimizer)
        return ck


def seconds(fn: Callable[[], Any]) -> float:
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def each_thread(fn: Callable[[int], None]) -> None:
    for threads in (1, 2):
        if threads <= CPUS:
            torch.set_num_threads(threads)
            fn(threads)


# ---- reporting --------------------------------------------------------------------------------------------------------------

figures: Figures = {}
musts: list[str] = []


def show(name: str, value: float) -> None:
    figures[name] = value
    print(f"     {name} {value:.4g}", flush=True)


def must(name: str, value: float, bar: float) -> None:
    figures[name] = value
    musts.append(f"MUST {name} {value:.4g} {bar:g} {'ok' if value <= bar else 'short'}")
    print(f"     {name} {value:.4g}", flush=True)


# ---- how long save() holds the training -----------------------------------------------------------------------------------------


def stall(t: Training, work: pathlib.Path) -> None:
    source = t.tensors()
    target = [torch.empty_like(x).fill_(1) for x in source]

    def one(threads: int) -> None:
        copy = min(seconds(lambda: [b.copy_(a) for a, b in zip(source, target)]) for _ in range(TRIES))
        show(f"memcpy_gb_s_{threads}_threads", t.bytes() / copy / 1e9)
        for profile in PROFILES:
            changes = t.change_half if profile == "lossless" else t.step
            must(f"stall_over_memcpy_{profile}_{threads}_threads", best_stall(t, work, profile, threads, changes) / copy, 1.5)
        show(f"stall_over_memcpy_lossless_all_changed_{threads}_threads", best_stall(t, work, "lossless", threads, t.step) / copy)

    each_thread(one)


def best_stall(t: Training, work: pathlib.Path, profile: str, threads: int, change: Callable[[], None]) -> float:
    """Of deltas, from the call of save() to its return."""
    times = []
    with t.open(work / "run", profile, threads=threads) as ck:
        ck.save(0, wait=True)
        for i in range(1, TRIES + 1):
            change()
            times.append(seconds(lambda i=i: ck.save(i)))
            ck.wait()
    return min(times)


# ---- steps beside a save --------------------------------------------------------------------------------------------------------


class BusyLoop:
    """So many threads of the lowest priority that only calculate, without the interpreter lock."""

    def __init__(self, threads: int) -> None:
        self.over = False
        self.rounds = [0] * threads
        self.threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(threads)]

    def _run(self, index: int) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self.over:
            hashlib.pbkdf2_hmac("sha256", b"busy", b"loop", 5_000)
            self.rounds[index] += 1

    def __enter__(self) -> BusyLoop:
        self.began = time.perf_counter()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.rate = sum(self.rounds) / (time.perf_counter() - self.began)
        self.over = True
        for thread in self.threads:
            thread.join()


def loop_alone() -> float:
    """Rounds a second of a busy loop that has the processors for itself."""
    with BusyLoop(CPUS) as loop:
        time.sleep(3)
    return loop.rate


def steps_for(t: Training, limit: float, goes_on: Callable[[], bool] = lambda: True) -> list[float]:
    """Seconds of each step that began and ended while it went on."""
    out, end = [], time.perf_counter() + limit
    while time.perf_counter() < end and goes_on():
        took = seconds(t.step)
        if goes_on():
            out.append(took)
    return out


def saving(t: Training, ck: ckpress.Checkpointer, limit: float, numbers: Iterator[int]) -> tuple[list[float], list[float]]:
    """Steps beside saves, one after the other; how long each save took, from call to commit."""
    steps: list[float] = []
    saves: list[float] = []
    end = time.perf_counter() + limit
    while time.perf_counter() < end or not saves:
        ck.save(next(numbers))
        steps += steps_for(t, 600, lambda: ck.busy)
        ck.wait()
        saves.append(ck.stats["total"])
    return steps, saves


def alone(t: Training, ck: ckpress.Checkpointer, numbers: Iterator[int]) -> list[float]:
    took = []
    for _ in range(3):
        t.step()
        ck.save(next(numbers), wait=True)
        took.append(ck.stats["total"])
    return took


STEPS_BAR, SAVE_BAR = 1.05, 4.0


def least_ratio(nothing: list[float], loop: list[float], save: list[float], saves: int, by_itself: float) -> float:
    """What a save takes of the training's time is the same whether it takes it at once or little by little (decision 27): how many times its time alone it has to
    last for steps to be no longer than the bar on them allows. Where that is above the bar on saves, no priority meets both."""
    without = statistics.mean(nothing)
    lost = (sum(save) - len(save) * without) / saves
    share = 1 - without / (STEPS_BAR * statistics.mean(loop))
    return max(0.0, lost) / by_itself / share if share > 0 else float("inf")


def beside(t: Training, work: pathlib.Path, rounds: int, limit: float) -> None:
    def one(threads: int) -> None:
        for profile in ("lossless", "resume"):
            nothing: list[float] = []
            loop: list[float] = []
            save: list[float] = []
            by_itself: list[float] = []
            slowed: list[float] = []
            rates: list[float] = []
            ratios: list[float] = []
            least: list[float] = []
            numbers = iter(range(10**9))
            with t.open(work / "run", profile) as ck:
                ck.save(next(numbers), wait=True)
                for _ in range(rounds):
                    beside_nothing = steps_for(t, limit)
                    with BusyLoop(CPUS) as busy:
                        beside_loop = steps_for(t, limit)
                    rates.append(loop_alone() / busy.rate)
                    more, took = saving(t, ck, limit, numbers)
                    unhindered = alone(t, ck, numbers)
                    slowed.append(statistics.median(took) / statistics.median(unhindered))
                    nothing += beside_nothing
                    loop += beside_loop
                    save += more
                    by_itself += unhindered
                    if more and beside_loop:  # of neighbours in time: a machine's speed drifts by more than the bar
                        ratios.append(statistics.median(more) / statistics.median(beside_loop))
                        least.append(least_ratio(beside_nothing, beside_loop, more, len(took), statistics.median(unhindered)))
            name = f"{profile}_{threads}_torch_threads"
            show(f"step_ms_{name}", 1e3 * statistics.median(nothing))
            show(f"step_beside_busy_loop_over_nothing_{name}", statistics.median(loop) / statistics.median(nothing))
            # what the scheduler leaves to the lowest priority: a save that calculates on as many threads can hardly be slowed down less
            show(f"busy_loop_beside_training_over_alone_{name}", statistics.median(rates))
            if not ratios:
                show(f"no_whole_step_fell_into_a_save_{name}", 1)
                continue
            show(f"step_beside_save_over_nothing_{name}", statistics.median(save) / statistics.median(nothing))
            must(f"step_beside_save_over_busy_loop_{name}", statistics.median(ratios), STEPS_BAR)
            show(f"save_alone_s_{name}", statistics.median(by_itself))
            must(f"save_beside_training_over_alone_{name}", statistics.median(slowed), SAVE_BAR)
            show(f"save_over_alone_that_the_bar_on_steps_asks_for_{name}", statistics.median(least))
            show(f"save_slowed_over_busy_loop_slowed_{name}", statistics.median(s / r for s, r in zip(slowed, rates, strict=True)))

    each_thread(one)


# ---- wall time ------------------------------------------------------------------------------------------------------------------


def stretch(t: Training, at_least: float, ck: ckpress.Checkpointer, number: int | None) -> tuple[float, float]:
    """Seconds a step, and of the whole, of steps with one save at their beginning (number) or without; all of the save falls into it."""
    start, n = time.perf_counter(), 0
    if number is not None:
        ck.save(number)
    while time.perf_counter() - start < at_least or ck.busy:
        t.step()
        n += 1
    took = time.perf_counter() - start
    ck.wait()
    return took / n, took


def wall(t: Training, work: pathlib.Path, rounds: int, at_least: float) -> None:
    """What a save costs, as a share of 30 s: stretches with one save and without, in turn, each save's beside the mean of its two neighbours. They are
    shorter than 30 s because what a machine's speed drifts by counts as much as their length."""

    def one(threads: int) -> None:
        for profile in ("lossless", "resume"):
            lost = []
            with t.open(work / "run", profile) as ck:
                ck.save(0, wait=True)
                before, _ = stretch(t, at_least, ck, None)
                for i in range(1, rounds + 1):
                    beside, took = stretch(t, at_least, ck, i)
                    after, _ = stretch(t, at_least, ck, None)
                    lost.append(took * (1 - (before + after) / 2 / beside))
                    before = after
            name = f"{profile}_{threads}_torch_threads"
            show(f"seconds_lost_to_a_save_{name}", statistics.median(lost))
            must(f"wall_of_a_save_every_30_s_over_none_{name}", 30 / (30 - min(max(0.0, statistics.median(lost)), 29.0)), 1.03)

    each_thread(one)


# ---- peak memory ----------------------------------------------------------------------------------------------------------------


def status_kb(key: str) -> int:
    return next(int(line.split()[1]) for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(key))


def peak_child(megabytes: int, profile: str, work: pathlib.Path) -> float:
    """Largest growth of resident memory by three saves, over the budget that they were given."""
    t = Training(megabytes)
    budget = t.bytes() * 11 // 10
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda n: 0)
    trim(0)
    before = status_kb("VmRSS:")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    with t.open(work / "run", profile, memory_budget=budget) as ck:
        for i in range(3):
            ck.save(i, wait=True)
            t.change_half()
    return (status_kb("VmHWM:") - before) * 1024 / budget


def peak(megabytes: int, work: pathlib.Path) -> None:
    for profile in PROFILES:
        done = subprocess.run(
            [sys.executable, __file__, "--child", profile, "--mb", str(megabytes), "--work", str(work)], capture_output=True, text=True, check=True
        )
        must(f"peak_memory_over_budget_{profile}", float(done.stdout), 1.0)


# ---- restores --------------------------------------------------------------------------------------------------------------------


def forget_cached(path: pathlib.Path) -> None:
    """The kernel's copies of files on disk go, so that the next read is one."""
    for file in [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def restores(t: Training, work: pathlib.Path) -> None:
    size = t.bytes()

    def rate(name: str, fn: Callable[[], Any], cold: pathlib.Path | None = None) -> None:
        best = float("inf")
        for _ in range(TRIES):
            if cold is not None:
                forget_cached(cold)
            best = min(best, seconds(fn))
        show(f"restore_gb_s_{name}", size / best / 1e9)

    for profile in ("lossless", "resume"):
        for memory in (0, 4 * size):
            with t.open(work / "run", profile, memory=memory) as ck:
                ck.save(1, wait=True)
                again = lambda ck=ck: ck.restore(model=t.model, optimizer=t.optimizer)  # noqa: E731
                if memory == 0:
                    rate(f"{profile}_page_cache", again)
                    rate(f"{profile}_disk", again, work / "run")
                elif ck.stats["copy_bytes"] == 0:
                    print(f"     {ck.stats['copy_note']}")
                else:
                    rate(f"{profile}_shared_memory", again)
    plain = work / "state.pt"
    torch.save({"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict()}, plain)
    for name, cold in (("page_cache", None), ("disk", plain)):
        rate(f"torch_load_{name}", lambda: load_torch(t, plain), cold)
    safe_tensors(t, work / "state.safetensors", rate)


def load_torch(t: Training, path: pathlib.Path) -> None:
    state = torch.load(path)
    t.model.load_state_dict(state["model"])
    t.optimizer.load_state_dict(state["optimizer"])


def safe_tensors(t: Training, path: pathlib.Path, rate: Callable[..., None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {str(i): x for i, x in enumerate(t.tensors())}
    save_file(tensors, path)

    def load() -> None:
        for name, x in load_file(path).items():
            tensors[name].copy_(x)

    rate("safetensors_page_cache", load)
    rate("safetensors_disk", load, path)


# ---- whole saves -------------------------------------------------------------------------------------------------------------------


def durable(path: pathlib.Path) -> None:
    for file in [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def report(t: Training, name: str, times: list[float], stored: int) -> None:
    show(f"save_s_{name}", min(times))
    show(f"save_ratio_{name}", t.bytes() / stored)


def files_of(path: pathlib.Path) -> int:
    return sum(f.stat().st_size for f in ([path] if path.is_file() else path.rglob("*")) if f.is_file())


def total(t: Training, work: pathlib.Path, megabytes: int) -> None:
    import torch.distributed.checkpoint as dcp

    for profile in PROFILES:
        with t.open(work / "run", profile) as ck:
            ck.save(0, wait=True)
            times = []
            for i in range(1, 4):
                t.step()
                times.append(seconds(lambda i=i: ck.save(i, wait=True)))
            report(t, f"ckpress_{profile}", times, ck.stats["bytes_written"])

    def torch_save() -> None:
        torch.save({"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict()}, work / "state.pt")
        durable(work / "state.pt")

    def dcp_save() -> None:
        shutil.rmtree(work / "dcp", ignore_errors=True)
        dcp.save({"model": t.model.state_dict(), "optimizer": t.optimizer.state_dict()}, checkpoint_id=work / "dcp", no_dist=True)
        durable(work / "dcp")

    report(t, "torch_save", [seconds(torch_save) for _ in range(3)], files_of(work / "state.pt"))
    report(t, "dcp", [seconds(dcp_save) for _ in range(3)], files_of(work / "dcp"))
    moonclip(t, work, megabytes)


def moonclip_child(megabytes: int, work: pathlib.Path) -> str:
    from moonclip import CheckpointManager

    t = Training(megabytes)
    shutil.rmtree(work / "moonclip", ignore_errors=True)
    manager = CheckpointManager(str(work / "moonclip"))
    held, took, before = [], [], 0
    for i in range(4):
        t.step()
        before = files_of(work / "moonclip") if i else 0
        start = time.perf_counter()
        manager.save(step=i, model=t.model, optimizer=t.optimizer)
        held.append(time.perf_counter() - start)
        manager.flush()
        durable(work / "moonclip")
        took.append(time.perf_counter() - start)
    return json.dumps({"held": held[1:], "took": took[1:], "stored": files_of(work / "moonclip") - before})


def moonclip(t: Training, work: pathlib.Path, megabytes: int) -> None:
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        (VENV / ".gitignore").write_text("*\n")
        lib = next((VENV / "lib").glob("python*")) / "site-packages"
        (lib / "torch_of_the_project.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "moonclip"], stderr=subprocess.DEVNULL)
    command = [str(python), __file__, "--child", "moonclip", "--mb", str(megabytes), "--work", str(work)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print("     moonclip is left out: it cannot be installed or does not run here:", done.stderr.strip().splitlines()[-1:], flush=True)
        return
    found = json.loads(done.stdout.splitlines()[-1])
    report(t, "moonclip", found["took"], found["stored"])
    show("stall_s_moonclip", min(found["held"]))


# ---- all ---------------------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=0, help="size of the state (500)")
    parser.add_argument("--quick", action="store_true", help="a small state and short rounds: whether all works, no figures to keep")
    parser.add_argument("--only", default="stall,beside,wall,peak,restore,total")
    parser.add_argument("--work", type=pathlib.Path, default=OUT / "save-training")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    megabytes = args.mb or (100 if args.quick else 500)
    if args.child is not None:
        print(moonclip_child(megabytes, args.work) if args.child == "moonclip" else peak_child(megabytes, args.child, args.work))
        return 0
    rounds, limit = (1, 3.0) if args.quick else (5, 8.0)
    args.work.mkdir(parents=True, exist_ok=True)
    t = Training(megabytes)
    print(f"{t.bytes() / 1e6:.0f} MB of state, {CPUS} CPUs, torch {torch.__version__}", flush=True)
    parts: dict[str, Callable[[], None]] = {
        "stall": lambda: stall(t, args.work),
        "beside": lambda: beside(t, args.work, rounds, limit),
        "wall": lambda: wall(t, args.work, 2 if args.quick else 9, 5.0 if args.quick else 10.0),
        "peak": lambda: peak(megabytes, args.work),
        "restore": lambda: restores(t, args.work),
        "total": lambda: total(t, args.work, megabytes),
    }
    for name in args.only.split(","):
        parts[name]()
    print("\n".join(musts))
    (OUT / "save_training.json").write_text(json.dumps(figures, indent=1))
    shutil.rmtree(args.work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
