"""Products with data that come in blocks of rows: rows are joined, sums are added."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from ..base import Data, sum_of


class InBlocks(Data):
    """Data whose products go through `blocks`, each of which is data for itself."""

    in_memory = False

    @abstractmethod
    def blocks(self, backwards: bool = False) -> Iterator[tuple[slice, Data]]:
        """Read the blocks in turn: their rows, and data that are valid until the next block is asked for."""

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the stored entries; a piece is valid until the next is asked for."""
        return (X for _, block in self.blocks() for X in block.entries())

    def times(self, F: Tensor) -> Tensor:
        """Multiply the matrix by `F`, block by block, component-major."""
        return join_rows(((rows, block.times(F)) for rows, block in self.blocks()), self.shape[0])

    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed matrix by `F`: a sum over the blocks.

        It reads them from the last to the first: of a file partly in the system's cache, a pass finds what the one
        before has left there.
        """
        parts = ((block.times_transposed(F[..., rows, :]),) for rows, block in self.blocks(backwards=True))
        return sum_parts(parts)[0]

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum the divergences of the blocks."""
        return sum_of(block.divergence(Fs, beta) for block, Fs in self._with_factors(factors, beta))

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Join the rows, or add the sums, of the blocks."""
        each = (block.ratio_products(Fs, mode, beta) for block, Fs in self._with_factors(factors, beta))
        if mode:
            minus, plus = sum_parts(each)
            return minus, plus
        V = factors[0]
        joined = [V.new_empty(*V.shape[:-2], V.shape[-1], V.shape[-2]) for _ in range(2)]
        start = 0
        for parts in each:
            rows = slice(start, start := start + parts[0].shape[-2])
            for whole, part in zip(joined, parts, strict=True):
                whole[..., rows] = part.mT  # that of Kullback-Leibler is one row, the same for all
        return joined[0].mT, joined[1].mT

    def _with_factors(self, factors: Sequence[Tensor], beta: float) -> Iterator[tuple[Data, list[Tensor]]]:
        """Give each block with its rows of V."""
        V, *others = factors
        for rows, block in self.blocks():
            yield block, [V[..., rows, :], *others]


def join_rows(parts: Iterable[tuple[slice, Tensor]], n: int) -> Tensor:
    """Join rows of a product `(..., rows, k)`, component-major."""
    whole: Tensor | None = None
    for rows, part in parts:
        if whole is None:
            whole = part.new_empty(*part.shape[:-2], part.shape[-1], n)
        whole[..., rows] = part.mT
    assert whole is not None
    return whole.mT


def sum_parts(each: Any) -> list[Tensor]:
    """Add the sums of all blocks in place; those of the first must be new tensors."""
    totals: list[Tensor] = []
    for parts in each:
        if totals:
            for total, part in zip(totals, parts, strict=True):
                total.add_(part)
        else:
            totals = list(parts)
    return totals
