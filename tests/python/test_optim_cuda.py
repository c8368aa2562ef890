# SPDX-License-Identifier: Apache-2.0
"""The kernel for GPUs behind ckpress.torch's optimizers: the bits of the kernels for CPUs. On a GPU where there is one; everything but the device itself
anywhere, through a library of the same functions that runs the kernel's body on the CPU."""

import contextlib
import ctypes
import pathlib
import subprocess
import warnings

import pytest
import torch
from ckpress import errors
from ckpress.torch import SGD, Adam, AdamW, Lion, _cuda
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = [(40, 96), (17, 33), (3, 27), (5, 256), (20, 4, 3, 3), (16, 1000), (70,), ()]
RULES = [
    (AdamW, {"lr": 1e-2}),
    (Adam, {"lr": 1e-2, "weight_decay": 0.1, "maximize": True, "betas": (0.8, 0.95)}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-2, "nesterov": True}),
    (SGD, {"lr": 0.1, "momentum": 0.8, "dampening": 0.3}),
    (Lion, {"lr": 1e-2, "weight_decay": 0.1}),
]
TYPES = [(torch.float32, None), (torch.bfloat16, None), (torch.float16, None), (torch.bfloat16, "split8"), (torch.bfloat16, "split16")]
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: here the kernel's body runs on the CPU alone")
BUILT = pytest.mark.skipif(not _cuda.path().exists(), reason="built without nvcc: there is no ckpress/_cuda.so")


