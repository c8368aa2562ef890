# SPDX-License-Identifier: Apache-2.0
"""Weights to pass on: rounding with feedback, calibration, files of weights."""

from __future__ import annotations

import os
import warnings

import ckpress
import ckpress.torch
import pytest
import torch
from ckpress.torch._feedback import Side, rounded, side
from ckpress.torch._plan import entropy
from helpers import same
from safetensors.torch import load_file
from torch import nn


class Reader(nn.Module):
    """Tokens to one vector: an embedding, a residual layer, a convolution over time, a parameter that no layer owns, one that nothing uses."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(700, width)
        self.place = nn.Parameter(torch.randn(64, width) / 10)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.unused = nn.Linear(width, width)
        self.drop = nn.Dropout(0.5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.embed(ids) + self.place[: ids.shape[1]]
        h = self.norm(h + self.drop(self.down(torch.relu(self.up(h)))))
        return nn.functional.normalize(self.conv(h.transpose(1, 2)).mean(2), dim=-1)


def reader(seed=0):
    torch.manual_seed(seed)
    return Reader()


def batches(count=20, size=16, seed=1, vocabulary=700):
    """Tokens with frequencies like those of words."""
    generator = torch.Generator().manual_seed(seed)
    p = 1 / torch.arange(3.0, vocabulary + 3)
    return [torch.multinomial(p, size * 12, True, generator=generator).view(size, 12) for _ in range(count)]


def correlated(n, seed):
    torch.manual_seed(seed)
    x = torch.randn(4 * n, n) @ (torch.randn(n, n) / n**0.5 + torch.eye(n) * 0.1)
    return x.t() @ x / (4 * n)


# ---- rounding ----


@pytest.mark.parametrize("shape", [(60, 90), (90, 60), (1, 70), (70, 1), (33, 33)])
def test_feedback_makes_errors_cancel(shape):
    """In the metric that it was given, at the same step and nearly the same bits: what theory says of it, D's mean."""
    height, width = shape
    left, right = correlated(height, 1), correlated(width, 2)
    w = torch.randn(height, width)
    step = 0.1

    def loss(v):
        e = (w - v).double()
        return float(torch.trace(left.double() @ e @ right.double() @ e.t()))

    rows, columns = side(left, 1e-4), side(right, 1e-4)
    plain = rounded(w, Side(None, 1.0), Side(None, 1.0), step)
    one = rounded(w, Side(None, 1.0), columns, step)
    other = rounded(w, rows, Side(None, 1.0), step)
    both = rounded(w, rows, columns, step)
    for v in (plain, one, other, both):
        codes = (v / step).round()
        assert torch.equal(codes * step, v) and codes.abs().max() <= 127
    assert entropy((both / step).round()) < 1.03 * entropy((plain / step).round())
    expected = height * width * rows.mean * columns.mean * step**2 / 12
    spread = 6 * (2 / (height * width)) ** 0.5 + 0.05
    assert abs(loss(both) / expected - 1) < spread + 0.2
    if min(shape) > 1:
        assert loss(both) < 0.8 * min(loss(one), loss(other)) and max(loss(one), loss(other)) < 0.8 * loss(plain)


def test_feedback_element_by_element():
    """The diagonals at once give what a loop over elements gives."""
    left, right = correlated(7, 3), correlated(11, 4)
    w = torch.randn(7, 11)
    rows, columns = side(left, 0.01), side(right, 0.01)
    error, value = torch.zeros(7, 11), torch.zeros(7, 11)
    for c in range(11):
        for r in range(7):
            seen = error[: r + 1] @ columns.before[:, c]
            target = w[r, c] + seen[r] + sum(rows.before[q, r] * (error[q, c] + seen[q]) for q in range(r))
            value[r, c] = (target / 0.3).round() * 0.3
            error[r, c] = w[r, c] - value[r, c]
    assert torch.allclose(rounded(w, rows, columns, 0.3), value, atol=1e-6)


