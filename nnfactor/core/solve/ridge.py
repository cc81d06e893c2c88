"""Coefficients of samples on fixed bases by ridge regression, and its strength by generalised cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import torch
from torch import Tensor

from ..data.base import Data
from ..factors import as_factor, column_norms, divide, gram

STRENGTHS = torch.logspace(-4, 0, 41, dtype=torch.float64, device="cpu")  # ten a decade; above 1 little is left


@dataclass(frozen=True, eq=False)
class Projection:
    """Samples along the singular directions of bases at unit length: coefficients of every strength come from it.

    With `U diag(1 / lengths) = P diag(s) Q'`, all float64; leading dimensions are a batch of problems.

    Attributes
    ----------
    along : (..., n, r)
        `X P diag(s)`, samples X as rows.
    values : (..., r)
        s^2; exactly 0 for directions that the bases do not span.
    directions : (..., k, r)
        Q.
    lengths : (..., k)
        Of the bases as they are; infinite for a zero basis, whose coefficient is 0.
    """

    along: Tensor
    values: Tensor
    directions: Tensor
    lengths: Tensor

    @classmethod
    def of_products(cls, G: Tensor, B: Tensor, lengths: Tensor | None = None) -> Projection:
        """Start from the Gram matrix `G (..., k, k)` of bases and data against them, `B (..., n, k)`.

        `lengths (..., k)` are those of the bases as they are, where G and B belong to bases at unit length already.
        """
        noise = G.shape[-1] * torch.finfo(torch.float64).eps
        own = _nonzero(G.double().diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt())
        values, Q = torch.linalg.eigh(G.double() / own.unsqueeze(-1) / own.unsqueeze(-2))
        values = torch.where(values > noise * _largest(values), values, 0)
        along = (B.double() / own.unsqueeze(-2)) @ Q
        return cls(along, values, Q, own if lengths is None else _nonzero(lengths))

    def products(self) -> tuple[Tensor, Tensor]:
        """Give the Gram matrix of the bases at unit length, `(..., k, k)`, and samples against these, `(..., n, k)`."""
        Q = self.directions
        return (Q * self.values.unsqueeze(-2)) @ Q.mT, self.along @ Q.mT

    def coefficients(self, ridge: float) -> Tensor:
        """`min ||x - U c||^2 + (ridge s_max)^2 sum_j (lengths_j c_j)^2` for every sample: `(..., n, k)`, of any sign.

        The bases count at unit length, so that their lengths do not choose who is shrunk; the answer is for the bases
        as they are. `ridge=0` is the pseudo-inverse.
        """
        damped = self.values + ridge * ridge * _largest(self.values)
        inverse = torch.where(self.values > 0, 1 / torch.where(damped > 0, damped, 1), 0)
        return ((self.along * inverse.unsqueeze(-2)) @ self.directions.mT) / self.lengths.unsqueeze(-2)

    def choose(self, sqnorm: Tensor, n_features: int) -> Tensor:
        """Choose the strength of least generalised cross-validation error (Golub, Heath and Wahba 1979): `(...)`.

        `sqnorm` is that of the samples, each of `n_features` numbers. The error is RSS / (n_features - trace)^2 with
        the trace of the matrix that maps a sample to its fit; `STRENGTHS` are tried. No label is read.
        """
        energy = divide(self.along.square().sum(-2), self.values)  # of the samples along every direction
        rank = (self.values > 0).sum(-1)
        outside = torch.where(rank < n_features, (sqnorm.double() - energy.sum(-1)).clamp(min=0), 0)
        top = _largest(self.values).clamp(min=torch.finfo(torch.float64).tiny)
        delta = STRENGTHS.to(energy.device).square().unsqueeze(-1) * top.unsqueeze(-1)
        left = delta / (self.values.unsqueeze(-2) + delta)
        rss = outside.unsqueeze(-1) + (energy.unsqueeze(-2) * left.square()).sum(-1)
        spanned = (self.values > 0).unsqueeze(-2)
        # n_features - trace, without the cancellation of a trace that is nearly n_features
        freedom = (n_features - rank).unsqueeze(-1) + torch.where(spanned, left, 0).sum(-1)
        return STRENGTHS.to(energy.device)[(rss / freedom.square()).argmin(-1)]


def project(data: Data, bases: Sequence[Tensor]) -> Projection:
    """Project samples on the span of bases: one `(m, k)` for a matrix, one for each further mode of a tensor.

    One product with the data, sparse ones included. Of a matrix by the singular vectors of its basis, not by its Gram
    matrix, which would square the condition number.
    """
    norms = [column_norms(F.double()) for F in bases]
    unit = [divide(F.double(), norm) for F, norm in zip(bases, norms, strict=True)]
    lengths = reduce(torch.mul, norms).squeeze(-2)
    if len(unit) > 1:
        G = reduce(torch.mul, [gram(F) for F in unit])
        placeholder = bases[0].new_empty(data.shape[0], len(G))
        return Projection.of_products(
            G, data.mttkrp([placeholder, *(as_factor(F.to(data.dtype)) for F in unit)], 0), lengths
        )
    left, s, right = torch.linalg.svd(unit[0], full_matrices=False)
    noise = max(unit[0].shape) * torch.finfo(torch.float64).eps
    along = data.times(as_factor(left.to(data.dtype))).double() * s
    return Projection(along, torch.where(s > noise * _largest(s), s * s, 0), right.mT, _nonzero(lengths))


def choose_for(data: Data, bases: Sequence[Tensor]) -> float:
    """Choose the strength for samples on bases by generalised cross-validation."""
    return float(project(data, bases).choose(data.sqnorm(), prod(data.shape[1:])))


def ridge_coefficients(G: Tensor, B: Tensor, ridge: float) -> Tensor:
    """Solve for the coefficients of every row of B: `Projection.coefficients` from the normal equations.

    `G (..., k, k)` is the Gram matrix of the bases, `B (..., n, k)` the data against them; the answer is `(..., n, k)`,
    float64. Singular values s_j of the bases at unit length become s_j / (s_j^2 + (ridge s_max)^2).
    """
    return Projection.of_products(G, B).coefficients(ridge)


def choose_ridge(G: Tensor, B: Tensor, sqnorm: Tensor, n_features: int) -> float:
    """Choose the strength for training samples: `Projection.choose` from the normal equations."""
    return float(Projection.of_products(G, B).choose(sqnorm, n_features))


def _largest(values: Tensor) -> Tensor:
    return values.amax(-1, keepdim=True)


def _nonzero(lengths: Tensor) -> Tensor:
    """Make the length of a zero basis infinite, so that its coefficient is 0."""
    return torch.where(lengths > 0, lengths, torch.inf)
