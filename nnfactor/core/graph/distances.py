"""Distances between two sets of samples, and what is made of them."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .neighbors import BUDGET, expand_squares, row_squares

NEAR = 1e-4  # of two squared norms: a squared distance below this part of them has lost four digits to cancellation

LEAST_WIDTH = 1e-150  # of a Gaussian: a distance over it is infinite or 0, not NaN


def find_centre(X: Any) -> Tensor | None:
    """Return the median of every feature, for `squared_distances`: a few far samples do not move it; None if sparse."""
    return None if sp.issparse(X) else X.median(0).values


def squared_distances(X: Any, Y: Any, centre: Tensor | None = None) -> Tensor:
    """Return `||x_i - y_j||^2` for all rows of X `(n, m)` and Y `(n', m)`, stored alike, `(n, n')`.

    A product of matrices around a `centre (m,)`, which dense samples need. Pairs so near, beside their distance from
    the centre, that the product cancels are measured from their difference: every distance has 9 digits or more.
    """
    A, B = (X, Y) if centre is None else (X - centre, Y - centre)
    a, b = row_squares(A), row_squares(B)
    squared = expand_squares(A, B.T, a, b)
    step = max(1, BUDGET // len(b))
    for first in range(0, len(a), step):
        part = squared[first : first + step]
        i, j = (part < NEAR * (a[first : first + step, None] + b)).nonzero().unbind(1)
        for at, k, to in zip(*(side.split(max(1, BUDGET // X.shape[1])) for side in (i + first, i, j)), strict=True):
            part[k, to] = row_squares(_pick(X, at) - _pick(Y, to))
    return squared


def _pick(X: Any, rows: Tensor) -> Any:
    return X[rows.cpu().numpy()] if sp.issparse(X) else X[rows]


def store_like(X: Any, other: Any) -> Any:
    """Return X as a CSR where the other samples are one, else as a tensor on their device."""
    if sp.issparse(other):
        return X if sp.issparse(X) else sp.csr_array(X.cpu().numpy())
    return torch.from_numpy(X.toarray()).to(other) if sp.issparse(X) else X.to(other.device)


def gaussian(squared: Tensor, width: float) -> Tensor:
    """Return `exp(-squared / width^2)`, written over `squared`; two divisions, because the square can underflow."""
    width = max(width, LEAST_WIDTH)
    return squared.div_(width).div_(width).neg_().exp_()


def width_of_gamma(gamma: float) -> float:
    """Return the width sigma for which `exp(-d^2 / sigma^2)` is `exp(-gamma d^2)`."""
    return float(gamma) ** -0.5


def median_length(squared: np.ndarray) -> float:
    """Return the median of the positive distances whose squares are given, 1 if there are none."""
    return float(np.median(np.sqrt(squared[squared > 0]))) if squared.any() else 1.0
