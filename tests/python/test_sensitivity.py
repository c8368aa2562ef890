# SPDX-License-Identifier: Apache-2.0
"""Averages of gradients gathered during training."""

from __future__ import annotations

import os

import ckpress
import ckpress.torch
import pytest
import torch
import torch.multiprocessing
from helpers import bits
from torch import nn


def net_of(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20, bias=False))
    net[2].weight = net[0].weight
    return net


def step(net, n, seed=0):
    torch.manual_seed(1000 * seed + n)
    net.zero_grad()
    x = torch.randint(0, 20, (6,))
    nn.functional.cross_entropy(net(x), (x * 3) % 20).backward()


def expected(count, make=net_of):
    """|EMA(g) w| by a second way."""
    net = make()
    average = {k: torch.zeros_like(p) for k, p in net.named_parameters()}
    for n in range(count):
        step(net, n)
        for k, p in net.named_parameters():
            average[k] = 0.9 * p.grad + 0.1 * average[k]
    return {k: (average[k] * p).abs() for k, p in net.named_parameters()}


def test_scores_and_the_end():
    net = net_of()
    watched = ckpress.torch.track_sensitivity(net, batches=4)
    with pytest.raises(ckpress.StateError):
        watched.scores()
    for n in range(7):
        assert watched.running == (n < 4) and watched.gathered == min(n, 4)
        step(net, n)
    assert not any(p._post_accumulate_grad_hooks for p in net.parameters())
    got, want = watched.scores(), expected(4)
    assert got.keys() == want.keys() == {"0.weight", "1.weight", "1.bias"}
    assert all(torch.allclose(got[k], want[k], rtol=1e-5, atol=1e-9) for k in want)


def test_training_is_the_same_and_stop_stops():
    trained = []
    for watch in (False, True):
        net = net_of()
        optimizer = torch.optim.AdamW(net.parameters())
        if watch:
            watched = ckpress.torch.track_sensitivity(net, batches=50)
        for n in range(6):
            step(net, n)
            optimizer.step()
            if watch and n == 3:
                watched.stop()
        trained.append(b"".join(bits(p) for p in net.parameters()))
    assert trained[0] == trained[1] and watched.gathered == 4 and not watched.running
    assert not any(p._post_accumulate_grad_hooks for p in net.parameters())
    watched.resume()
    step(net, 6)
    assert watched.running and watched.gathered == 5
    watched.start()
    assert watched.running and watched.gathered == 0
    with watched:
        pass
    assert not watched.running


def test_accumulated_gradients_count_once():
    net, other = net_of(), net_of()
    watched = ckpress.torch.track_sensitivity(net, batches=2, accumulate=3)
    average = {k: torch.zeros_like(p) for k, p in other.named_parameters()}
    for n in range(2):
        for model in (net, other):
            model.zero_grad()
            for i in range(3):
                torch.manual_seed(10 * n + i)
                x = torch.randint(0, 20, (6,))
                model(x).square().mean().backward()
        for k, p in other.named_parameters():
            average[k] = 0.9 * p.grad + 0.1 * average[k]
    assert watched.gathered == 2 and not watched.running
    assert all(torch.allclose(v, (average[k] * other.get_parameter(k)).abs(), rtol=1e-5, atol=1e-9) for k, v in watched.scores().items())


def test_parts_that_are_frozen_sparse_or_never_reached():
    net = nn.ModuleDict({"a": nn.Embedding(9, 4, sparse=True), "b": nn.Linear(4, 4), "c": nn.Linear(4, 4), "d": nn.Linear(4, 4).bfloat16()})
    net["b"].bias.requires_grad_(False)
    watched = ckpress.torch.track_sensitivity(net, batches=3)
    for _ in range(3):
        h = net["b"](net["a"](torch.tensor([1, 1, 5])))
        net["d"](h.bfloat16()).float().sum().backward()
        net.zero_grad()
    scores = watched.scores()
    assert "b.bias" not in scores and watched.running and watched.gathered == 3  # c is still waited for
    assert scores["a.weight"][1].min() > 0 and not scores["a.weight"][0].any() and not scores["c.weight"].any()
    assert scores["d.weight"].dtype == torch.float32 and scores["d.weight"].any()
    watched.stop()


@pytest.mark.parametrize("wrong", [{"batches": 0}, {"batches": True}, {"beta": 0}, {"beta": 1.5}, {"beta": "x"}, {"accumulate": 0}])
def test_arguments(wrong):
    with pytest.raises(ckpress.InvalidError):
        ckpress.torch.track_sensitivity(net_of(), **wrong)


def test_no_model():
    with pytest.raises(ckpress.InvalidError):
        ckpress.torch.track_sensitivity({})
    with pytest.raises(ckpress.InvalidError):
        ckpress.torch.track_sensitivity(nn.ReLU())


def _rank(rank, place):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}/meet", rank=rank, world_size=2)
    net = nn.parallel.DistributedDataParallel(nn.Linear(8, 8), gradient_as_bucket_view=True)
    watched = ckpress.torch.track_sensitivity(net, batches=3)
    average = torch.zeros(8, 8)
    for n in range(4):
        torch.manual_seed(10 * n + rank)
        net.zero_grad()
        net(torch.randn(5, 8)).square().mean().backward()  # after it, .grad is the mean of both ranks
        if n < 3:
            average = 0.9 * net.module.weight.grad + 0.1 * average
    assert not watched.running
    scores = watched.scores()
    assert scores.keys() == {"weight", "bias"}
    assert torch.allclose(scores["weight"], (average * net.module.weight).abs(), rtol=1e-4, atol=1e-8)
    torch.save(scores, f"{place}/{rank}.pt")
    torch.distributed.barrier()  # nobody's peer goes away before it is done
    os._exit(0)  # torch's threads of a group and a wrapped model do not always end in peace: not what is tested here


def test_ranks_agree_on_the_mean_gradient(tmp_path):
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    a, b = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert all(torch.equal(a[k], b[k]) for k in a)
