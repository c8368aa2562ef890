# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: bf16 and fp16 weights whose fp32 masters are saved too are derived from them, wherever the masters lie."""

from __future__ import annotations

import copy
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ckpress
import pytest
import torch
from ckpress import _core
from helpers import same
from torch import nn

HALVES = (torch.bfloat16, torch.float16)


class MasterAdamW(torch.optim.Optimizer):
    """AdamW as mixed-precision trainings have it: everything in fp32, rounded to the parameter at the end of a step."""

    def __init__(self, params: Any, lr: float = 1e-3, key: str = "master_param") -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.95)})
        self.key = key

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s |= {"step": 0, self.key: p.float(), "exp_avg": torch.zeros_like(p, dtype=torch.float32), "exp_avg_sq": torch.zeros_like(p, dtype=torch.float32)}
                s["step"] += 1
                g = p.grad.float()
                s["exp_avg"].lerp_(g, 0.1)
                s["exp_avg_sq"].lerp_(g * g, 0.05)
                s[self.key] -= group["lr"] * s["exp_avg"] / (s["exp_avg_sq"].sqrt() + 1e-8)
                p.copy_(s[self.key])


def make(dtype: torch.dtype, key: str = "master_param") -> tuple[nn.Module, MasterAdamW]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(300, 64), nn.Linear(64, 200), nn.GELU(), nn.LayerNorm(200), nn.Linear(200, 300)).to(dtype)
    return model, MasterAdamW(model.parameters(), key=key)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        x = torch.randint(0, 300, (32,))
        loss = nn.functional.cross_entropy(model(x).float(), (x * 7 + 1) % 300)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def tensors(path: Path, step: int = -1) -> dict[str, dict[str, Any]]:
    ck = _core.open_run(str(path), step, False) if path.is_dir() else _core.open_file(str(path), ())
    found = [ck.tensor(i) for i in range(len(ck))]
    for t in found:
        t["copy_of"] = None if t["copy_of"] is None else found[t["copy_of"]]["name"]
    ck.close()
    return {t["name"]: t for t in found}


def derived(path: Path) -> dict[str, str]:
    """Names of copies and of their masters."""
    return {name: t["copy_of"] for name, t in tensors(path).items() if t["copy_of"] is not None}


def save_run(path: Path, model: nn.Module, optimizer: Any, saves: int, profile: str = "lossless", between: Callable[[int], None] = lambda n: None) -> None:
    with ckpress.Checkpointer(path, profile=profile) as ck:
        ck.restore(model=model, optimizer=optimizer)
        for step in range(1, saves + 1):
            train(model, optimizer)
            between(step)
            ck.save(step)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("key", ["master_param", "fp32_param", "param", "a name of their own"])
def test_run(tmp_path: Path, dtype: torch.dtype, key: str) -> None:
    run = tmp_path / "run"
    model, optimizer = make(dtype, key)
    save_run(run, model, optimizer, 4)
    assert [e.is_delta for e in ckpress.list_run(run)].count(False) == 1
    # undeclared: of one value, such as a scale that has not yet moved by half an ulp, says nothing of where it comes from
    assert derived(run).keys() >= {f"model/{n}" for n, _ in model.named_parameters() if key != "a name of their own" or n != "3.weight"}
    assert all(master.endswith(key) and name.removeprefix("model/") in master for name, master in derived(run).items())
    assert all(tensors(run)[name]["stored_bytes"] == 0 for name in derived(run))
    fresh, other = make(dtype, key)
    with ckpress.Checkpointer(run, profile="lossless") as ck:
        assert ck.restore(model=fresh, optimizer=other) == 4
        assert same(dict(fresh.state_dict()), dict(model.state_dict()))
        assert same(other.state_dict()["state"], optimizer.state_dict()["state"])
        train(fresh, other)
        ck.save(5)
    assert [e.is_delta for e in ckpress.list_run(run)].count(False) == 1


