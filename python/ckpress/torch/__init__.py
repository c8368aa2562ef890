# SPDX-License-Identifier: Apache-2.0
"""What needs torch itself: weights adjusted to coarse steps by the caller's batches, sensitivities of weights during training, and
an optimizer whose state is a few bits a parameter.

    calibrated = ckpress.torch.calibrate(model, batches, ratio=9)
    sensitivity = ckpress.torch.track_sensitivity(model, batches=50)
    optimizer = ckpress.torch.AdamW(model.parameters(), lr=3e-4, state_bits=(4, 4))
"""

from ._adamw import AdamW
from ._calibrate import Calibrated, TensorStep, calibrate
from ._sensitivity import Sensitivity, track_sensitivity

__all__ = ["AdamW", "Calibrated", "Sensitivity", "TensorStep", "calibrate", "track_sensitivity"]
