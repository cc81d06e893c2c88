"""Representations of samples seen in several views, as Jiang et al. 2014 compares them.

A method takes views, labels (-1: unknown) and starts, and gives, per start and parameter point, coordinates of all
samples and, where it classifies by itself, their classes. "a" is one view (which one is a parameter), "b" all views
side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations, product
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..data.samples import Dataset
from ..harness.errors import MissingData
from ..harness.study import Point

Array = np.ndarray

TRANSFORMED = ("SULF1", "SULF", "SULF-random")  # not all: exact least squares for every sample take as long as a fit

Learn = Callable[["Views", Array, Sequence[Point], Sequence[int]], "list[list[Learnt]]"]


@dataclass(frozen=True)
class Learnt:
    """What a method says of all samples: coordinates; how to find coordinates without labels; classes."""

    V: Array | None
    blind: Callable[[], Array] | None = None
    classes: Array | None = None


@dataclass(frozen=True, eq=False)
class Views:
    """Nonnegative views, each with a mean squared length of 1, and how factorizations of them run.

    Attributes
    ----------
    views : (n, m_p) arrays or CSR arrays, in `dtype`
    names : of the views
    k : components
    iterations : of every factorization; those of SULF before it is told the labels
    label_iterations : of SULF after that
    n_clusters : int
    dtype, device : str
    rounds : of PCSC
    """

    views: tuple[Any, ...]
    names: tuple[str, ...]
    k: int
    iterations: int
    label_iterations: int
    n_clusters: int
    dtype: str = "float32"
    device: str = "cpu"
    rounds: int = 5

    def of(self, name: str) -> Any:
        """Give a view by name."""
        return self.views[self.names.index(name)]

    @property
    def n(self) -> int:
        """Samples."""
        return self.views[0].shape[0]

    @property
    def joint(self) -> Any:
        """All views side by side."""
        return sp.hstack(self.views, format="csr") if sp.issparse(self.views[0]) else np.hstack(self.views)

    def common(self, seed: int) -> dict[str, Any]:
        """Collect the arguments of every factorization."""
        run = {"max_iter": self.iterations, "tol": 0, "random_state": seed, "init": "random"}
        return {"n_components": self.k, **run, "dtype": self.dtype, "device": self.device}


def scale_views(data: Dataset, names: Sequence[str], dtype: str) -> tuple[Any, ...]:
    """Take views by name, divided by the root of the mean squared length of their samples.

    Raises
    ------
    MissingData
        A view is absent, or a user's own copy has one that no name takes.
    """
    odd = [name for name in names if name not in data.view_names]
    odd += [name for name in data.view_names if name.startswith("view ") and name not in names]
    if odd:
        raise MissingData(
            f"{data.name} has {', '.join(data.view_names)}, the study takes {', '.join(names)}: give a file with these "
            "views, or name them all in VIEWS of benchmarks/experiments/sulf.py"
        )
    views = []
    for name in names:
        view = data.views[data.view_names.index(name)]
        energy = view.multiply(view).sum() if sp.issparse(view) else np.square(view).sum()
        views.append((view / np.sqrt(energy / view.shape[0])).astype(dtype))
    return tuple(views)


def _per_view(points: Sequence[Point], fit: Callable[[Any, list[Point]], list[list[Any]]], views: Views) -> Any:
    """Points of a view go together; results in the order of the points."""
    found: dict[int, list[Any]] = {}
    for name in dict.fromkeys(p["view"] for p in points):
        at = [i for i, p in enumerate(points) if p["view"] == name]
        rest = [{key: v for key, v in points[i].items() if key != "view"} for i in at]
        for j, fitted in enumerate(zip(*fit(views.of(name), rest), strict=True)):
            found[at[j]] = list(fitted)
    return [list(fitted) for fitted in zip(*(found[i] for i in range(len(points))), strict=True)]


def _factorize(
    name: str, side_by_side: bool, views: Views, labels: Array, points: Sequence[Point], seeds: Sequence[int]
) -> list[list[Learnt]]:
    """NMF and its relatives on one view or all side by side; seeds and points of a view are one batch."""
    import nnfactor
    from nnfactor.graphs import knn_graph

    from .pipelines import fit_all

    def fit(X: Any, some: Sequence[Point]) -> list[list[Learnt]]:
        cls = getattr(nnfactor, name)
        more = {"solver": "multiplicative"} | ({"graph": knn_graph(X, 5)} if name == "GraphNMF" else {})
        made = [cls(**views.common(s), **more, **point) for s in seeds for point in some]
        fitted = [Learnt(_scale_to_unit_bases(m.embedding_, m.factors_)) for m in fit_all(made, X, labels)]
        return [fitted[i : i + len(some)] for i in range(0, len(fitted), len(some))]

    return fit(views.joint, points) if side_by_side else _per_view(points, fit, views)


def _scale_to_unit_bases(V: Any, factors: Sequence[Any]) -> Array:
    """Coefficients for bases of unit length: their columns could be of any scale otherwise."""
    return np.asarray(V, dtype=np.float64) * _lengths(factors)


def _lengths(factors: Sequence[Any]) -> Array:
    """Of the bases, over all views."""
    return np.sqrt(sum(np.square(np.asarray(U, dtype=np.float64)).sum(0) for U in factors))


def _sulf(kind: str, views: Views, labels: Array, points: Sequence[Point], seeds: Sequence[int]) -> list[list[Learnt]]:
    """SULF and what it is without labels (1), with one view (2), with equal weights (3)."""

    def fit(X: list[Any], some: Sequence[Point]) -> list[list[Learnt]]:
        make = lambda point, s: sulf(kind, views, X, labels, point, s)
        return [[describe_fit(make(point, s), X, kind in TRANSFORMED) for point in some] for s in seeds]

    if kind == "SULF2":
        return _per_view(points, lambda X, some: fit([X], some), views)
    return fit(list(views.views), points)


def sulf(kind: str, views: Views, X: list[Any], labels: Array, point: Point, seed: int, **more: Any) -> Any:
    """Fit SULF, with the labels after `iterations` without them, or from the first ("SULF-random")."""
    from nnfactor import SULF

    options: dict[str, Any] = {**views.common(seed), "lam": point.get("lam/n", 1.0) * views.n, "beta": 0}
    options |= {"start": "one_stage", "classifier": "coef"}  # classes by W, as in the paper
    if kind in ("SULF2", "SULF3") or "lam/n" not in point:
        options["view_weights"] = "equal"
    if kind != "SULF1":
        options |= {"beta": point["beta"], "gamma": point["beta"] * point["gamma/beta"]}
        if kind != "SULF-random":
            options |= {"init": _fit_unlabelled(_Same(views, X), seed), "max_iter": views.label_iterations}
    return SULF(**{**options, **more}).fit(X, labels)


def _sulf_as_called(views: Views, labels: Array, points: Sequence[Point], seeds: Sequence[int]) -> list[list[Learnt]]:
    """SULF with its own defaults, but for the rank."""
    from nnfactor import SULF

    where: dict[str, Any] = {"dtype": views.dtype, "device": views.device}
    X = list(views.views)
    models = [SULF(views.k, random_state=seed, **where).fit(X, labels) for seed in seeds]
    return [[describe_fit(model, X, False)] * len(points) for model in models]


class _Same:
    """Views as the key of a cache: the same matrices, the same key."""

    def __init__(self, views: Views, X: list[Any]) -> None:
        self.views, self.X = views, X
        self.key = (*map(id, X), views.k, views.iterations)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.key == other.key


@lru_cache(maxsize=16)
def _fit_unlabelled(same: _Same, seed: int) -> tuple[Any, ...]:
    """V and bases after iterations without labels and with equal weights.

    Bases of unit length, then V with a mean squared length of 1: gamma could mean anything otherwise.
    """
    from nnfactor import SULF

    model = SULF(**same.views.common(seed), beta=0, view_weights="equal").fit(same.X)
    lengths = _lengths(model.factors_)
    V = np.asarray(model.embedding_) * lengths
    size = float(np.sqrt(np.square(V).sum() / len(V))) or 1.0
    bases = [np.asarray(U) * (size / np.maximum(lengths, 1e-30)) for U in model.factors_]
    return tuple(F.astype(same.views.dtype) for F in (V / size, *bases))


def describe_fit(model: Any, X: list[Any], transformed: bool) -> Learnt:
    """Collect what a fitted SULF learnt; `transformed`: also how to find coordinates without labels."""
    blind = (lambda: _scale_to_unit_bases(model.transform(X), model.factors_)) if transformed else None
    classes = np.asarray(model.transduction_) if hasattr(model, "coef_") else None
    return Learnt(_scale_to_unit_bases(model.embedding_, model.factors_), blind, classes)


def _cca(views: Views, labels: Array, points: Sequence[Point], seeds: Sequence[int]) -> list[list[Learnt]]:
    """Means of the canonical variates of two views, after PCA of each."""
    learnt = []
    for point in points:
        A, B = (_whiten(views, name, point["pca"]) for name in point["pair"].split("+"))
        L, _, Rt = np.linalg.svd(A.T @ B, full_matrices=False)
        learnt.append(Learnt((A @ L[:, : views.k] + B @ Rt[: views.k].T) / 2))
    return [learnt] * len(seeds)


def _whiten(views: Views, name: str, dimensions: int) -> Array:
    """Take the leading principal components, orthonormal columns times the root of n."""
    U, s = _principal(_Same(views, [views.of(name)]))
    keep = s > 1e-6 * s[0]
    return U[:, keep][:, :dimensions] * np.sqrt(len(U))


@lru_cache(maxsize=8)
def _principal(same: _Same) -> tuple[Array, Array]:
    """Of one view."""
    X = same.X[0].toarray() if sp.issparse(same.X[0]) else same.X[0]
    X = X.astype(np.float64) - X.mean(0, dtype=np.float64)
    U, s, _ = np.linalg.svd(X, full_matrices=False)
    return U, s


def _cotra(views: Views, labels: Array, points: Sequence[Point], seeds: Sequence[int]) -> list[list[Learnt]]:
    """Co-training on the principal components of every view."""
    from nnfactor import CoTraining

    learnt = []
    for point in points:
        parts = [_principal(_Same(views, [view])) for view in views.views]
        Z = [U[:, : point["pca"]] * s[: point["pca"]] for U, s in parts]
        model = CoTraining(alpha=point["alpha"], device=views.device).fit(Z, labels)
        learnt.append(Learnt(None, classes=np.asarray(model.transduction_)))
    return [learnt] * len(seeds)


def _pcsc(views: Views, labels: Array, points: Sequence[Point], seeds: Sequence[int]) -> list[list[Learnt]]:
    return [[Learnt(_spectral(_Same(views, list(views.views)), point["lam"])) for point in points]] * len(seeds)


@lru_cache(maxsize=8)
def _spectral(same: _Same, lam: float) -> Array:
    """Deterministic, but for k-means, which is not used."""
    from nnfactor import PairwiseCoRegularizedSpectral as PCSC

    views = same.views
    model = PCSC(views.n_clusters, lam=lam, max_iter=views.rounds, n_init=1, device=views.device)
    return np.asarray(model.fit(same.X).embedding_)


@dataclass(frozen=True)
class Method:
    """How a method learns, its parameter points, whether labels have a part in it, and what it is evaluated by.

    Attributes
    ----------
    learn : see `Learn`
    points : grid -> what is tried; "view" and "pair" stand for every one of them
    supervised : whether it uses labels
    own : whether it gives classes by itself
    """

    learn: Learn
    points: tuple[str, ...] = ()
    supervised: bool = True
    own: bool = False


METHODS: dict[str, Method] = {
    "NMF-a": Method(partial(_factorize, "NMF", False), ("view",), supervised=False),
    "NMF-b": Method(partial(_factorize, "NMF", True), supervised=False),
    "CCA": Method(_cca, ("pair", "pca"), supervised=False),
    "SULF1": Method(partial(_sulf, "SULF1"), ("lam/n",), supervised=False),
    "CoTra": Method(_cotra, ("pca", "alpha"), own=True),
    "PCSC": Method(_pcsc, ("lam",), supervised=False),
    "CNMF-a": Method(partial(_factorize, "ConstrainedNMF", False), ("view",)),
    "CNMF-b": Method(partial(_factorize, "ConstrainedNMF", True)),
    "SGNMF-a": Method(partial(_factorize, "GraphNMF", False), ("view", "lam")),
    "SGNMF-b": Method(partial(_factorize, "GraphNMF", True), ("lam",)),
    "SULF2": Method(partial(_sulf, "SULF2"), ("view", "beta", "gamma/beta"), own=True),
    "SULF3": Method(partial(_sulf, "SULF3"), ("beta", "gamma/beta"), own=True),
    "SULF": Method(partial(_sulf, "SULF"), ("lam/n", "beta", "gamma/beta"), own=True),
    "SULF-default": Method(_sulf_as_called, own=True),
    "SULF-random": Method(partial(_sulf, "SULF-random"), ("lam/n", "beta", "gamma/beta"), own=True),
}


def points(name: str, grid: Mapping[str, Sequence[Any]], view_names: Sequence[str]) -> Iterator[Point]:
    """List the parameter points of a method."""
    choices = {**grid, "view": view_names, "pair": ["+".join(pair) for pair in combinations(view_names, 2)]}
    keys = METHODS[name].points
    for values in product(*(choices[key] for key in keys)):
        yield dict(zip(keys, values, strict=True))