def test_a_copy_that_strays_is_stored(tmp_path: Path) -> None:
    """Weights that somebody changes behind the optimizer's back come back as they were."""
    run = tmp_path / "run"
    model, optimizer = make(torch.bfloat16)

    def stray(step: int) -> None:
        if step == 3:
            with torch.no_grad():
                model[1].weight[7, 9] += 1

    save_run(run, model, optimizer, 3, between=stray)
    assert "model/1.weight" not in derived(run) and "model/4.weight" in derived(run)
    fresh, other = make(torch.bfloat16)
    with ckpress.Checkpointer(run, profile="lossless") as ck:
        assert ck.restore(model=fresh, optimizer=other) == 3
    assert same(dict(fresh.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize("profile", ["resume", "small"])
def test_lossy_copies_are_rounded_from_what_comes_back(tmp_path: Path, profile: str) -> None:
    run = tmp_path / "run"
    model, optimizer = make(torch.bfloat16)
    save_run(run, model, optimizer, 3, profile)
    assert len(derived(run)) == len(list(model.parameters()))
    seen = tensors(run, 2)  # the last one has exact weights
    large = [name for name in derived(run) if seen[name]["numel"] > 10_000]
    assert large
    for name in large:
        assert seen[derived(run)[name]]["lossy"]
        moments = [t for t in seen.values() if t["role"] in ("m", "v") and seen[name]["shape"] == t["shape"]]
        assert moments and all(t["lossy"] for t in moments)
    for step in (1, 2, 3):
        fresh, other = make(torch.bfloat16)
        with ckpress.Checkpointer(run, profile=profile) as ck:
            assert ck.restore(step=step, model=fresh, optimizer=other) == step
        for p in fresh.parameters():
            assert same(p.data, other.state[p]["master_param"].bfloat16())


def with_masters(dtype: torch.dtype) -> tuple[nn.Module, nn.ParameterList, torch.optim.Optimizer]:
    model, _ = make(dtype)
    masters = nn.ParameterList(p.detach().float() for p in model.parameters())
    return model, masters, torch.optim.AdamW(masters, lr=1e-3)


def train_masters(model: nn.Module, masters: nn.ParameterList, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        x = torch.randint(0, 300, (32,))
        nn.functional.cross_entropy(model(x).float(), (x * 7 + 1) % 300).backward()
        for p, m in zip(model.parameters(), masters, strict=True):
            assert p.grad is not None
            m.grad, p.grad = p.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for p, m in zip(model.parameters(), masters, strict=True):
                p.copy_(m)


@pytest.mark.parametrize("profile", ["resume", "small"])
def test_a_snapshot_of_the_model_stays_as_it_is(tmp_path: Path, profile: str) -> None:
    """A target that is the model today, and that nobody has frozen: which of the two is derived can't be told, so neither is."""
    model, masters, optimizer = with_masters(torch.bfloat16)
    train_masters(model, masters, optimizer)
    target = copy.deepcopy(model)
    with ckpress.Checkpointer(tmp_path / "run", profile, final_on_close=False) as ck:
        ck.save(1, wait=True, model=model, target=target, masters=masters, optimizer=optimizer)
        train_masters(model, masters, optimizer)
        ck.save(2, wait=True, model=model, target=target, masters=masters, optimizer=optimizer)
    for step in (1, 2):
        loaded = ckpress.load(f"{tmp_path}/run@{step}")
        assert same(dict(loaded["target"]), dict(target.state_dict()))
    assert not any(name.startswith("target") for name in derived(tmp_path / "run"))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("profile", ["resume", "small"])
def test_masters_beside_the_model(tmp_path: Path, profile: str, dtype: torch.dtype) -> None:
    """An optimizer over masters: the model is trained by nobody, and what it is the rounding of is found in a lossy save too. Frozen weights and those that
    are nobody's rounding are as they were."""
    model, masters, optimizer = with_masters(dtype)
    frozen = nn.Linear(64, 200).requires_grad_(False).to(dtype)
    loose = nn.Linear(64, 200).to(dtype)
    parts = {"model": model, "masters": masters, "optimizer": optimizer, "frozen": frozen, "loose": loose}
    with ckpress.Checkpointer(tmp_path / "run", profile, final_on_close=False) as ck:
        for step in (1, 2, 3):
            train_masters(model, masters, optimizer)
            frozen.weight.data.copy_(model[1].weight)  # today's values, by chance
            ck.save(step, wait=True, **parts)
            assert ck.stats["is_key"] == (step == 1)
    assert derived(tmp_path / "run") == {f"model/{n}": f"masters/{i}" for i, (n, p) in enumerate(model.named_parameters())}
    assert {t["role"] for n, t in tensors(tmp_path / "run").items() if n.startswith(("frozen", "loose"))} == {"weight"}
    again, fresh, other = with_masters(dtype)
    with ckpress.Checkpointer(tmp_path / "run", profile, final_on_close=False) as ck:
        parts = {"model": again, "masters": fresh, "optimizer": other}
        ice, wild = nn.Linear(64, 200).requires_grad_(False).to(dtype), nn.Linear(64, 200).to(dtype)
        assert ck.restore(**parts, frozen=ice, loose=wild) == 3
    assert not same(fresh[1].data, masters[1].data) and all(same(p.data, m.data.to(dtype)) for p, m in zip(again.parameters(), fresh, strict=True))
    assert same(ice.weight.data, frozen.weight.data) and same(wild.weight.data, loose.weight.data)


@pytest.mark.parametrize("held", ["nowhere", "list", "dict", "parameters", "state_dict"])
def test_masters_that_nobody_saves(tmp_path: Path, held: str) -> None:
    """An optimizer's parameters that are in nothing that is saved would silently start anew."""

    class Holder:
        def state_dict(self) -> dict[str, Any]:
            return {"masters": [m.detach() for m in masters]}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    model, masters, optimizer = with_masters(torch.bfloat16)
    train_masters(model, masters, optimizer)
    parts = {"list": list(masters), "dict": {"a": {"b": tuple(masters)}}, "parameters": masters, "state_dict": Holder()}
    with warnings.catch_warnings(record=True) as said, ckpress.Checkpointer(tmp_path / "run", profile="resume") as ck:
        warnings.simplefilter("always")
        ck.save(1, wait=True, model=model, optimizer=optimizer, **({} if held == "nowhere" else {"masters": parts[held]}))
    assert any("everything is coded losslessly" in str(w.message) for w in said) == (held != "parameters")
    told = [str(w.message) for w in said if "in nothing that is saved" in str(w.message)]
    assert told == ([] if held != "nowhere" else told[:1]) and (held != "nowhere" or "optimizer/group0.0 and 6 more" in told[0])


@pytest.mark.parametrize("held", ["clones", "hook", "copies", "buffer", "numpy"])
def test_parameters_that_are_saved_otherwise(tmp_path: Path, held: str) -> None:
    """Where their values are saved they are not lost, whatever has them; that nothing can be coded lossily is told."""
    flat = torch.randn(64 * 9)
    model: Any = nn.Linear(64, 8)
    model.weight, model.bias = nn.Parameter(flat[:512].view(8, 64)), nn.Parameter(flat[512:520])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(64)).sum().backward()
    optimizer.step()

    class Holder:
        def state_dict(self) -> dict[str, Any]:
            return {k: v.clone() for k, v in model.state_dict().items()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    if held == "hook":
        model._register_state_dict_hook(lambda module, state, prefix, meta: {k: v.clone() for k, v in state.items()})
    arrays = {k: v.numpy() for k, v in model.state_dict().items()}
    holds = {"clones": Holder().state_dict(), "hook": model, "copies": Holder(), "buffer": flat, "numpy": arrays}[held]
    with warnings.catch_warnings(record=True) as said, ckpress.Checkpointer(tmp_path / "run", profile="resume") as ck:
        warnings.simplefilter("always")
        ck.save(1, wait=True, held=holds, optimizer=optimizer)
    assert [str(w.message) for w in said if "everything is coded losslessly" not in str(w.message)] == []


def test_the_warning_names_the_line(tmp_path: Path) -> None:
    _, _, optimizer = with_masters(torch.bfloat16)
    with pytest.warns(RuntimeWarning, match="in nothing that is saved") as said:
        ckpress.save(tmp_path / "s.ckp", {"optimizer": optimizer})
    assert said[0].filename == __file__


@pytest.mark.parametrize("masters", [False, True])
def test_averages_of_weights_of_16_bits(tmp_path: Path, masters: bool) -> None:
    """Averages have gradients like any copied module; they are nobody's rounding."""
    model, optimizer = make(torch.bfloat16)
    if masters:
        model, of, optimizer = with_masters(torch.bfloat16)  # type: ignore[assignment]
        train_masters(model, of, optimizer)
    else:
        train(model, optimizer)
    average = copy.deepcopy(model)
    with ckpress.Checkpointer(tmp_path / "run", "resume", averages=["average"], final_on_close=False) as ck:
        ck.save(1, wait=True, model=model, optimizer=optimizer, average=average, **({"masters": of} if masters else {}))
    assert {t["role"] for n, t in tensors(tmp_path / "run").items() if n.startswith("average/")} == {"average"}


def test_a_base_model_of_16_bits(tmp_path: Path) -> None:
    """Weights that no optimizer of a save trains are found in the base model as all others are."""
    model, _ = make(torch.bfloat16)
    torch.save(model.state_dict(), tmp_path / "base.pt")
    head = nn.Linear(8, 8)
    parts: dict[str, Any] = {"model": model, "head": head, "optimizer": torch.optim.AdamW(head.parameters())}
    with ckpress.Checkpointer(tmp_path / "run", "resume", base=tmp_path / "base.pt", final_on_close=False) as ck:
        for step in (1, 2):
            ck.save(step, wait=True, **parts)
            assert ck.stats["is_key"] == (step == 1)
            stored = sum(t["stored_bytes"] for n, t in tensors(tmp_path / "run").items() if n.startswith("model/"))
            assert stored < 0.05 * sum(2 * p.numel() for p in model.parameters())
    again = copy.deepcopy(model)
    with torch.no_grad():
        for p in again.parameters():
            p.zero_()
    with ckpress.Checkpointer(tmp_path / "run", "resume", final_on_close=False) as ck:
        ck.restore(model=again, strict=False)
    assert same(dict(again.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize("profile", ["lossless", "resume"])
@pytest.mark.parametrize("how", ["declared", "beside the model"])
def test_masters_on_a_base_model_of_16_bits(tmp_path: Path, profile: str, how: str) -> None:
    """A base model says what weights were under the model's names; where they are derived from masters, that is the masters' base."""
    if how == "declared":
        model, optimizer = make(torch.bfloat16)
        parts: dict[str, Any] = {"model": model, "optimizer": optimizer}
    else:
        model, masters, optimizer = with_masters(torch.bfloat16)  # type: ignore[assignment]
        parts = {"model": model, "masters": masters, "optimizer": optimizer}
    torch.save(model.state_dict(), tmp_path / "base.pt")
    for group in optimizer.param_groups:
        group["lr"] = 1e-6
    if how == "declared":
        train(model, optimizer)
    else:
        train_masters(model, parts["masters"], optimizer)
    sizes = {}
    for name, base in (("with", tmp_path / "base.pt"), ("without", None)):
        with ckpress.Checkpointer(tmp_path / name, profile, base=base, final_on_close=False) as ck:
            for step in (1, 2):
                ck.save(step, wait=True, **parts)
                assert ck.stats["is_key"] == (step == 1)
        found = tensors(tmp_path / name, 1)
        assert len([n for n, t in found.items() if t["copy_of"] is not None]) >= len(list(model.parameters())) - 2  # but what is of one value still
        holders = {t["copy_of"] for t in found.values() if t["copy_of"] is not None}
        sizes[name] = sum(found[n]["stored_bytes"] for n in holders)
    assert sizes["with"] < (0.9 if profile == "lossless" else 1.0) * sizes["without"]
    back = copy.deepcopy(parts)
    for p in back["model"].parameters():
        p.data.zero_()
    with ckpress.Checkpointer(tmp_path / "with", profile, base=tmp_path / "base.pt", final_on_close=False) as ck:
        assert ck.restore(**back) == 2
    if profile == "lossless":
        assert all(same(back[name].state_dict(), part.state_dict()) for name, part in parts.items() if hasattr(part, "state_dict"))
    else:
        was = torch.load(tmp_path / "base.pt", weights_only=True)
        for name, weight in back["model"].state_dict().items():
            moved = (model.state_dict()[name].float() - was[name].float()).square().mean().sqrt()
            assert (weight.float() - model.state_dict()[name].float()).square().mean().sqrt() <= 8 * moved + 1e-4, name


def named_list(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    """As Apex, Megatron and others have it: the optimizer's own state, and a list of masters by group."""
    masters = [optimizer.state[p][optimizer.key] for p in model.parameters()]
    return {"model": model.state_dict(), "optimizer": {"fp32_from_fp16_params": [masters], "optimizer": {"lr": 1.0}}}


def second_model(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    return {"model": model.state_dict(), "fp32": {n: optimizer.state[p][optimizer.key] for n, p in model.named_parameters()}}


def flat_views(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    """One-dimensional masters: pieces of a buffer."""
    return {"model": model.state_dict(), "masters": [optimizer.state[p][optimizer.key].reshape(-1) for p in model.parameters()]}


@pytest.mark.parametrize("arrange", [named_list, second_model, flat_views], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_state_dicts(tmp_path: Path, arrange: Callable[..., dict[str, Any]], dtype: torch.dtype) -> None:
    model, optimizer = make(dtype)
    train(model, optimizer, 20)
    state = arrange(model, optimizer)
    ckpress.save(tmp_path / "s.ckp", state)
    # all but biases and scales that are still of one value
    assert len(derived(tmp_path / "s.ckp")) == len(list(model.parameters()))
    assert same(ckpress.load(tmp_path / "s.ckp"), state)
    torch.save(state, tmp_path / "s.pt")
    ckpress.compress(tmp_path / "s.pt", tmp_path / "p.ckp")
    assert len(derived(tmp_path / "p.ckp")) == len(list(model.parameters()))
    ckpress.decompress(tmp_path / "p.ckp", tmp_path / "back.pt")
    assert same(torch.load(tmp_path / "back.pt", weights_only=True), torch.load(tmp_path / "s.pt", weights_only=True))


def test_slices_and_frameworks(tmp_path: Path) -> None:
    model, optimizer = make(torch.bfloat16)
    train(model, optimizer)
    ckpress.save(tmp_path / "s.ckp", named_list(model, optimizer))
    with ckpress.open(tmp_path / "s.ckp") as f:
        assert same(f["model/0.weight"][3:77], model[0].weight[3:77].detach())


def test_compress_to_a_pipe_stores_copies(tmp_path: Path) -> None:
    """What is read from a pipe cannot wait for a master that comes later."""
    model, optimizer = make(torch.bfloat16)
    train(model, optimizer)
    state = second_model(model, optimizer)
    torch.save(state, tmp_path / "s.pt")
    ckp = subprocess.run(["ckpress", "compress", "-o", "-", tmp_path / "s.pt"], check=True, stdout=subprocess.PIPE).stdout
    (tmp_path / "piped.ckp").write_bytes(ckp)
    assert derived(tmp_path / "piped.ckp") == {}
    back = subprocess.run(["ckpress", "decompress", "-o", tmp_path / "back.pt", "-"], input=ckp, check=True)
    assert back.returncode == 0
    assert same(torch.load(tmp_path / "back.pt", weights_only=True), torch.load(tmp_path / "s.pt", weights_only=True))
    ckpress.compress(tmp_path / "s.pt", tmp_path / "s.ckp")
    told = subprocess.run(["ckpress", "decompress", "-o", tmp_path / "no.pt", "-"], input=(tmp_path / "s.ckp").read_bytes(), stderr=subprocess.PIPE)
    assert told.returncode != 0 and b"derived from a file" in told.stderr and not (tmp_path / "no.pt").exists()
