"""Unit-length samples as the atoms of a dictionary, dense or sparse: the products that l1 codes need."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..core.data.as_data import to_csr
from ..core.data.csr import CSR
from ..core.factors import divide

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
        """Compute `D'D`, or else `DD'`."""
        return self.D.mT @ self.D if features else self.D @ self.D.mT

    def some(self, chosen: Tensor, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the atoms `chosen (n, W)` as `(n, W, f)`, and which f features these are (None: all)."""
        return self.D[chosen], None

    @cached_property
    def single(self) -> "Atoms":
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
    """Atoms in the rows of a float64 scipy CSR, worked on by the host; only those of one batch become dense."""

    def __init__(self, S: sp.csr_array, dtype: torch.dtype = torch.float64) -> None:
        self.S, self.shape, self.device, self.dtype = S, tuple(S.shape), torch.device("cpu"), dtype
        self.rows = CSR.from_scipy(S, self.device, dtype)
        self.columns = CSR.transpose_of(S, self.device, dtype)

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
    def single(self) -> "SparseAtoms":
        """The same atoms in float32."""
        return SparseAtoms(self.S, torch.float32)


def atoms_of(D: Any) -> Atoms:
    """Take unit-length samples (float64 tensor or scipy CSR) as atoms."""
    return SparseAtoms(D) if sp.issparse(D) else Atoms(D)


def unit_rows(X: Any) -> Any:
    """Bring rows of X (tensor or scipy sparse) to length one, in float64, without overflow; zero rows stay."""
    if 0 in X.shape:
        return X.double() if isinstance(X, Tensor) else sp.csr_array(X, dtype=np.float64)
    if sp.issparse(X):
        S = to_csr(X, dtype=np.float64)
        S = _divide_rows(S, abs(S).max(axis=1).toarray().ravel())
        return _divide_rows(S, np.sqrt(S.power(2).sum(axis=1)))
    Z = divide(X.double(), X.abs().amax(1, keepdim=True).double())
    return divide(Z, Z.square().sum(1, keepdim=True).sqrt())


def unit_chunks(X: Any, rows: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield dense unit-length samples, so many rows at a time."""
    step = max(1, rows)
    for a in range(0, max(1, X.shape[0]), step):
        Z = unit_rows(X[a : a + step])
        yield slice(a, a + Z.shape[0]), torch.from_numpy(Z.toarray()) if sp.issparse(Z) else Z


def _divide_rows(S: sp.csr_array, by: np.ndarray) -> sp.csr_array:
    """Divide every row by its number; by 1 where that is 0."""
    return sp.csr_array(sp.diags_array(1 / np.where(by > 0, by, 1)) @ S)
