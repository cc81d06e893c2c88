"""Weighted samples that are split over processes, each with the rows of the sample factor of its own."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from ..base import Data
from ..weighted import Weighted
from .process_sums import ProcessSums


class ShardedWeighted(Weighted):
    """What `Weighted` asks of the weights of `Sharded` data: of own rows, or one sum over the samples of all processes.

    Parameters
    ----------
    shards : Sharded
    data : Sharded
        The entries times their weights.
    local : Weighted
        The rows of this process.
    numbers : Tensor
        What `summary` says of the entries of all samples that count, and their squared norm: `(5,)`, float64.
    """

    def __init__(self, shards: Any, data: Data, local: Weighted, numbers: Tensor) -> None:
        self.processes: ProcessSums = shards.sums
        self.shards, self.local, self.sums = shards, local, self.processes
        super().__init__(data, shards.peak)
        self.relaxes = shards.relaxes
        self.cache("summary", (), lambda: numbers[:4])
        self.cache("sqnorm", (), lambda: numbers[4])

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the entries of this process."""
        return self.local.entries()

    def samples(self) -> Any:
        """Refuse: no process has all samples."""
        return self.shards.samples()

    def scaled(self, factor: float) -> Any:
        """Multiply the entries."""
        return self.shards.scaled(factor).split()

    def take(self, rows: Tensor) -> Any:
        """Refuse: samples do not move between processes."""
        return self.shards.take(rows)

    def weights_times(self, F: Tensor) -> Tensor:
        """Multiply the weights of the rows of this process."""
        return self.local.weights_times(F)

    def weights_times_transposed(self, F: Tensor) -> Tensor:
        """Add the products of the transposed weights over all processes."""
        return self.processes.add(self.local.weights_times_transposed(F))

    def weigh(self, factors: Sequence[Tensor], mode: int, exponent: float = 1.0) -> Tensor:
        """Contract the weights of the rows of this process, for another mode than the samples added over all."""
        found = self.local.weigh(factors, mode, exponent)
        return self.processes.add(found.expand_as(factors[mode])) if mode else found

    def residual_products(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract the residual of the rows of this process, for another mode added over all, with the Gram of V."""
        found = self.local.residual_products(factors, mode)
        return self.processes.total_with_gram(found, factors[0]) if mode else found

    def completed(self, factors: Sequence[Tensor], mode: int, peak: Tensor | None = None) -> Tensor:
        """Add what the model says of all entries to the products of the residual."""
        weight, total = self.peak if peak is None else peak, self.residual_products(factors, mode)
        total = total + (self.sums.gram_of_others(factors, mode) * weight @ factors[mode].mT).mT
        return total.clamp_(min=0) if peak is None else total

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Add the distances of the rows of every process."""
        return self.processes.add(self.local.distance_sq(factors, mode))

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """Add the squared residuals of the rows of every process, from float64 factors (kept)."""
        wide = [F.double() for F in factors]
        return self.processes.newest("residual_sq", wide, lambda: self.divergence(wide, 2))

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Add the divergences of the rows of every process."""
        return self.processes.add(self.local.divergence(factors, beta))

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute both of the rows of this process; for another mode than the samples add them over all."""
        minus, plus = self.local.ratio_products(factors, mode, beta)
        if mode == 0:
            return minus, plus
        minus, plus = self.processes.total(minus, plus.expand_as(minus))
        return minus, plus
