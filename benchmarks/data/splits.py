"""Who trains, who is labelled, who is held out: indices, ascending, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

Labels = NDArray[np.int64]


def per_class(y: Labels, count: int, seed: int) -> Index:
    """Draw `count` samples of every class (all of a smaller one)."""
    return _draw(y, lambda n: min(count, n), seed)


def share_per_class(y: Labels, share: float, seed: int) -> Index:
    """Draw a share of every class, rounded, but at least one sample: half of each person, ten percent labelled."""
    return _draw(y, lambda n: min(n, max(1, round(share * n))), seed)


def first_per_class(y: Labels, share: float = 0.5) -> Index:
    """Take the first of every class, in the order of the file; an odd one is left to the rest (Zhang and Liu 2009)."""
    firsts = [np.flatnonzero(y == c) for c in np.unique(y)]
    return np.sort(np.concatenate([f[: int(share * len(f))] for f in firsts]))


def rest(n: int, taken: Index) -> Index:
    """List everybody else."""
    return np.setdiff1d(np.arange(n), taken)


def hide_labels(y: Labels, labelled: Index) -> Labels:
    """Keep the labels of those named, -1 for everybody else."""
    shown = np.full(len(y), -1, dtype=np.int64)
    shown[labelled] = y[labelled]
    return shown


def folds(y: Labels, count: int, seed: int, within: bool = True) -> Iterator[tuple[Index, Index]]:
    """(fit, check) pairs that cut the samples with labels >= 0 into `count` parts, classes spread evenly.

    With `within` there are no more parts than the largest class has members. Otherwise there may be: each part then
    leaves some classes whole, such as those of two images of which one would be no pair. Samples with -1 belong to
    neither.
    """
    rng = np.random.default_rng(seed)
    classes = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y[y >= 0])]
    count = min(count, max(map(len, classes))) if within else count
    order = np.concatenate(classes)
    for i in range(count):
        check = np.sort(order[i::count])
        yield np.sort(np.setdiff1d(order, check)), check


def _draw(y: Labels, count: Callable[[int], int], seed: int) -> Index:
    rng = np.random.default_rng(seed)
    members = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y)]
    return np.sort(np.concatenate([m[: count(len(m))] for m in members]))
