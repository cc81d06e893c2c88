"""Data sets of the benchmarks: generated, embedded in scikit-learn, or read from a folder. NumPy only.

Images are scaled to [0, 1] and stay images, `(n, height, width)`; whoever wants vectors flattens them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..harness.errors import ConfigError, MissingData
from ..harness.words import unknown
from . import datasets
from .generated import faces

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Paper:
    """Seconds per iteration in paper 002, Table 1, and the ratio its text states."""

    name: str
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
    y: NDArray[np.int64]
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


PAPERS = {
    "orl": Paper("ORL", 16.90, 0.35, 47),
    "feret": Paper("FERET", 15.71, 0.22, 70),
    "pie": Paper("PIE", 62.97, 0.16, 393),
}


def load(name: str, data: Path | None, seed: int) -> Problem:
    """A problem by name; `data` is the folder of the sets that are not shipped.

    Raises
    ------
    ConfigError
        An unknown name.
    MissingData
        A file is absent or not what it should be; says which and what it should hold.
    """
    check_name(name)
    return PROBLEMS[name](data, seed)


def check_name(name: str) -> None:
    """A ConfigError unless there is such a problem."""
    if name not in PROBLEMS:
        raise ConfigError(unknown("parameters.problems", name, PROBLEMS, what="problem"))


def needs_folder(name: str) -> bool:
    """Whether the problem is read from the data folder."""
    return name in FROM_FOLDER


def half_of_each_class(y: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Indices of a random half of every class, ascending (paper 002: half of the images of each person train)."""
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(np.flatnonzero(y == c))[: (y == c).sum() // 2] for c in np.unique(y)]
    return np.sort(np.concatenate(halves))


def _generated(
    name: str,
    title: str,
    shape: tuple[int, int],
    people: int,
    each: int,
    paper: str | None,
    data: Path | None,
    seed: int,
) -> Problem:
    X, y = faces(shape, people, each, seed)
    return Problem(name, title, X, y, PAPERS[paper] if paper else None)


def _digits(data: Path | None, seed: int) -> Problem:
    """The first 40 images of every digit, in the order of scikit-learn's file, all labelled."""
    digits = datasets.load("digits_400", None)
    return Problem("digits", "digits 400 x 64", digits.X, digits.y)


def _orl(data: Path | None, seed: int) -> Problem:
    """A random half of the images of every person of the ORL data base."""
    if data is None:
        raise MissingData("orl needs --data DIR (or NNFACTOR_DATA) with orl_64x64.npz")
    orl = datasets.load("orl_64x64", data)
    rows = half_of_each_class(orl.y, seed)
    if len(rows) != 200:
        raise MissingData(
            f"{data / 'orl_64x64.npz'}: y has classes of the wrong size, expected 40 persons of 10 images"
        )
    return Problem("orl", "ORL 200 x 4096 (real)", orl.X[rows], orl.y[rows], PAPERS["orl"])


PROBLEMS: dict[str, Callable[[Path | None, int], Problem]] = {
    "digits": _digits,
    "orl_shape": partial(_generated, "orl_shape", "ORL's shape 200 x 4096", (64, 64), 40, 5, "orl"),
    "feret_shape": partial(_generated, "feret_shape", "FERET's shape 210 x 2576", (56, 46), 70, 3, "feret"),
    "pie_shape": partial(_generated, "pie_shape", "PIE's shape 340 x 1024", (32, 32), 68, 5, "pie"),
    "small_faces": partial(_generated, "small_faces", "small faces 60 x 256", (16, 16), 12, 5, None),
    "orl": _orl,
}

FROM_FOLDER = ("orl",)
