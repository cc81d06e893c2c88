"""Data in blocks whose entries count differently, or not at all: every block brings what hides it, in every pass."""

from collections.abc import Callable, Iterator, Sequence
from math import inf, prod
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from ..base import Data, sum_of, summarize_entries
from ..dense import Dense
from ..hidden import hidden_counts, hide, relaxes_all, weigh_all
from ..sparse import Sparse
from ..weighted import Weighted, WeightedDense, floor_of, make_part
from .products import InBlocks, join_rows


class Facts(NamedTuple):
    """What a pass finds out: the largest weight, whether steps are longer, whether anything is hidden or counts."""

    peak: float
    relaxes: bool
    hides: bool
    counts: bool
    low: float
    high: float


class Hiding:
    """Blocks of a source, each with what hides its entries; see `WeightedBlocks`."""

    def __init__(self, entries: Any, weights: Any, missing: str | None, zeros_are_free: bool) -> None:
        self.source, self.of, self.missing, self.zeros_are_free = entries, weights, missing, zeros_are_free

    def read(self) -> Iterator[tuple[slice, Weighted]]:
        """Read blocks with their weights; these are read beside, in the same ranges."""
        weights = self.of.blocks() if self.of is not None else None
        for rows, block in self.source.blocks():
            W = None if weights is None else next(weights)[1].samples()
            yield rows, self.weigh(block, W)

    def weigh(self, block: Data, W: Any) -> Weighted:
        """Give a block its weights."""
        X, shape = block.samples(), block.shape
        clean, weigh = hide(X, self.missing, None, W, False, shape, none_may_count=True)
        made = isinstance(clean, Tensor)
        data: Data = Dense(clean, cut=1) if made else Sparse(clean, block.device, block.dtype)
        if weigh is not None:
            return cast(Weighted, weigh(data))
        if isinstance(data, Dense):
            return WeightedDense(data.X, torch.ones_like(data.X), 1)
        return weigh_all(data, shape)

    def find_facts(self) -> Facts:
        """Find them in one pass, and refuse infinite entries that count."""
        peak, hides, total, counts, extremes = 0.0, False, 0.0, [], []
        for rows, block in self.read():
            peak = max(peak, block.peak)
            counts.append(hidden_counts(block))
            ones = [torch.ones(d, 1, dtype=self.source.dtype, device=self.source.device) for d in block.shape]
            weight = float(block.weigh(ones, 0).sum(dtype=torch.float64))
            hides |= self.of is not None or self.missing == "unstored" or weight < prod(block.shape) * (1 - 1e-12)
            total += weight
            if not block.peak:  # nothing in it counts
                continue
            each = torch.stack([summarize_entries(X)[:2] for X in block.entries()])
            if not bool(torch.isfinite(each).all()):
                hint = "" if self.missing else "; missing='nan' hides NaN"
                raise ValueError(
                    f"Input X contains NaN or infinity in rows {rows.start} to {rows.stop - 1}; fill or drop them{hint}"
                )
            extremes.append(each)
        found = torch.cat(extremes) if extremes else torch.zeros(1, 2, device="cpu")
        dense = any(kind == "dense" for kind, *_ in counts)
        relaxes = relaxes_all(counts) or (dense and not self.zeros_are_free)
        return Facts(peak, relaxes, hides, total > 0, float(found[:, 0].min()), float(found[:, 1].max()))


