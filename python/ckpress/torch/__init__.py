# SPDX-License-Identifier: Apache-2.0
"""What needs torch itself: weights adjusted to coarse steps by the caller's batches, and sensitivities of weights during training.

    calibrated = ckpress.torch.calibrate(model, batches, ratio=9)
    sensitivity = ckpress.torch.track_sensitivity(model, batches=50)
"""

from ._calibrate import Calibrated, TensorStep, calibrate
from ._sensitivity import Sensitivity, track_sensitivity

__all__ = ["Calibrated", "Sensitivity", "TensorStep", "calibrate", "track_sensitivity"]
