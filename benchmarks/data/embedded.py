"""Data that need no folder: inside scikit-learn, or generated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from .generated import faces
from .samples import Dataset, codes


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
}
