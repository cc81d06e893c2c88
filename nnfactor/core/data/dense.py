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
from functools import reduce
from math import prod

import torch
from torch import Tensor

from .. import divergence as div
from ..cache import TensorCache, tiny
from ..factors import contract_others, even_split, khatri_rao, multiply_batch, multiply_column_sums
from .chunks import _rows, _sum64


class Dense:
    """A dense array of any order, seen as one matrix cut between two groups of modes so that both groups are small.

    A sweep over all factors costs two products with that matrix at any order: each with the Khatri-Rao product of one
    group, kept while its factors are the very same tensors, then reduced inside the other group.
    """

    def __init__(self, X: Tensor, cut: int | None = None) -> None:
        self.X, self.cache = X, TensorCache(X)
        self.cut = even_split(X.shape) if cut is None else cut

    @property
    def matrix(self) -> Tensor:
        """The data as a matrix between the two groups: a view of X, or a kept copy where its strides allow none."""
        return self.cache("matrix", (), self._as_matrix)

    def _as_matrix(self) -> Tensor:
        matrix = self.X.reshape(prod(self.X.shape[: self.cut]), -1)
        return matrix if 1 in matrix.stride() else matrix.contiguous()

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
        return self.cache("filled", (), lambda: int(self.X.count_nonzero()) / prod(self.shape))

    def scaled(self, factor: float) -> Dense:
        """The data times a number (a copy)."""
        return Dense(self.X * factor, self.cut)

    def take(self, rows: Tensor) -> Dense:
        """Some samples (a copy), as a matrix of rows."""
        return Dense(self.X.index_select(0, rows), cut=1)

    def sqnorm(self) -> Tensor:
        """`||X||^2`, a float64 scalar (kept)."""
        return self.cache("sqnorm", (), lambda: sum(_sum64(M.double().square()) for M in self._parts()))

    def times(self, F: Tensor, onto: Tensor | None = None) -> Tensor:
        """`matrix @ F`, component-major; added to `onto` in place if that is given."""
        return multiply_batch(self.matrix, F, onto)

    def times_transposed(self, F: Tensor) -> Tensor:
        """`matrix.T @ F`, component-major."""
        return multiply_batch(self.matrix.mT, F)

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """`X` against all factors but one. The answer may be shared: never write into it."""
        here, there, at = self._groups(factors, mode)
        inside = mode < self.cut
        product = self.times if inside else self.times_transposed
        P = self.cache(("wide", inside), there, lambda: product(khatri_rao(there)))
        if len(here) == 1:
            return P
        others = [F for b, F in enumerate(here) if b != at]
        return self.cache(("mttkrp", mode), (P, *others), lambda: contract_others(P, here, at))

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """`||X - [[factors]]||^2` for every problem, float64, from the residual itself (remembered)."""
        factors = [F.double() for F in factors]
        total = lambda: self._each_chunk(factors, lambda X, Y: _sum64((X - Y).square(), batch=Y.dim() - 2))
        return self.cache("residual_sq", factors, total)

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
        reduced = [contract_others(z.mT, here, at) for z in joined]
        return reduced[0], reduced[1] if pushes else multiply_column_sums(factors, mode)

    def floor(self) -> Tensor:
        """What a reconstruction is clamped to before it divides: far below the data's precision, relative to it."""
        return self.cache(
            "floor", (), lambda: (self.X.max() * torch.finfo(self.dtype).eps ** 2).clamp(min=tiny(self.dtype))
        )

    def _parts(self) -> Iterator[Tensor]:
        matrix = self.matrix
        return iter(matrix.split(_rows(matrix)))

    def _groups(self, factors: Sequence[Tensor], mode: int) -> tuple[list[Tensor], list[Tensor], int]:
        left, right = list(factors[: self.cut]), list(factors[self.cut :])
        return (left, right, mode) if mode < self.cut else (right, left, mode - self.cut)

    def _halves(self, factors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return khatri_rao(factors[: self.cut]), khatri_rao(factors[self.cut :])

    def _chunks(self, left: Tensor, right: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Row ranges with `X` and `Y = left right'` on them; `Y` is fresh and may be written to."""
        matrix = self.matrix
        step = _rows(matrix, prod(left.shape[:-2]))
        for a in range(0, len(matrix), step):
            rows = slice(a, a + step)
            yield rows, matrix[rows], left[..., rows, :] @ right.mT

    def _each_chunk(self, factors: Sequence[Tensor], f: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return reduce(torch.add, (f(X, Y) for _, X, Y in self._chunks(*self._halves(factors))))
