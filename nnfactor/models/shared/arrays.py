"""Arrays on their way in and out: as float64 for the work, as the caller's kind for results."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .inputs import Inputs


def as_float64(values: Any, device: torch.device) -> Tensor:
    """Move an array to a device, floating-point numbers as float64."""
    T = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    return T.to(device, torch.float64 if T.is_floating_point() else T.dtype)


def as_given(F: Tensor, inputs: Inputs) -> Any:
    """Return a result in the kind, on the device and in the dtype of the data."""
    return inputs.to_caller(F.to(inputs.data.device, inputs.data.dtype))
