# SPDX-License-Identifier: Apache-2.0
"""What the ranks of test_sharded.py do. Functions of (rank, dir, ...), run by ranks.run()."""

from __future__ import annotations

import warnings

import ckpress.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

# Matrices that two and three ranks share unevenly, one that leaves a rank without rows, few rows in blocks, rows without columns, what has no rows.
SHAPES = [(40, 96), (17, 33), (4, 512), (2, 40), (70, 9), (96,), (5,), (5000,), (64, 3, 5, 7), (1, 300)]

RULES = {
    "adamw": (ckpress.torch.AdamW, {"lr": 1e-2, "weight_decay": 0.1, "state_bits": (4, 4)}),
    "adam": (ckpress.torch.Adam, {"lr": 1e-2, "weight_decay": 0.1, "state_bits": (5, 3), "maximize": True}),
    "auto": (ckpress.torch.AdamW, {"lr": 1e-2, "state_bits": "auto", "budget_bits": 12.0, "every": 3, "small": 300}),
    "sgd": (ckpress.torch.SGD, {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "state_bits": 4}),
    "lion": (ckpress.torch.Lion, {"lr": 1e-2, "state_bits": 5}),
    "bf16": (ckpress.torch.AdamW, {"lr": 1e-2, "weight_decay": 0.1, "master": "split8"}),
}


def whole_gradient(shape, i, step, dtype=torch.float32):
    """Columns that drift apart, a row that is next to nothing, elements of no use: of the whole parameter, the same on every rank."""
    g = torch.Generator().manual_seed(1000 * i + step)
    x = torch.randn(shape, generator=g) * torch.randn(shape[-1:], generator=g).exp() * {20: 1e3, 30: 0.0}.get(step, 1e-2) * 4.0 ** -(i % 4)
    if len(shape) > 1 and shape[0] > 16:
        x[1] *= 2.0**-52
    if step == 40:
        x.view(-1)[-2] = float("nan")
    return x.to(dtype)


def whole_state(optimizer):
    """Of every rank's state: the whole tensors."""
    out = {}
    for k, state in optimizer.state_dict()["state"].items():
        for name, t in state.items():
            out[f"{k}.{name}"] = (t.full_tensor() if isinstance(t, DTensor) else t).clone()
    return out


def mesh_of(world, replicas=1):
    return init_device_mesh("cpu", (world,)) if replicas == 1 else init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replicas", "rows"))


