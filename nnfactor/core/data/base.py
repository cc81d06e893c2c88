"""What a term may ask of data: the members that every storage kind has."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import reduce
from math import floor, frexp, inf, ldexp, prod
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..cache import TensorCache
from ..factors import contract_others, gram, khatri_rao
from .distributed.sample_sums import WHOLE, SampleSums
from .tucker import TuckerProducts

LEAST_ROWS = 32  # of a block of a reconstruction: with fewer, moving the result outweighs the product


class Data(TuckerProducts, ABC):
    """An array `(n, d_1, ..., d_r)` of real numbers, samples first, however it is stored.

    `factors` are in the order of the modes, `(..., d_mode, k)` each, with any leading batch dimensions; data have none.
    A new kind writes the abstract members; the others follow from them, and it overrides what it can do faster.
    Nothing here reads the host inside a sweep: only members that answer with a `float` do, and they are asked once.

    Parameters
    ----------
    shape, dtype, device : sequence of int, torch.dtype, torch.device
        All products are in this dtype, float32 or float64, and on this device.
    *inputs : Tensor
        Tensors that hold the entries. What is kept of the data is made anew when one of them was written to in place.

    Attributes
    ----------
    order : int
        Number of modes.
    cut : int
        Modes that index the rows of the matrix `(d_0 .. d_cut-1, d_cut .. d_r)` whose products are `times` and
        `times_transposed`. 1: a row is a sample.
    read_in : torch.dtype
        The precision in which `scaled` multiplies: `dtype`, unless a kind keeps its entries as they were read.
    entries_read : int
        Entries that a product with the data reads; a kind that does not store zeros says how many it stores.
    rows_per_problem : int
        Rows of what the products of one problem hold at once, each of k numbers: those of its factors, or more.
    cache : TensorCache
        What is kept of the data, by terms too; its values depend on the data beside their own inputs.
    floor : float or Tensor, optional
        What a reconstruction is clamped to before it divides, where the largest entry does not say it: of entries that
        are times their weights. Default: far below the precision of the largest.
    chunk : int
        Entries of a reconstruction held at once: a few caches' worth, small enough that malloc reuses it.
    peak : float
        The largest weight of an entry; 1 but for `Weighted`.
    weighted : bool
        Whether entries count differently, or not at all; what needs whole samples refuses such data.
    relaxes : bool
        Whether so many entries are hidden, or weigh little, that longer steps than a majoriser's save time.
    in_memory : bool
        Whether the entries are held; of data that are read in blocks `samples` refuses what is too large to hold.
    sums : SampleSums
        Sums over samples, which other processes may hold too.
    together : int
        Samples that are stored, and best read, together; 1 where any is as near as another.
    stack_key : hashable
        Equal for data sets that `Stacked` can hold as one. None: never stacked.
    """

    cut = 1
    chunk = 1 << 18
    peak = 1.0
    weighted = False
    relaxes = False
    in_memory = True
    together = 1
    stack_key: Hashable = None
    floor: float | Tensor | None = None
    sums: SampleSums = WHOLE

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, *inputs: Tensor) -> None:
        self.shape, self.order, self.dtype, self.device = tuple(shape), len(shape), dtype, device
        self.read_in = dtype
        self.entries_read, self.rows_per_problem = prod(self.shape), sum(self.shape)
        self.cache = TensorCache(*inputs)

    @abstractmethod
    def entries(self) -> Iterator[Tensor]:
        """Iterate over the stored entries, in pieces of any shape and at least one entry; all others are zero."""

    @abstractmethod
    def samples(self) -> Any:
        """Give the samples for work outside of products, not to be written to.

        A tensor `(n, ...)` on the device, or scipy CSR `(n, c)` on the host whose rows have the distances and the inner
        products of the samples.
        """

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """Multiply the data by a number (a copy of the entries)."""

    @abstractmethod
    def take(self, rows: Tensor) -> Self:
        """Copy the samples of an index `(r,)` on the device, none twice, in its order; `cut` is 1 then."""

    @abstractmethod
    def times(self, F: Tensor) -> Tensor:
        """Multiply the matrix by `F (..., columns, k)`: `(..., rows, k)`."""

    @abstractmethod
    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed matrix by `F (..., rows, k)`: `(..., columns, k)`."""

    @abstractmethod
    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum `d_beta(X, [[factors]])` over all entries for every problem: `(...)`, float64.

        beta = 2 is `||X - [[factors]]||^2` (twice the usual) of data and factors of any sign.

        Raises
        ------
        ValueError
            A beta for which the kind would have to visit what it does not store.
        """

    @abstractmethod
    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute the MTTKRPs of `Y^(beta-2) X` and of `Y^(beta-1)`, `Y = [[factors]]`: `(..., d_mode, k)` each.

        The second may be `(..., 1, k)`, the same for every row. Both belong to the caller, but for beta = 2.
        """

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract `X` with all factors but that of `mode`: `(..., d_mode, k)`, to be read only (it may be kept).

        A sweep over all modes costs two products with the matrix at any order: each with the Khatri-Rao product of one
        group of modes, kept while its factors are the very same tensors, then summed inside the other group.
        """
        left, right = list(factors[: self.cut]), list(factors[self.cut :])
        inside = mode < self.cut
        here, there, at = (left, right, mode) if inside else (right, left, mode - self.cut)
        product = self.times if inside else self.times_transposed
        P = self.cache(("product", inside), there, lambda: product(khatri_rao(there)))
        if len(here) == 1:
            return P
        others = [F for b, F in enumerate(here) if b != at]
        return self.cache(("mttkrp", mode), (P, *others), lambda: contract_others(P, here, at))

    def completed(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Give the linear part of `||X - [[factors]]||^2` in the factor of a mode, beside `peak` times the Gram.

        It is `mttkrp`; of weighted data it depends on the factor itself: that of a majoriser which touches there.
        """
        return self.mttkrp(factors, mode)

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Compute `||X||^2 - 2 <X, Y> + ||Y||^2`, `(...)`, float64: after a sweep its products are in the caches.

        <X, Y> comes from the MTTKRP of `mode`. Correct to rounding of `||X||^2`; `residual_sq` has no such error.
        """
        cross = (self.mttkrp(factors, mode) * factors[mode]).sum(-2).sum(-1, dtype=torch.float64)
        square = reduce(torch.mul, map(gram, factors)).sum((-2, -1), dtype=torch.float64)
        return (self.sqnorm() - 2 * cross + square).clamp(min=0)

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """Compute `||X - [[factors]]||^2` for every problem: `(...)`, float64, from the residual itself (kept)."""
        factors = [F.double() for F in factors]
        return self.cache("residual_sq", factors, lambda: self.divergence(factors, 2))

    def sqnorm(self) -> Tensor:
        """Compute `||X||^2`, a float64 scalar (kept)."""
        squares = lambda: sum_of(X.double().square().sum() for X in self.entries())
        return self.cache("sqnorm", (), lambda: squares().to(self.device))

    def mean(self) -> Tensor:
        """Average all entries, a float64 scalar."""
        return summary(self)[2] / prod(self.shape)

    def smallest(self) -> float:
        """Find the smallest entry, stored or not."""
        least = float(summary(self)[0])
        return least if self.entries_read == prod(self.shape) else min(0.0, least)

    def largest(self) -> float:
        """Find the largest absolute value of an entry."""
        low, high, *_ = summary(self).tolist()
        return max(-low, high)

    def pieces(self, batches: Sequence[Tensor]) -> Callable[[int], "Data"]:
        """Make a function of b that gives the samples `batches[b]`, with nothing kept of them.

        Kept products of all batches would outweigh the data. Whether the pieces themselves are kept is the kind's
        choice: this one makes them anew.
        """
        return lambda b: self.take(batches[b])

    def select_problems(self, keep: Tensor) -> "Data":
        """Give the data of some problems of a batch, an index `(B,)`: all problems have the same data."""
        return self

    def by_samples(self) -> "Data":
        """Give the same entries with `cut` 1; a kind with another cut overrides this."""
        return self


def summary(data: Data) -> Tensor:
    """Find the smallest and the largest stored entry, their sum and how many are not 0, in one pass (kept)."""

    def summarize() -> Tensor:
        # one small tensor kept for every piece would lie where its temporaries were: memory would grow with the data
        low: Any = None
        high: Any = None
        sums: Any = None
        for X in data.entries():
            one = summarize_entries(X)
            low = one[0].clone() if low is None else torch.minimum(low, one[0], out=low)
            high = one[1].clone() if high is None else torch.maximum(high, one[1], out=high)
            sums = one[2:].clone() if sums is None else sums.add_(one[2:])
        return torch.cat([torch.stack([low, high]), sums]).to(data.device)

    return data.cache("summary", (), summarize)


def filled_share(data: Data) -> float:
    """Return the share of the entries that are not zero."""
    return float(summary(data)[3]) / prod(data.shape)


def rows_at_once(data: Data, columns: int) -> int:
    """Count the rows of so many columns that make a chunk."""
    return max(1, data.chunk // columns)


def sample_sqnorms(data: Data) -> Tensor:
    """Compute `||x_i||^2` for every sample, `(n,)`, float64."""
    if not data.in_memory:
        return torch.cat([sample_sqnorms(block) for _, block in cast(Any, data).blocks()])
    X = data.samples()
    if sp.issparse(X):
        return torch.from_numpy(X.astype(np.float64).power(2).sum(axis=1)).to(data.device)
    rows = X.flatten(1).split(rows_at_once(data, X[0].numel()))
    return torch.cat([part.double().square().sum(1) for part in rows])


def product_blocks(left: Tensor, right: Tensor, chunk: int) -> Iterator[tuple[slice, Tensor]]:
    """Iterate over row ranges of `left right'`, and `(..., rows, columns)` there: new tensors of about a chunk.

    A block has `LEAST_ROWS` rows, or as many as components, even where they are more than a chunk: it is no larger than
    `right` then, and a product with fewer rows would cost what reading and writing its result does.
    """
    step = max(chunk // (prod(left.shape[:-2]) * right.shape[-2]), min(LEAST_ROWS, right.shape[-1]))
    return ((rows, left[..., rows, :] @ right.mT) for rows in slices(left.shape[-2], step))


def add_product(total: Tensor | None, Z: Tensor, rows: slice, left: Tensor, right: Tensor, inside: bool) -> Tensor:
    """Add what a block of rows of a matrix Z, that of `left right'`, gives to `Z right` (`inside`) or to `Z' left`.

    In place: sums of every block at a time would have the size of `right` times the number of blocks.
    """
    if not inside:
        here = left[..., rows, :].mT
        if total is None:
            return (here @ Z).mT
        if Z.dim() == 3 and here.shape[0] == len(Z):
            total.mT.baddbmm_(here, Z)
        else:
            total.add_((here @ Z).mT)
        return total
    product = right.mT @ Z.mT
    if Z.shape[-2] == left.shape[-2]:
        return product.mT
    if total is None:
        total = product.new_empty(*product.shape[:-1], left.shape[-2]).mT
    total.mT[..., rows] = product
    return total


def slices(total: int, step: int) -> Iterator[slice]:
    """Cut `0 .. total` into slices of `step` at most."""
    return (slice(a, min(a + step, total)) for a in range(0, total, step))


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """Add the parts, one at a time."""
    return reduce(torch.add, parts)


def sum64(Z: Tensor, batch: int = 0) -> Tensor:
    """Sum all dimensions behind the first `batch`, in float64."""
    return Z.sum(tuple(range(batch, Z.dim())), dtype=torch.float64)


def power_of_two(size: float, reach: float = 0, lowest: int = -1000) -> float:
    """Find the largest power of two up to `size`; 1 where `size` is 0 or within `2^-reach .. 2^reach`.

    Data are divided by it so that squares stay within the floating-point range. Division by it is exact. It is not
    below `2^lowest`, so that its inverse is finite too.

    >>> power_of_two(5.0), power_of_two(5.0, reach=3), power_of_two(0.0)
    (4.0, 1.0, 1.0)
    """
    if size == 0 or 2.0**-reach <= size <= 2.0**reach:
        return 1.0
    return ldexp(1.0, max(frexp(size)[1] - 1, lowest))


def times_power(value: float, scale: float, exponent: float) -> float:
    """Compute `value * scale ** exponent >= 0` for a power of two; infinity where that leaves the floating-point range.

    >>> times_power(3.0, 2.0**900, 2), times_power(0.0, 2.0**900, 2), times_power(2.0**-1000, 2.0**900, 2) == 2.0**800
    (inf, 0.0, True)
    """
    digits = exponent * (frexp(scale)[1] - 1)
    try:
        return ldexp(value * 2.0 ** (digits - floor(digits)), floor(digits))
    except OverflowError:
        return inf


def summarize_entries(X: Tensor) -> Tensor:
    """Find the smallest and the largest of some entries, their sum and how many are not 0: `(4,)`, float64."""
    return torch.stack([*(v.double() for v in X.aminmax()), X.sum(dtype=torch.float64), X.count_nonzero().double()])
