"""Who trains, who is labelled, who is held out: indices, ascending, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

Labels = NDArray[np.int64]


def per_class(y: Labels, count: int, seed: int, among: Index | None = None) -> Index:
    """`count` random samples of every class (all of a smaller one), out of `among`."""
    return _drawn(y, lambda n: min(count, n), seed, among)


def share_per_class(y: Labels, share: float, seed: int, among: Index | None = None, least: int = 1) -> Index:
    """A random share of every class, rounded, but at least `least`: half of each person, ten percent labelled."""
    return _drawn(y, lambda n: min(n, max(least, round(share * n))), seed, among)


def first_per_class(y: Labels, share: float = 0.5) -> Index:
    """The first of every class, in the order of the file; an odd one is left to the rest (paper 004)."""
    firsts = [np.flatnonzero(y == c) for c in np.unique(y)]
    return np.sort(np.concatenate([f[: int(share * len(f))] for f in firsts]))


def share_of_all(n: int, share: float, seed: int) -> Index:
    """A random share of n samples, whatever their class."""
    return np.sort(np.random.default_rng(seed).permutation(n)[: round(share * n)])


def rest(n: int, taken: Index) -> Index:
    """Everybody else."""
    return np.setdiff1d(np.arange(n), taken)


def hidden(y: Labels, labelled: Index) -> Labels:
    """Labels of those named, -1 for everybody else."""
    shown = np.full(len(y), -1, dtype=np.int64)
    shown[labelled] = y[labelled]
    return shown


def folds(y: Labels, count: int, seed: int) -> Iterator[tuple[Index, Index]]:
    """(fit, check) pairs that cut the samples with labels >= 0 into `count` parts, classes spread evenly.

    No more parts than the largest class has members. Samples with -1 belong to neither.
    """
    rng = np.random.default_rng(seed)
    classes = [rng.permutation(np.flatnonzero(y == c)) for c in np.unique(y[y >= 0])]
    count = min(count, max(map(len, classes)))
    order = np.concatenate(classes)
    for i in range(count):
        check = np.sort(order[i::count])
        yield np.sort(np.setdiff1d(order, check)), check


def _drawn(y: Labels, count: Callable[[int], int], seed: int, among: Index | None) -> Index:
    rng = np.random.default_rng(seed)
    among = np.arange(len(y)) if among is None else np.asarray(among)
    taken = []
    for c in np.unique(y[among]):
        members = among[y[among] == c]
        taken.append(rng.permutation(members)[: count(len(members))])
    return np.sort(np.concatenate(taken))