@pytest.fixture(scope="session")
def emulated_library(tmp_path_factory):
    out = tmp_path_factory.mktemp("cuda") / "_cuda.so"
    command = [
        "cc",
        "-std=c11",
        "-O1",
        "-ffp-contract=off",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        f"-I{ROOT}/include",
        f"-I{ROOT}/src",
        "-o",
        str(out),
    ]
    shim, built = (
        str(ROOT / "tests/python/cuda_emulated.c"),
        [_cuda.path().parents[2] / f"libckp_{room}.a" for room in ("optim", "quant", "base")],
    )
    sources = [p for d in ("optim", "optim/cuda", "base", "quant") for p in sorted((ROOT / "src" / d).glob("*.c"))]
    for rooms in [built] * all(p.exists() for p in built) + [sources]:  # objects that are there, if they need nothing else (coverage)
        done = subprocess.run(
            [*command, shim, *map(str, rooms), "-Wl,-z,defs", "-lpthread", "-lm"], check=False, capture_output=True, text=True
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    return _cuda.load(out)


@pytest.fixture
def emulated(emulated_library, monkeypatch):
    """Parameters on a CPU whose steps are not C's take the way of those on a GPU; the library that they go through."""
    real = _cuda.step
    monkeypatch.setattr(_cuda, "library", lambda: emulated_library)
    monkeypatch.setattr(_cuda, "usable", lambda device: True)
    monkeypatch.setattr(_cuda, "guard", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(_cuda, "stream_of", lambda device: 0)
    monkeypatch.setattr(_cuda, "step", lambda rule, settings, jobs, by_torch: real(rule, settings, jobs))
    return emulated_library


def as_on_a_cpu(ours, options, bits, device, steps=20, types=TYPES):
    """Weights, codes, factors and counts after every step: rows that rise and fall, refits of columns, gradients of no use, a spike."""
    dtype, master = types[bits % len(types)]
    made = []
    for there in (False, True):
        params = [nn.Parameter(torch.ones(s).to(dtype).to(device if there else "cpu")) for s in SHAPES]
        opt = ours(params, state_bits=bits, small=0, seed=3, master=master, **options)
        opt._by_torch = there and device == "cpu"
        made.append((params, opt))
    (a, x), (b, y) = made
    for i in range(steps):
        g = torch.Generator().manual_seed(i)
        size = {6: 1e3, 9: 0.0}.get(i, 1e-2)
        for p, q in zip(a, b, strict=True):
            p.grad = (
                torch.randn(p.shape, generator=g) * size * torch.randn(p.shape[-1:] or (1,), generator=g).exp().view(p.shape[-1:])
            ).to(dtype)
            if i == 14 and p.numel() > 200:
                p.grad.view(-1)[[3, 150]] = torch.tensor([float("nan"), float("-inf")], dtype=dtype)
            q.grad = p.grad.to(q.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x.step()
            y.step()
        assert (x.skipped, x.rows_raised) == (y.skipped, y.rows_raised), i
        for p, q in zip(a, b, strict=True):
            one, other = x.ckpress_state(p)[0], y.ckpress_state(q)[0]
            assert torch.equal(p, q.cpu()), (i, tuple(p.shape))
            assert one.keys() == other.keys()
            assert all(torch.equal(t, other[k].cpu()) for k, t in one.items()), (i, tuple(p.shape))
    assert x.skipped and x.rows_raised


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("ours,options", RULES)
def test_bits_of_the_kernels_for_cpus(ours, options, bits, emulated):
    as_on_a_cpu(ours, options, bits, "cpu")


def through_it(optimizer):
    optimizer._by_torch = True


def test_trial(emulated):
    """What a device has to show before parameters are given to it."""
    assert _cuda.trial(torch.device("cpu"), through_it) == ""


@pytest.mark.parametrize("what,at", [("the parameter", "p"), ("exp_avg", "m"), ("exp_avg_sq", "v")])
def test_trial_of_a_kernel_that_is_wrong(emulated, monkeypatch, what, at):
    launch = _cuda._launch

    def off(device, rule, settings, jobs):
        done = launch(device, rule, settings, jobs)
        if jobs[0].step == 5:
            getattr(jobs[1] if at == "p" else jobs[1].packed, at).view(-1).view(torch.uint8)[7] ^= 1
        return done

    monkeypatch.setattr(_cuda, "_launch", off)
    assert f"AdamW, torch.float32, 4 bits, (3, 27), step 4: {what}" in _cuda.trial(torch.device("cpu"), through_it)


@pytest.mark.parametrize("refused", [False, True])
def test_a_failed_trial_leaves_steps_to_torch(monkeypatch, refused):
    def trial(device):
        if refused:
            raise errors.StateError("not here")
        return "not these bits"

    device = torch.device("cuda", 77)
    monkeypatch.setattr(_cuda, "_ready", lambda device: True)
    monkeypatch.setattr(_cuda, "trial", trial)
    monkeypatch.setattr(_cuda, "_usable", {})
    with pytest.warns(UserWarning, match="not here" if refused else "not these bits"):
        assert not _cuda.usable(device)
    assert not _cuda.usable(device)


def test_no_rate(emulated):
    as_on_a_cpu(AdamW, {"lr": 0.0}, 4, "cpu")


@GPU
@BUILT
@pytest.mark.parametrize("shift", range(len(TYPES)))
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("ours,options", RULES)
def test_bits_of_the_kernels_for_cpus_on_a_gpu(ours, options, bits, shift, monkeypatch):
    monkeypatch.setattr("ckpress.torch._torch_step._adamw", None)  # torch's operations would not be noticed
    monkeypatch.setattr("ckpress.torch._torch_step._momentum", None)
    assert _cuda.usable(torch.device("cuda", torch.cuda.current_device()))
    as_on_a_cpu(ours, options, bits, "cuda", types=TYPES[shift:] + TYPES[:shift])


@GPU
@BUILT
def test_long_rows_and_another_stream_on_a_gpu():
    """Codes that no block's own memory holds, and steps on a stream of the caller's."""
    made = []
    for device in ("cpu", "cuda"):
        p = nn.Parameter(torch.zeros(16, 20000, device=device))
        opt = AdamW([p], lr=1e-2)
        with torch.cuda.stream(torch.cuda.Stream()) if device == "cuda" else contextlib.nullcontext():
            for i in range(5):
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).to(device)
                opt.step()
        torch.cuda.synchronize()
        made.append(p.detach().cpu())
    assert torch.equal(*made)


def test_long_rows(emulated):
    made = []
    for by_torch in (False, True):
        p = nn.Parameter(torch.zeros(16, 20000))
        opt = AdamW([p], lr=1e-2)
        opt._by_torch = by_torch
        for i in range(3):
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
            opt.step()
        made.append(p.detach())
    assert torch.equal(*made)


def test_groups_have_their_own_settings(emulated):
    made = []
    for by_torch in (False, True):
        params = [nn.Parameter(torch.ones(20, 64)) for _ in range(4)]
        groups = [
            {"params": params[:1], "lr": 0.1},
            {"params": params[1:3], "lr": 0.01, "weight_decay": 0.5, "state_bits": 8},
            {"params": params[3:], "state_bits": 32},
        ]
        opt = AdamW(groups, lr=1e-3, small=0)
        opt._by_torch = by_torch
        for i in range(3):
            for k, p in enumerate(params):
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * i + k))
            opt.step()
        made.append(params)
    assert all(torch.equal(p, q) for p, q in zip(*made, strict=True))


