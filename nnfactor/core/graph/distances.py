"""Distances between samples and what is made of them: dense tensors or float64 scipy CSR, results as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

LEAST_WIDTH = 1e-150  # of a Gaussian: a distance over it is infinite or 0, not NaN


def inner_products(X: Any, columns: Any) -> Tensor:
    """Return the products of X `(n, m)` with `columns (m, n')`, both dense or both sparse, as a dense tensor."""
    return torch.from_numpy((X @ columns).toarray()) if sp.issparse(X) else X @ columns


def row_squares(X: Any) -> Tensor:
    """Return `||x||^2` of every row of X `(n, m)`, `(n,)`."""
    return torch.from_numpy(X.power(2).sum(axis=1)) if sp.issparse(X) else X.square().sum(1)


def expand_squares(X: Any, columns: Any, x: Tensor, y: Tensor) -> Tensor:
    """Return `x_i + y_j - 2 X_i columns_j` for all pairs, `(n, n')`; rounding can make it negative.

    With x `(n,)` and y `(n',)` the squared norms of the two sets of samples these are their squared distances.
    """
    if sp.issparse(X):
        return inner_products(X, columns).mul_(-2).add_(y).add_(x[:, None])
    return torch.addmm(y, X, columns, alpha=-2).add_(x[:, None])


def squared_distances(X: Any, Y: Any, centre: Tensor | None = None) -> Tensor:
    """Return `||x_i - y_j||^2` for all rows of X `(n, m)` and Y `(n', m)`, stored alike, `(n, n')`.

    Dense samples need a `centre (m,)` among them: without one the product loses all digits far from the origin.
    """
    if centre is not None:
        X, Y = X - centre, Y - centre
    return expand_squares(X, Y.T, row_squares(X), row_squares(Y)).clamp_(min=0)


def store_like(X: Any, other: Any) -> Any:
    """Return X as a CSR where the other samples are one, else as a tensor on their device."""
    if sp.issparse(other):
        return X if sp.issparse(X) else sp.csr_array(X.cpu().numpy())
    return torch.from_numpy(X.toarray()).to(other) if sp.issparse(X) else X.to(other.device)


def gaussian(squared: Tensor, width: float) -> Tensor:
    """Return `exp(-squared / width^2)`, written over `squared`; two divisions, because the square can underflow."""
    width = max(width, LEAST_WIDTH)
    return squared.div_(width).div_(width).neg_().exp_()


def median_length(squared: np.ndarray) -> float:
    """Return the median of the positive distances whose squares are given, 1 if there are none."""
    return float(np.median(np.sqrt(squared[squared > 0]))) if squared.any() else 1.0