def test_what_is_beyond_the_codes_stays():
    w = torch.randn(40, 50)
    w[3, 7], w[5, 9] = 1e6, -30.0
    for rows, columns in [(Side(None, 1.0), Side(None, 1.0)), (side(correlated(40, 1), 0.01), side(correlated(50, 2), 0.01))]:
        v = rounded(w, rows, columns, 0.1)
        assert v[3, 7] == 1e6 and v[5, 9] == -30.0
        assert not any(torch.signbit(x) for x in v[v == 0])


# ---- calibration ----


@pytest.mark.parametrize("ratio", [6, 9])
def test_ratio_is_reached_and_pays(tmp_path, ratio):
    """The file is never larger than asked, holds exactly what calibrate() measured, and its outputs move far less than plainly rounded ones
    of no smaller a file."""
    net, seen = reader(), batches()
    made = ckpress.save_weights(tmp_path / "a.ckp", net, calibrate=seen, ratio=ratio)
    raw = sum(p.numel() for p in net.parameters()) * 4
    size = os.path.getsize(tmp_path / "a.ckp")
    assert size <= raw / ratio < 1.03 * size and made.ratio == raw / size
    got = ckpress.load(tmp_path / "a.ckp")
    assert got.keys() == net.state_dict().keys() and all(same(got[k], made.weights[k]) for k in got)
    assert all(torch.equal(got[k], v) for k, v in net.state_dict().items() if v.dim() < 2)

    held = batches(seed=77)
    coarsest = max(q for q in (0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.5, 3) if _plain_size(net, tmp_path, q) >= size)
    plain = _moved(net, ckpress.load(tmp_path / f"{coarsest}.ckp"), held)
    assert _moved(net, got, held) < 0.5 * plain
    assert abs(_moved(net, got, held) / made.error - 1) < 0.5


def _plain_size(net, tmp_path, quality):
    ckpress.save_weights(tmp_path / f"{quality}.ckp", net, quality=quality)
    return os.path.getsize(tmp_path / f"{quality}.ckp")


@torch.no_grad()
def _moved(net, state, held):
    other = reader(5)
    other.load_state_dict(state)
    net, other = net.eval(), other.eval()
    return sum(float((net(x) - other(x)).square().sum()) for x in held) / sum(float(net(x).square().sum()) for x in held)


def test_max_error_is_kept(tmp_path):
    seen = batches()
    sizes = []
    for most in (0.004, 0.02):
        made = ckpress.save_weights(tmp_path / "a.ckp", reader(), calibrate=seen, max_error=most)
        assert 0.5 * most < made.error <= most
        assert abs(_moved(reader(), ckpress.load(tmp_path / "a.ckp"), batches(seed=77)) / most - 1) < 0.6
        sizes.append(os.path.getsize(tmp_path / "a.ckp"))
    assert sizes[1] < 0.9 * sizes[0]


def test_the_model_is_left_alone():
    net = reader().train()
    net.up.weight.requires_grad_(False)
    net(batches(1)[0]).sum().backward()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    grads = {k: None if p.grad is None else p.grad.clone() for k, p in net.named_parameters()}
    made = ckpress.torch.calibrate(net, batches(6), ratio=7)
    assert net.training and not net.up.weight.requires_grad and "up.weight" in made.steps
    assert all(same(before[k], v) for k, v in net.state_dict().items())
    assert all((p.grad is None) == (grads[k] is None) and (p.grad is None or same(p.grad, grads[k])) for k, p in net.named_parameters())
    made.weights["norm.weight"].zero_()
    assert net.norm.weight.abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_two_byte_weights(tmp_path, dtype):
    net = reader().to(dtype)
    made = ckpress.save_weights(tmp_path / "a.ckp", net, calibrate=batches(), ratio=4.5)
    got = ckpress.load(tmp_path / "a.ckp")
    assert all(v.dtype == dtype and same(v, made.weights[k]) for k, v in got.items())
    assert made.ratio >= 4.5 and made.error < 0.02