def test_refused_launches_name_the_parameter(emulated, monkeypatch):
    params = [nn.Parameter(torch.ones(20, 64)) for _ in range(3)]
    opt = AdamW(params, small=0)
    opt._by_torch = True
    for p in params:
        p.grad = torch.ones_like(p)
    monkeypatch.setattr(_cuda, "stream_of", lambda device: 2)
    with pytest.raises(errors.StateError, match="parameter 1 of group 0.*no such device") as e:
        opt.step()
    assert e.value.tensor == "parameter 1 of group 0"


def test_the_switch_forces_torchs_operations(emulated_library, monkeypatch):
    monkeypatch.setattr(_cuda, "usable", lambda device: True)
    monkeypatch.setattr(_cuda, "_launch", None)
    p = nn.Parameter(torch.ones(20, 64))
    p.grad = torch.ones_like(p)
    opt = AdamW([p], small=0)
    opt._by_torch = True
    opt.step()
    assert not torch.equal(p, torch.ones_like(p))


# ---- the library itself ----


@BUILT
def test_the_library_loads_and_says_what_it_can():
    """Where there is no GPU it is no crash, and no library that depends on CUDA's."""
    lib = _cuda.load(_cuda.path())
    why, count = _cuda.Failure(), torch.cuda.device_count()
    assert lib.ckpress_cuda_ready(count, why) == -8
    assert why.text.startswith(b"optim: the device refused a step: ")
    t = (_cuda.TensorStep * 1)()
    how = _cuda.AdamWSettings(1e-3, 0.9, 0.999, 1e-8, 0.0, False, False, 0)
    t[0].name, t[0].how = b"w", ctypes.pointer(how)
    t[0].step, t[0].numel, t[0].cols, t[0].p_dtype, t[0].g_dtype = 1, 64, 64, 12, 12
    t[0].m_bits = t[0].v_bits = 4
    t[0].p = t[0].g = t[0].m = t[0].v = t[0].row = 4096  # nobody looks there
    assert lib.ckpress_cuda_scratch(t, 1) == 0
    assert lib.ckpress_cuda_step(t, 1, count, 0, 4096, 0, 0, why) == -8
    assert t[0].m_corr == 0.0
    needed = subprocess.run(["readelf", "-d", str(_cuda.path())], check=True, capture_output=True, text=True).stdout
    assert "libcuda" not in needed


def test_a_library_of_another_version_is_not_used(tmp_path, monkeypatch):
    other = tmp_path / "_cuda.so"
    stub = "void ckpress_cuda_sizes(unsigned long *s) { s[0] = s[1] = s[2] = s[3] = 8; } int ckpress_cuda_ready; int ckpress_cuda_scratch; int ckpress_cuda_step;"
    subprocess.run(["cc", "-fPIC", "-shared", "-x", "c", "-", "-o", str(other)], input=stub, text=True, check=True)
    with pytest.raises(OSError, match="of another version"):
        _cuda.load(other)
    monkeypatch.setattr(_cuda, "path", lambda: other)
    with pytest.warns(UserWarning, match="no kernel for GPUs"):
        assert _cuda.library.__wrapped__() is None
    broken = tmp_path / "broken.so"  # not in the place of one that is mapped
    broken.write_bytes(b"no library")
    monkeypatch.setattr(_cuda, "path", lambda: broken)
    with pytest.warns(UserWarning, match="no kernel for GPUs"):
        assert _cuda.library.__wrapped__() is None
    broken.unlink()
    assert _cuda.library.__wrapped__() is None


def test_devices_without_the_kernel():
    assert not _cuda.usable(torch.device("cpu"))
    assert not _cuda.usable(torch.device("mps"))
