"""Coefficients of new samples under a beta-divergence, the bases fixed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .data import Data
from .ops import component_major
from .rules import multiplicative
from .sparse_tensor import SparseTensor
from .terms import BetaFit

STRETCH = 10  # steps between two looks at the rows
MOST = 1000  # steps
SETTLED = 1e-6  # change of a row over a stretch, relative to its largest entry; coefficients are then within about 1e-4


def divergence_coefficients(data: Data, bases: Sequence[Tensor], beta: float) -> Tensor:
    """`min sum d_beta(X, [[V, U1, ...]])` over V >= 0 by the multiplicative rule: convex for 1 <= beta <= 2.

    The start knows the sum of a row only. A row that has settled stays as it is, and leaves when half of them have (but
    for sparse tensors, of which there are no parts): its coefficients do not depend on the batch.

    Raises
    ------
    ValueError
        beta <= 0 and a zero in the data.
    FloatingPointError
        A coefficient became NaN or infinite.
    """
    modes = tuple(f"mode {b}" for b in range(data.order))
    ones = torch.ones(data.shape[0], bases[0].shape[1], dtype=data.dtype, device=data.device)
    scale = data.mttkrp([ones, *(torch.ones_like(F) for F in bases)], 0)
    heights = torch.stack([F.sum(0) for F in bases]).prod(0).sum()
    V = F = component_major(scale / torch.where(heights > 0, heights, 1))
    fit, fixed = BetaFit(data, modes, beta), dict(zip(modes[1:], map(component_major, bases), strict=True))
    rows = at = torch.arange(len(V), device=data.device)  # those that have not settled: in V, and in F
    for _ in range(MOST // STRETCH):
        before = F
        for _ in range(STRETCH):
            F = multiplicative(F, fit.block({modes[0]: F, **fixed}, modes[0]))
        V = V.mT.index_copy(-1, rows, F.mT.index_select(-1, at)).mT
        going = ((F - before).abs() > SETTLED * F.amax(1, keepdim=True)).any(1)[at]
        rows, at = rows[going], at[going]
        if not len(rows):
            break
        if 2 * len(rows) <= len(F) and not isinstance(data, SparseTensor):  # all the copies together are one of X
            data, F, at = data.take(at), F.mT.index_select(-1, at).mT, torch.arange(len(rows), device=data.device)
            fit = BetaFit(data, modes, beta)
    bad = int((~V.isfinite()).any(1).sum())
    if bad:
        raise FloatingPointError(f"coefficients of {bad} of {len(V)} samples became NaN or infinite; rescale X")
    return V
