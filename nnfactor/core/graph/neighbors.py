"""Which samples are near: exact Euclidean distances and shortest pairs, from products of matrices.

A product proposes, with a proved bound on its rounding, every sample that could be among the nearest; their distances
are then computed from differences, and ties go to the smaller index. Work goes in chunks of `BUDGET` numbers, never
n x n, on the device where the data are.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from math import isqrt
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..data.as_data import as_tensor, is_sparse, read_csr
from ..data.base import power_of_two
from ..data.weighted import PartialSamples

BUDGET = 1 << 20  # float64 numbers of a chunk (8 MB): larger ones leave the caches and gain nothing

LEAST_GROUPS = 64  # of a tile, of each of which the least bound is taken: a vectorised pass, and few share a group

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]  # i, j and their squared distance, on the host


class Points:
    """n samples of m numbers, divided by a power of two so that no square overflows; distances are in that unit.

    `upper(rows)` bounds the squared distances to all samples; `below` lists the pairs that may be within a limit, with
    squared distances from differences. Both are within eta (||x_i||^2 + ||x_j||^2) of the truth, eta = (2 m + 16) eps:
    products and norms err by m/2 eps each, centring by 2 eps, additions by the rest. `upper` has that much added, so
    for certain distance <= upper and distance >= upper - 2 eta (||x_i||^2 + ||x_j||^2).
    """

    partial = False  # whether entries are hidden

    def __init__(self, X: Tensor) -> None:
        low, high = torch.aminmax(X)
        self.X, self.device, self.unit = X, X.device, power_of_two(max(-float(low), float(high)))
        scaled = X.double() / self.unit if X.dtype == torch.float64 else X.double().div_(self.unit)
        self._place(scaled.sub_(scaled.mean(0)))  # float32 loses everything far from the origin
        self._bound(X.shape[1])

    def upper(self, rows: Tensor, others: slice = slice(None)) -> Tensor:
        """Bound the squared distances of some rows to all samples or some, `(len(rows), n)`; a new tensor."""
        here = self.samples[rows.numpy() if sp.issparse(self.samples) else rows]
        return expand_squares(here, self.turned(others), self.high[rows], self.high[others])

    def turned(self, others: slice) -> Any:
        """Return some samples as columns."""
        return self.columns[:, others]

    def measure(self, i: Tensor, j: Tensor) -> Tensor:
        """Measure squared distances of pairs from differences, in pieces."""
        pieces = zip(i.split(self.pairs_at_once), j.split(self.pairs_at_once), strict=True)
        return torch.cat([self._subtract(*piece) for piece in pieces])

    def _subtract(self, i: Tensor, j: Tensor) -> Tensor:
        # not the centred samples, whose rounding would break ties of integers
        x, y = (self.X.index_select(0, side).double().div_(self.unit) for side in (i, j))
        return x.sub_(y).square_().sum(1)

    def local_grams(self, i: Tensor, near: Tensor) -> Tensor:
        """Return the products of differences `x_i - x_j`, j one of the p samples near i: `(len(i), p, p)`."""
        x, others = (self.X[side].double().div_(self.unit) for side in (i[:, None], near))
        steps = others.sub_(x)
        return steps @ steps.mT

    def take(self, rows: np.ndarray) -> "Points":
        """Return some of the samples, in the same unit and with the same centre: nothing is measured again."""
        part = copy(self)
        part._place(self.samples[rows])
        part.X, part.high, part.slack = self.X[rows], self.high[rows], self.slack[rows]
        return part

    def chunks(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Split `rows`, on the host and the device, in pieces whose distances to all samples are within the budget."""
        return self._pieces(rows, max(1, BUDGET // self.n))

    def tiles(self, rows: np.ndarray) -> tuple[Iterator[tuple[np.ndarray, Tensor]], list[slice], int]:
        """Split `rows`, and all samples, so that the distances of a piece of each are a quarter of the budget.

        That much stays in the caches, and the allocator gives the same memory to every tile. The number is how many
        pairs may wait for more than one tile.
        """
        width = min(self.n, max(1, isqrt(BUDGET)))
        columns = [slice(a, min(a + width, self.n)) for a in range(0, self.n, width)]
        return self._pieces(rows, max(1, BUDGET // (4 * width))), columns, BUDGET // 8

    def _pieces(self, rows: np.ndarray, step: int) -> Iterator[tuple[np.ndarray, Tensor]]:
        for a in range(0, len(rows), step):
            yield rows[a : a + step], torch.from_numpy(rows[a : a + step]).to(self.device)

    def below(self, upper: Tensor, rows: Tensor, limit: Tensor) -> Pairs:
        """List all pairs (row, sample) that may be within `limit` (a column or a number). Overwrites `upper`."""
        row, j = (upper.sub_(self.slack) <= limit + self.slack[rows, None]).nonzero().unbind(1)
        return rows[row].cpu().numpy(), j.cpu().numpy(), self.measure(rows[row], j).cpu().numpy()

    def _place(self, samples: Any) -> None:
        """Keep what products are made of, and its transpose: of CSR once, since each product would convert it."""
        self.n, self.samples = samples.shape[0], samples
        self.columns = samples.T.tocsr() if sp.issparse(samples) else samples.mT
        self._turned: dict[tuple[int, int], Any] = {}

    def _bound(self, width: int) -> None:
        norms = row_squares(self.samples)
        self.pairs_at_once = max(1, BUDGET // width)  # a difference of two samples has about `width` entries
        eta = (2 * self.X.shape[1] + 16) * torch.finfo(torch.float64).eps
        self.high, self.slack = norms * (1 + eta), 2 * eta * norms


class SparsePoints(Points):
    """Not centred, which would densify: float64, and distances from differences, make up for it."""

    def __init__(self, X: sp.csr_array) -> None:
        self.X, self.device, self.unit = X, torch.device("cpu"), power_of_two(float(np.abs(X.data).max(initial=0)))
        self._place(X / self.unit)
        self._bound(1 + 2 * X.nnz // self.n)

    def turned(self, others: slice) -> Any:
        """Return some samples as columns, made once: to cut them out of all would go through all of them each time."""
        if others == slice(None):
            return self.columns
        key = others.start, others.stop
        if key not in self._turned:
            self._turned[key] = self.samples[others].T.tocsr()
        return self._turned[key]

    def _subtract(self, i: Tensor, j: Tensor) -> Tensor:
        difference = self.samples[i.numpy()] - self.samples[j.numpy()]
        return torch.from_numpy(difference.power(2).sum(axis=1))

    def local_grams(self, i: Tensor, near: Tensor) -> Tensor:
        """Multiply sparse differences, sample by sample."""
        sides = zip(i.tolist(), near.numpy(), strict=True)
        steps = [self.samples[js] - self.samples[np.full(len(js), at)] for at, js in sides]
        return torch.stack([inner_products(D, D.T) for D in steps])


class PartialPoints(Points):
    """Samples with hidden entries: distances are over the features that both have, scaled up to all m.

    `d_ij^2 = m / m_ij sum_f (x_if - x_jf)^2` over the m_ij common features; infinite without any.
    """

    partial = True

    def __init__(self, X: Tensor, seen: Tensor) -> None:
        self.X, self.device, self.unit = X, X.device, power_of_two(float(X.abs().max()))
        self.seen = seen.double()
        self._place(X.double() / self.unit)
        norms = row_squares(self.samples) * X.shape[1]  # scaled up by m at most
        self.pairs_at_once = max(1, BUDGET // X.shape[1])
        eta = (2 * X.shape[1] + 16) * torch.finfo(torch.float64).eps
        self.high, self.slack = norms * eta, 2 * eta * norms

    def upper(self, rows: Tensor, others: slice = slice(None)) -> Tensor:
        """Bound the squared distances of some rows to all samples or some, `(len(rows), n)`; a new tensor."""
        x, w, y, seen = self.samples[rows], self.seen[rows], self.columns[:, others], self.seen[others].mT
        squares = torch.addmm(x.square() @ seen, w, y.square()).addmm_(x, y, alpha=-2).clamp_(min=0)
        common = w @ seen
        scaled = torch.where(common > 0, squares * (self.X.shape[1] / common.clamp(min=1)), torch.inf)
        return scaled.add_(self.high[rows, None]).add_(self.high[others])

    def take(self, rows: np.ndarray) -> "PartialPoints":
        """Return some of the samples, in the same unit."""
        part = cast("PartialPoints", super().take(rows))
        part.seen = self.seen[rows]
        return part

    def local_grams(self, i: Tensor, near: Tensor) -> Tensor:
        """Refuse: products of differences need all entries."""
        raise ValueError("graph='linear_neighborhood' needs complete samples, and X has hidden entries")

    def _subtract(self, i: Tensor, j: Tensor) -> Tensor:
        common = self.seen[i] * self.seen[j]
        squares = (self.samples[i] - self.samples[j]).square_().mul_(common).sum(1)
        count = common.sum(1)
        return torch.where(count > 0, squares * (self.X.shape[1] / count.clamp(min=1)), torch.inf)


def read_points(X: Any) -> Points:
    """Read samples `(n, ...)`, flattened, dense or sparse; a ValueError or TypeError says what is wrong with them.

    `PartialSamples` have hidden entries.
    """
    if isinstance(X, PartialSamples):
        return PartialPoints(X.entries.flatten(1), X.seen.flatten(1))
    sparse = is_sparse(X)
    X = read_csr(X, dtype=np.float64) if sparse else as_tensor(X)
    if X.ndim < 2 or 0 in X.shape:
        raise ValueError(f"X has shape {tuple(X.shape)}; it must be (n_samples, n_features, ...), no dimension empty")
    values = torch.from_numpy(X.data) if sparse else X
    if values.numel() and not bool(torch.stack(torch.aminmax(values)).isfinite().all()):
        bad = int((~values.isfinite()).sum())
        raise ValueError(f"Input X contains NaN or infinity: {bad} of {values.numel()} entries; fill or drop them")
    return SparsePoints(X) if sparse else Points(X.reshape(len(X), -1))


def find_nearest(points: Points, p: int, rows: np.ndarray | None = None) -> Pairs:
    """Find the p nearest others of every sample, or of some rows, ordered by (sample, distance, other).

    Samples go by in tiles, and what could be among the nearest so far is kept: the memory is that of a tile and of the
    pairs that are found, whatever the number of samples.
    """
    if not p:
        return join_pairs([])
    pieces, columns, most = points.tiles(np.arange(points.n) if rows is None else rows)
    return join_pairs([_Nearest(points, here, there, p).among(columns, most) for here, there in pieces])


class _Nearest:
    """The p nearest others of some rows, given on the host and the device, among the samples that went by.

    `limit` bounds the p-th smallest distance of every row: p distances are within the p-th smallest bound, so the p
    nearest are, and so are their lower bounds.
    """

    def __init__(self, points: Points, here: np.ndarray, rows: Tensor, p: int) -> None:
        self.points, self.here, self.rows, self.p = points, here, rows, p
        self.slack = points.slack[rows]
        self.least = self.slack.new_full((len(here), p), torch.inf)  # bounds, each of another sample
        self.limit = self.slack.new_full((len(here),), torch.inf)
        self.kept, self.waiting = join_pairs([]), [(rows[:0], rows[:0], self.slack[:0])]  # measured; row, other, bound

    def among(self, columns: Sequence[slice], most: int) -> Pairs:
        """Find them among all samples, a tile of columns at a time; about `most` pairs wait to be measured."""
        for others in columns:
            self._look_at(others)
            if sum(len(row) for row, _, _ in self.waiting) > most:
                self._measure()
        self._measure()
        i, j, squared = self.kept
        return self.here[i], j, squared

    def _look_at(self, others: slice) -> None:
        """List the pairs of a tile that are within the limits, which it may lower.

        The least bound of each of some groups of samples tells at a tenth of the cost of all what may be near. Groups
        are strided: near samples that follow each other are in different ones.
        """
        lower, slack = self.points.upper(self.rows, others), self.points.slack[others]
        own = np.flatnonzero((self.here >= others.start) & (self.here < others.stop))
        lower[torch.from_numpy(own), torch.from_numpy(self.here[own] - others.start)] = torch.inf
        groups, width = max(LEAST_GROUPS, 4 * self.p), lower.shape[1]
        lower = lower.sub_(slack)
        if extra := -width % groups:
            lower, slack = pad(lower, (0, extra), value=torch.inf), pad(slack, (0, extra))
        lower, slack = lower.unflatten(1, (-1, groups)), slack.unflatten(0, (-1, groups))
        first = lower.amin(1)
        row, group = (first <= (self.limit + self.slack)[:, None]).nonzero().unbind(1)
        changed = torch.unique_consecutive(row)
        least = torch.cat([self.least[changed], first[changed] + slack.amax(0) + self.slack[changed, None]], 1)
        self.least[changed] = least.topk(self.p, sorted=False, largest=False).values
        self.limit[changed] = torch.minimum(self.limit[changed], self.least[changed].amax(1))
        found = lower[row, :, group]
        at, place = (found <= (self.limit + self.slack)[row, None]).nonzero().unbind(1)
        other, row, found = place * groups + group[at], row[at], found[at, place]
        real = other < width
        self.waiting.append((row[real], other[real] + others.start, found[real]))

    def _measure(self) -> None:
        """Measure the pairs that wait and are still within the limits; keep the p nearest of every row."""
        row, other, lower = (torch.cat(part) for part in zip(*self.waiting, strict=True))
        self._lower(row.cpu().numpy(), (lower + self.points.slack[other] + self.slack[row]).cpu().numpy())
        near = (lower <= (self.limit + self.slack)[row]) & (other != self.rows[row])
        row, other = row[near], other[near]
        squared = self.points.measure(self.rows[row], other)
        measured = row.cpu().numpy(), other.cpu().numpy(), squared.cpu().numpy()
        self.kept = choose_nearest(join_pairs([self.kept, measured]), self.p)
        self._lower(self.kept[0], self.kept[2])
        self.waiting = self.waiting[:1]

    def _lower(self, i: np.ndarray, bounds: np.ndarray) -> None:
        """Lower the limits to the p-th smallest of bounds of distances, each of another sample."""
        order = np.lexsort((bounds, i))
        last = order[_ranks(i[order]) == self.p - 1]
        at = torch.from_numpy(i[last]).to(self.limit.device)
        self.limit[at] = torch.minimum(self.limit[at], torch.from_numpy(bounds[last]).to(self.limit))


def choose_nearest(pairs: Pairs, p: int) -> Pairs:
    """Choose the p nearest of every i, ordered by (i, distance, j)."""
    i, j, squared = pairs
    order = np.lexsort((j, squared, i))
    order = order[_ranks(i[order]) < p]
    return i[order], j[order], squared[order]


def _ranks(i: np.ndarray) -> np.ndarray:
    """Count the entries before each in its row, of a list that is ordered by rows."""
    return np.arange(len(i)) - np.searchsorted(i, i)


def find_shortest(points: Points, code: np.ndarray, n_pairs: int) -> Pairs:
    """Find for every class 0, 1, ... its shortest pairs with samples of others, ordered by (class, distance, i, j)."""
    several: list[int] = np.unique(code).tolist() if n_pairs else []
    return join_pairs([_shortest_of_class(points, code, c, n_pairs) for c in several if len(several) > 1])


def _shortest_of_class(points: Points, code: np.ndarray, c: int, n_pairs: int) -> Pairs:
    inside = np.flatnonzero(code == c)
    best = join_pairs([])
    for here, rows in points.chunks(inside):
        upper = points.upper(rows).index_fill_(1, torch.from_numpy(inside).to(points.device), torch.inf)
        count = min(n_pairs, len(here) * (points.n - len(inside)))
        limit = upper.flatten().topk(count, sorted=False, largest=False).values.amax()
        if len(best[2]) == n_pairs:
            limit = limit.clamp(max=float(best[2][-1]))
        i, j, squared = join_pairs([best, points.below(upper, rows, limit)])
        order = np.lexsort((j, i, squared))[:n_pairs]
        best = i[order], j[order], squared[order]
    return best


def join_pairs(pairs: Sequence[Pairs]) -> Pairs:
    """Join several lists of pairs; of none, an empty one."""
    none: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    i, j, squared = (np.concatenate(part) for part in zip(none, *pairs, strict=True))
    return i, j, squared


def inner_products(X: Any, columns: Any) -> Tensor:
    """Return the products of X `(n, m)` with `columns (m, n')`, both dense or both sparse, as a dense tensor."""
    return torch.from_numpy((X @ columns).toarray()) if sp.issparse(X) else X @ columns


def row_squares(X: Any) -> Tensor:
    """Return `||x||^2` of every row of X `(n, m)`, `(n,)`."""
    if sp.issparse(X):
        return torch.from_numpy(X.power(2).sum(axis=1))
    return torch.cat([part.square().sum(1) for part in X.split(max(1, BUDGET // max(1, X.shape[1])))])


def expand_squares(X: Any, columns: Any, x: Tensor, y: Tensor) -> Tensor:
    """Return `x_i + y_j - 2 X_i columns_j` for all pairs, `(n, n')`; rounding can make it negative.

    With x `(n,)` and y `(n',)` the squared norms of the two sets of samples these are their squared distances.
    """
    if sp.issparse(X):
        return inner_products(X, columns).mul_(-2).add_(y).add_(x[:, None])
    return torch.addmm(y, X, columns, alpha=-2).add_(x[:, None])
