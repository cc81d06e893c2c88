"""Data whose entries count differently, or not at all: missing ones have weight 0.

What a model needs of them are sums over all entries with the weights inside: of the gradient and of the divergence. For
the squared distance the gradient is that of complete data whose hidden entries are those of the model itself
(expectation-maximisation), so that every rule for complete data works, and none raises the objective.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf, prod
from typing import Self, cast

import torch
from torch import Tensor

from .. import divergence as div
from ..cache import tiny
from ..factors import components, gram, gram_of_others
from .base import Data, product_blocks, rows_at_once, sum64, sum_of, summary
from .dense import Dense

PROBES = 8  # random vectors that estimate how weights are spread


class Weighted(Data):
    """Data with a weight >= 0 for each entry.

    `mttkrp` is that of the entries times their weights. `times` and `times_transposed`, from which starts are made, are
    those of complete data, whose hidden entries are the products of row and column means; an entry of less than the
    largest weight lies between the two.

    Parameters
    ----------
    data : Data
        The entries times their weights; 0 where the weight is.
    peak : float
        The largest weight.
    """

    weighted = True
    relaxes = True

    def __init__(self, data: Data, peak: float, *inputs: Tensor) -> None:
        if not (peak == 0 or torch.finfo(data.dtype).tiny <= peak < torch.inf):
            kind = str(data.dtype).removeprefix("torch.")
            raise ValueError(
                f"weights has a largest entry of {peak:.3g}, which {kind} cannot work with; divide weights by it, or "
                "use float64"
            )
        super().__init__(data.shape, data.dtype, data.device, *data.cache.data, *inputs)
        self.data, self.peak, self.cut, self.read_in = data, peak, data.cut, data.read_in
        self.entries_read, self.rows_per_problem = 2 * data.entries_read, data.rows_per_problem

    @abstractmethod
    def weigh(self, factors: Sequence[Tensor], mode: int, exponent: float = 1.0) -> Tensor:
        """Compute the MTTKRP of `W Y^exponent`, `Y = [[factors]]`: `(..., d_mode, k)`, a new tensor."""

    @abstractmethod
    def weights_times(self, F: Tensor) -> Tensor:
        """Multiply the matrix of the weights by `F (columns, c)`."""

    @abstractmethod
    def weights_times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed matrix of the weights by `F (rows, c)`."""

    def row_grams(self, Z: Tensor, rows: slice) -> Tensor:
        """Compute `sum_j w_ij z_j z_j'` for some samples i; the rows z_j of `Z (m, k)` are features: `(r, k, k)`."""
        here = self.take(torch.arange(self.shape[0], device=self.device)[rows])
        G = here.weighted_grams(Z.to(self.dtype), 0).to(Z.dtype).movedim(-1, 0)
        some = here.weights_times(torch.ones(len(Z), 1, dtype=self.dtype, device=self.device)) > 0
        return torch.where(some[..., None], G, 0)  # sums less those of hidden entries leave rounding

    def weighted_grams(self, Z: Tensor, mode: int) -> Tensor:
        """Compute `sum_j w_ij z_j z_j'` for all rows i (mode 0) or columns (1) of the matrix, `(..., k, k, rows)`.

        Each pair of columns of `Z (..., m, k)` is multiplied once.
        """
        k = Z.shape[-1]
        i, j = torch.triu_indices(k, k, device=Z.device)
        columns = components(Z)
        pairs = (columns[..., i, :] * columns[..., j, :]).mT
        found = components((self.weights_times_transposed if mode else self.weights_times)(pairs))
        G = found.new_empty(*found.shape[:-2], k, k, found.shape[-1])
        G[..., i, j, :] = found
        G[..., j, i, :] = found
        return G

    def has_few(self, n_components: int) -> bool:
        """Whether so few entries count that exact blocks, k times as costly, are faster than completed data."""
        share = self.total_weight() / (prod(self.shape) * self.peak)  # by it a majoriser makes its steps smaller
        return self.order == 2 and float(share) < min(0.5, 4 / n_components)

    def residual_products(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Compute the MTTKRP of `W (X - Y)`, `Y = [[factors]]`: `(..., d_mode, k)`."""
        return self.data.mttkrp(factors, mode) - self.weigh(factors, mode)

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract the weighted entries; hidden ones are 0."""
        return self.data.mttkrp(factors, mode)

    def completed(self, factors: Sequence[Tensor], mode: int, peak: Tensor | None = None) -> Tensor:
        """Compute the MTTKRP of the data completed by the model, times `peak`: `peak Y + W (X - Y)`.

        With another `peak`, such as `mean_curvature`, entries have any sign.
        """
        weight = self.peak if peak is None else peak
        model = (gram_of_others(factors, mode) * weight @ factors[mode].mT).mT
        total = self.residual_products(factors, mode).add_(model)
        return total.clamp_(min=0) if peak is None else total

    def completed_square(self, factors: Sequence[Tensor]) -> Tensor:
        """Compute `sum w x^2 + (peak - w) y^2`, the sum of squares of the completed data, `(...)`, float64."""
        model = reduce(torch.mul, map(gram, factors)).sum((-2, -1), dtype=torch.float64) * self.peak
        seen = (self.weigh(factors, 0) * factors[0]).sum(-2).sum(-1, dtype=torch.float64)
        return self.sqnorm() + (model - seen).clamp(min=0)

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Compute `sum w (x - y)^2` for every problem, `(...)`, float64, correct to rounding of `sum w x^2`."""
        twice = self.data.mttkrp(factors, mode) * 2 - self.weigh(factors, mode)
        cross = (twice * factors[mode]).sum(-2).sum(-1, dtype=torch.float64)
        return (self.sqnorm() - cross).clamp(min=0)

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute the MTTKRPs of `W Y^(beta-2) X` and of `W Y^(beta-1)`."""
        if beta == 2:
            return self.data.mttkrp(factors, mode), self.weigh(factors, mode)
        return self.data.ratio_products(factors, mode, beta)[0], self.weigh(factors, mode, beta - 1).clamp_(min=0)

    def times(self, F: Tensor) -> Tensor:
        """Multiply the data, completed by products of row and column means."""
        r, c = estimate_means(self)
        weighted = self.data.times(F) - r * self.weights_times(c * F)
        return weighted / self.peak + r * (c * F).sum(-2, keepdim=True)

    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed data, completed in the same way."""
        r, c = estimate_means(self)
        weighted = self.data.times_transposed(F) - c * self.weights_times_transposed(r * F)
        return weighted / self.peak + c * self.sums.add((r * F).sum(-2, keepdim=True))

    def observed(self, mode: int) -> Tensor:
        """Tell which slices of a mode have an entry of positive weight: bool, `(d_mode, 1)`."""
        return self.weigh(_ones(self), mode) > 0

    def total_weight(self) -> Tensor:
        """Add all weights, a float64 scalar (kept)."""
        return self.cache("total", (), lambda: self.sums.add(self.weigh(_ones(self), 0).sum(dtype=torch.float64)))

    def mean(self) -> Tensor:
        """Average the entries, weighted."""
        total = self.total_weight()
        return summary(self.data)[2] / torch.where(total > 0, total, 1)

    def smallest(self) -> float:
        """Find the smallest entry of positive weight; infinity where none is (samples of one process)."""
        low = float(summary(self)[0])
        return low if low != 0 or bool(self.total_weight() > 0) else inf

    def samples(self) -> "PartialSamples":
        """Give the entries and which of them are seen; of dense data only."""
        raise ValueError("neighbours of sparse samples with hidden entries are not supported; hand in a graph")


def _ones(data: Data) -> list[Tensor]:
    """Make factors of ones, of the samples of this process."""
    rows = (data.sums.held or data.shape[0], *data.shape[1:])
    return [torch.ones(d, 1, dtype=data.dtype, device=data.device) for d in rows]


def seen_entries(pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    """Divide pieces of entries by their weights, where these are positive; one zero where none of all is.

    A zero for every piece without any would be the smallest entry of data that have no zero.
    """
    nothing = True
    for X, W in pairs:
        seen = W > 0
        if bool(seen.any()):
            nothing = False
            yield X[seen] / W[seen]
    if nothing:
        yield X.new_zeros(1)


def make_part(data: Weighted, peak: float, floor: float) -> None:
    """Give a part of data the largest weight and the floor of all."""
    data.peak = peak
    for stored in (data.data, *(getattr(data, name) for name in ("weights", "hidden") if hasattr(data, name))):
        stored.floor = floor


def mean_curvature(data: Weighted) -> Tensor:
    """Estimate the weight of complete data whose Grams are about those of the weighted entries (kept).

    It is the mean weight if entries are hidden at random, and up to the largest one if whole blocks are: then a row of
    a factor may depend on observed entries alone. Between the two decides over how many patterns the weights less their
    mean are spread: by the sum of fourth powers of singular values over the square of that of second powers, of which
    random signs give an estimate. At least half the largest weight: then a plain step is not too long for any row.
    """

    def estimate() -> Tensor:
        columns, peak = prod(data.shape[data.cut :]), data.peak or 1.0
        mean = (data.total_weight() / peak / prod(data.shape)).to(data.dtype)
        same = torch.Generator("cpu").manual_seed(0)  # on every device
        signs = torch.randint(2, (columns, PROBES), generator=same, device="cpu")
        z = (2 * signs - 1).to(data.device, data.dtype)
        y = data.weights_times(z) / peak - mean * z.sum(-2)
        t = data.weights_times_transposed(y) / peak - mean * data.sums.add(y.sum(-2))
        second, fourth = (F.square().sum(dtype=torch.float64) / PROBES for F in (y, t))
        second = data.sums.add(second)
        structure = torch.where(second > 0, fourth / second.square(), 0).clamp(max=1).sqrt().to(data.dtype)
        return (mean + (1 - mean) * structure).clamp(0.5, 1) * peak

    return data.cache("curvature", (), estimate)


def observed_rows(data: Sequence[Data]) -> list[Tensor]:
    """Tell which rows of factors have an entry that counts, `(rows, 1)`: of samples, which all data share, first."""
    ones = lambda X, mode: torch.ones(X.shape[mode], 1, dtype=torch.bool, device=X.device)
    seen = lambda X, mode: cast(Weighted, X).observed(mode) if X.weighted else ones(X, mode)
    others = [seen(X, mode) for X in data for mode in range(1, X.order)]
    return [reduce(torch.logical_or, (seen(X, 0) for X in data)), *others]


def largest_difference(data: Weighted) -> float:
    """Find the largest difference of two entries that count, in one feature; of sparse data, of any features."""
    if not isinstance(data.data, Dense):
        return float(summary(data)[1] - summary(data)[0])
    partial = data.samples()
    X, low = partial.entries, torch.finfo(data.dtype).min
    most, least = torch.where(partial.seen, X, low).amax(0), torch.where(partial.seen, -X, low).amax(0)
    return float((most + least).clamp(min=0).max())


def floor_of(data: Data) -> float:
    """Compute what a reconstruction is clamped to: far below the precision of entries without their weights."""
    return max(data.largest() * torch.finfo(data.dtype).eps ** 2, tiny(data.dtype))


def estimate_means(data: Weighted) -> tuple[Tensor, Tensor]:
    """Estimate `x_ij` by `r_i c_j`: weighted means of rows, over those of columns relative to all (kept)."""

    def estimate() -> tuple[Tensor, Tensor]:
        one = lambda d: torch.ones(d, 1, dtype=data.dtype, device=data.device)
        samples = data.sums.held or data.shape[0]
        sides = samples * prod(data.shape[1 : data.cut]), prod(data.shape[data.cut :])
        over = lambda a, b: torch.where(b > 0, a / torch.where(b > 0, b, 1), 0)
        rows = over(data.data.times(one(sides[1])), data.weights_times(one(sides[1])))
        columns = over(data.data.times_transposed(one(sides[0])), data.weights_times_transposed(rows))
        return rows, columns

    return data.cache("means", (), estimate)


@dataclass(frozen=True, eq=False)
class PartialSamples:
    """Samples `(n, ...)`, and which of their entries count: distances are over those that two have in common."""

    entries: Tensor
    seen: Tensor

    @property
    def shape(self) -> torch.Size:
        """The shape of the samples."""
        return self.entries.shape


class WeightedDense(Weighted):
    """Dense data of any order with a dense array of weights of the same shape; each product makes the model once.

    Parameters
    ----------
    X, W : Tensor (n, d_1, ..., d_r)
        Entries times their weights, and the weights, >= 0. X is 0 where W is.
    cut : int, optional, as for `Dense`
    """

    def __init__(self, X: Tensor, W: Tensor, cut: int | None = None) -> None:
        data = Dense(X, cut)
        super().__init__(data, float(W.max()), W)
        self.weights = Dense(W, data.cut)
        self.binary = bool(((W == 0) | (W == 1)).all())
        data.floor = floor_of(self)

    @property
    def _base(self) -> Dense:
        return cast(Dense, self.data)

    def weights_times(self, F: Tensor) -> Tensor:
        """Multiply the weights."""
        return self.weights.times(F)

    def weights_times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed weights."""
        return self.weights.times_transposed(F)

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the entries of positive weight."""
        step = rows_at_once(self, self._base.matrix.shape[1])
        return seen_entries(zip(self._base.matrix.split(step), self.weights.matrix.split(step), strict=True))

    def samples(self) -> PartialSamples:
        """Give entries without their weights, and which are seen."""
        W = self.weights.X
        return PartialSamples(self._base.X if self.binary else self._base.X / torch.where(W > 0, W, 1), W > 0)

    def scaled(self, factor: float) -> Self:
        """Multiply the entries."""
        return cast(Self, WeightedDense(self._base.scaled(factor).X, self.weights.X, self.cut))

    def take(self, rows: Tensor) -> "WeightedDense":
        """Copy some samples and their weights."""
        return WeightedDense(self._base.X.index_select(0, rows), self.weights.X.index_select(0, rows), 1)

    def by_samples(self) -> "Data":
        """View the same arrays with a sample in each row."""
        return self if self.cut == 1 else WeightedDense(self._base.X, self.weights.X, 1)

    def weigh(self, factors: Sequence[Tensor], mode: int, exponent: float = 1.0) -> Tensor:
        """Sum over blocks of the model."""
        floor = None if exponent == 1 else self._base._floor()

        def weigh(rows: slice, Y: Tensor) -> list[Tensor]:
            Y = Y if floor is None else Y.clamp_(min=floor).pow_(exponent)
            return [Y.mul_(self.weights.matrix[rows])]

        return self._base.contract_model(factors, mode, weigh)[0]

    def residual_products(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Sum over blocks of the residual."""
        return self._base.contract_model(factors, mode, lambda rows, Y: [self._residual(rows, Y)])[0]

    def _residual(self, rows: slice, Y: Tensor) -> Tensor:
        """Compute `W (X - Y)` of a block, over Y."""
        Y.mul_(self.weights.matrix[rows])
        return torch.sub(self._base.matrix[rows], Y, out=Y)

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Sum the residual itself: nothing cancels."""
        blocks = product_blocks(*self._base._groups(factors), self.chunk)
        return sum_of(sum64(self._squares(rows, Y), Y.dim() - 2) for rows, Y in blocks)

    def _squares(self, rows: slice, Y: Tensor) -> Tensor:
        W = self.weights.matrix[rows]
        if self.binary:
            return self._residual(rows, Y).square_()
        return (self._unweighted(rows, Y) - Y).square_().mul_(W)  # not squares of weights, which leave the range sooner

    def _unweighted(self, rows: slice, Y: Tensor) -> Tensor:
        """Divide entries by their weights; hidden ones are those of the model Y."""
        W = self.weights.matrix[rows]
        return torch.where(W > 0, self._base.matrix[rows] / torch.where(W > 0, W, 1), Y)

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum `w d_beta(x, y)`, float64."""
        if beta == 2:
            return self.distance_sq(factors)
        floor, total = self._base._floor(), None
        for rows, Y in product_blocks(*self._base._groups(factors), self.chunk):
            Y, W = Y.clamp_(min=floor), self.weights.matrix[rows]
            part = sum64(W * div.loss(self._unweighted(rows, Y), Y, beta), Y.dim() - 2)
            total = part if total is None else total + part
        return cast(Tensor, total).clamp(min=0)

    def sqnorm(self) -> Tensor:
        """Compute `sum w x^2` (kept)."""

        def squares() -> Tensor:
            step = rows_at_once(self, self._base.matrix.shape[1])
            pairs = zip(self._base.matrix.split(step), self.weights.matrix.split(step), strict=True)
            square = lambda X, W: X.double() * (X.double() / torch.where(W > 0, W, 1))
            return sum_of(square(X, W).sum() for X, W in pairs)

        return self.cache("sqnorm", (), squares)
