"""Algebra of PARAFAC2: slices `(n_i, J)` of different lengths on top of each other, `X_i ~ B_i diag(a_i) C'`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .data.base import Data
from .factors import as_factor, gram, khatri_rao, select_rows


@dataclass(frozen=True)
class Slices:
    """Which rows belong to which slice."""

    lengths: tuple[int, ...]
    device: torch.device

    @cached_property
    def of_row(self) -> Tensor:
        """The slice of every row, `(N,)`."""
        lengths = torch.tensor(self.lengths, device=self.device)
        return torch.arange(len(self.lengths), device=self.device).repeat_interleave(lengths)

    @cached_property
    def alike(self) -> list[Tensor]:
        """The rows of the slices of one length, `(slices, length)`, for every length that occurs."""
        starts, lengths = np.cumsum([0, *self.lengths[:-1]]), np.array(self.lengths)
        rows = [starts[lengths == n][:, None] + np.arange(n) for n in np.unique(lengths)]
        return [torch.from_numpy(r).to(self.device) for r in rows]

    def weights(self, A: Tensor) -> Tensor:
        """Give every row the weights of its slice, `(..., N, k)`."""
        return select_rows(A, self.of_row)

    def sum(self, F: Tensor) -> Tensor:
        """Sum the rows of every slice, `(..., I, k)`."""
        out = F.new_zeros(*F.shape[:-2], F.shape[-1], len(self.lengths))
        return out.index_add(-1, self.of_row, F.mT).mT

    def grams(self, F: Tensor) -> Tensor:
        """Compute the Gram matrix of every slice, stored as `(..., k, k, I)`."""
        pairs = F.mT.unsqueeze(-2) * F.mT.unsqueeze(-3)
        out = F.new_zeros(*pairs.shape[:-1], len(self.lengths))
        return out.index_add(-1, self.of_row, pairs)

    def project(self, P: Tensor, X: Tensor) -> Tensor:
        """Compute `P_i' X_i` of every slice of `X (N, J)`, `(..., I, k, J)`."""
        k = P.shape[-1]
        out = P.new_empty(*P.shape[:-2], len(self.lengths), k, X.shape[-1])
        for at, places in zip(self.alike, self.places, strict=True):
            some = P.mT.index_select(-1, at.reshape(-1)).unflatten(-1, tuple(at.shape)).movedim(-2, -3)
            rows = X.index_select(0, at.reshape(-1)).view(*at.shape, -1)
            out.index_copy_(-3, places, some @ rows)
        return out

    def project_pieces(self, P: Tensor, pieces: Sequence[Data]) -> Tensor:
        """Compute the same of slices that are sparse, each by itself."""
        parts = P.split(list(self.lengths), dim=-2)
        return torch.stack([X.times_transposed(as_factor(F)).mT for X, F in zip(pieces, parts, strict=True)], dim=-3)

    @cached_property
    def places(self) -> list[Tensor]:
        """Which slices have each length that occurs."""
        lengths = np.array(self.lengths)
        return [torch.from_numpy(np.flatnonzero(lengths == n)).to(self.device) for n in np.unique(lengths)]

    def polar(self, M: Tensor, P: Tensor) -> Tensor:
        """Find the orthonormal columns nearest to those of every slice (Kiers, ten Berge and Bro 1999, Eq. 9).

        Where a slice of M has dependent columns, as where a component is absent, several are equally near. A little of
        the present ones, P, decides: otherwise rounding would, and a fit would depend on the problems beside it. For
        <M, P> that is a proximal step, which never lowers it.
        """
        little = torch.finfo(M.dtype).eps ** 0.5
        out = torch.empty_like(M.mT, memory_format=torch.contiguous_format)  # (..., k, N)
        for at in self.alike:
            some, present = (  # (..., slices, length, k)
                F.mT.index_select(-1, at.reshape(-1)).unflatten(-1, tuple(at.shape)).movedim(-3, -1) for F in (M, P)
            )
            size = some.abs().amax((-2, -1), keepdim=True)
            near = some + present * torch.where(size > 0, little * size, 1)
            U, _, Vh = torch.linalg.svd(near, full_matrices=False)
            out.index_copy_(-1, at.reshape(-1), (U @ Vh).movedim(-1, -3).flatten(-2))
        return out.mT


def evolve(P: Tensor, B: Tensor) -> Tensor:
    """Multiply projections `(..., N, k)` by the blueprint `(..., k, k)`: a factor."""
    return as_factor((B.mT @ P.mT).mT)


def project(P: Tensor, F: Tensor) -> Tensor:
    """Compute `P' F`, `(..., k, k)`, as a factor."""
    return (F.mT @ P).mT


def outer_rows(A: Tensor) -> Tensor:
    """Compute `a a'` of every row, stored as `(..., k, k, rows)`."""
    return A.mT.unsqueeze(-2) * A.mT.unsqueeze(-3)


def times_gram(outer: Tensor, F: Tensor) -> Tensor:
    """Multiply matrices of rows `(..., k, k, rows)` elementwise by the Gram matrix of a factor."""
    return outer * gram(F).unsqueeze(-1)


def contract_core(T: Tensor, F: Tensor, slices: bool) -> Tensor:
    """Sum `T (..., I, k, k)`, projected slices times C, against B over the second mode, or against A over slices."""
    if slices:
        return as_factor((T * F.unsqueeze(-2)).sum(-3))
    return as_factor((T * F.unsqueeze(-3)).sum(-2))


def times_shared(Y: Tensor, C: Tensor) -> Tensor:
    """Multiply projected slices `(..., I, k, J)` by the shared factor, `(..., I, k, k)`."""
    return (Y.flatten(-3, -2) @ C).unflatten(-2, Y.shape[-3:-1])


def shared_linear(Y: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Compute the linear part of the shared factor, `(..., J, k)`, from projected slices."""
    weights = khatri_rao([A, B])
    return (weights.mT @ Y.flatten(-3, -2)).mT
