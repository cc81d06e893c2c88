"""Coefficients of samples on fixed bases by ridge regression, and its strength by generalised cross-validation."""

from __future__ import annotations

import torch
from torch import Tensor

STRENGTHS = torch.logspace(-4, 0, 41, dtype=torch.float64, device="cpu")  # ten a decade; above 1 little is left


def ridge_coefficients(G: Tensor, B: Tensor, ridge: float) -> Tensor:
    """`min ||x - U c||^2 + (ridge s)^2 ||c||^2` for every row of B, s the largest singular value of U at unit length.

    `G (k, k)` is the Gram matrix of the bases, `B (n, k)` the data against them; the answer is `(n, k)`, float64, of
    any sign. The bases count at unit length, so that their lengths do not choose who is shrunk: singular values s_j
    become s_j / (s_j^2 + (ridge s)^2). `ridge=0` is the pseudo-inverse; a zero basis gets coefficient 0.
    """
    lengths, values, Q = _spectrum(G)
    shrunk = _inverse(values, ridge)
    return ((B.double() / lengths) @ (Q * shrunk)) @ Q.mT / lengths


def choose_ridge(G: Tensor, B: Tensor, sqnorm: Tensor, n_features: int) -> float:
    """Choose the strength of least generalised cross-validation error (Golub, Heath and Wahba 1979).

    `G` and `B` as for `ridge_coefficients`, of n training samples of `n_features` numbers and squared norm `sqnorm`.
    The error is RSS / (n_features - trace)^2 with the trace of the matrix that maps a sample to its fit; the strengths
    tried are 1e-4 to 1, ten a decade. No label is read.
    """
    lengths, values, Q = _spectrum(G)
    energy = ((B.double() / lengths) @ Q).square().sum(0)  # of the data along each singular direction, times s_j^2
    plain = _inverse(values, 0.0)
    outside = (sqnorm.double() - (energy * plain).sum()).clamp(min=0)
    delta = (STRENGTHS.to(G.device)[:, None] ** 2) * values.max()
    left = delta / (values + delta)
    rss = outside + (energy * plain * left.square()).sum(1)
    freedom = n_features - (values * (plain > 0) / (values + delta)).sum(1)
    error = rss / freedom.clamp(min=torch.finfo(torch.float64).tiny).square()
    return float(STRENGTHS[int(error.argmin())])


def _spectrum(G: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lengths of the bases (infinite where zero), eigenvalues >= 0 and eigenvectors of their Gram at unit length."""
    G = G.double()
    lengths = G.diagonal().clamp(min=0).sqrt()
    lengths = torch.where(lengths > 0, lengths, torch.inf)
    values, Q = torch.linalg.eigh(G / lengths / lengths[:, None])
    return lengths, values.clamp(min=0), Q


def _inverse(values: Tensor, ridge: float) -> Tensor:
    """`1 / (s^2 + (ridge s_max)^2)`, zero for directions that the bases do not span."""
    top = values.max()
    spanned = values > len(values) * torch.finfo(values.dtype).eps * top
    return torch.where(spanned, 1 / torch.where(spanned, values + ridge**2 * top, 1), 0)
