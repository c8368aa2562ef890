# SPDX-License-Identifier: Apache-2.0
"""What needs torch itself: weights adjusted to coarse steps by the caller's batches, sensitivities of weights during training, and
optimizers whose state is a few bits a parameter (Adam, AdamW, SGD, Lion).

    calibrated = ckpress.torch.calibrate(model, batches, ratio=9)
    sensitivity = ckpress.torch.track_sensitivity(model, batches=50)
    optimizer = ckpress.torch.AdamW(model.parameters(), lr=3e-4, state_bits=(4, 4))
"""

from ._adamw import Adam, AdamW
from ._calibrate import Calibrated, TensorStep, calibrate
from ._momentum import SGD, Lion
from ._sensitivity import Sensitivity, track_sensitivity

__all__ = ["SGD", "Adam", "AdamW", "Calibrated", "Lion", "Sensitivity", "TensorStep", "calibrate", "track_sensitivity"]
