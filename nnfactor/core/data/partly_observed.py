"""Weighted data of which few entries are hidden, or few are observed: work is on the fewer ones."""

from collections.abc import Iterator, Sequence
from typing import Self, cast

import torch
from torch import Tensor

from .. import divergence as div
from ..cache import tiny
from ..factors import gram_of_others, multiply_column_sums
from .base import Data, sum64, sum_of
from .stored_entries import StoredEntries, each_problem
from .weighted import PartialSamples, Weighted, floor_of, seen_entries


class MostlyObserved(Weighted):
    """Data of any kind with a few hidden entries: sums over all entries, less those over the hidden ones.

    Parameters
    ----------
    data : Data
        0 where entries are hidden.
    hidden : StoredEntries
        1 where they are. With beta <= 0 the zeros in their places would cost infinitely much.
    """

    relaxes = False  # so few entries are hidden that a majoriser's steps are long enough

    def __init__(self, data: Data, hidden: StoredEntries) -> None:
        super().__init__(data, 1.0)
        self.hidden = hidden
        hidden.floor = floor_of(data)

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the entries, hidden ones as zeros."""
        return self.data.entries()

    def samples(self) -> PartialSamples:
        """Give entries and which of them are seen."""
        X = self.data.samples()
        if not isinstance(X, Tensor):
            return super().samples()
        seen = torch.ones_like(X, dtype=torch.bool)
        seen[tuple(index.long() for index in self.hidden.coordinates())] = False
        return PartialSamples(X, seen)

    def scaled(self, factor: float) -> Self:
        """Multiply the entries."""
        return cast(Self, MostlyObserved(self.data.scaled(factor), self.hidden.forgetful()))

    def take(self, rows: Tensor) -> "MostlyObserved":
        """Copy some samples and what hides them."""
        return MostlyObserved(self.data.take(rows), self.hidden.take(rows))

    def by_samples(self) -> Data:
        """View the data with a sample in each row."""
        return self if self.cut == 1 else MostlyObserved(self.data.by_samples(), self.hidden)

    def weights_times(self, F: Tensor) -> Tensor:
        """Add all rows, less the hidden ones."""
        return F.sum(-2, keepdim=True) - self.hidden.times(F)

    def weights_times_transposed(self, F: Tensor) -> Tensor:
        """Add all rows, less the hidden ones."""
        return F.sum(-2, keepdim=True) - self.hidden.times_transposed(F)

    def weigh(self, factors: Sequence[Tensor], mode: int, exponent: float = 1.0) -> Tensor:
        """Sum over all entries, less the hidden ones."""
        if exponent == 1:
            total = (gram_of_others(factors, mode) @ factors[mode].mT).mT
        elif exponent == 0:
            total = multiply_column_sums(factors, mode)
        else:
            total = self.data.ratio_products(factors, mode, exponent + 1)[1]
        return total - _at_entries(self.hidden, factors, mode, exponent)

    def completed(self, factors: Sequence[Tensor], mode: int, peak: Tensor | None = None) -> Tensor:
        """Add what the model says of the hidden entries to the products of the others."""
        if peak is not None:
            return super().completed(factors, mode, peak)
        return self.data.mttkrp(factors, mode) + _at_entries(self.hidden, factors, mode, 1.0)

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Compute it of all entries, by products that are kept, less the squares of the model at the hidden ones."""
        squares = lambda *Fs: sum_of(sum64(y.square()) for _, y in self.hidden.at_entries(Fs))
        return (self.data.distance_sq(factors, mode) - each_problem(squares, factors)).clamp(min=0)

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum over all entries, less what zeros in place of the hidden ones cost, float64."""
        if beta <= 0:
            raise ValueError(f"beta = {beta:g} with a sparse X, or few weights of a sparse kind: zeros cost infinity")
        factors = [F.double() for F in factors]
        cost = lambda y: div.loss(torch.zeros_like(y), y.clamp(min=tiny(y.dtype)), beta).sum()
        zero = lambda *Fs: sum_of(cost(y) for _, y in self.hidden.at_entries(Fs))
        return (self.data.divergence(factors, beta) - each_problem(zero, factors)).clamp(min=0)


class Observed(Weighted):
    """Stored entries of a sparse array, all others being missing, with a weight for each; work is on them alone.

    Parameters
    ----------
    data, weights : StoredEntries
        Entries times weights, and the weights, of one pattern.
    """

    def __init__(self, data: StoredEntries, weights: StoredEntries) -> None:
        super().__init__(data, weights.largest())
        self.weights = weights
        data.floor = weights.floor = floor_of(self)

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the entries of positive weight; 0 where there is none."""
        return seen_entries(zip(self.data.entries(), self.weights.entries(), strict=True))

    def scaled(self, factor: float) -> Self:
        """Multiply the entries."""
        return cast(Self, Observed(cast(StoredEntries, self.data).scaled(factor), self.weights.forgetful()))

    def take(self, rows: Tensor) -> "Observed":
        """Copy some samples and their weights."""
        return Observed(cast(StoredEntries, self.data.take(rows)), cast(StoredEntries, self.weights.take(rows)))

    def weights_times(self, F: Tensor) -> Tensor:
        """Multiply the weights."""
        return self.weights.times(F)

    def weights_times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed weights."""
        return self.weights.times_transposed(F)

    def weigh(self, factors: Sequence[Tensor], mode: int, exponent: float = 1.0) -> Tensor:
        """Sum over the stored entries."""
        return _at_entries(self.weights, factors, mode, exponent)

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Sum both over the stored entries, for any beta."""
        if beta == 2:
            return super().ratio_products(factors, mode, beta)
        data = cast(StoredEntries, self.data)
        return _at_entries(data, factors, mode, beta - 2), self.weigh(factors, mode, beta - 1)

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum `w d_beta(x, y)` over the stored entries, float64."""
        factors, floor = [F.double() for F in factors], cast(float, self.data.floor)

        def one(*Fs: Tensor) -> Tensor:
            pairs = zip(cast(StoredEntries, self.data).at_entries(Fs), self.weights.at_entries(Fs), strict=True)
            return sum_of(_weighted_loss(x.double(), w.double(), y, beta, floor) for (x, y), (w, _) in pairs)

        return each_problem(one, factors)

    def sqnorm(self) -> Tensor:
        """Compute `sum w x^2` (kept)."""
        pairs = lambda: zip(self.data.entries(), self.weights.entries(), strict=True)
        square = lambda x, w: _weighted_loss(x.double(), w.double(), torch.zeros_like(x, dtype=torch.float64), 2, 0)
        return self.cache("sqnorm", (), lambda: sum_of(square(x, w) for x, w in pairs()))


def _weighted_loss(x: Tensor, w: Tensor, y: Tensor, beta: float, floor: float) -> Tensor:
    """Sum `w d_beta(x / w, y)` where w > 0, float64; `x` is times its weight."""
    safe = torch.where(w > 0, w, 1)
    y = y if beta == 2 else y.clamp(min=floor)
    return torch.where(w > 0, w * div.loss(x / safe, y, beta), 0).sum(dtype=torch.float64)


def _at_entries(S: StoredEntries, factors: Sequence[Tensor], mode: int, exponent: float) -> Tensor:
    """Compute the MTTKRP of `S Y^exponent`: of the stored entries only."""
    return each_problem(lambda *Fs: S.ratio_product(Fs, mode, exponent + 2), factors)
