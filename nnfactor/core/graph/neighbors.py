"""Which samples are near: exact Euclidean neighbours and shortest pairs, from products of matrices.

A product proposes, with a proved bound on its rounding, every sample that could be among the nearest; their distances
are then computed from differences, and ties go to the smaller index. Work goes in chunks of `BUDGET` numbers, never
n x n, on the device where the data are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..data.as_data import as_tensor, is_sparse, read_csr
from ..data.base import power_of_two
from .distances import expand_squares, row_squares

BUDGET = 1 << 20  # float64 numbers of a chunk (8 MB): larger ones leave the caches and gain nothing

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]  # i, j and their squared distance, on the host


class Points:
    """n samples of m numbers, divided by a power of two so that no square overflows; distances are in that unit.

    `upper(rows)` bounds the squared distances to all samples; `below` lists the pairs that may be within a limit, with
    squared distances from differences. Both are within eta (||x_i||^2 + ||x_j||^2) of the truth, eta = (2 m + 16) eps:
    products and norms err by m/2 eps each, centring by 2 eps, additions by the rest. `upper` has that much added, so
    for certain distance <= upper and distance >= upper - 2 eta (||x_i||^2 + ||x_j||^2).
    """

    samples: Any  # what products are made of, and its transpose
    columns: Any

    def __init__(self, X: Tensor) -> None:
        self.X, self.device = X, X.device
        self._measure(tuple(X.shape), max(abs(float(v)) for v in torch.aminmax(X)))
        scaled = X.double() / self.unit  # float32 loses everything far from the origin
        self.samples = scaled.sub_(scaled.mean(0))
        self.columns = self.samples.mT
        self._bound(self.m)

    def upper(self, rows: Tensor) -> Tensor:
        """`(len(rows), n)`, a new tensor."""
        return expand_squares(self.samples[rows], self.columns, self.high[rows], self.high)

    def squared(self, i: Tensor, j: Tensor) -> Tensor:
        """Squared distances of pairs, not from centred samples: rounding there would break ties of integer data."""
        x, y = (self.X.index_select(0, side).double().div_(self.unit) for side in (i, j))
        return x.sub_(y).square_().sum(1)

    def take(self, rows: np.ndarray) -> Points:
        """Some of the samples."""
        return type(self)(self.X[rows])

    def chunks(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """`rows`, on the host and the device, in pieces whose distances to all samples are within the budget."""
        step = max(1, BUDGET // self.n)
        for a in range(0, len(rows), step):
            yield rows[a : a + step], torch.from_numpy(rows[a : a + step]).to(self.device)

    def below(self, upper: Tensor, rows: Tensor, limit: Tensor) -> Pairs:
        """All pairs (row, sample) that may be within `limit` (a column or a number). Overwrites `upper`."""
        row, j = (upper.sub_(self.slack) <= limit + self.slack[rows, None]).nonzero().unbind(1)
        pieces = (torch.split(side, self.pairs_at_once) for side in (rows[row], j))
        squared = torch.cat([self.squared(*piece) for piece in zip(*pieces, strict=True)])
        return rows[row].cpu().numpy(), j.cpu().numpy(), squared.cpu().numpy()

    def _measure(self, shape: tuple[int, ...], largest: float) -> None:
        self.n, self.m = shape
        self.unit = power_of_two(largest)

    def _bound(self, width: int) -> None:
        norms = row_squares(self.samples)
        self.pairs_at_once = max(1, BUDGET // width)  # a difference of two samples has about `width` entries
        eta = (2 * self.m + 16) * torch.finfo(torch.float64).eps
        self.high, self.slack = norms * (1 + eta), 2 * eta * norms


class SparsePoints(Points):
    """Not centred, which would densify: float64, and distances from differences, make up for it."""

    def __init__(self, X: sp.csr_array) -> None:
        self.X, self.device = X, torch.device("cpu")
        self._measure(X.shape, float(np.abs(X.data).max(initial=0)))
        self.samples = X / self.unit
        self.columns = self.samples.T.tocsr()  # once: products would convert it every time
        self._bound(1 + 2 * X.nnz // self.n)

    def upper(self, rows: Tensor) -> Tensor:
        """As for `Points`."""
        return expand_squares(self.samples[rows.numpy()], self.columns, self.high[rows], self.high)

    def squared(self, i: Tensor, j: Tensor) -> Tensor:
        """As for `Points`."""
        difference = self.samples[i.numpy()] - self.samples[j.numpy()]
        return torch.from_numpy(difference.power(2).sum(axis=1))


def read_points(X: Any) -> Points:
    """Samples `(n, ...)`, flattened, dense or sparse; a ValueError or TypeError says what is wrong with them."""
    sparse = is_sparse(X)
    X = read_csr(X, dtype=np.float64) if sparse else as_tensor(X)
    if X.ndim < 2 or 0 in X.shape:
        raise ValueError(f"X has shape {tuple(X.shape)}; it must be (n_samples, n_features, ...), no dimension empty")
    values = torch.from_numpy(X.data) if sparse else X
    bad = int((~values.isfinite()).sum())
    if bad:
        raise ValueError(f"Input X contains NaN or infinity: {bad} of {values.numel()} entries; fill or drop them")
    return SparsePoints(X) if sparse else Points(X.reshape(len(X), -1))


def nearest(points: Points, p: int) -> Pairs:
    """The p nearest others of every sample, ordered by (sample, distance, other)."""
    found = []
    for here, rows in points.chunks(np.arange(points.n if p else 0)):
        upper = points.upper(rows)
        upper[:, here[0] : here[-1] + 1].diagonal().fill_(torch.inf)
        # p distances are within the p-th smallest bound, so the p nearest are, and so are their lower bounds
        limit = upper.topk(p, sorted=False, largest=False).values.amax(1, keepdim=True)
        i, j, squared = points.below(upper, rows, limit)
        order = np.lexsort((j, squared, i))
        i = i[order]
        order = order[np.arange(len(i)) - np.searchsorted(i, i) < p]
        found.append((here.repeat(p), j[order], squared[order]))
    return join_pairs(found)


def shortest(points: Points, code: np.ndarray, c: int, n_pairs: int) -> Pairs:
    """The shortest pairs of a sample of class c and one of another class, ordered by (distance, i, j)."""
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
    """Several lists of pairs as one; of none, an empty one."""
    none: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    i, j, squared = (np.concatenate(part) for part in zip(none, *pairs, strict=True))
    return i, j, squared