def place(t, mesh):
    """Without a word to the others: all of them have t."""
    size, rank = mesh.size(mesh.ndim - 1), mesh.get_local_rank(mesh.ndim - 1)
    each = -(-t.shape[0] // size)
    here = t[min(t.shape[0], rank * each) : min(t.shape[0], (rank + 1) * each)].clone()
    return DTensor.from_local(here, mesh, [*[Replicate()] * (mesh.ndim - 1), Shard(0)], run_check=False, shape=t.shape, stride=t.stride())


def stepped(rule, mesh, steps, threads=1, by_torch=False):
    """An optimizer after that many steps on whole gradients, on the ranks of a mesh or on one alone."""
    torch.set_num_threads(threads)
    ours, options = RULES[rule]
    dtype = torch.bfloat16 if rule == "bf16" else torch.float32
    params = [nn.Parameter(place(torch.ones(s, dtype=dtype), mesh) if mesh is not None else torch.ones(s, dtype=dtype)) for s in SHAPES]
    optimizer = ours(params, seed=3, **options)
    optimizer._by_torch = by_torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(steps):
            for i, p in enumerate(params):
                g = whole_gradient(SHAPES[i], i, step, dtype)
                p.grad = g if mesh is None else place(g, mesh)
            optimizer.step()
    weights = [p.detach().full_tensor() if mesh is not None else p.detach() for p in params]
    torch.set_num_threads(1)
    return optimizer, {**whole_state(optimizer), **{f"p{i}": w for i, w in enumerate(weights)}}


def same_as_one(rank, dir, rules, steps, replicas=1):
    """Each rule's weights and states after 50 steps, and on rank 0 also what one process alone gives."""
    out = {}
    mesh = mesh_of(dist.get_world_size(), replicas)
    for rule, by_torch in rules:
        optimizer, all_of_it = stepped(rule, mesh, steps, threads=1 + (rule == "adamw" and mesh.size() == 2 and rank == 1), by_torch=by_torch)
        report = optimizer.report()
        out[rule, by_torch] = all_of_it, report.get("sharded"), report["skipped"], [h for h in report.get("policy", {}).get("history", [])], str(report)
    return out


def out_of_room(rank, dir):
    """A state whose first moments have room, into a parameter of which each rank has some rows."""
    g = torch.Generator().manual_seed(1)
    v = torch.rand((40, 96), generator=g) + 0.5
    m = torch.where(torch.rand((40, 96), generator=g) < 0.04, 4.0, 0.01) * v.sqrt()
    group = torch.optim.AdamW([nn.Parameter(torch.ones(40, 96))]).state_dict()["param_groups"]
    alone = ckpress.torch.AdamW([nn.Parameter(torch.ones(40, 96))], small=0)
    alone.load_state_dict({"state": {0: {"step": torch.tensor(1000.0), "exp_avg": m, "exp_avg_sq": v}}, "param_groups": group})
    had = next(iter(alone.state.values()))["packed"]
    mine = ckpress.torch.AdamW([nn.Parameter(place(torch.ones(40, 96), mesh_of(dist.get_world_size())))], small=0)
    mine.load_state_dict(alone.state_dict())
    alone.state[alone.param_groups[0]["params"][0]]["packed"] = had.settled_now(None, 0, 0, "p")
    return had.settle, whole_state(mine), whole_state(alone)


def one_alone(rank, dir, rules, steps):
    return {(rule, by_torch): stepped(rule, None, steps, threads=1 + (rule == "lion"), by_torch=by_torch)[1] for rule, by_torch in rules}


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(40, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.gate = nn.Linear(width, 2)  # of which a third rank has nothing
        self.head = nn.Linear(width, 40)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.head(self.norm(x) * self.gate(x).sigmoid().sum(-1, keepdim=True))


def net(seed=0):
    torch.manual_seed(seed)
    return Net()


def sharded(model, mesh=None):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def data(step, rank, world, batch=24):
    x = torch.randint(0, 40, (batch,), generator=torch.Generator().manual_seed(step))
    return x[rank * batch // world : (rank + 1) * batch // world]


def train(model, optimizer, steps, first=0, rank=0, world=1, scaler=None):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        x = data(step, rank, world)
        loss = nn.functional.cross_entropy(model(x), (x * 7 + 3) % 40)
        (loss if scaler is None else scaler.scale(loss)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()


def loss_of(model):
    x = torch.arange(40)
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(x), (x * 7 + 3) % 40))


def adamw(model, **options):
    return ckpress.torch.AdamW(model.parameters(), **{"lr": 3e-3, "small": 0, **options})


def real_trainings(rank, dir, steps):
    """DDP and FSDP2 on data of which each rank has a share: the loss in the end, and DDP's codes."""
    world, out = dist.get_world_size(), {}
    model = nn.parallel.DistributedDataParallel(net())
    optimizer = adamw(model)
    train(model, optimizer, steps, rank=rank, world=world)
    out["ddp"] = loss_of(model.module), whole_state(optimizer)
    model = sharded(net())
    optimizer = adamw(model)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    train(model, optimizer, steps, rank=rank, world=world)
    assert model.head.weight.grad is not None
    norm = float(torch.cat([p.detach().full_tensor().flatten() for p in model.parameters()]).norm())
    out["fsdp"] = loss_of(model), optimizer.report().get("sharded"), norm
    return out


def with_replicas(rank, dir, steps):
    """FSDP2 on a mesh of 2 x 2: two ranks share the rows, and two have the same."""
    world = dist.get_world_size()
    model = sharded(net(), mesh_of(world, 2))
    optimizer = adamw(model, state_bits="auto", budget_bits=6.0, every=5)
    train(model, optimizer, steps, rank=rank, world=world)
    assert next(model.parameters()).placements == (Replicate(), Shard(0))
    return whole_state(optimizer), optimizer.report()["sharded"]["ranks"], loss_of(model)


def through_dcp(rank, dir, save, first, lion=False):
    """Trains, widths changing on the way, and saves; or loads into a fresh optimizer with other options, and goes on."""
    world = dist.get_world_size()
    model = sharded(net(seed=int(not save)))
    other = {} if save else {"budget_bits": 3.0, "every": 50, "lr": 1.0}
    if lion:
        optimizer = ckpress.torch.Lion(model.parameters(), lr=1e-4, state_bits=5 if save else 8, small=0)
    else:
        optimizer = adamw(model, **{"state_bits": "auto", "budget_bits": 5.0, "every": 2, **other})
    if save:
        train(model, optimizer, first, rank=rank, world=world)
    if save and not lion:
        assert optimizer.report()["policy"]["history"]
        for p, state in optimizer.state_dict()["state"].items():
            placed = [k for k, t in state.items() if isinstance(t, DTensor)]
            wanted = {"exp_avg", "exp_avg_sq"} if "exp_avg" in state else {"exp_avg_code", "exp_avg_sq_code", "row_factor"}
            assert set(placed) == wanted, (p, placed)
            assert len({state[k].shape[0] for k in placed}) == 1
    if save:
        dcp.save({"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=f"{dir}/dcp")
    else:
        start = {k: (t.full_tensor() if isinstance(t, DTensor) else t).clone() for k, t in model.state_dict().items()}
        state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}
        assert all(torch.equal(t.full_tensor() if isinstance(t, DTensor) else t, start[k]) for k, t in model.state_dict().items())
        dcp.load(state, checkpoint_id=f"{dir}/dcp")
        set_model_state_dict(model, state["model"])
        set_optimizer_state_dict(model, optimizer, optim_state_dict=state["optim"])
    state = whole_state(optimizer)
    return state, optimizer.param_groups[0]["policy"], [p.detach().full_tensor().clone() for p in model.parameters()]


def asked_for_a_state(rank, dir):
    """torch's helpers step a fresh optimizer to see its state: whatever they do, the training is what it would have been."""
    out, world = [], dist.get_world_size()
    for ask in (False, True):
        model = sharded(net())
        optimizer = adamw(model, state_bits="auto", every=2)
        if ask:
            state = get_optimizer_state_dict(model, optimizer)["state"]
            assert len(state) == len(list(model.parameters())) and all(float(s["step"]) == 0 for s in state.values())
        train(model, optimizer, 8, rank=rank, world=world)
        out.append((whole_state(optimizer), optimizer.param_groups[0]["policy"]))
    return out


def full_states(rank, dir):
    """A full state dict goes to ranks of any number, and torch's own state too."""
    world = dist.get_world_size()
    model = sharded(net())
    optimizer = adamw(model)
    train(model, optimizer, 6, rank=rank, world=world)
    full = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    plain = net()
    alone = adamw(plain)
    keys = list(dict(model.named_parameters()))
    if rank == 0:  # of plain tensors, in one process
        state = {"state": {i: full["state"][k] for i, k in enumerate(keys)}, "param_groups": alone.state_dict()["param_groups"]}
        alone.load_state_dict(state)
    mine = whole_state(optimizer)
    back = adamw(sharded(net()))
    back.load_state_dict({"state": {i: {k: t.full_tensor() if isinstance(t, DTensor) else t for k, t in s.items()} for i, s in optimizer.state_dict()["state"].items()},
                          "param_groups": optimizer.state_dict()["param_groups"]})
    # moments in f32 become codes: the same whoever shares them
    torchs = torch.optim.AdamW(plain.parameters(), lr=3e-3)
    train(plain, torchs, 5)
    taken, by_one = adamw(sharded(net())), adamw(net())
    taken.load_state_dict(torchs.state_dict())
    by_one.load_state_dict(torchs.state_dict())
    taken.set_state_bits((3, 5))
    by_one.set_state_bits((3, 5))
    out = {"rank": mine, "back": whole_state(back), "taken": whole_state(taken), "by_one": whole_state(by_one)}
    moments = taken.torch_state_dict()["state"][0]["exp_avg"]
    out["moments"] = moments.full_tensor(), by_one.torch_state_dict()["state"][0]["exp_avg"]
    if rank == 0:
        out["alone"] = whole_state(alone)
    return out


def scaled(rank, dir):
    """GradScaler sees what is infinite on any rank."""
    model = sharded(net())
    optimizer = adamw(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    world, skipped = dist.get_world_size(), []
    for step in range(3):
        before = model.head.weight.detach().full_tensor().clone()
        optimizer.zero_grad()
        x = data(step, rank, world)
        scaler.scale(nn.functional.cross_entropy(model(x), x)).backward()
        if step == 1 and rank == 0:
            model.head.weight.grad.to_local()[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        skipped.append(torch.equal(before, model.head.weight.detach().full_tensor()))
    return skipped, scaler.get_scale()


def refusals(rank, dir):
    out = []

    def says(fn):
        try:
            fn()
            out.append("nothing")
        except Exception as e:  # noqa: BLE001
            out.append(f"{type(e).__name__}: {e}")

    mesh = mesh_of(dist.get_world_size())
    plain = nn.Parameter(torch.ones(4, 64))
    says(lambda: ckpress.torch.AdamW([plain, nn.Parameter(distribute_tensor(torch.ones(64, 64), mesh, [Shard(1)]))]))
    flat = init_device_mesh("cpu", (1, dist.get_world_size()))
    says(lambda: ckpress.torch.AdamW([nn.Parameter(distribute_tensor(torch.ones(64, 64), flat, [Shard(0), Shard(0)]))]))
    replicated = nn.Parameter(distribute_tensor(torch.ones(64, 64), mesh, [Replicate()]))
    frozen = nn.Parameter(distribute_tensor(torch.ones(64, 64), mesh, [Shard(1)]), requires_grad=False)
    optimizer = ckpress.torch.AdamW([replicated, frozen])
    replicated.grad = distribute_tensor(torch.ones(64, 64), mesh, [Replicate()])
    optimizer.step()
    out.append(sorted(optimizer.state_dict()["state"][0]))
    # a rank that forgot a gradient: all are told, in the first step
    params = [nn.Parameter(place(torch.ones(64, 64), mesh)) for _ in range(3)]
    optimizer = ckpress.torch.AdamW(params)
    for i, p in enumerate(params):
        if i != 1 or rank == 0:
            p.grad = place(torch.ones(64, 64), mesh)
    says(optimizer.step)
    # or later, where columns are fitted
    for p in params:
        p.grad = place(torch.ones(64, 64), mesh)
    optimizer = ckpress.torch.AdamW(params)
    optimizer.step()
    if rank == 0:
        params[2].grad = None
    says(optimizer.step)
    # or later still, where columns would be fitted on the others alone
    alone = nn.Parameter(place(torch.ones(64, 64), mesh))
    optimizer = ckpress.torch.AdamW([alone])
    for call in range(1, 4):
        alone.grad = None if call == 3 and rank == 1 else place(torch.ones(64, 64), mesh)
        optimizer.step()
    alone.grad = place(torch.ones(64, 64), mesh)
    says(optimizer.step)
    # a state of torch's class, which rank 0 alone has: the others see steps without moments
    model = sharded(net())
    optimizer = adamw(model)
    state = {}
    if rank == 0:
        plain = net()
        torchs = torch.optim.AdamW(plain.parameters(), lr=3e-3)
        train(plain, torchs, 3)
        state = get_optimizer_state_dict(plain, torchs)
    says(lambda: set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)))
    moved = nn.Parameter(place(torch.ones(64, 64), mesh))
    optimizer = ckpress.torch.AdamW([moved])
    moved.grad = distribute_tensor(torch.ones(64, 64), mesh, [Replicate()])
    says(optimizer.step)
    return out
