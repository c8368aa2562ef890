# SPDX-License-Identifier: Apache-2.0
"""Published rivals and plain rounding, written from the papers' descriptions, behind one interface.

A coder turns tensors (name -> role -> float32 array, roles w, m, v) into bytes and back. Coders that delta keep the last
*reconstruction*; the decoder is another object that has seen the same bytes in the same order. Archivers are LZMA of the standard library
(preset 6), which stands in for the papers' 7z and Huffman. Tensors of one dimension are stored raw, and counted.
"""

from __future__ import annotations

from .excp import ExCP
from .lc import LCCheckpoint
from .plain import Plain

CODERS = {"excp": ExCP, "lc": LCCheckpoint, "rounding": Plain}
SETTINGS = {"excp": ("2", "4", "8"), "lc": ("2", "3", "4"), "rounding": ("8", "6", "4")}
