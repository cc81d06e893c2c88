"""Samples that share their coefficients: hard must-link constraints (Liu, Wu, Li, Cai and Huang 2012)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..block import Block
from ..cache import TensorCache
from ..data.sparse import Sparse
from .base import Factors
from .fit import Fit


class SampleGroups:
    """`V = A Z`, `A (n, p)` one-hot: sample i has row `groups[i]` of Z as its coefficients.

    Solvers work with `F = D^(1/2) Z`, `D = A'A` the sizes of the groups: then `V = Q F` with orthonormal columns of
    `Q = A D^(-1/2)`, hence `V'V = F'F`, and for every rule it is an ordinary problem of p rows.

    Parameters
    ----------
    groups : integer array (n,)
        0..p-1, none of them empty.
    """

    def __init__(self, groups: Any) -> None:
        self.groups = np.asarray(groups, dtype=np.int64)
        self.sizes = np.bincount(self.groups)
        self.cache = TensorCache()

    def spread(self, F: Tensor) -> Tensor:
        """Compute `V = Q F`: one row per sample, `(..., n, k)`."""
        return self._on(F).times(F)

    def gather(self, V: Tensor) -> Tensor:
        """Compute `Q' V`, `(..., p, k)`."""
        return self._on(V).times_transposed(V)

    def weights(self, like: Tensor) -> Tensor:
        """Return `D^(1/2)`, `(p, 1)`: F is Z times these weights."""
        return torch.from_numpy(np.sqrt(self.sizes))[:, None].to(like.device, like.dtype)

    def _on(self, F: Tensor) -> Sparse:
        return self.cache((F.device, F.dtype), (), lambda: Sparse(self._matrix(), F.device, F.dtype))

    def _matrix(self) -> sp.csr_array:
        n, values = len(self.groups), 1 / np.sqrt(self.sizes[self.groups])
        return sp.csr_array((values, self.groups, np.arange(n + 1)), shape=(n, len(self.sizes)))


@dataclass(frozen=True, eq=False)
class GroupedFit(Fit):
    """`||X - [[Q F, U1, ...]]||^2`: `Fit` whose sample factor, the first mode F `(p, k)`, is spread from groups."""

    groups: SampleGroups

    def block(self, factors: Factors, name: str, weight: Tensor | None = None) -> Block:
        """Gather the linear part of `Fit` for F; its Gram holds for F too, since Q has orthonormal columns."""
        block = super().block(self._spread(factors), name, weight)
        if name != self.modes[0] or block.linear_minus is None:
            return block
        return Block(quads=block.quads, linear_minus=self.groups.gather(block.linear_minus))

    def rows(self, mode: int) -> int:
        """Return the number of groups for the sample factor."""
        return self.data.shape[mode] if mode else len(self.groups.sizes)

    def value_from(self, factors: Factors, mode: int) -> Tensor:
        """Compute the value as `Fit` does."""
        return super().value_from(self._spread(factors), mode)

    def direct(self, factors: Factors) -> Tensor:
        """Sum the residual as `Fit` does."""
        return super().direct(self._spread(factors))

    def _spread(self, factors: Factors) -> dict[str, Tensor]:
        F = factors[self.modes[0]]
        return {**factors, self.modes[0]: self.data.cache(("spread",), (F,), lambda: self.groups.spread(F))}


def group_samples(codes: np.ndarray | None, n: int) -> np.ndarray:
    """Assign a row of Z to every sample: classes (codes >= 0) in order, then the other samples one by one."""
    codes = np.full(n, -1) if codes is None else codes
    return np.where(codes < 0, codes.max(initial=-1) + np.cumsum(codes < 0), codes)
