# SPDX-License-Identifier: Apache-2.0
"""Processes that are the ranks of a training: each runs a function of a test, and what it returns or raises comes back."""

import multiprocessing
import os
import sys
import time
import traceback
from multiprocessing import forkserver

import torch

WORLD = 4


def training(seed=1, width=24):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU(), torch.nn.Linear(width, 48), torch.nn.Linear(48, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer


def train(model, optimizer, steps=1, seed=0):
    """The same on all ranks, as DistributedDataParallel makes it."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 32, generator=generator)).square().mean().backward()
        optimizer.step()


def flat(model, optimizer):
    """Every tensor of both, to compare."""
    out = {name: t.clone() for name, t in model.state_dict().items()}
    for i, state in optimizer.state_dict()["state"].items():
        out.update({f"{i}.{key}": t.clone() for key, t in state.items()})
    return out


def _rank(fn, rank, world, dir, args):
    from torch import distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{dir}/meet-{os.getppid()}-{args[0]}", rank=rank, world_size=world)
    try:
        answer = ("ok", fn(rank, dir, *args[1:]))
    except BaseException as e:
        traceback.print_exc()
        answer = (type(e).__name__, str(e))
    torch.save(answer, _answer(dir, args[0], rank) + ".part")
    os.rename(_answer(dir, args[0], rank) + ".part", _answer(dir, args[0], rank))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the answer is in its file; how torch's threads end is not what is tested


def _answer(dir, call, rank):
    return f"{dir}/answer-{call}-{rank}"


_calls = 0


def _server():
    """One process imports torch, and is forked before it has threads: seconds saved for each rank of each test."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ranks_server"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *([before] if before else [])])  # the server looks nowhere else
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


def run(fn, dir, *args, world=WORLD, killed=(), seconds=120):
    """fn(rank, dir, *args) in ``world`` processes; (kind, value) of each by rank, None of those that are ``killed``."""
    global _calls
    _calls += 1
    context = _server()
    workers = [context.Process(target=_rank, args=(fn, rank, world, str(dir), (_calls, *args))) for rank in range(world)]
    for w in workers:
        w.start()
    until = time.monotonic() + seconds
    for w in workers:
        w.join(max(1, until - time.monotonic()))
    alive = [w for w in workers if w.is_alive()]
    for w in alive:
        w.kill()
    assert not alive, f"{len(alive)} ranks hang"
    found = []
    for rank in range(world):
        there = os.path.exists(_answer(dir, _calls, rank))
        found.append(torch.load(_answer(dir, _calls, rank), weights_only=False) if there else None)
    assert all(found[rank] is not None for rank in range(world) if rank not in killed)
    return found
