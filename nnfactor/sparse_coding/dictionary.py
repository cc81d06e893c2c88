"""Unit-length samples as the atoms of a dictionary, dense or sparse: the products that l1 codes need.

Sparse atoms stay sparse: products go through the pattern, and only the few atoms of one batch become dense, on the
features that they or the batch's samples use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..core.data.csr import CSR

CHUNK = 1 << 23  # float64 numbers of a chunk of dense samples (64 MB), where samples or atoms are sparse


class Atoms:
    """Atoms in the rows of a float64 tensor `(N, m)`."""

    def __init__(self, D: Tensor) -> None:
        self.D, self.shape, self.device = D, tuple(D.shape), D.device

    def __len__(self) -> int:
        return self.shape[0]

    def combine(self, a: Tensor) -> Tensor:
        """Compute `a D`, `(n, m)`."""
        return a @ self.D

    def against(self, y: Tensor) -> Tensor:
        """Compute `y D'`, `(n, N)`."""
        return y @ self.D.mT

    def gram(self, features: bool) -> Tensor:
        """Compute `D'D` or `DD'`."""
        return self.D.mT @ self.D if features else self.D @ self.D.mT

    def some(self, chosen: Tensor, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the atoms `chosen (n, W)` as `(n, W, f)`, and which f features these are (None: all)."""
        return self.D[chosen], None

    @cached_property
    def single(self) -> Atoms:
        """The same atoms in float32."""
        return Atoms(self.D.float())

    @cached_property
    def inverse(self) -> Callable[[Tensor], Tensor]:
        """The map from v to v (I + D'D)^-1 in float32, by the smaller of the two Gram matrices."""
        N, m = self.shape
        G = self.gram(features=m <= N)
        G.diagonal().add_(1)
        H = torch.cholesky_inverse(torch.linalg.cholesky_ex(G)[0]).float()
        if m <= N:
            return lambda v: v @ H
        return lambda v: v - self.single.combine(self.single.against(v) @ H)


class SparseAtoms(Atoms):
    """Atoms in the rows of a float64 scipy CSR, worked on in the host."""

    def __init__(self, S: sp.csr_array, dtype: torch.dtype = torch.float64) -> None:
        self.S, self.shape, self.device, self.dtype = S, tuple(S.shape), torch.device("cpu"), dtype
        self.rows = CSR.from_scipy(S, self.device, dtype)
        self.columns = CSR.from_scipy(S.T.tocsr(), self.device, dtype)

    def combine(self, a: Tensor) -> Tensor:
        """As for dense atoms."""
        return self.columns.product(a.mT).mT.contiguous()

    def against(self, y: Tensor) -> Tensor:
        """As for dense atoms."""
        return self.rows.product(y.mT).mT.contiguous()

    def gram(self, features: bool) -> Tensor:
        """As for dense atoms."""
        return torch.from_numpy((self.S.T @ self.S if features else self.S @ self.S.T).toarray())

    def some(self, chosen: Tensor, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """As for dense atoms, on the features where an atom or a sample of x is not zero: on others, all agree."""
        picked = self.S[chosen.ravel().numpy()]
        used = np.union1d(picked.indices, (x != 0).any(0).nonzero().squeeze(1).numpy())
        dense = torch.from_numpy(picked[:, used].toarray())
        return dense.view(*chosen.shape, len(used)), torch.from_numpy(used.astype(np.int64))

    @cached_property
    def single(self) -> SparseAtoms:
        """The same atoms in float32."""
        return SparseAtoms(self.S, torch.float32)


def atoms_of(X: Any) -> Atoms:
    """Bring samples to unit length, as atoms."""
    return SparseAtoms(unit_rows(X)) if sp.issparse(X) else Atoms(unit_rows(X))


def unit_rows(X: Any) -> Any:
    """Bring rows of X (tensor or scipy sparse) to length one, in float64, without overflow; zero rows stay."""
    if sp.issparse(X):
        return _unit_sparse_rows(sp.csr_array(X, dtype=np.float64))
    peak = X.abs().amax(1, keepdim=True).double() if X.shape[1] else X.new_zeros(len(X), 1).double()
    Z = X.double() / torch.where(peak > 0, peak, 1)
    norm = Z.square().sum(1, keepdim=True).sqrt()
    return Z / torch.where(norm > 0, norm, 1)


def unit_chunks(X: Any, rows: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield dense unit-length samples, so many rows at a time."""
    step = max(1, rows)
    for a in range(0, max(1, X.shape[0]), step):
        Z = unit_rows(X[a : a + step])
        yield slice(a, a + Z.shape[0]), torch.from_numpy(Z.toarray()) if sp.issparse(Z) else Z


def _unit_sparse_rows(X: sp.csr_array) -> sp.csr_array:
    peak = np.maximum.reduceat(np.r_[np.abs(X.data), 0], np.minimum(X.indptr[:-1], X.nnz))
    peak = np.where(np.diff(X.indptr) > 0, peak, 0)
    scaled = sp.diags_array(1 / np.where(peak > 0, peak, 1)) @ X
    norm = np.sqrt(scaled.power(2).sum(axis=1))
    return sp.csr_array(sp.diags_array(1 / np.where(norm > 0, norm, 1)) @ scaled)
