"""Dense data of any order."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from .. import divergence as div
from ..cache import tiny
from ..compiled import compiled_loops
from ..factors import contract_others, even_split, khatri_rao, multiply_batch, multiply_column_sums
from ..multilinear import reconstruct_tucker
from .base import Data, add_product, product_blocks, rows_at_once, slices, sum64, sum_of

# Entries of a data set that is stacked with others, at most. A stack copies its data sets, and saves what a sweep costs
# beside its products: of 100 x 200 entries three quarters of the time, of 300 x 300 half, of 500 x 800 nothing (NMF,
# k = 10, one thread of an AMD EPYC). A GPU, estimated, has larger fixed costs.
STACKED_ENTRIES = {"cpu": 1 << 18, "cuda": 1 << 22}

# Entries of a matrix, and numbers in a row (or, stored by columns, in a column), from which compiled loops over the
# model take less time than torch (k = 3 to 64, one thread of an AMD EPYC): for the product with the factor of the
# columns of such a row, for that with the other factor, and for the divergence. They take up to 2.2 times less.
FEWEST, NARROWEST = 1 << 13, {"along": 64, "across": 48, "divergence": 24}


class DenseProducts(Data):
    """What needs all entries of a CP model, in row chunks of it; a subclass gives rows of its matrix, or of several."""

    @abstractmethod
    def rows_of_matrix(self, rows: slice) -> Tensor:
        """Give some rows of the matrix, `(rows, columns)`, or of that of every problem, `(B, rows, columns)`."""

    def matrices(self, problems: int) -> tuple[Tensor, Sequence[int]]:
        """Give all matrices, `(sets, rows, columns)`, and which of them is that of every problem: one for all."""
        return self.rows_of_matrix(slice(None))[None], [0] * problems

    @abstractmethod
    def _floor(self) -> Any:
        """Compute what a reconstruction is clamped to before it divides: far below the precision of the data.

        A tensor: inside a sweep the host is not read.
        """

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum `d_beta(X, [[factors]])` over all entries, float64, in row chunks of the reconstruction."""
        if (loops := self._loops(factors, beta)) is not None:
            return loops.divergence(*self._problems(factors)).clamp_(min=0)
        floor = None if beta == 2 else self._floor()
        loss = lambda X, Y: div.loss(X, Y if floor is None else Y.clamp_(min=floor), beta)
        parts = (
            sum64(loss(self.rows_of_matrix(rows), Y), Y.dim() - 2)
            for rows, Y in product_blocks(*self._groups(factors), self.chunk)
        )
        return sum_of(parts).clamp(min=0)  # rounding alone could go below

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute the MTTKRPs of `Y^(beta-2) X` and of `Y^(beta-1)`, in row chunks of the reconstruction `Y`."""
        if (loops := self._loops(factors, beta, mode)) is not None:
            total = loops.multiply_ratio(*self._problems(factors), mode < self.cut)
            return self._contract_group(total, factors, mode), multiply_column_sums(factors, mode)
        floor = self._floor()

        def ratios(rows: slice, Y: Tensor) -> list[Tensor]:
            return [Z for Z in div.ratios(self.rows_of_matrix(rows), Y.clamp_(min=floor), beta) if Z is not None]

        minus, *plus = self.contract_model(factors, mode, ratios)
        return minus, plus[0] if plus else multiply_column_sums(factors, mode)

    def contract_model(
        self, factors: Sequence[Tensor], mode: int, make: Callable[[slice, Tensor], Sequence[Tensor]]
    ) -> list[Tensor]:
        """Contract matrices that `make` makes of blocks of the reconstruction with all factors but one."""
        left, right = self._groups(factors)
        inside, totals = mode < self.cut, None
        for rows, Y in product_blocks(left, right, self.chunk):
            made = make(rows, Y)
            before = totals or [None] * len(made)
            totals = [add_product(T, Z, rows, left, right, inside) for T, Z in zip(before, made, strict=True)]
        return [self._contract_group(total, factors, mode) for total in totals or []]

    def _contract_group(self, total: Tensor, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract what a product gives for the group of a mode with the other factors of that group."""
        here, at = (factors[: self.cut], mode) if mode < self.cut else (factors[self.cut :], mode - self.cut)
        return contract_others(total, here, at)

    def _loops(self, factors: Sequence[Tensor], beta: float, mode: int | None = None) -> Any:
        """Return compiled loops if they can do what is asked for a mode, or for the divergence, and in less time."""
        if beta != 1 or len({F.shape[:-2] for F in factors}) > 1:
            return None
        X = self.matrices(1)[0]
        by_rows = X.stride(-1) == 1
        wanted = "divergence" if mode is None else "along" if (mode < self.cut) == by_rows else "across"
        if X[0].numel() < FEWEST or X.shape[-1 if by_rows else -2] < NARROWEST[wanted]:
            return None
        return compiled_loops("ratios", X, *factors)

    def _problems(self, factors: Sequence[Tensor]) -> tuple[Tensor, Sequence[int], Sequence[Tensor], Tensor]:
        """Give the matrices, that of every problem, both groups of factors and the floor of the model."""
        problems = prod(factors[0].shape[:-2])
        floors = self.floors(problems).to(factors[0].device, factors[0].dtype)
        return *self.matrices(problems), self._groups(factors), floors

    def floors(self, problems: int) -> Tensor:
        """Give what the model of every problem is clamped to before it divides, `(problems,)`."""
        return torch.as_tensor(self._floor(), device=self.device).reshape(-1).expand(problems)

    def _groups(self, factors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Multiply the factors of each of the two groups (Khatri-Rao)."""
        return khatri_rao(factors[: self.cut]), khatri_rao(factors[self.cut :])


class Dense(DenseProducts):
    """A dense array of any order, seen as one matrix cut between two groups of modes so that both groups are small.

    Parameters
    ----------
    X : Tensor (n, d_1, ..., d_r)
        float32 or float64; not copied. Writes to it are noticed.
    cut : int, optional
        Modes of the first group. Default: the larger group is as small as possible.
    """

    def __init__(self, X: Tensor, cut: int | None = None) -> None:
        super().__init__(X.shape, X.dtype, X.device, X)
        self.X, self.cut = X, cut or (1 if self.order == 2 else even_split(X.shape))
        self._sides = prod(self.shape[: self.cut]), prod(self.shape[self.cut :])
        self.rows_per_problem = sum(self._sides)  # of the Khatri-Rao products of the two groups
        if X.numel() <= STACKED_ENTRIES.get(self.device.type, 0):
            self.stack_key = self.shape, self.dtype, self.device, self.cut
        view = X if self.order == 2 else _view(X, self._sides)
        self._view = view if view is not None and 1 in view.stride() else None

    @property
    def matrix(self) -> Tensor:
        """The data as a matrix between the two groups: a view of X, or a kept copy where its strides allow none."""
        if self._view is not None:  # shows what is written to X: nobody has to ask the cache
            return self._view
        return self.cache("matrix", (), lambda: self.X.reshape(self._sides).contiguous())

    def entries(self) -> Iterator[Tensor]:
        """Iterate over rows of the matrix, in pieces."""
        return iter(self.matrix.split(rows_at_once(self, self._sides[1])))

    def samples(self) -> Tensor:
        """Give the array itself."""
        return self.X

    def scaled(self, factor: float, dtype: torch.dtype | None = None) -> "Dense":
        """Multiply the data by a number, in their own precision, and cast (a copy)."""
        new = torch.empty_like(self.X, dtype=dtype or self.dtype)
        rows = rows_at_once(self, prod(self.shape[1:]))
        for part, target in zip(self.X.split(rows), new.split(rows), strict=True):
            target.copy_(part * factor)
        return Dense(new, self.cut)

    def take(self, rows: Tensor) -> "Dense":
        """Copy some samples."""
        return Dense(self.X.index_select(0, rows), cut=1)

    def by_samples(self) -> "Dense":
        """View the same array with a sample in each row of the matrix."""
        return self if self.cut == 1 else Dense(self.X, cut=1)

    def times(self, F: Tensor) -> Tensor:
        """Multiply the matrix by `F`, component-major."""
        return (F.mT @ self.matrix.mT).mT if F.dim() == 2 else multiply_batch(self.matrix, F)

    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed matrix by `F`, component-major."""
        return (F.mT @ self.matrix).mT if F.dim() == 2 else multiply_batch(self.matrix.mT, F)

    def group_product(self, factors: Sequence[Tensor], last: bool) -> Tensor:
        """Contract a group mode by mode: the first product reads the data, the others what is left of them."""
        X, batch = self._contiguous(), factors[0].shape[:-2]
        first, *others = factors[::-1] if last else factors
        rows = X.reshape(-1, X.shape[-1]).mT if last else X.reshape(len(X), -1)
        T = (first.mT.reshape(-1, first.shape[-2]) @ rows).view(*batch, first.shape[-1], -1)
        for F in others:  # (..., ranks so far, what is left), of which the last or the first mode comes next
            T = T.unflatten(-1, (-1, F.shape[-2])).mT if last else T.unflatten(-1, (F.shape[-2], -1))
            T = (F.mT.unsqueeze(-3) @ T).flatten(-3, -2)
        return _turn(T, [F.shape[-1] for F in factors]) if last and others else T

    def _contiguous(self) -> Tensor:
        """Give the array so that its first and its last mode can be cut off: where strides forbid it, a kept copy."""
        if self.order == 2 or self.X.is_contiguous():
            return self.X
        return self.cache("contiguous", (), self.X.contiguous)

    def tucker_residual_sq(self, factors: Sequence[Tensor], core: Tensor) -> Tensor:
        """Sum the residual itself, a few samples at a time."""
        V, *bases = [F.double() for F in factors]
        core, step = core.double(), rows_at_once(self, prod(self.shape[1:]) * max(1, prod(V.shape[:-2])))

        def summed() -> Tensor:
            parts = (
                self.X[rows] - reconstruct_tucker([V[..., rows, :], *bases], core) for rows in slices(len(self.X), step)
            )
            return sum_of(sum64(R.square_(), R.dim() - self.order) for R in parts)

        return self.cache("tucker", (V, *bases, core), summed)

    def rows_of_matrix(self, rows: slice) -> Tensor:
        """View some rows."""
        return self.matrix[rows]

    def _floor(self) -> Any:
        if self.floor is not None:
            return self.floor
        return self.cache("floor", (), lambda: floor_of(self.X.max()))


def floor_of(largest: Tensor) -> Tensor:
    """Return the floor of a reconstruction of data with this largest entry."""
    return (largest * torch.finfo(largest.dtype).eps ** 2).clamp(min=tiny(largest.dtype))


def _turn(T: Tensor, ranks: Sequence[int]) -> Tensor:
    """Reverse the order of the ranks of `(..., r_N .. r_1, rows)`."""
    first = T.dim() - 2
    T = T.unflatten(-2, tuple(ranks[::-1]))
    return T.permute(*range(first), *range(T.dim() - 2, first - 1, -1), -1).flatten(first, -2)


def _view(X: Tensor, sides: tuple[int, int]) -> Tensor | None:
    """View an array as a matrix, if its strides allow that."""
    try:
        return X.view(sides)
    except RuntimeError:
        return None
