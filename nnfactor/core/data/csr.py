"""Compressed sparse rows on a device: two products, with a gradient and with a shape for fake tensors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class CSR:
    """A sparse matrix `(n, m)` whose three arrays live on one device.

    `csr.product(rows)` is the product with a plain matrix `(m, c)`; `csr.with_values(v)` the same pattern with other
    values; `csr.sampled(left, right)` a product of two factors at the stored entries alone. Built from scipy so that
    indices are known to be valid; they are 32-bit wherever they fit.
    """

    crow: Tensor
    col: Tensor
    values: Tensor
    shape: tuple[int, int]

    @cached_property
    def matrix(self) -> Tensor:
        """The matrix as one torch tensor, assembled when first used."""
        return _assemble(self.crow, self.col, self.values, self.shape[1])

    @classmethod
    def from_scipy(cls, S: Any, device: torch.device, dtype: torch.dtype) -> CSR:
        """Copy a canonical scipy CSR to a device, in the given dtype."""
        S = narrow_csr(S)
        crow, col = (torch.from_numpy(a).to(device) for a in (S.indptr, S.indices))
        values = torch.from_numpy(np.ascontiguousarray(S.data)).to(device, dtype)
        return cls(crow, col, values, tuple(S.shape))

    def with_values(self, values: Tensor) -> CSR:
        """Give the same pattern other stored values `(nnz,)`."""
        return replace(self, values=values)

    def block(self, a: int, b: int, first: int, last: int) -> CSR:
        """Cut out rows a to b, whose entries are those from `first` to `last`; col and values are views."""
        entries = slice(int(first), int(last))
        crow = self.crow[a : b + 1] - self.crow[a]
        return CSR(crow, self.col[entries], self.values[entries], (b - a, self.shape[1]))

    def product(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute `matrix @ rows`, row-major; into `out (n, c)` if given, which may be some columns of a wider one."""
        if type(rows) is Tensor and not (rows.requires_grad or self.values.requires_grad):
            return _product(self.matrix, rows, out)
        product = _csr_matmul(self.crow, self.col, self.values, self.shape[1], rows)
        return product if out is None else out.copy_(product)

    def sampled(self, left: Tensor, right: Tensor) -> Tensor:
        """Compute `<left_i, right_j>` at every stored entry (i, j), `(nnz,)`; nothing of size nnz x k is made."""
        if type(left) is Tensor and not (left.requires_grad or right.requires_grad):
            return _sampled(self.matrix if left.dtype == self.values.dtype else self.to(left.dtype).matrix, left, right)
        return _csr_sampled(self.crow, self.col, self.shape[1], left, right)

    def to(self, dtype: torch.dtype) -> CSR:
        """Cast the values; the pattern is shared."""
        return self if dtype == self.values.dtype else self.with_values(self.values.to(dtype))


def narrow(index: np.ndarray, largest: int) -> np.ndarray:
    """Store indices up to `largest` in 32 bits if they fit: products are bound by the memory they read."""
    return index.astype(np.int32, copy=False) if largest < 2**31 else index


def narrow_csr(S: sp.csr_array) -> sp.csr_array:
    """Give a matrix 32-bit indices if they fit; the values are shared."""
    largest = max(S.nnz, *S.shape)
    if S.indices.dtype == np.int32 or largest >= 2**31:
        return S
    return sp.csr_array((S.data, narrow(S.indices, largest), narrow(S.indptr, largest)), shape=S.shape)


def _sampled(pattern: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Multiply the factors at the entries of `pattern`, whose values count with weight 0 and must be finite."""
    return torch.sparse.sampled_addmm(pattern, left, right.mT, beta=0.0).values()


def _assemble(crow: Tensor, col: Tensor, values: Tensor, columns: int) -> Tensor:
    with warnings.catch_warnings():  # "sparse CSR is in beta", once per process
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(crow, col, values, (crow.numel() - 1, columns), check_invariants=False)


def _product(matrix: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Compute `matrix @ rows` without the zeros and the copy that the operator spends on its result (half its time)."""
    out = rows.new_empty(matrix.shape[0], rows.shape[1]) if out is None else out
    return torch.addmm(out, matrix, rows, beta=0, out=out)


@torch.library.custom_op("nnfactor::csr_matmul", mutates_args=())
def _csr_matmul(crow: Tensor, col: Tensor, values: Tensor, columns: int, dense: Tensor) -> Tensor:
    return _product(_assemble(crow, col, values, columns), dense)


@_csr_matmul.register_fake
def _(crow: Tensor, col: Tensor, values: Tensor, columns: int, dense: Tensor) -> Tensor:
    return dense.new_empty(crow.numel() - 1, dense.shape[1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, col, values, columns, dense = inputs
    ctx.save_for_backward(crow, col, values, dense)
    ctx.columns = columns


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    crow, col, values, dense = ctx.saved_tensors
    to_values = (grad[row_of_each(crow)] * dense[col.long()]).sum(1)
    return None, None, to_values, None, _transposed_product(crow, col, values, ctx.columns, grad)


def _transposed_product(crow: Tensor, col: Tensor, values: Tensor, columns: int, rows: Tensor) -> Tensor:
    """Compute `matrix.T @ rows`."""
    total = rows.new_zeros(columns, rows.shape[1])
    return total.index_add_(0, col.long(), values[:, None] * rows[row_of_each(crow)])


_csr_matmul.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("nnfactor::csr_sampled", mutates_args=())
def _csr_sampled(crow: Tensor, col: Tensor, columns: int, left: Tensor, right: Tensor) -> Tensor:
    return _sampled(_assemble(crow, col, left.new_zeros(len(col)), columns), left, right).clone()


@_csr_sampled.register_fake
def _(crow: Tensor, col: Tensor, columns: int, left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(col.numel())


def _save_sampled(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    crow, col, columns, left, right = inputs
    ctx.save_for_backward(crow, col, left, right)
    ctx.columns = columns


def _backward_sampled(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    crow, col, left, right = ctx.saved_tensors
    to_left = _csr_matmul(crow, col, grad.contiguous(), ctx.columns, right)
    return None, None, None, to_left, _transposed_product(crow, col, grad, ctx.columns, left)


_csr_sampled.register_autograd(_backward_sampled, setup_context=_save_sampled)


def row_of_each(crow: Tensor) -> Tensor:
    """Expand compressed row pointers to the row of every stored entry."""
    return torch.repeat_interleave(torch.arange(len(crow) - 1, device=crow.device), crow.diff().long())
