"""Data that need no folder: inside scikit-learn and TensorLy, or generated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from .generated import faces
from .samples import Array, Dataset, codes


def _digits(each: int | None, seed: int) -> Dataset:
    """scikit-learn's digits, 8 x 8; the first `each` of every digit, in the order of the file."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rows = np.sort(np.concatenate([np.flatnonzero(digits.target == c)[:each] for c in range(10)]))
    return Dataset("digits", f"digits {len(rows)} x 8 x 8", (digits.images[rows] / 16,), codes(digits.target[rows]))


def _sklearn_table(name: str, title: str, seed: int) -> Dataset:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Dataset(name, title, (np.asarray(X, dtype=np.float64),), codes(y))


def _faces(name: str, height: int, width: int, people: int, each: int, seed: int) -> Dataset:
    X, y = faces((height, width), people, each, seed)
    return Dataset(name, f"generated faces {height} x {width}", (X,), y)


def _digit_views(each: int | None, seed: int) -> Dataset:
    """Digits seen three ways: pixels, magnitudes of the Fourier transform, sums of 2 x 2 blocks and of lines."""
    digits = _digits(each, seed)
    X = digits.X
    fourier = np.abs(np.fft.rfft2(X)).reshape(len(X), -1)
    blocks = X.reshape(-1, 4, 2, 4, 2).sum((2, 4)).reshape(len(X), -1)
    profiles = np.hstack([X.sum(1), X.sum(2), blocks])
    names = ("pixels", "fourier", "profiles")
    return Dataset("digit_views", f"digits, 3 views, {len(X)}", (digits.flat, fourier, profiles), digits.y, names)


def _swimmer(seed: int) -> Dataset:
    """The Swimmer of Donoho and Stodden (2003): a torso with four limbs of four positions each, 256 images 32 x 32.

    The class is the position of the first two limbs.
    """
    steps = {
        "left": ((-1, -1), (0, -1), (1, -1), (-1, 0)),
        "right": ((-1, 1), (0, 1), (1, 1), (-1, 0)),
    }
    roots = ((11, 14, "left"), (11, 17, "right"), (20, 14, "left"), (20, 17, "right"))
    images, y = [], []
    for poses in product(range(4), repeat=4):
        image = np.zeros((32, 32))
        image[10:22, 15:17] = 1
        for (row, column, side), pose in zip(roots, poses, strict=True):
            down, across = steps[side][pose]
            for t in range(6):
                image[row + t * down, column + t * across] = 1
        images.append(image)
        y.append(4 * poses[0] + poses[1])
    return Dataset("swimmer", "Swimmer 256 x 32 x 32", (np.array(images),), np.array(y, dtype=np.int64))


def _indian_pines(seed: int) -> Dataset:
    """TensorLy's Indian Pines: labelled pixels with their spectra, scaled to [0, 1]."""
    from tensorly.datasets import load_indian_pines

    pines = load_indian_pines()
    labels = np.asarray(pines.ticks[0]).ravel()  # 0: not surveyed
    X = np.asarray(pines.tensor, dtype=np.float64).reshape(len(labels), -1)
    seen = labels > 0
    return Dataset("indian_pines", "Indian Pines spectra", (_unit(X[seen]),), codes(labels[seen]))


def _il2(seed: int) -> Dataset:
    """TensorLy's IL-2 responses, one sample per ligand: (ligands, times, doses, cells); missing values are 0."""
    from tensorly.datasets import load_IL2data

    X = np.nan_to_num(np.asarray(load_IL2data().tensor, dtype=np.float64))
    return Dataset("il2", "IL-2 responses", (_unit(X),), np.arange(len(X)))


def _unit(X: Array) -> Array:
    X = X - min(0.0, float(X.min()))
    return X / X.max()


EMBEDDED: dict[str, Callable[[int], Dataset]] = {
    "digits": partial(_digits, None),
    "digits_400": partial(_digits, 40),
    "iris": partial(_sklearn_table, "iris", "Iris"),
    "wine": partial(_sklearn_table, "wine", "Wine"),
    "faces_16x16": partial(_faces, "faces_16x16", 16, 16, 15, 10),
    "faces_32x32": partial(_faces, "faces_32x32", 32, 32, 15, 10),
    "faces_64x64": partial(_faces, "faces_64x64", 64, 64, 15, 10),
    "faces_small": partial(_faces, "faces_small", 16, 16, 12, 5),
    "faces_orl_shape": partial(_faces, "faces_orl_shape", 64, 64, 40, 5),
    "faces_feret_shape": partial(_faces, "faces_feret_shape", 56, 46, 70, 3),
    "faces_pie_shape": partial(_faces, "faces_pie_shape", 32, 32, 68, 5),
    "digit_views": partial(_digit_views, 60),
    "swimmer": _swimmer,
    "indian_pines": _indian_pines,
    "il2": _il2,
}
