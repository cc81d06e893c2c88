"""A sparse matrix."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .. import divergence as div
from ..factors import as_factor, flatten_batch, unflatten_batch
from .base import product_blocks, sum_of
from .csr import CSR
from .csr_blocks import TransposeBlocks
from .stored_entries import Piece, StoredEntries, clamp_divisor


class Sparse(StoredEntries):
    """A sparse matrix: `X` as CSR, and its transpose in blocks of samples, for products with it to be as fast.

    Parameters
    ----------
    X : scipy CSR (n, m)
        Canonical: sorted indices, no entry twice.
    device, dtype : of the products
    lazy : bool
        Whether the transpose is made when it is asked for: of a matrix that is used once.
    """

    make_transpose = staticmethod(TransposeBlocks.of)

    def __init__(self, X: sp.csr_array, device: torch.device, dtype: torch.dtype, lazy: bool = False) -> None:
        self.lazy = lazy
        super().__init__(X, X.shape, device, dtype)

    def samples(self) -> sp.csr_array:
        """Give the master copy."""
        return self._host

    def take(self, rows: Tensor) -> "Sparse":
        """Copy some samples, on the host."""
        return Sparse(self._host[rows.cpu().numpy()], self.device, self.dtype)

    def times(self, F: Tensor) -> Tensor:
        """Compute `X @ F`: of a single problem in rows, of a batch component-major."""
        return _multiply(self.rows, F)

    def times_transposed(self, F: Tensor) -> Tensor:
        """Compute `X.T @ F`, as `times` does."""
        return _multiply(self.columns, F)

    def coordinates(self) -> list[Tensor]:
        """List row and column of every stored entry."""
        return list(self.rows.coordinates())

    def at_entries(self, factors: Sequence[Tensor]) -> Iterator[Piece]:
        """Go through blocks of rows: copies of their values in float64 exist for one block at a time."""
        V, U = factors[0], factors[1].contiguous()
        for rows, X in self.cache("blocks", (), self._blocks):
            yield X.values, X.sampled(V[rows].contiguous(), U)

    def _inner_product(self, factors: Sequence[Tensor]) -> Tensor:
        """Sum `X * V U'` by products of blocks of rows: a fifth of the time of going through the entries."""
        V, U = factors[0], factors[1].contiguous()
        blocks = self.cache("blocks", (), self._blocks)
        products = ((rows, X.with_values(X.values.to(U.dtype)).product(U)) for rows, X in blocks)
        return sum_of((V[rows] * P).sum(dtype=torch.float64) for rows, P in products)

    def _blocks(self) -> list[tuple[slice, CSR]]:
        """Cut the rows into blocks of about a chunk of entries."""
        ends, n = self._host.indptr, self.shape[0]
        cuts = np.unique([*np.searchsorted(ends, np.arange(0, ends[-1], self.chunk)), n])
        cuts = cuts if cuts[0] == 0 else np.r_[0, cuts]
        return [(slice(a, b), self.rows.block(a, b, ends[a], ends[b])) for a, b in pairwise(cuts.tolist())]

    def ratio_product(self, factors: Sequence[Tensor], mode: int, beta: float) -> Tensor:
        """Multiply the ratios at the pattern by the other factor, all in the order of the rows of this one."""
        own, other = factors[mode].contiguous(), factors[1 - mode].contiguous()
        total = own.new_zeros(own.shape)
        for part, X in self.columns if mode else [(slice(None), self.rows)]:
            y = X.sampled(own, other[part])
            ratio = div.ratios(X.values.to(y.dtype), clamp_divisor(self, y, beta), beta)[0]
            total = X.with_values(ratio).add_product(other[part], total)
        return as_factor(total)

    def reconstruction(self, factors: Sequence[Tensor], beta: float) -> Iterator[tuple[slice, Tensor]]:
        """Compute `V U'` in blocks of rows."""
        return product_blocks(factors[0], factors[1], self.chunk)


def _multiply(X: CSR | TransposeBlocks, F: Tensor) -> Tensor:
    """Compute `X @ F` for every problem of a batch as one sparse product.

    A single problem's product stays in rows, as a sparse product gives it and the next one takes it: turned round, a
    multiplicative sweep takes 1.2 to 1.33 times as long (k = 20 and 50; 1.02 to 1.08 for k = 10), one of HALS as long.
    """
    rows = X.product(flatten_batch(F))
    return rows if F.dim() == 2 else unflatten_batch(rows, F)
