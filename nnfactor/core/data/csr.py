"""Compressed sparse rows on a device: two products, which also have gradients and work on fake tensors."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .base import slices

LIMIT = 2**31 - 1  # numbers that a sparse product may have on its right side: torch's kernels count them in 32 bits
NEAR = 3 << 19  # bytes of it on the CPU: for more they are fetched from further away at every stored entry
NARROW = 64  # columns that are multiplied at once at least: every time the matrix is read


@dataclass(frozen=True, eq=False)
class CSR:
    """A sparse matrix `(n, m)` whose three arrays live on one device.

    Built from scipy so that indices are known to be valid; they are 32-bit wherever they fit. Products use torch's
    sparse kernels, and go entry by entry for what those do not take: tensors that record gradients, and fake ones.
    """

    crow: Tensor
    col: Tensor
    values: Tensor
    shape: tuple[int, int]

    @cached_property
    def matrix(self) -> Tensor:
        """The matrix as one torch tensor, assembled when first used."""
        with warnings.catch_warnings():  # "sparse CSR is in beta", once per process
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(
                self.crow, self.col, self.values, self.shape, device=self.values.device, check_invariants=False
            )

    @classmethod
    def from_scipy(cls, S: Any, device: torch.device, dtype: torch.dtype) -> "CSR":
        """Copy a canonical scipy CSR to a device, in the given dtype."""
        S = narrow_csr(S)
        crow, col = (torch.from_numpy(a).to(device) for a in (S.indptr, S.indices))
        values = torch.from_numpy(np.ascontiguousarray(S.data)).to(device, dtype)
        return cls(crow, col, values, tuple(S.shape))

    @classmethod
    def transpose_of(cls, S: Any, device: torch.device, dtype: torch.dtype) -> "CSR":
        """Copy the transpose of a canonical scipy CSR."""
        return cls.from_scipy(S.T.tocsr(), device, dtype)

    def with_values(self, values: Tensor) -> "CSR":
        """Give the same pattern other stored values `(nnz,)`."""
        return replace(self, values=values)

    def block(self, a: int, b: int, first: int, last: int) -> "CSR":
        """Cut out rows a to b, whose entries are those from `first` to `last`; col and values are views."""
        entries = slice(int(first), int(last))
        crow = self.crow[a : b + 1] - self.crow[a]
        return CSR(crow, self.col[entries], self.values[entries], (b - a, self.shape[1]))

    def coordinates(self) -> tuple[Tensor, Tensor]:
        """List row and column of every stored entry, `(nnz,)` each."""
        rows = torch.arange(self.shape[0], device=self.crow.device)
        return rows.repeat_interleave(self.crow.diff().long(), output_size=len(self.col)), self.col.long()

    def product(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute `matrix @ rows`, row-major; into `out (n, c)` if given, which may be some columns of a wider one."""
        if _is_plain(rows, self.values):  # the operator spends half its time on zeros and on a copy of its result
            return self._multiply(rows, rows.new_empty(self.shape[0], rows.shape[1]) if out is None else out, 0)
        row, col = self.coordinates()
        product = rows.new_zeros(self.shape[0], rows.shape[1]).index_add(0, row, self.values[:, None] * rows[col])
        return product if out is None else out.copy_(product)

    def add_product(self, rows: Tensor, total: Tensor) -> Tensor:
        """Add `matrix @ rows` to `total`, in place where torch's kernels take the operands."""
        return self._multiply(rows, total, 1) if _is_plain(rows, self.values, total) else total + self.product(rows)

    def _multiply(self, rows: Tensor, out: Tensor, beta: int) -> Tensor:
        """Write `beta out + matrix @ rows` to `out`, some columns at a time."""
        n, c = max(1, len(rows)), rows.shape[1]
        width = max(1, LIMIT // n)
        if rows.is_cpu:
            width = min(width, max(NARROW, NEAR // (n * rows.element_size())))
        if c <= width:
            return torch.addmm(out, self.matrix, rows, beta=beta, out=out)
        parts = -(-c // width)
        for part in slices(c, -(-c // parts)):  # of nearly the same width
            torch.addmm(out[:, part], self.matrix, rows[:, part].contiguous(), beta=beta, out=out[:, part])
        return out

    def sampled(self, left: Tensor, right: Tensor) -> Tensor:
        """Compute `<left_i, right_j>` at every stored entry (i, j), `(nnz,)`; nothing of size nnz x k is made.

        The stored values count with weight 0 and must be finite.
        """
        if _is_plain(left, right):
            pattern = self if left.dtype == self.values.dtype else self.with_values(self.values.to(left.dtype))
            return torch.sparse.sampled_addmm(pattern.matrix, left, right.mT, beta=0.0).values()
        row, col = self.coordinates()
        return (left[row] * right[col]).sum(1)


def narrow(index: np.ndarray, largest: int) -> np.ndarray:
    """Store indices up to `largest` in 32 bits if they fit: products are bound by the memory they read."""
    return index.astype(np.int32, copy=False) if largest < 2**31 else index


def narrow_csr(S: sp.csr_array) -> sp.csr_array:
    """Give a matrix 32-bit indices if they fit; the values are shared."""
    largest = max(S.nnz, *S.shape)
    if S.indices.dtype == np.int32 or largest >= 2**31:
        return S
    return sp.csr_array((S.data, narrow(S.indices, largest), narrow(S.indptr, largest)), shape=S.shape)


def _is_plain(*operands: Tensor) -> bool:
    """Tell whether torch's sparse kernels take the operands."""
    return all([type(t) is Tensor and not (t.requires_grad and torch.is_grad_enabled()) for t in operands])
