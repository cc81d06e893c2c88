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


def faces(shape: tuple[int, int], people: int, per_person: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Face-like images in [0, 1] with labels: what aligned portraits have in common, not what they look like.

    One oval that all share; per person a smooth low-frequency template and dark and bright parts (eyes, nose, mouth)
    at personal places and sizes; per image parts that move a little, a linear illumination gradient of random
    direction and strength, a gain, and pixel noise of standard deviation 0.03.
    """
    rng = np.random.default_rng(seed)
    down, across = np.meshgrid(*(np.linspace(-1, 1, s) for s in shape), indexing="ij")
    waves = _low_frequencies(shape, 6)
    oval = 0.45 * np.exp(-1.2 * across**2 - 0.6 * down**2)
    images = []
    for _ in range(people):
        template = oval + 0.15 + 0.35 * np.tensordot(rng.normal(size=len(waves)), waves, 1)
        parts = _PARTS + rng.normal(scale=(0.06, 0.06, 0.03, 0.02, 0.06), size=_PARTS.shape)
        for _ in range(per_person):
            moved = parts + rng.normal(scale=(0.02, 0.02, 0.01, 0.01, 0.03), size=parts.shape)
            light = rng.normal(scale=0.08, size=2)
            image = template + sum(_blob(down, across, *part) for part in moved)
            image = rng.uniform(0.85, 1.15) * image + light[0] * down + light[1] * across
            images.append(image + rng.normal(scale=0.03, size=shape))
    return np.clip(np.array(images), 0, 1), np.repeat(np.arange(people), per_person)


def half_of_each_class(y: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Indices of a random half of every class, ascending (paper 002: half of the images of each person train)."""
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(np.flatnonzero(y == c))[: (y == c).sum() // 2] for c in np.unique(y)]
    return np.sort(np.concatenate(halves))


def read_npz(folder: Path, name: str, expected: dict[str, tuple[int, ...]], holds: str) -> dict[str, NDArray]:
    """Arrays of one `.npz` file, their shapes checked; errors say what the file should hold."""
    path = folder / name
    wanted = f"it should hold {holds}"
    if not path.is_file():
        raise MissingData(f"{path} is missing; {wanted}")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in expected if key in file}
    except (OSError, ValueError) as error:
        raise MissingData(f"{path} cannot be read ({error}); {wanted}") from None
    for key, shape in expected.items():
        found = arrays[key].shape if key in arrays else "absent"
        if found != shape:
            raise MissingData(f"{path}: {key} is {found}, expected shape {shape}; {wanted}")
    return arrays


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
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = np.sort(np.concatenate([np.flatnonzero(digits.target == c)[:40] for c in range(10)]))
    return Problem("digits", "digits 400 x 64", digits.images[rows] / 16, digits.target[rows].astype(np.int64))


def _orl(data: Path | None, seed: int) -> Problem:
    """A random half of the images of every person of the ORL data base."""
    if data is None:
        raise MissingData("orl needs --data DIR (or NNFACTOR_DATA) with orl_64x64.npz")
    shapes = {"X": (400, 64, 64), "y": (400,)}
    holds = "X (400, 64, 64) uint8 and y (400,), 40 persons with 10 images each"
    arrays = read_npz(data, "orl_64x64.npz", shapes, holds)
    rows = half_of_each_class(arrays["y"], seed)
    if len(rows) != 200:
        raise MissingData(f"{data / 'orl_64x64.npz'}: y has classes of the wrong size; it should hold {holds}")
    y = arrays["y"][rows].astype(np.int64)
    return Problem("orl", "ORL 200 x 4096 (real)", arrays["X"][rows] / 255, y, PAPERS["orl"])


def _low_frequencies(shape: tuple[int, int], count: int) -> Array:
    """The lowest `count` x `count` cosines but the constant, weaker with frequency: (count^2 - 1, *shape)."""
    axes = [np.cos(np.pi * np.outer(np.arange(count), (np.arange(s) + 0.5) / s)) for s in shape]
    i, j = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    waves = np.einsum("ih,jw->ijhw", *axes) / (1 + i + j)[..., None, None] ** 2
    return waves.reshape(-1, *shape)[1:]


def _blob(down: Array, across: Array, y: float, x: float, height: float, width: float, gain: float) -> Array:
    return gain * np.exp(-(((down - y) / height) ** 2) - ((across - x) / width) ** 2)


# where the parts of a face are (down, across), their size and how much brighter than the skin they are
_PARTS = np.array(
    [
        (-0.25, -0.4, 0.12, 0.16, -0.35),
        (-0.25, 0.4, 0.12, 0.16, -0.35),
        (-0.45, -0.4, 0.07, 0.22, -0.2),
        (-0.45, 0.4, 0.07, 0.22, -0.2),
        (0.1, 0.0, 0.25, 0.10, 0.2),
        (0.5, 0.0, 0.1, 0.3, -0.3),
    ]
)

PROBLEMS: dict[str, Callable[[Path | None, int], Problem]] = {
    "digits": _digits,
    "orl_shape": partial(_generated, "orl_shape", "ORL's shape 200 x 4096", (64, 64), 40, 5, "orl"),
    "feret_shape": partial(_generated, "feret_shape", "FERET's shape 210 x 2576", (56, 46), 70, 3, "feret"),
    "pie_shape": partial(_generated, "pie_shape", "PIE's shape 340 x 1024", (32, 32), 68, 5, "pie"),
    "small_faces": partial(_generated, "small_faces", "small faces 60 x 256", (16, 16), 12, 5, None),
    "orl": _orl,
}

FROM_FOLDER = ("orl",)
