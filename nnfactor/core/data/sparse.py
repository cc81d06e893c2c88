"""A sparse matrix behind the verbs of `Data`: work on its pattern only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import reduce
from itertools import pairwise
from math import prod

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .. import divergence as div
from ..cache import TensorCache, tiny
from ..factors import as_factor, flatten_batch, gram, multiply_column_sums, unflatten_batch
from .chunks import CHUNK, _sum64
from .csr import CSR, narrow, row_of_each
from .stored_entries import each_problem, inside_divergence, inside_residual


class Sparse:
    """A sparse matrix: `X` and its transpose as CSR, one master copy on the host, work on the pattern only.

    On the CPU the CSR of `X` is that master copy (where dtypes agree); the transpose is the only other copy.
    """

    order = 2

    def __init__(self, X: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        self.shape, self.device, self.dtype, self.cache = tuple(X.shape), device, dtype, TensorCache()
        X = narrow(X)
        self.rows = CSR.from_scipy(X, device, dtype)
        self.columns = CSR.from_scipy(X.T.tocsr(), device, dtype)
        self._host = X

    @property
    def indices(self) -> tuple[Tensor, Tensor]:
        """Row and column of every stored entry."""
        return row_of_each(self.rows.crow), self.rows.col.long()

    def mean(self) -> Tensor:
        """Mean over all entries, the zeros counted."""
        return self.rows.values.sum(dtype=torch.float64) / prod(self.shape)

    def smallest(self) -> float:
        """The smallest entry, stored or not."""
        return float(self._host.data.min()) if self._host.nnz == prod(self.shape) else 0.0

    def largest(self) -> float:
        """The largest absolute value of an entry (kept)."""
        return self.cache("largest", (), lambda: float(np.abs(self._host.data).max(initial=0)))

    def filled(self) -> float:
        """The share of the entries that are not zero (kept)."""
        return self.cache("filled", (), lambda: int(np.count_nonzero(self._host.data)) / prod(self.shape))

    def scaled(self, factor: float) -> Sparse:
        """The data times a number (a copy)."""
        return Sparse(self._host * factor, self.device, self.dtype)

    def take(self, rows: Tensor) -> Sparse:
        """Some samples (a copy, made on the host)."""
        return Sparse(self._host[rows.cpu().numpy()], self.device, self.dtype)

    def anew(self) -> Sparse:
        """The same arrays with nothing remembered."""
        same = copy(self)
        same.cache = TensorCache()
        return same

    def sqnorm(self) -> Tensor:
        """`||X||^2`, a float64 scalar (kept)."""
        return self.cache("sqnorm", (), lambda: _sum64(self.rows.values.double().square()))

    def times(self, F: Tensor, onto: Tensor | None = None) -> Tensor:
        """`X @ F`: of a single problem in rows, of a batch component-major; added to `onto` if that is given."""
        product = _sparse_wide(self.rows, F)
        return product if onto is None else onto.add_(product)

    def times_transposed(self, F: Tensor) -> Tensor:
        """`X.T @ F`, as for `times`."""
        return _sparse_wide(self.columns, F)

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """`X U` or `X' V`. The answer may be shared: never write into it."""
        other = factors[1 - mode]
        product = self.times_transposed if mode else self.times
        return self.cache(("mttkrp", mode), (other,), lambda: product(other))

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """`||X - V U'||^2`, float64: the residual on the pattern, and off it the Grams less what the pattern holds.

        Where that difference would cancel (a nearly exact fit), it is summed entry by entry in row chunks instead.
        """
        V, U = (F.double() for F in factors)
        return self.cache("residual_sq", (V, U), lambda: self._residual_sq(V, U))

    def _residual_sq(self, V: Tensor, U: Tensor) -> Tensor:
        inside = each_problem(self._inside, (V, U))
        total = (gram(V) * gram(U)).sum((-2, -1)) + inside
        return self._residual_by_rows(V, U) if bool((total < 1e-12 * self.sqnorm()).any()) else total

    def _inside(self, V: Tensor, U: Tensor) -> Tensor:
        U = U.contiguous()
        return reduce(
            torch.add,
            (inside_residual(X.values.double(), X.sampled(V[rows].contiguous(), U)) for rows, X in self._blocks()),
        )

    def _blocks(self) -> list[tuple[slice, CSR]]:
        """Rows in blocks of about `CHUNK` entries: copies of their values in float64 exist for one block at a time."""
        return self.cache("blocks", (), self._cut_rows)

    def _cut_rows(self) -> list[tuple[slice, CSR]]:
        ends, n = self._host.indptr, self.shape[0]
        cuts = np.unique([*np.searchsorted(ends, np.arange(0, ends[-1], CHUNK)), n])
        cuts = cuts if cuts[0] == 0 else np.r_[0, cuts]
        return [(slice(a, b), self.rows.block(a, b, ends[a], ends[b])) for a, b in pairwise(cuts.tolist())]

    def _residual_by_rows(self, V: Tensor, U: Tensor) -> Tensor:
        (i, j), total = self.indices, V.new_zeros(V.shape[:-2])
        for rows, Y in self._chunks(V, U):
            here = slice(*(int(self.rows.crow[min(r, self.shape[0])]) for r in (rows.start, rows.stop)))
            Y[..., i[here] - rows.start, j[here]] -= self.rows.values[here].double()
            total = total + _sum64(Y.square(), Y.dim() - 2)
        return total

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum of `d_beta(X, V U')` over all entries, float64; the zeros of `X` enter by what they cost."""
        V, U = factors
        zero = lambda y: div.loss(torch.zeros_like(y), y, beta)
        inside = each_problem(lambda V, U: self._divergence_inside(V, U, beta), factors)
        if beta <= 0:
            outside = torch.zeros_like(inside)
        elif beta == 1:
            outside = (V.sum(-2, dtype=torch.float64) * U.sum(-2, dtype=torch.float64)).sum(-1)
        else:
            low = self.floor()
            outside = reduce(torch.add, (_sum64(zero(Y.clamp(min=low)), Y.dim() - 2) for _, Y in self._chunks(V, U)))
        return (inside + outside).clamp(min=0)

    def _divergence_inside(self, V: Tensor, U: Tensor, beta: float) -> Tensor:
        U, low = U.contiguous(), self.floor()
        return reduce(
            torch.add,
            (
                inside_divergence(X.values.to(V.dtype), X.sampled(V[rows].contiguous(), U), beta, low)
                for rows, X in self._blocks()
            ),
        )

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """As for `Dense`: the pull through the pattern only, the push by column sums (beta = 1) or in row chunks."""
        V, U = factors
        linear_minus = each_problem(lambda *Fs: self._pull(Fs[mode], Fs[1 - mode], mode, beta), factors)
        if beta == 1:
            return linear_minus, multiply_column_sums(factors, mode)
        pushes, floor = [], self.floor()
        for rows, Y in self._chunks(V, U):
            power = Y.clamp_(min=floor).pow_(beta - 1)
            pushes.append(power.mT @ V[..., rows, :] if mode else power @ U)
        return linear_minus, as_factor(reduce(torch.add, pushes) if mode else torch.cat(pushes, dim=-2))

    def _pull(self, F: Tensor, other: Tensor, mode: int, beta: float) -> Tensor:
        """The ratios at the pattern times the other factor, all in the order of the rows that `F` has."""
        X, other = self.columns if mode else self.rows, other.contiguous()
        y = X.sampled(F.contiguous(), other)
        ratio = div.ratios(X.values.to(y.dtype), y.clamp_(min=self.floor()), beta)[0]
        return as_factor(X.with_values(ratio).product(other))

    def floor(self) -> float:
        """As for `Dense`."""
        return max(self.largest() * torch.finfo(self.dtype).eps ** 2, tiny(self.dtype))

    def _chunks(self, V: Tensor, U: Tensor) -> Iterator[tuple[slice, Tensor]]:
        step = max(1, CHUNK // max(1, prod(V.shape[:-2]) * self.shape[1]))
        for a in range(0, self.shape[0], step):
            yield slice(a, a + step), V[..., a : a + step, :] @ U.mT


def _sparse_wide(X: CSR, F: Tensor) -> Tensor:
    """`X @ F` for every problem of a batch as one sparse product."""
    rows = X.product(flatten_batch(F))
    return rows if F.dim() == 2 else unflatten_batch(rows, F)