def test_a_loss_is_an_output(tmp_path):
    net = reader()
    head = torch.randn(64, 10)

    def loss(model, batch):
        return nn.functional.cross_entropy(4 * model(batch["ids"]) @ head, batch["ids"][:, 0] % 10)

    data = [{"ids": x} for x in batches(40, 8)]
    made = ckpress.torch.calibrate(net, data, forward=loss, max_error=0.01)
    other = reader(4)
    other.load_state_dict(made.weights)
    old, new = (sum(loss(m.eval(), b).item() for b in data[4::5]) for m in (net, other))
    assert abs(new / old - 1) == pytest.approx(made.error, rel=1e-3) and made.error <= 0.01 and made.ratio > 5


@pytest.mark.parametrize("call", ["tuple", "dict", "dict out"])
def test_batches_and_outputs_of_every_shape(call):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(70, 70), nn.Linear(70, 70)

        def forward(self, x, y):
            return {"x": self.a(x), "more": [self.b(y), torch.ones(3, dtype=torch.int64)]} if call == "dict out" else self.a(x) + self.b(y)

    torch.manual_seed(1)
    data = [(torch.randn(32, 70), torch.randn(32, 70)) for _ in range(6)]
    data = [{"x": x, "y": y} for x, y in data] if call == "dict" else data
    made = ckpress.torch.calibrate(Two(), data, max_error=0.01)
    assert made.error <= 0.01 and {t.name for t in made.tensors} == {"a.weight", "b.weight"}
    assert sum(t.share for t in made.tensors) == pytest.approx(1) and all(1 < t.bits < 8 for t in made.tensors)


def test_shared_and_wrapped_weights(tmp_path):
    net = nn.Sequential(nn.Embedding(96, 80), nn.Linear(80, 80), nn.Linear(80, 96, bias=False))
    net[2].weight = net[0].weight
    wrapped = torch.compile(net, backend="eager")
    made = ckpress.save_weights(tmp_path / "a.ckp", wrapped, calibrate=batches(8, vocabulary=96), ratio=5)
    assert set(made.steps) == {"0.weight", "1.weight"} and made.weights["0.weight"] is made.weights["2.weight"]
    other = nn.Sequential(nn.Embedding(96, 80), nn.Linear(80, 80), nn.Linear(80, 96, bias=False))
    other[2].weight = other[0].weight
    ckpress.load_weights(tmp_path / "a.ckp", other)
    assert same(other[0].weight.detach(), made.weights["0.weight"]) and other[2].weight is other[0].weight


def test_sparse_gradients():
    net = nn.Sequential(nn.Embedding(96, 80, sparse=True), nn.Linear(80, 80))
    dense = nn.Sequential(nn.Embedding(96, 80), nn.Linear(80, 80))
    dense.load_state_dict(net.state_dict())
    made = [ckpress.torch.calibrate(m, batches(6, vocabulary=96), ratio=6) for m in (net, dense)]
    assert all(same(made[0].weights[k], v) for k, v in made[1].weights.items())


def test_weights_that_cannot_have_a_step_stay(tmp_path):
    net = nn.Sequential(nn.Linear(80, 80), nn.Linear(80, 80), nn.Linear(80, 80), nn.Linear(80, 8))
    with torch.no_grad():
        net[1].weight.zero_()
        net[2].weight[4, 4] = float("nan")
    made = ckpress.save_weights(tmp_path / "a.ckp", net, calibrate=[torch.randn(20, 80)] * 3, ratio=1.2, forward=lambda m, x: m[0](x))
    assert set(made.steps) == {"0.weight"}
    got = ckpress.load(tmp_path / "a.ckp")
    assert all(same(got[k], v) for k, v in net.state_dict().items() if k != "0.weight")


