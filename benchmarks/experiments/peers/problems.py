"""Data of the comparison with other packages: generated, shipped by scikit-learn or TensorLy, or read from a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...data import datasets
from ...data.generated import faces
from .mixtures import expression, spectra, spectrogram, video
from .shipped import digits, il2, indian_pines, kinetic, patches, photograph, serology, table

FROBENIUS, KL, NTF = "frobenius", "kullback-leibler", "ntf"


@dataclass(frozen=True)
class Spec:
    """What is factored and how.

    Attributes
    ----------
    title : str
    group : {"frobenius", "kullback-leibler", "ntf"}
        Which rival and which bars it has; the loss of "ntf" is Frobenius.
    n_components : int
    make : callable (folder, seed) -> array or scipy CSR
    folder : bool
        Read from a folder that the user names.
    instead_of : str
        The problem that this one stands in for: not run where that one is.
    sparse : bool
        The data are a CSR matrix: packages that take arrays only cannot run.
    """

    title: str
    group: str
    n_components: int
    make: Callable[[Path | None, int], Any]
    folder: bool = False
    instead_of: str = ""
    sparse: bool = False

    @property
    def loss(self) -> str:
        """As the estimators call it."""
        return KL if self.group == KL else FROBENIUS


def starts(shape: tuple[int, ...], n_components: int, mean: float, count: int, seed: int) -> list[list[np.ndarray]]:
    """Draw |normal| factors whose product has the data's mean, float32: the same arrays for every method."""
    rng = np.random.default_rng(seed)
    scale = (mean / n_components) ** (1 / len(shape))
    draw = lambda d: np.ascontiguousarray(scale * np.abs(rng.normal(size=(d, n_components))), dtype=np.float32)
    return [[draw(d) for d in shape] for _ in range(count)]


def plant(shape: tuple[int, ...], k: int, noise: float, seed: int) -> np.ndarray:
    """Nonnegative factors with half their entries zero, and normal noise of `noise` times their product's deviation.

    Negative entries are cut at 0.
    """
    rng = np.random.default_rng(seed)
    factors = [np.abs(rng.normal(size=(d, k))) * (rng.random((d, k)) < 0.5) for d in shape]
    tail = factors[-1]
    for F in reversed(factors[1:-1]):
        tail = (F[:, None, :] * tail[None, :, :]).reshape(-1, k)
    Y = (factors[0] @ tail.T).reshape(shape)
    return np.maximum(Y + noise * Y.std() * rng.normal(size=shape), 0)


