# SPDX-License-Identifier: Apache-2.0
"""Imported once by the server that the ranks of tests/python/ranks.py are forked from: whatever takes long to import, used once, with one thread."""

import pytest  # noqa: F401
import torch
import torch.distributed  # noqa: F401
import torch.distributed.checkpoint.state_dict  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.distributed.tensor  # noqa: F401
from ranks import train, training

import ckpress  # noqa: F401
import ckpress.torch  # noqa: F401

torch.set_num_threads(1)
train(*training())
