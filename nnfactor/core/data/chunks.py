"""How large a piece of a reconstruction is held at once, and float64 sums over it."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 1 << 18  # entries of a reconstruction held at once: a few caches' worth, small enough that malloc reuses it


def rows_at_once(columns: int, problems: int = 1) -> int:
    """Count the rows of a reconstruction, of so many columns for so many problems, that make a chunk."""
    return max(1, CHUNK // max(1, problems * columns))


def sum64(Z: Tensor, batch: int = 0) -> Tensor:
    """Sum all dimensions behind the first `batch`, in float64."""
    return Z.sum(tuple(range(batch, Z.dim())), dtype=torch.float64)