def test_what_cannot_be_calibrated():
    net, seen = reader(), batches(4)
    calibrate = ckpress.torch.calibrate
    for wrong in ({}, {"ratio": 5, "max_error": 0.1}, {"ratio": -1}, {"max_error": float("nan")}, {"ratio": True}, {"ratio": 5, "damp": 0}):
        with pytest.raises(ckpress.InvalidError):
            calibrate(net, seen, **wrong)
    for data, forward, words in [
        ([], None, "at least one batch"),
        (seen, lambda m, b: None, "must give a tensor"),
        (seen, lambda m, b: m(b) * float("nan"), "not finite"),
        (seen, lambda m, b: m(b).detach(), "by gradients"),
        (seen, lambda m, b: m.norm(torch.ones(64)), "none of the weights"),
    ]:
        with pytest.raises(ckpress.InvalidError, match=words):
            calibrate(net, data, forward=forward, ratio=5)
    with pytest.raises(ckpress.InvalidError, match="cannot be reached: at most"):
        calibrate(net, seen, ratio=1000)
    with pytest.raises(ckpress.InvalidError, match="cannot be reached: "):
        calibrate(net, seen, max_error=1e-9)
    with pytest.raises(ckpress.InvalidError, match="no floating point weight"):
        calibrate(nn.Linear(4, 4), [torch.ones(2, 4)], ratio=2)
    with pytest.raises(RuntimeError, match="of its own"):
        calibrate(net, seen, forward=lambda m, b: (_ for _ in ()).throw(RuntimeError("of its own")), ratio=5)


# ---- files ----


def test_one_file_for_others(tmp_path):
    """decompress gives safetensors; a model of the same kind takes it, also one with another head."""
    net = reader()
    ckpress.save_weights(tmp_path / "a.ckp", net)
    state = ckpress.load(tmp_path / "a.ckp")
    ckpress.decompress(tmp_path / "a.ckp", tmp_path / "a.safetensors")
    plain = load_file(tmp_path / "a.safetensors")
    assert all(same(plain[k], v) for k, v in state.items())
    ckpress.compress(tmp_path / "a.safetensors", tmp_path / "b.ckp")
    for source in ("a.ckp", "b.ckp"):
        other = reader(3)
        ckpress.load_weights(tmp_path / source, other)
        assert all(same(v, state[k]) for k, v in other.state_dict().items())
    with_head = nn.ModuleDict({**dict(reader(3).named_children()), "head": nn.Linear(64, 3)})
    with pytest.raises(ckpress.MismatchError) as e:
        ckpress.load_weights(tmp_path / "a.ckp", with_head)
    assert e.value.missing == ["model/head.weight", "model/head.bias"] and e.value.unexpected == ["model/place"]
    ckpress.load_weights(tmp_path / "a.ckp", with_head, strict=False)
    assert same(with_head["up"].weight.detach(), state["up.weight"])


def test_weights_of_a_run(tmp_path):
    net = reader()
    with ckpress.Checkpointer(tmp_path / "run") as ck:
        ck.save(1, model=net, wait=True)
    other = reader(3)
    ckpress.load_weights(tmp_path / "run", other)
    assert all(same(v, net.state_dict()[k]) for k, v in other.state_dict().items())


def test_files_that_do_not_fit(tmp_path):
    net = nn.Linear(70, 70)
    before = net.weight.detach().clone()
    ckpress.save(tmp_path / "list.ckp", [torch.ones(3)])
    ckpress.save(tmp_path / "shape.ckp", {"weight": torch.ones(70, 71), "bias": torch.ones(70)})
    ckpress.save_weights(tmp_path / "whole.ckp", nn.Linear(70, 70))
    (tmp_path / "cut.ckp").write_bytes((tmp_path / "whole.ckp").read_bytes()[:-40])
    for name, error in [("list", ckpress.InvalidError), ("shape", ckpress.MismatchError), ("cut", ckpress.TruncatedError), ("no", ckpress.NotFoundError)]:
        with pytest.raises(error):
            ckpress.load_weights(tmp_path / f"{name}.ckp", net)
        assert same(net.weight.detach(), before)
    for wrong in ({"ratio": 4}, {"max_error": 0.1}, {"forward": len}, {"calibrate": [torch.ones(3, 70)]}):
        with pytest.raises(ckpress.InvalidError), warnings.catch_warnings():
            ckpress.save_weights(tmp_path / "never.ckp", net, **wrong)
    for call in (lambda: ckpress.save_weights(tmp_path / "never.ckp", {}), lambda: ckpress.load_weights(tmp_path / "whole.ckp", {})):
        with pytest.raises(ckpress.InvalidError):
            call()
    assert not (tmp_path / "never.ckp").exists()