class WeightedBlocks(Weighted):
    """Data in blocks with missing entries or weights; no array of all of them is made.

    Parameters
    ----------
    entries : Chunked
        NaN where `missing` is "nan" and they are missing.
    weights : Chunked or None
        Of the same shape, read in the same blocks.
    missing : {"nan", "unstored"} or None
    zeros_are_free : bool, as for `hide`; blocks have their weights in any case
    facts : Facts, optional
        Those of the same data in another unit or on another device. Default: a pass finds them.
    """

    in_memory = False

    def __init__(
        self, entries: Any, weights: Any, missing: str | None, zeros_are_free: bool, facts: Facts | None = None
    ) -> None:
        self.hiding, self.source, self.of = Hiding(entries, weights, missing, zeros_are_free), entries, weights
        self.n_rows, self.together = entries.n_rows, entries.together
        self.facts = facts or self.hiding.find_facts()
        super().__init__(_Entries(entries, self.blocks), self.facts.peak)
        self.read_in, self.relaxes = entries.read_in, self.facts.relaxes
        self._floor = floor_of(self)

    def blocks(self, backwards: bool = False) -> Iterator[tuple[slice, Weighted]]:
        """Read the blocks in turn, each with the largest weight and the floor of all."""
        for rows, block in self.hiding.read():
            make_part(block, self.peak, self._floor)
            yield rows, block

    def _contracted(
        self, part: Callable[[Weighted, list[Tensor]], Tensor], factors: Sequence[Tensor], mode: int
    ) -> Tensor:
        each = lambda block, rows: part(block, [factors[0][..., rows, :], *factors[1:]])
        return _summed(self, each) if mode else _joined(self, each)

    def weigh(self, factors: Sequence[Tensor], mode: int, exponent: float = 1.0) -> Tensor:
        """Join the rows, or add the sums, of the blocks."""
        return self._contracted(lambda block, Fs: block.weigh(Fs, mode, exponent), factors, mode)

    def residual_products(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Join the rows, or add the sums, of the blocks."""
        return self._contracted(lambda block, Fs: block.residual_products(Fs, mode), factors, mode)

    def weights_times(self, F: Tensor) -> Tensor:
        """Multiply the weights of every block."""
        return _joined(self, lambda block, rows: block.weights_times(F))

    def weights_times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed weights of every block, and add."""
        return _summed(self, lambda block, rows: block.weights_times_transposed(F[..., rows, :]))

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Add those of the blocks."""
        return _summed(self, lambda block, rows: block.distance_sq([factors[0][..., rows, :], *factors[1:]], mode))

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Add those of the blocks."""
        return _summed(self, lambda block, rows: block.divergence([factors[0][..., rows, :], *factors[1:]], beta))

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Join the rows, or add the sums, of the blocks, both in one pass."""
        if beta == 2:
            return super().ratio_products(factors, mode, beta)
        both = self._contracted(lambda block, Fs: torch.stack(block.ratio_products(Fs, mode, beta), -3), factors, mode)
        return both[..., 0, :, :], both[..., 1, :, :]

    def sqnorm(self) -> Tensor:
        """Compute `sum w x^2` (kept)."""
        return self.cache("sqnorm", (), lambda: _summed(self, lambda block, rows: block.sqnorm()))

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the entries that count; one zero where none does."""
        found = (X for _, block in self.hiding.read() if block.peak for X in block.entries())
        return found if self.facts.counts else iter([torch.zeros(1, dtype=self.dtype, device=self.device)])

    def smallest(self) -> float:
        """Find the smallest entry that counts; infinity where none does."""
        return self.facts.low if self.facts.counts else inf

    def largest(self) -> float:
        """Find the largest absolute value of an entry that counts."""
        return max(-self.facts.low, self.facts.high)

    def has_few(self, n_components: int) -> bool:
        """Whether so few entries count that exact blocks are faster, and their Gram of every row may be held."""
        grams = self.shape[0] * n_components**2 * self.dtype.itemsize
        return grams <= self.source._blocks.limit() and super().has_few(n_components)

    def scaled(self, factor: float) -> Self:
        """Multiply the entries as they are read."""
        low, high = self.facts.low * factor, self.facts.high * factor
        return self._like(self.source.scaled(factor), self.of, self.facts._replace(low=low, high=high))

    def placed(self, device: torch.device | None, dtype: torch.dtype | None) -> Self:
        """Give the same data for products on another device or in another dtype."""
        source = self.source.placed(device, dtype)
        if source is self.source:
            return self
        return self._like(source, None if self.of is None else self.of.placed(device, dtype), self.facts)

    def take(self, rows: Tensor) -> Any:
        """Copy some samples and their weights; more than a block of them are read in blocks."""
        X, W = self.source.take(rows), None if self.of is None else self.of.take(rows)
        if not X.in_memory:
            return self._like(X, W, self.facts)
        block = self.hiding.weigh(X, None if W is None else W.samples())
        make_part(block, self.peak, self._floor)
        return block

    def _like(self, source: Any, weights: Any, facts: Facts) -> Self:
        return type(self)(source, weights, self.hiding.missing, self.hiding.zeros_are_free, facts)

    def __getstate__(self) -> dict[str, Any]:
        """Say what makes these data others than those of another source; for digests."""
        sums = [float(self.sqnorm()), float(self.total_weight())]
        return {"shape": self.shape, "dtype": self.dtype, "facts": tuple(self.facts), "sums": sums}


class _Entries(InBlocks):
    """The entries times their weights, 0 where they are hidden."""

    def __init__(self, source: Any, weighted: Callable[[], Iterator[tuple[slice, Weighted]]]) -> None:
        super().__init__(source.shape, source.dtype, source.device, *source.cache.data)
        self.parts = weighted
        self.entries_read, self.rows_per_problem = source.entries_read, source.rows_per_problem

    def blocks(self, backwards: bool = False) -> Iterator[tuple[slice, Data]]:
        """Read the blocks in turn."""
        return ((rows, block.data) for rows, block in self.parts())

    def samples(self) -> Any:
        """Refuse: they are in blocks."""
        raise ValueError("samples of data in blocks with missing or weighted entries are not held; hand in a graph")

    def scaled(self, factor: float) -> Self:
        """Refuse: the weighted data are scaled."""
        raise NotImplementedError

    def take(self, rows: Tensor) -> Self:
        """Refuse: samples are taken of the weighted data."""
        raise NotImplementedError


def _joined(data: WeightedBlocks, part: Callable[[Weighted, slice], Tensor]) -> Tensor:
    return join_rows(((rows, part(block, rows)) for rows, block in data.blocks()), data.shape[0])


def _summed(data: WeightedBlocks, part: Callable[[Weighted, slice], Tensor]) -> Tensor:
    return sum_of(part(block, rows) for rows, block in data.blocks())
