"""Data behind three verbs: what a term may ask of `X`, and the storage kinds that answer.

A data object has `shape`, `order`, `dtype`, `device`, and

* `mttkrp(factors, mode)`: `X` against all factors but one, `(..., d_mode, k)`;
* `sqnorm()`: `||X||^2`, a float64 scalar;
* `residual_sq(factors)`: `||X - [[factors]]||^2`, float64, summed directly from the residual;

for beta-divergences also `ratio_products(factors, mode, beta)` and `divergence(factors, beta)`. `factors` are in the
order of the modes, samples first, with any leading batch dimensions; `X` has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import reduce
from itertools import pairwise
from math import prod

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from . import divergence as div
from .links import from_rows, to_rows
from .memo import Memo, tiny
from .ops import component_major, even_cut, gram, khatri_rao, wide
from .pattern import each_problem, inside_divergence, inside_residual
from .sparse import CSR, narrow, row_of_each
from .sparse_tensor import SparseTensor

CHUNK = 1 << 18  # entries of a reconstruction held at once: a few caches' worth, small enough that malloc reuses it


class Dense:
    """A dense array of any order, seen as one matrix cut between two groups of modes so that both groups are small.

    A sweep over all factors costs two products with that matrix at any order: each with the Khatri-Rao product of one
    group, kept while its factors are the very same tensors, then reduced inside the other group.
    """

    def __init__(self, X: Tensor, cut: int | None = None) -> None:
        self.X, self.memo = X, Memo()
        self.cut = even_cut(X.shape) if cut is None else cut
        self.matrix = X.reshape(prod(X.shape[: self.cut]), -1)
        if 1 not in self.matrix.stride():
            self.matrix = self.matrix.contiguous()

    shape = property(lambda self: tuple(self.X.shape))
    order = property(lambda self: self.X.dim())
    dtype = property(lambda self: self.X.dtype)
    device = property(lambda self: self.X.device)

    def mean(self) -> Tensor:
        """Mean of all entries, a float64 scalar."""
        return self.X.mean(dtype=torch.float64)

    def smallest(self) -> float:
        """The smallest entry."""
        return float(self.X.min())

    def largest(self) -> float:
        """The largest absolute value of an entry."""
        return float(self.X.abs().max())

    def filled(self) -> float:
        """The share of the entries that are not zero (kept)."""
        return self.memo("filled", (), lambda: int(self.X.count_nonzero()) / prod(self.shape))

    def scaled(self, factor: float) -> Dense:
        """The data times a number (a copy)."""
        return Dense(self.X * factor, self.cut)

    def take(self, rows: Tensor) -> Dense:
        """Some samples (a copy), as a matrix of rows."""
        return Dense(self.X.index_select(0, rows), cut=1)

    def sqnorm(self) -> Tensor:
        """`||X||^2`, a float64 scalar (kept)."""
        return self.memo("sqnorm", (), lambda: sum(_sum64(M.double().square()) for M in self._parts()))

    def times(self, F: Tensor, onto: Tensor | None = None) -> Tensor:
        """`matrix @ F`, component-major; added to `onto` in place if that is given."""
        return wide(self.matrix, F, onto)

    def times_transposed(self, F: Tensor) -> Tensor:
        """`matrix.T @ F`, component-major."""
        return wide(self.matrix.mT, F)

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """`X` against all factors but one. The answer may be shared: never write into it."""
        here, there, at = self._groups(factors, mode)
        inside = mode < self.cut
        product = self.times if inside else self.times_transposed
        P = self.memo(("wide", inside), there, lambda: product(khatri_rao(there)))
        if len(here) == 1:
            return P
        others = [F for b, F in enumerate(here) if b != at]
        return self.memo(("mttkrp", mode), (P, *others), lambda: against_others(P, here, at))

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """`||X - [[factors]]||^2` for every problem, float64, from the residual itself (remembered)."""
        factors = [F.double() for F in factors]
        total = lambda: self._each_chunk(factors, lambda X, Y: _sum64((X - Y).square(), batch=Y.dim() - 2))
        return self.memo("residual_sq", factors, total)

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum of `d_beta(X, [[factors]])` over all entries, float64 (twice the usual for beta = 2)."""
        floor = self.floor()
        loss = self._each_chunk(factors, lambda X, Y: _sum64(div.loss(X, Y.clamp(min=floor), beta), Y.dim() - 2))
        return loss.clamp(min=0)  # rounding alone could go below

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """MTTKRPs of `Y^(beta-2) X` and of `Y^(beta-1)`, `Y = [[factors]]`, in row chunks of the reconstruction.

        Both belong to the caller.
        """
        here, _, at = self._groups(factors, mode)
        left, right = self._halves(factors)
        inside, floor = mode < self.cut, self.floor()
        pulls: list[Tensor] = []
        pushes: list[Tensor] = []
        for rows, X, Y in self._chunks(left, right):
            other = right.mT if inside else left[..., rows, :].mT
            for ratio, parts in zip(div.ratios(X, Y.clamp_(min=floor), beta), (pulls, pushes), strict=True):
                if ratio is not None:
                    parts.append(other @ (ratio.mT if inside else ratio))
        joined = [torch.cat(z, dim=-1) if inside and len(z) > 1 else reduce(torch.add, z) for z in (pulls, pushes) if z]
        reduced = [against_others(z.mT, here, at) for z in joined]
        return reduced[0], reduced[1] if pushes else _column_sums(factors, mode)

    def floor(self) -> Tensor:
        """What a reconstruction is clamped to before it divides: far below the data's precision, relative to it."""
        return self.memo(
            "floor", (), lambda: (self.X.max() * torch.finfo(self.dtype).eps ** 2).clamp(min=tiny(self.dtype))
        )

    def _parts(self) -> Iterator[Tensor]:
        return iter(self.matrix.split(_rows(self.matrix)))

    def _groups(self, factors: Sequence[Tensor], mode: int) -> tuple[list[Tensor], list[Tensor], int]:
        left, right = list(factors[: self.cut]), list(factors[self.cut :])
        return (left, right, mode) if mode < self.cut else (right, left, mode - self.cut)

    def _halves(self, factors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return khatri_rao(factors[: self.cut]), khatri_rao(factors[self.cut :])

    def _chunks(self, left: Tensor, right: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Row ranges with `X` and `Y = left right'` on them; `Y` is fresh and may be written to."""
        step = _rows(self.matrix, prod(left.shape[:-2]))
        for a in range(0, len(self.matrix), step):
            rows = slice(a, a + step)
            yield rows, self.matrix[rows], left[..., rows, :] @ right.mT

    def _each_chunk(self, factors: Sequence[Tensor], f: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return reduce(torch.add, (f(X, Y) for _, X, Y in self._chunks(*self._halves(factors))))


class Sparse:
    """A sparse matrix: `X` and its transpose as CSR, one master copy on the host, work on the pattern only.

    On the CPU the CSR of `X` is that master copy (where dtypes agree); the transpose is the only other copy.
    """

    order = 2

    def __init__(self, X: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        self.shape, self.device, self.dtype, self.memo = tuple(X.shape), device, dtype, Memo()
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
        return self.memo("largest", (), lambda: float(np.abs(self._host.data).max(initial=0)))

    def filled(self) -> float:
        """The share of the entries that are not zero (kept)."""
        return self.memo("filled", (), lambda: int(np.count_nonzero(self._host.data)) / prod(self.shape))

    def scaled(self, factor: float) -> Sparse:
        """The data times a number (a copy)."""
        return Sparse(self._host * factor, self.device, self.dtype)

    def take(self, rows: Tensor) -> Sparse:
        """Some samples (a copy, made on the host)."""
        return Sparse(self._host[rows.cpu().numpy()], self.device, self.dtype)

    def anew(self) -> Sparse:
        """The same arrays with nothing remembered."""
        same = copy(self)
        same.memo = Memo()
        return same

    def sqnorm(self) -> Tensor:
        """`||X||^2`, a float64 scalar (kept)."""
        return self.memo("sqnorm", (), lambda: _sum64(self.rows.values.double().square()))

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
        return self.memo(("mttkrp", mode), (other,), lambda: product(other))

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """`||X - V U'||^2`, float64: the residual on the pattern, and off it the Grams less what the pattern holds.

        Where that difference would cancel (a nearly exact fit), it is summed entry by entry in row chunks instead.
        """
        V, U = (F.double() for F in factors)
        return self.memo("residual_sq", (V, U), lambda: self._residual_sq(V, U))

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
        return self.memo("blocks", (), self._cut_rows)

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
        pull = each_problem(lambda *Fs: self._pull(Fs[mode], Fs[1 - mode], mode, beta), factors)
        if beta == 1:
            return pull, _column_sums(factors, mode)
        pushes, floor = [], self.floor()
        for rows, Y in self._chunks(V, U):
            power = Y.clamp_(min=floor).pow_(beta - 1)
            pushes.append(power.mT @ V[..., rows, :] if mode else power @ U)
        return pull, component_major(reduce(torch.add, pushes) if mode else torch.cat(pushes, dim=-2))

    def _pull(self, F: Tensor, other: Tensor, mode: int, beta: float) -> Tensor:
        """The ratios at the pattern times the other factor, all in the order of the rows that `F` has."""
        X, other = self.columns if mode else self.rows, other.contiguous()
        y = X.sampled(F.contiguous(), other)
        ratio = div.ratios(X.values.to(y.dtype), y.clamp_(min=self.floor()), beta)[0]
        return component_major(X.with_values(ratio).product(other))

    def floor(self) -> float:
        """As for `Dense`."""
        return max(self.largest() * torch.finfo(self.dtype).eps ** 2, tiny(self.dtype))

    def _chunks(self, V: Tensor, U: Tensor) -> Iterator[tuple[slice, Tensor]]:
        step = max(1, CHUNK // max(1, prod(V.shape[:-2]) * self.shape[1]))
        for a in range(0, self.shape[0], step):
            yield slice(a, a + step), V[..., a : a + step, :] @ U.mT


Samples = Dense | Sparse  # a sample is a row: products with matrices, and some of the rows
Data = Samples | SparseTensor


def against_others(P: Tensor, factors: Sequence[Tensor], at: int) -> Tensor:
    """`(..., d0 d1 .., k)` summed against all factors of its group but the one at `at`, from both ends."""
    P = P.mT
    for F in factors[:at]:
        P = (F.mT.unsqueeze(-2) @ P.unflatten(-1, (F.shape[-2], -1))).squeeze(-2)
    for F in reversed(factors[at + 1 :]):
        P = (P.unflatten(-1, (-1, F.shape[-2])) @ F.mT.unsqueeze(-1)).squeeze(-1)
    return P.mT


def _column_sums(factors: Sequence[Tensor], mode: int) -> Tensor:
    """The push of beta = 1: `(..., 1, k)`, the same for every row."""
    return reduce(torch.mul, (F.sum(-2, keepdim=True) for b, F in enumerate(factors) if b != mode))


def _sparse_wide(X: CSR, F: Tensor) -> Tensor:
    """`X @ F` for every problem of a batch as one sparse product."""
    rows = X.product(to_rows(F))
    return rows if F.dim() == 2 else from_rows(rows, F)


def _rows(matrix: Tensor, problems: int = 1) -> int:
    return max(1, CHUNK // max(1, problems * matrix.shape[1]))


def _sum64(Z: Tensor, batch: int = 0) -> Tensor:
    return Z.sum(tuple(range(batch, Z.dim())), dtype=torch.float64)
