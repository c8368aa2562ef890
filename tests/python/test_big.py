# SPDX-License-Identifier: Apache-2.0
"""Tensors beyond 32-bit sizes (row 65): a sparse file as the source. Takes a while: CKP_FULL=1 runs it."""

from __future__ import annotations

import os

import numpy as np
import pytest

import ckpress

pytestmark = pytest.mark.skipif(not os.environ.get("CKP_FULL"), reason="only with CKP_FULL=1")


@pytest.mark.parametrize("size", [(1 << 31) + 4, (1 << 32) + 4])
def test_more_than_32_bits(tmp_path, size):
    source = np.memmap(tmp_path / "zeros", dtype=np.uint8, mode="w+", shape=(size,))
    source[-3:] = (7, 8, 9)
    source[1 << 30] = 5
    ckpress.save(tmp_path / "x.ckp", {"a": source})
    assert (tmp_path / "x.ckp").stat().st_size < 8 << 20
    with ckpress.open(tmp_path / "x.ckp") as f:
        assert f["a"].shape == (size,)
        assert f["a"][-4:].tolist() == [0, 7, 8, 9] and f["a"][(1 << 30) - 1 : (1 << 30) + 2].tolist() == [0, 5, 0]
