# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that torch's operations do in the place of the kernels': as theirs, to the last bit."""

import ctypes
import ctypes.util
import math

import pytest

torch = pytest.importorskip("torch")

from ckpress.torch import _torch_codes  # noqa: E402


def test_fma_rounds_once():
    """Beside the C library's, on numbers of which many sums lie in the middle between two floats."""
    fmaf = ctypes.CDLL(ctypes.util.find_library("m")).fmaf
    fmaf.restype, fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    g = torch.Generator().manual_seed(1)

    def draw(n):
        m = torch.randint(0, 1 << 24, (n,), generator=g)
        m = torch.where(torch.rand(n, generator=g) < 0.5, m >> 12 << 12, m)
        size = torch.ldexp(m.float(), torch.randint(-40, 20, (n,), generator=g))
        return torch.where(torch.rand(n, generator=g) < 0.5, -size, size)

    a, b, c = draw(50000), draw(50000), draw(50000)
    wanted = torch.tensor([fmaf(*t) for t in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])
    assert torch.equal(_torch_codes.fma(a, b, c), wanted)
    assert not torch.equal((a.double() * b.double() + c.double()).float(), wanted)
    odd = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0])
    assert torch.equal(torch.nan_to_num(_torch_codes.fma(odd, torch.ones(5), torch.zeros(5))), torch.nan_to_num(odd))
