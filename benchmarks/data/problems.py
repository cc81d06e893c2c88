"""The problems of the NGE comparison: data sets, or halves of them, with what the paper measured at their shape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..harness.words import check_names
from . import datasets
from .samples import Array, Labels


@dataclass(frozen=True)
class Paper:
    """Seconds per iteration in Wang et al. 2009a, Table 1, and the ratio its text states."""

    nge: float
    ndtf: float
    ratio: int


@dataclass(frozen=True)
class Problem:
    """Labelled images.

    Attributes
    ----------
    name, title : str
    X : array (n, height, width)
    y : array (n,)
    paper : Paper or None
        What the paper measured at this shape.
    """

    name: str
    title: str
    X: Array
    y: Labels
    paper: Paper | None = None

    @property
    def n_components(self) -> int:
        """K = round(N m / (N + m)), the papers' choice."""
        n, m = len(self.X), self.X[0].size
        return round(n * m / (n + m))

    @property
    def n_discriminative(self) -> int:
        """Q = number of classes."""
        return len(np.unique(self.y))


ORL = Paper(16.90, 0.35, 47)

# name -> title, data set, and what the paper measured; the first 40 images of every digit are all labelled
PROBLEMS: dict[str, tuple[str, str, Paper | None]] = {
    "digits": ("digits 400 x 64", "digits_400", None),
    "orl_shape": ("ORL's shape 200 x 4096", "faces_orl_shape", ORL),
    "feret_shape": ("FERET's shape 210 x 2576", "faces_feret_shape", Paper(15.71, 0.22, 70)),
    "pie_shape": ("PIE's shape 340 x 1024", "faces_pie_shape", Paper(62.97, 0.16, 393)),
    "small_faces": ("small faces 60 x 256", "faces_small", None),
    "orl": ("ORL 200 x 4096 (real)", "orl_64x64", ORL),
}

HALVED = ("orl",)  # a random half of the images of every person


def load(name: str, data: Path | None, seed: int) -> Problem:
    """Load a problem by name; `data` is the folder of the sets that are not shipped.

    Raises
    ------
    ConfigError
        An unknown name.
    MissingData
        A file is absent or not what it should be; says which and what it should hold.
    """
    check_names("problem", [name], PROBLEMS)
    title, source, paper = PROBLEMS[name]
    found = datasets.load(source, data, seed)
    if name in HALVED:
        found = found.rows(half_of_each_class(found.y, seed))
    return Problem(name, title, found.X, found.y, paper)


def half_of_each_class(y: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Draw a half of every class, ascending indices (Wang et al. 2009a: half of the images of each person train)."""
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(np.flatnonzero(y == c))[: (y == c).sum() // 2] for c in np.unique(y)]
    return np.sort(np.concatenate(halves))
