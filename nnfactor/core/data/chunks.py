"""How large a piece of a reconstruction is held at once, and float64 sums over it."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 1 << 18  # entries of a reconstruction held at once: a few caches' worth, small enough that malloc reuses it


def _rows(matrix: Tensor, problems: int = 1) -> int:
    return max(1, CHUNK // max(1, problems * matrix.shape[1]))


def _sum64(Z: Tensor, batch: int = 0) -> Tensor:
    return Z.sum(tuple(range(batch, Z.dim())), dtype=torch.float64)
