"""Arrays on their way in and out: as float64 for the work, as the caller's kind for results."""

from typing import Any

import torch
from torch import Tensor

from ...core.arrays import share_memory
from .inputs import Inputs


def as_float64(values: Any, device: torch.device) -> Tensor:
    """Move numbers to a device, as float64; arrays that are read-only (a model loaded as a memory map) are fine."""
    return (values if isinstance(values, Tensor) else share_memory(values)).to(device, torch.float64)


def as_given(F: Tensor, inputs: Inputs) -> Any:
    """Return a result in the kind, on the device and in the dtype of the data."""
    return inputs.to_caller(inputs.in_range(F.to(inputs.data.device, inputs.data.dtype)))
