"""Data that come inside scikit-learn and TensorLy, scaled as they are usually factored."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...data import datasets


def digits(data: Path | None, seed: int) -> np.ndarray:
    """Digits as rows of 64 pixels in [0, 1]."""
    return datasets.load("digits", None).flat


def table(name: str, data: Path | None, seed: int) -> np.ndarray:
    """Load a table of measurements by the name of its loader, every column over its maximum: their units differ."""
    from sklearn import datasets as of_sklearn

    X = np.asarray(getattr(of_sklearn, f"load_{name}")().data, dtype=float)
    return X / X.max(0)


def photograph(name: str, data: Path | None, seed: int) -> np.ndarray:
    """Load a photograph as a matrix of grey values in [0, 1]."""
    return _picture(name).mean(2)


def patches(name: str, side: int, data: Path | None, seed: int) -> np.ndarray:
    """Cut a photograph into squares that do not overlap: a row holds the three colours of one of them."""
    X = _picture(name)
    height, width = (n // side for n in X.shape[:2])
    cut = X[: height * side, : width * side].reshape(height, side, width, side, 3)
    return cut.swapaxes(1, 2).reshape(height * width, -1)


def il2(data: Path | None, seed: int) -> np.ndarray:
    """Responses to IL-2 muteins (Orcutt-Jahns et al. 2021), without the time point that was not measured everywhere."""
    from tensorly.datasets import load_IL2data

    X = np.asarray(load_IL2data().tensor)
    return X[:, ~np.isnan(X).any((0, 2, 3))]


def indian_pines(data: Path | None, seed: int) -> np.ndarray:
    """Take the hyperspectral image, row x column x band, over its maximum."""
    from tensorly.datasets import load_indian_pines

    X = np.asarray(load_indian_pines().tensor, dtype=float)
    return X / X.max()


def kinetic(data: Path | None, seed: int) -> np.ndarray:
    """Fluorescence of catecholamines over time (Nikolajsen et al. 2003), over its maximum.

    Eleven of the 460 800 readings lie below 0 and count 0, as those do that were not measured.
    """
    from tensorly.datasets import load_kinetic

    X = np.maximum(np.asarray(load_kinetic().tensor), 0)
    return X / X.max()


def serology(data: Path | None, seed: int) -> np.ndarray:
    """Take antibodies of COVID-19 patients, subject x antigen x receptor; what is shipped are their logarithms."""
    from tensorly.datasets import load_covid19_serology

    return np.exp(np.asarray(load_covid19_serology().tensor))


def _picture(name: str) -> np.ndarray:
    from sklearn.datasets import load_sample_image

    return np.asarray(load_sample_image(f"{name}.jpg"), dtype=float) / 255