def poisson(shape: tuple[int, int], k: int, mean: float, seed: int) -> np.ndarray:
    """Draw counts whose rates are a product of gamma factors of shape 1/2, with a mean."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.5, size=(shape[0], k)) @ rng.gamma(0.5, size=(k, shape[1]))
    return rng.poisson(rate * (mean / rate.mean())).astype(float)


def sparse_counts(shape: tuple[int, int], k: int, density: float, seed: int) -> Any:
    """Poisson counts of which about `density` are not zero, as CSR."""
    import scipy.sparse as sp

    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.5, size=(shape[0], k)) @ rng.gamma(0.5, size=(k, shape[1]))
    low, high = 0.0, 1.0
    for _ in range(40):  # the share of nonzeros grows with the scale
        scale = (low + high) / 2
        low, high = (scale, high) if 1 - np.exp(-scale * rate[:100]).mean() < density else (low, scale)
    return sp.csr_array(rng.poisson(scale * rate).astype(float))


def text_like(shape: tuple[int, int], density: float, seed: int) -> Any:
    """Draw a document-term CSR matrix: columns as frequent as 1 / rank, weights like tf-idf, a density."""
    import scipy.sparse as sp

    rng = np.random.default_rng(seed)
    n, m = shape
    popularity = 1 / (np.arange(m) + 20.0)
    per_row = round(density * m * 1.05)  # some fall on each other
    cols = rng.choice(m, size=(n, per_row), p=popularity / popularity.sum())
    X = sp.csr_array((rng.random(n * per_row) + 0.1, (np.repeat(np.arange(n), per_row), cols.ravel())), shape=shape)
    X.sum_duplicates()
    return X


def _images(name: str, data: Path | None, seed: int) -> np.ndarray:
    return datasets.load(name, data).flat


def _only_faces(data: Path | None, seed: int) -> np.ndarray:
    """Take the faces of MIT CBCL, without the pictures of other things."""
    found = datasets.load("cbcl_train_19x19", data)
    return found.flat[found.y == 1]


def _faces(
    shape: tuple[int, int], people: int, each: int, count: int, flat: bool, data: Path | None, seed: int
) -> np.ndarray:
    X = faces(shape, people, each, seed)[0][:count]
    return X.reshape(len(X), -1) if flat else X


def _make(make: Callable[..., Any], *arguments: Any) -> Callable[[Path | None, int], Any]:
    return lambda data, seed: make(*arguments, seed)


_like = lambda shape, people, each, count, flat=True: partial(_faces, shape, people, each, count, flat)

PROBLEMS = {
    "digits": Spec("digits 1797 x 64", FROBENIUS, 20, digits),
    "orl": Spec("ORL 400 x 4096", FROBENIUS, 40, partial(_images, "orl_64x64"), folder=True),
    "orl_like": Spec("generated faces 400 x 4096", FROBENIUS, 40, _like((64, 64), 40, 10, 400), instead_of="orl"),
    "yaleb": Spec("Extended Yale B 2414 x 1024", FROBENIUS, 50, partial(_images, "yaleb_ext_32x32"), folder=True),
    "yaleb_like": Spec("generated faces 2414 x 1024", FROBENIUS, 50, _like((32, 32), 38, 64, 2414), instead_of="yaleb"),
    "cbcl": Spec("MIT CBCL faces 2429 x 361", FROBENIUS, 49, _only_faces, folder=True),
    "planted": Spec("planted 3000 x 2000, noise 0.5", FROBENIUS, 50, _make(plant, (3000, 2000), 50, 0.5)),
    "tall": Spec("planted 20 000 x 100, noise 0.5", FROBENIUS, 20, _make(plant, (20_000, 100), 20, 0.5)),
    "wide": Spec("expression 200 x 10 000", FROBENIUS, 10, _make(expression, (200, 10_000), 10)),
    "spectra": Spec("spectra 2000 x 400", FROBENIUS, 6, _make(spectra, (2000, 400), 6, 0.1)),
    "catalogue": Spec("counts 96 x 2000", FROBENIUS, 8, _make(poisson, (96, 2000), 8, 20.0)),
    "text": Spec("text-like 3000 x 5000, 1 %", FROBENIUS, 20, _make(text_like, (3000, 5000), 0.01), sparse=True),
    "china": Spec("photograph 427 x 640", FROBENIUS, 30, partial(photograph, "china")),
    "patches": Spec("patches of a photograph 4240 x 192", FROBENIUS, 30, partial(patches, "flower", 8)),
    "breast_cancer": Spec("breast cancer 569 x 30", FROBENIUS, 5, partial(table, "breast_cancer")),
    "wine": Spec("wine 178 x 13", FROBENIUS, 3, partial(table, "wine")),
    "digits_kl": Spec("digits 1797 x 64, KL", KL, 20, digits),
    "poisson": Spec("Poisson counts 600 x 1500, KL", KL, 10, _make(poisson, (600, 1500), 10, 3.0)),
    "expression_kl": Spec("expression 34 x 5893, KL", KL, 4, _make(expression, (34, 5893), 4)),
    "counts": Spec(
        "counts 2000 x 5000, 1 % nonzero, KL", KL, 20, _make(sparse_counts, (2000, 5000), 20, 0.01), sparse=True
    ),
    "catalogue_kl": Spec("counts 96 x 2000, KL", KL, 8, _make(poisson, (96, 2000), 8, 20.0)),
    "spectrogram": Spec("spectrogram 513 x 800, KL", KL, 12, _make(spectrogram, (513, 800), 12)),
    "ntf_faces": Spec("generated faces 400 x 64 x 64", NTF, 40, _like((64, 64), 40, 10, 400, False)),
    "ntf_cube": Spec("planted 100 x 100 x 100, noise 0.5", NTF, 20, _make(plant, (100, 100, 100), 20, 0.5)),
    "four_way": Spec("planted 40 x 30 x 20 x 15, noise 0.5", NTF, 10, _make(plant, (40, 30, 20, 15), 10, 0.5)),
    "long": Spec("planted 2000 x 20 x 20, noise 0.5", NTF, 10, _make(plant, (2000, 20, 20), 10, 0.5)),
    "video": Spec("video 120 x 72 x 96", NTF, 20, _make(video, (120, 72, 96), 6)),
    "il2": Spec("IL-2 13 x 3 x 12 x 8", NTF, 4, il2),
    "indian_pines": Spec("Indian Pines 145 x 145 x 200", NTF, 16, indian_pines),
    "kinetic": Spec("kinetic fluorescence 64 x 12 x 10 x 60", NTF, 4, kinetic),
    "serology": Spec("COVID-19 serology 438 x 6 x 11", NTF, 4, serology),
    "small": Spec("planted 120 x 80", FROBENIUS, 5, _make(plant, (120, 80), 5, 0.5)),
    "small_kl": Spec("Poisson counts 80 x 60, KL", KL, 4, _make(poisson, (80, 60), 4, 3.0)),
    "small_counts": Spec("sparse counts 100 x 120, KL", KL, 4, _make(sparse_counts, (100, 120), 4, 0.1), sparse=True),
    "small_ntf": Spec("planted 20 x 15 x 12", NTF, 4, _make(plant, (20, 15, 12), 4, 0.5)),
}

RESTARTS = {
    "catalogue": Spec("counts 96 x 2000", FROBENIUS, 8, _make(poisson, (96, 2000), 8, 20.0)),
    "digits": Spec("digits 1797 x 64", FROBENIUS, 10, digits),
    "expression": Spec("expression 34 x 5893", FROBENIUS, 4, _make(expression, (34, 5893), 4)),
    "breast_cancer": Spec("breast cancer 569 x 30", FROBENIUS, 5, partial(table, "breast_cancer")),
    "small": Spec("planted 60 x 40", FROBENIUS, 4, _make(plant, (60, 40), 4, 0.5)),
}

SPARSE = {
    "text": Spec("text-like 11 000 x 10 000, 0.6 %", FROBENIUS, 50, _make(text_like, (11_000, 10_000), 0.006)),
    "small": Spec("text-like 600 x 500, 2 %", FROBENIUS, 8, _make(text_like, (600, 500), 0.02)),
}
