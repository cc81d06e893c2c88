"""Basis images and how sparse they are: PCA, NMF, NDTF, N2S2L (Wang et al. 2009a, Fig. 2; 2009b, Figs. 1, 2).

Sparsity is Hoyer's (2004), in percent: 0 where all pixels of a basis image are equal in size, 100 where one is not
zero. Signs of eigenfaces do not count. The basis images of 3D-NDTF are products of two vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from ..data.datasets import check_problems
from ..data.pictures import row as picture
from ..data.splits import hide_labels, per_class, share_per_class
from ..harness.kinds import Context
from ..harness.results import Report, Row
from ..harness.study import Job, carry_out
from ..harness.words import check_names, check_positive
from ..methods.faces import FACTORIZATIONS, rank
from ..report.study_report import finish

METHODS = ("PCA", "NMF", "NMF-HALS", "2D-NDTF", "3D-NDTF", "N2S2L")


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, methods : names
    splits : random choices of the training images
    labelled : labelled images per class beside which the others are unlabelled (Wang et al. 2009b); 0: half of the
        images of each class, all labelled (Wang et al. 2009a)
    iterations : of the factorizations, all of them
    alpha, beta : weights of the graphs
    shown : basis images on the page; half of them discriminative ones where the method has such
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    splits: int = 3
    labelled: int = 0
    iterations: int = 200
    alpha: float = 10.0
    beta: float = 0.01
    shown: int = 24

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("method", self.methods, METHODS)
        check_positive(self, "splits", "iterations", "shown")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    return finish(carry_out(__name__, parameters, context), context, metrics=("sparsity",))


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, split and method."""
    for problem, split, method in product(p.problems, range(p.splits), p.methods):
        yield Job(problem, method, split)


def solve(job: Job) -> Iterator[Row]:
    """Mean sparsity of the basis images, and some of them."""
    from nnfactor.metrics import hoyer_sparsity

    images, first = _bases(job)
    columns = images.reshape(len(images), -1).T
    yield {"point": {}, "sparsity": 100 * hoyer_sparsity(columns, average=True)}
    if job.split == 0:
        half = job.parameters.shown // 2 if first else job.parameters.shown
        shown = np.concatenate([images[:first][:half], images[first:][: job.parameters.shown - min(half, first)]])
        caption = f"the first {min(half, first)} are discriminative" if first else "bases"
        yield picture({}, caption, shown, columns=12)


def _bases(job: Job) -> tuple[np.ndarray, int]:
    """Basis images (k, h, w), and how many of them are discriminative."""
    from ..methods.pipelines import PCA, Setup, build

    p, data = job.parameters, job.dataset().sound()
    X, y, count = _training(job)
    shape, k = data.X.shape[1:], rank(count, data.X[0].size)
    if job.method == "PCA":
        model = PCA(min(k, len(X) - 1), svd_solver="full").fit(X.reshape(len(X), -1))
        return model.components_.reshape(-1, *shape), 0
    name, options = FACTORIZATIONS[job.method]
    weights = {"NMF": {}, "NDTF": {"alpha": p.alpha}, "N2S2L": {"alpha": p.alpha, "beta": p.beta}}[name]
    Z = (X if job.method == "3D-NDTF" else X.reshape(len(X), -1)).astype(job.run.dtype)
    model = build(name, Setup.of(job, k, p.iterations, seed=job.seed_for("start")), **options, **weights).fit(Z, y)
    if job.method == "3D-NDTF":
        rows, columns = (np.asarray(F) for F in model.factors_)
        return np.einsum("ij,kj->jik", rows, columns), model.n_discriminative_
    return np.asarray(model.components_).reshape(-1, *shape), getattr(model, "n_discriminative_", 0)


def _training(job: Job) -> tuple[np.ndarray, np.ndarray, int]:
    """Images, labels (-1: none) and the N of k = N m / (N + m)."""
    p, data = job.parameters, job.dataset().sound()
    if not p.labelled:
        train = share_per_class(data.y, 0.5, job.seed)
        return data.X[train], data.y[train], len(train)
    known = per_class(data.y, p.labelled, job.seed)
    if job.method == "N2S2L":
        return data.X, hide_labels(data.y, known), len(known)
    return data.X[known], data.y[known], len(known)
