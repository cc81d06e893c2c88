"""Methods that several studies share: estimators by name, features, nearest neighbours, choice by cross-validation.

Everything here is `fit(X, y)` and `transform(X)`; y holds -1 for samples without a label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import nnfactor
from nnfactor.models.shared.base import Factorization

from ..harness.errors import ConfigError
from ..harness.study import Job
from ..harness.words import unknown
from ..timing.clock import Clock, time_rounds

Array = NDArray[Any]

Labels = NDArray[np.int64]

Build = Callable[..., Any]


@dataclass(frozen=True)
class Setup:
    """What is alike for the methods of one split.

    Attributes
    ----------
    n_components : int
        Rank of the factorizations, dimensions of the projections.
    max_iter, tol : iterations; tol = 0 runs them all
    seed : int
        Start of the factorizations.
    dtype : "float32" or "float64"
    device : str
    """

    n_components: int
    max_iter: int = 500
    tol: float = 0.0
    seed: int = 0
    dtype: str = "float32"
    device: str = "cpu"

    @classmethod
    def of(cls, job: Job, n_components: int, max_iter: int, **more: Any) -> Setup:
        """On the device and in the precision of a job."""
        return cls(n_components, max_iter, dtype=job.run.dtype, device=job.run.device, **more)

    @property
    def common(self) -> dict[str, Any]:
        """Collect the arguments that every factorization takes."""
        run = {"max_iter": self.max_iter, "tol": self.tol, "random_state": self.seed, "init": "random"}
        return {"n_components": self.n_components, **run, "dtype": self.dtype, "device": self.device}


class UnitLDA:
    """Fisher's discriminant after PCA to n - n_classes dimensions, its directions brought to unit length.

    scikit-learn's PCA and LDA. Directions as LDA leaves them make the within-class scatter the identity, and a nearest
    neighbour then compares mostly those in which the classes hardly vary.
    """

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to the labelled samples."""
        X, y = X[y >= 0], y[y >= 0]
        n_classes = len(np.unique(y))
        pca = PCA(max(1, min(len(y) - n_classes, *X.shape)), svd_solver="full").fit(X)
        keep = pca.explained_variance_ > 1e-12 * pca.explained_variance_[0]
        lda = LinearDiscriminantAnalysis(solver="svd").fit(pca.transform(X)[:, keep], y)
        W = pca.components_[keep].T @ lda.scalings_[:, : n_classes - 1]
        self.mean_, self.components_ = pca.mean_, (W / np.linalg.norm(W, axis=0)).T
        return self

    def transform(self, X: Array) -> Array:
        """Give coordinates."""
        return (X - self.mean_) @ self.components_.T


class Raw:
    """The samples as they are."""

    def fit(self, X: Array, y: Labels | None = None) -> Self:
        """Learn nothing."""
        return self

    def transform(self, X: Array) -> Array:
        """Give samples as vectors."""
        return X.reshape(len(X), -1)


def build(name: str, setup: Setup, **point: Any) -> Any:
    """Make an estimator by name; a parameter point overrides what the setup says."""
    if name not in METHODS:
        raise ConfigError(unknown("parameters.methods", name, METHODS, what="method"))
    return METHODS[name](setup, **point)


def fit_all(estimators: Sequence[Any], X: Any, y: Any = None) -> list[Any]:
    """Fit parameter points or seeds of one data set, as one batch where the package can."""
    batch = getattr(nnfactor, "batch_fit", None)
    factorizations = all(isinstance(e, Factorization) for e in estimators) and len(set(map(type, estimators))) == 1
    if batch is not None and factorizations and len(estimators) > 1:
        return list(batch(list(estimators), X, y))
    return [e.fit(X, y) for e in estimators]


def batch_speedup(make: Callable[[], Sequence[Any]], X: Any, y: Any = None, rounds: int = 5) -> list[float]:
    """Measure, round by round, how many times faster `fit_all` is than one fit after the other.

    `make` gives new estimators each time; a list `X` holds the data of each.
    """
    data = lambda estimators: X if isinstance(X, list) else [X] * len(estimators)
    loop = lambda estimators: [e.fit(own, y) for e, own in zip(estimators, data(estimators), strict=True)]
    works = {"batch": lambda: fit_all(make(), X, y), "loop": lambda: loop(make())}
    return [s["loop"] / s["batch"] for s in time_rounds(works, rounds, Clock())]


def features(model: Any, X: Array) -> Array:
    """Give the coordinates that a nearest neighbour compares."""
    return np.asarray(model.transform(X))


def nearest_neighbour(F: Array, y: Labels, G: Array, metric: str = "euclidean") -> Labels:
    """Find the classes of the nearest labelled rows of F, for the rows of G."""
    known = y >= 0
    # KNeighborsClassifier(1) costs milliseconds a call, more than the projections that are compared with it
    # the cosine of a zero vector is NaN, which argmin would take for the least
    return y[known][np.nan_to_num(cdist(G, F[known], metric), nan=np.inf).argmin(1)]


def percent_right(y: Labels, predicted: Labels) -> float:
    """Compute the accuracy in percent."""
    return 100 * float(np.mean(y == predicted))


def _factorization(cls: Build, takes_transform: bool = True, **fixed: Any) -> Build:
    def make(setup: Setup, **point: Any) -> Any:
        how = {"transform_method": "pinv"} if takes_transform else {}
        return cls(**{**setup.common, **how, **fixed, **point})

    return make


METHODS: dict[str, Build] = {
    "1-NN": lambda setup: Raw(),
    "NMF": _factorization(nnfactor.NMF),
    "LNMF": _factorization(nnfactor.LNMF),
    "NTF": _factorization(nnfactor.NTF),
    "GraphNMF": _factorization(nnfactor.GraphNMF),
    "NDTF": _factorization(nnfactor.NDTF),
    "N2S2L": _factorization(nnfactor.N2S2L),
    "PNMF": _factorization(nnfactor.PolynomialNMF),
    "GNMF": _factorization(nnfactor.KernelNMF, takes_transform=False, kernel="rbf"),
    "pKNMF": _factorization(nnfactor.KernelNMF, takes_transform=False, kernel="poly"),
}
