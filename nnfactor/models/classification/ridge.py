"""Ridge regression on one-hot labels: of one view in co-training, and of coefficients with the strength that fits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ...core.linalg import solve_spd
from ..shared.inputs import Inputs


@dataclass(frozen=True, eq=False)
class Ridge:
    """Ridge regression on one-hot labels for one view, in float64, through the smaller of its two Gram matrices."""

    X: Tensor | sp.csr_array  # divided by `unit`; dense views are centred
    offset: Tensor
    unit: float
    alpha: float
    device: torch.device

    @classmethod
    def of(cls, inputs: Inputs, alpha: float) -> "Ridge":
        """Prepare one view, as it was read."""
        X, device = inputs.samples64(), inputs.data.device
        if not isinstance(X, Tensor):
            mean, offset = np.ravel(X.mean(axis=0)), torch.zeros(X.shape[1], dtype=torch.float64, device="cpu")
            energy = X.power(2).sum() / X.shape[0] - mean @ mean
        else:
            offset = X.mean(0)
            X = X - offset
            energy = float(X.square().sum()) / len(X)
        unit = float(max(energy, 0.0)) ** 0.5 or 1.0
        return cls(X / unit, offset.to(device), unit, alpha, device)

    def fit(self, codes: np.ndarray, n_classes: int) -> tuple[Tensor, Tensor]:
        """Fit weights `(m, C)` and the intercept `(C,)` to the samples with a code >= 0."""
        X, at = self.X[codes >= 0], torch.from_numpy(codes[codes >= 0]).to(self.device)
        n = len(at)
        Y = torch.eye(n_classes, dtype=torch.float64, device=self.device)[at]
        share, rest = Y.mean(0), Y - Y.mean(0)
        mean = multiply(X.T, Y.new_full((n, 1), 1 / n)).ravel()
        if wide := n <= X.shape[1]:
            G = _gram(X)
            G = G - G.mean(0) - G.mean(1, keepdim=True) + G.mean()
        else:
            G = _gram(X.T) - n * torch.outer(mean, mean)
        G.diagonal().add_(self.alpha * n)  # near the solution of minimum norm where rounding beats it
        W = multiply(X.T, solve_spd(G, rest)) if wide else solve_spd(G, multiply(X.T, rest))
        return W, share - mean @ W

    def scores(self, W: Tensor, b: Tensor) -> np.ndarray:
        """Score all samples; on the host."""
        return (multiply(self.X, W) + b).cpu().numpy()

    def to_data(self, W: Tensor, b: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Convert weights and intercept to the data as they were given."""
        W = W / self.unit
        return W / scale, b - self.offset @ W


STRENGTHS = tuple(10.0 ** (e / 2) for e in range(-6, 5))  # 0.001 to 100, two in a decade


def fit_coefficients(Z: Tensor, Y: Tensor, alpha: float | None) -> tuple[Tensor, Tensor, float]:
    """Fit weights `(k, C)` and intercept `(C,)` to one-hot labels Y `(l, C)` of samples Z `(l, k)` by ridge regression.

    Z is of the order of 1: alpha stands against squared lengths. None: the one of `STRENGTHS` with the least squared
    error of labels that are left out one by one, which one decomposition tells (Allen 1974), the largest of equals.
    """
    centre, share = Z.mean(0), Y.mean(0)
    L, s, Rt = torch.linalg.svd(Z - centre, full_matrices=False)
    inner = L.mT @ (Y - share)

    def left_out(strength: float) -> float:
        kept = s.square() / (s.square() + strength)
        free = 1 - 1 / len(Z) - L.square() @ kept  # by how much a label is not its own doing; 0 for a single one
        rest = Y - share - L @ (kept[:, None] * inner)
        return float((rest / free.clamp(min=torch.finfo(Z.dtype).eps)[:, None]).square().sum())

    chosen = min(reversed(STRENGTHS), key=left_out) if alpha is None else float(alpha)
    W = Rt.mT @ ((s / (s.square() + chosen))[:, None] * inner)
    return W, share - centre @ W, chosen


def multiply(X: Any, W: Tensor) -> Tensor:
    """Compute `X @ W`; sparse `X` on the host."""
    return torch.from_numpy(X @ W.cpu().numpy()).to(W.device) if sp.issparse(X) else X @ W


def _gram(X: Any) -> Tensor:
    """Compute `X X'`, dense."""
    return torch.from_numpy((X @ X.T).toarray()) if sp.issparse(X) else X @ X.T
