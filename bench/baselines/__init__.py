# SPDX-License-Identifier: Apache-2.0
"""Published rivals and plain rounding, written from the papers' descriptions, behind one interface.

A coder turns tensors (name -> role -> float32 array, roles w, m, v) into bytes and back. Coders that delta keep the last
*reconstruction*; the decoder is another object that has seen the same bytes in the same order. What 7-zip does in the paper goes
through the standard library's LZMA2, what Huffman codes do through zlib's. Tensors of one dimension are stored raw, and counted.
"""

from __future__ import annotations

from .cnr import CheckNRun
from .excp import ExCP
from .lc import LCCheckpoint
from .plain import Plain
from .qd import QDCompressor

CODERS = {"excp": ExCP, "lc": LCCheckpoint, "cnr+": CheckNRun, "qd+": QDCompressor, "rounding": Plain}
SETTINGS = {"excp": ("4", "4:cap", "2:cap"), "lc": ("2", "3", "4"), "cnr+": ("8", "16", "64"), "qd+": ("16", "64", "256"), "rounding": ("8", "6", "4")}
WEIGHTS_ONLY = ("lc", "cnr+", "qd+")  # their moments are exact: their weights' bits are what can be compared
