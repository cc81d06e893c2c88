"""Discriminant PCA with labels, with pairs, with both (Sun and Zhang 2009), against PCA and LDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ..data.datasets import check_problems
from ..data.splits import first_per_class, folds, hide_labels, per_class, rest
from ..harness.kinds import Context
from ..harness.results import Report
from ..harness.study import Job, Point, carry_out, load_cached
from ..harness.words import check_names, check_positive
from ..report.study_report import finish

METHODS = ("1-NN", "PCA", "LDA", "DPCA-labels", "DPCA-pairs", "DPCA-both")

Pairs = dict[str, np.ndarray]  # must_link, cannot_link


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, methods : names
    runs : random choices of the labelled samples and of the pairs
    labelled : labelled samples per class; each is a setting
    pairs : must-link pairs, and as many cannot-link pairs
    eta, lam : weights of DPCA
    dimensions : numbers of directions to choose from
    folds : of the cross-validation
    pca : dimensions that are left of images; 0 keeps all
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    runs: int = 100
    labelled: tuple[int, ...] = (3,)
    pairs: int = 20
    eta: tuple[float, ...] = (0.1, 1.0, 10.0)
    lam: tuple[float, ...] = (0.1, 1.0, 10.0)
    dimensions: tuple[int, ...] = (1, 2, 3, 5, 10, 20, 40)
    folds: int = 3
    pca: int = 100

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("method", self.methods, METHODS)
        check_positive(self, "runs", "pairs", "folds", "labelled")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    return finish(carry_out(__name__, parameters, context), context)


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, number of labels, run and method."""
    weights = tuple({"eta": eta, "lam": lam} for eta, lam in product(p.eta, p.lam))
    for problem, count, split, method in product(p.problems, p.labelled, range(p.runs), p.methods):
        points = weights if method.startswith("DPCA") else ({},)
        yield Job(problem, method, split, points, setting=f"labels={count}")


def solve(job: Job) -> Iterator[dict[str, Any]]:
    """Measure accuracy at every point, the number of directions chosen by cross-validation."""
    X, y, test, y_test = _halves(job.problem, job.data, job.run.seed, job.parameters.pca)
    labels = hide_labels(y, per_class(y, int(job.setting.partition("=")[2]), job.seed_for("labels")))
    pairs = _pairs(y, job.parameters.pairs, job.seed_for("pairs"))
    parts = list(folds(labels, job.parameters.folds, job.seed_for("folds")))
    sizes = (None,) if job.method == "1-NN" else job.parameters.dimensions
    for point in job.points:
        make = lambda *training, point=point: _projection(job.method, point, job.parameters, *training)
        held = [_hold_out(make, sizes, X, labels, pairs, check) for _, check in parts]
        cv = [fmean(values) for values in zip(*held, strict=True)]
        best = int(np.argmax(cv))
        accuracy = _accuracies(make(X, labels, pairs), X, labels, test, y_test, sizes[best : best + 1])[0]
        yield {"point": point, "accuracy": accuracy, "cv": cv[best], "dimensions": sizes[best]}


@lru_cache(maxsize=1)
def _halves(problem: str, folder: Path | None, seed: int, dimensions: int) -> tuple[Any, ...]:
    """Training and test samples, standardised on the former, and their classes: the same in every run."""
    data = load_cached(problem, folder, seed).sound()
    train = first_per_class(data.y)
    X, T = (data.flat[i] for i in (train, rest(len(data.y), train)))
    images = data.X.ndim > 2
    mean, std = np.nanmean(X, 0), np.nanstd(X, 0)
    std = np.ones_like(std) if images else np.where(std > 0, std, 1)
    X, T = ((np.where(np.isnan(Z), mean, Z) - mean) / std for Z in (X, T))
    if images and 0 < dimensions < min(X.shape):
        from sklearn.decomposition import PCA

        pca = PCA(dimensions, svd_solver="full").fit(X)
        X, T = pca.transform(X), pca.transform(T)
    return X, data.y[train], T, data.y[rest(len(data.y), train)]


def _pairs(y: np.ndarray, count: int, seed: int) -> Pairs:
    """Random pairs of one class and of different classes, each pair once."""
    i, j = np.triu_indices(len(y), 1)
    rng = np.random.default_rng(seed)
    same = y[i] == y[j]
    draw = lambda kind: rng.permutation(np.flatnonzero(kind))[:count]
    return {name: np.stack([i[d], j[d]], 1) for name, d in (("must_link", draw(same)), ("cannot_link", draw(~same)))}


def _projection(method: str, point: Point, p: Parameters, X: np.ndarray, y: np.ndarray, pairs: Pairs) -> Any:
    """Fit a transformer with all directions that may be asked for, in order."""
    from nnfactor import DPCA

    from ..methods.pipelines import PCA, Raw, UnitLDA

    d = min(X.shape[1], max(p.dimensions))
    if method == "1-NN":
        return Raw()
    if method == "PCA":
        return PCA(min(d, len(X)), svd_solver="full").fit(X)
    if method == "LDA":
        return UnitLDA().fit(X, y)
    links = pairs if method in ("DPCA-pairs", "DPCA-both") else {}
    return DPCA(d, **point).fit(X, None if method == "DPCA-pairs" else y, **links)


def _hold_out(
    make: Callable[..., Any], sizes: Any, X: np.ndarray, y: np.ndarray, pairs: Pairs, check: np.ndarray
) -> list[float]:
    """Accuracies on labelled samples that the projection does not see, nor any pair with them."""
    keep = rest(len(y), check)
    place = np.full(len(y), -1)
    place[keep] = np.arange(len(keep))
    inside = {name: place[links][(place[links] >= 0).all(1)] for name, links in pairs.items()}
    return _accuracies(make(X[keep], y[keep], inside), X[keep], y[keep], X[check], y[check], sizes)


def _accuracies(
    project: Any, X: np.ndarray, y: np.ndarray, T: np.ndarray, y_test: np.ndarray, sizes: Any
) -> list[float]:
    """For every number of directions; more than there are is all of them."""
    from ..methods.pipelines import nearest_neighbour, percent_right

    known = y >= 0
    F, G = project.transform(X[known]), project.transform(T)
    return [percent_right(y_test, nearest_neighbour(F[:, :d], y[known], G[:, :d])) for d in sizes]
