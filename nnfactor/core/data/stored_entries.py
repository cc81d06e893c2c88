"""What sparse matrices and sparse tensors share: sums over stored entries, for one problem after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from .. import divergence as div


def each_problem(f: Callable[..., Tensor], factors: Sequence[Tensor]) -> Tensor:
    """`f(*factors)` for one problem after the other: what has the size of the pattern exists once at a time."""
    batch = np.broadcast_shapes(*(F.shape[:-2] for F in factors))  # torch's own imports a second's worth of modules
    if not batch:
        return f(*factors)
    flat = [F.expand(*batch, *F.shape[-2:]).flatten(0, -3) for F in factors]
    done = [f(*Fs) for Fs in zip(*flat, strict=True)]
    if done[0].dim() == 0:
        return torch.stack(done).view(batch)
    return torch.stack([F.mT for F in done]).unflatten(0, batch).mT  # component-major stays so


def inside_residual(x: Tensor, y: Tensor) -> Tensor:
    """What the stored entries add to `||Y||^2` in `||X - Y||^2`."""
    return ((x - y).square_() - y.square()).sum()


def inside_divergence(x: Tensor, y: Tensor, beta: float, floor: float) -> Tensor:
    """What the stored entries add to the divergence of a zero from `y`, float64."""
    y = y.clamp(min=floor)
    if beta == 1:
        return (torch.special.xlogy(x, x / y) - x).sum(dtype=torch.float64)
    if beta <= 0:  # a zero costs infinitely much: there is none
        return div.loss(x, y, beta).sum(dtype=torch.float64)
    return (div.loss(x, y, beta) - div.loss(torch.zeros_like(y), y, beta)).sum(dtype=torch.float64)
