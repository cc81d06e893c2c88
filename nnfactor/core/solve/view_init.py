"""Starts of factorizations of several views, of nonnegative or signed data, independent of the order of the views."""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from ..data.base import Data
from ..data.distributed.sample_sums import WHOLE
from ..factors import as_factor, draw_factor
from .init import nndsvda


def start_views(
    views: Sequence[Data], scales: Sequence[float], n_components: int, seed: int, svd: bool
) -> list[Tensor]:
    """Return `[V, U1, ..., UP]` for views of the same samples, each as if multiplied by `sqrt(scales[p])`.

    `svd`: nonnegative double SVD of the views side by side (k at most min(n, sum of m)); else |normal| factors with
    the views' means (root mean squares, where entries are negative). Neither depends on the order of the views. Views
    of scale 0 have no part in V, and start at random.
    """
    if 0 in scales:
        V, *bases = start_views(*_select(views, scales), n_components, seed, svd)
        alone = lambda X: start_views([X], [1.0], n_components, seed, svd=False)[1]
        return [V, *(bases.pop(0) if s else alone(X) for X, s in zip(views, scales, strict=True))]
    side = _SideBySide(views, scales)
    if svd:
        U, V = nndsvda(side, n_components, seed)
        parts = U.split([X.shape[1] for X in views], dim=-2)
        return [V, *(as_factor(U / s**0.5) for U, s in zip(parts, scales, strict=True))]
    height = float(side.mean() / n_components) ** 0.5
    heights = [height, *(0.0 if height == 0 else float(_size(X)) / n_components / height for X in views)]
    shapes = [(views[0].shape[0], seed), *((X.shape[1], seed + 1) for X in views)]  # all views from one seed
    generators = [torch.Generator("cpu").manual_seed(number % 2**63) for _, number in shapes]
    draws = [draw_factor(n, n_components, g, side.device) for (n, _), g in zip(shapes, generators, strict=True)]
    return [F.to(side.dtype) * h for F, h in zip(draws, heights, strict=True)]


def _select(views: Sequence[Data], scales: Sequence[float]) -> tuple[list[Data], list[float]]:
    """Select the views of positive scale."""
    return [X for X, s in zip(views, scales, strict=True) if s], [s for s in scales if s]


def _size(X: Data) -> Tensor:
    """Compute the mean entry, or the root mean square where there are negative ones."""
    return X.mean() if X.smallest() >= 0 else (X.sqnorm() / (X.shape[0] * X.shape[1])).sqrt()


class _SideBySide:
    """All views as one matrix, features first: the random probes of `nndsvda` are then independent of their order."""

    order = 2
    sums = WHOLE

    def __init__(self, views: Sequence[Data], scales: Sequence[float]) -> None:
        self.views, self.roots = views, [s**0.5 for s in scales]
        self.widths = [X.shape[1] for X in views]
        self.shape: tuple[int, ...] = (sum(self.widths), views[0].shape[0])
        self.dtype, self.device = views[0].dtype, views[0].device

    def mean(self) -> Tensor:
        sizes = [r * m * _size(X) for r, m, X in zip(self.roots, self.widths, self.views, strict=True)]
        return reduce(torch.add, sizes) / self.shape[0]

    def times(self, F: Tensor) -> Tensor:
        pairs = zip(self.roots, self.views, strict=True)
        return torch.cat([r * X.times_transposed(as_factor(F)) for r, X in pairs], dim=-2)

    def times_transposed(self, F: Tensor) -> Tensor:
        parts = zip(self.roots, self.views, F.split(self.widths, dim=-2), strict=True)
        return reduce(torch.add, (r * X.times(as_factor(f)) for r, X, f in parts))
