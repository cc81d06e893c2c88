"""Several data sets of one shape, each the data of some problems of a batch."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Any

import torch
from torch import Tensor

from .base import sum64
from .dense import Dense, DenseProducts, floor_of


class Stacked(DenseProducts):
    """Dense data sets of one shape, as one array `(sets, n, d_1, ..., d_r)`; a problem has one of them.

    Products take a batch `(B, rows, k)` of as many problems as `owner` has entries. Those of one data set stand side by
    side, so that one product serves all of them.

    Parameters
    ----------
    sets : Tensor (sets, n, d_1, ..., d_r)
    owner : sequence of int
        The data set of every problem, in the order of `sets`; each has at least one.
    cut : int
        Modes of the first of the two groups, as in `Dense`.
    """

    def __init__(self, sets: Tensor, owner: Sequence[int], cut: int) -> None:
        super().__init__(sets.shape[1:], sets.dtype, sets.device, sets)
        self.sets, self.owner, self.cut = sets, list(owner), cut
        sides = prod(self.shape[:cut]), prod(self.shape[cut:])
        self.rows_per_problem = sum(sides)
        self._matrices = sets.reshape(len(sets), *sides)
        self._index = torch.tensor(self.owner, device=sets.device)
        counts = [len(list(same)) for _, same in groupby(self.owner)]
        self._alike = [(count, len(list(same))) for count, same in groupby(counts)]

    @classmethod
    def of(cls, several: Sequence[Dense]) -> "Stacked":
        """Stack the data of every problem; the same object side by side is one data set."""
        distinct = [next(same) for _, same in groupby(several, key=id)]
        counts = [len(list(same)) for _, same in groupby(several, key=id)]
        owner = [i for i, count in enumerate(counts) for _ in range(count)]
        return cls(torch.stack([data.X for data in distinct]), owner, several[0].cut)

    def select_problems(self, keep: Tensor) -> "Stacked":
        """Keep the data of some problems, an index `(B,)` in rising order."""
        owners = [self.owner[p] for p in keep.tolist()]
        used = sorted(set(owners))
        sets = self.sets if len(used) == len(self.sets) else self.sets[used]
        return Stacked(sets, [used.index(i) for i in owners], self.cut)

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the data sets."""
        return iter(self.sets)

    def samples(self) -> Any:
        """Refuse: several data sets have no samples in common."""
        raise ValueError("several data sets have no samples in common; ask each of them")

    def scaled(self, factor: float) -> "Stacked":
        """Multiply all data sets by a number (a copy)."""
        return Stacked(self.sets * factor, self.owner, self.cut)

    def take(self, rows: Tensor) -> "Stacked":
        """Copy the same samples of every data set."""
        return Stacked(self.sets.index_select(1, rows), self.owner, cut=1)

    def times(self, F: Tensor) -> Tensor:
        """Multiply the matrix of every problem by its factor."""
        return self._multiply(self._matrices.mT, F)

    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed matrix of every problem by its factor."""
        return self._multiply(self._matrices, F)

    def _multiply(self, right: Tensor, F: Tensor) -> Tensor:
        """Compute `F' right` for every problem, component-major: one batched product for sets with equally many."""
        rows, k = F.shape[-2:]
        problems = F.mT.split([count * sets for count, sets in self._alike])
        matrices = right.split([sets for _, sets in self._alike])
        products = [
            (part.reshape(len(M), -1, rows) @ M).view(len(part), k, -1)
            for part, M in zip(problems, matrices, strict=True)
        ]
        return (products[0] if len(products) == 1 else torch.cat(products)).mT

    def sqnorm(self) -> Tensor:
        """Compute `||X||^2` of every problem, `(B,)`, float64 (kept)."""
        return self.cache("sqnorm", (), lambda: sum64(self.sets.double().square(), 1)[self._index])

    def mean(self) -> Tensor:
        """Average the entries of every problem, `(B,)`, float64 (kept)."""
        return self.cache("mean", (), lambda: self.sets.flatten(1).mean(1, dtype=torch.float64)[self._index])

    def rows_of_matrix(self, rows: slice) -> Tensor:
        """Give some rows of the matrix of every problem, `(B, rows, columns)`."""
        some = self._matrices[:, rows]
        return some if len(self.owner) == len(self.sets) else some.index_select(0, self._index)

    def matrices(self, problems: int) -> tuple[Tensor, Sequence[int]]:
        """Give the matrices of all sets, and the set of every problem."""
        return self._matrices, self.owner

    def _floor(self) -> Tensor:
        least = lambda: floor_of(self.sets.flatten(1).amax(1)[self._index])[:, None, None]
        return self.cache("floor", (), least)
