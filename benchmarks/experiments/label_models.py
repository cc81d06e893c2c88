"""NGE and N2S2L as classifiers beside what scikit-learn has in one line, all or few of the training samples labelled.

Half of every class trains, the other half is held out. docs/findings/label_models.md has the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from ..data.datasets import check_problems
from ..data.samples import Dataset
from ..data.splits import folds, hide_labels, per_class, rest, share_per_class
from ..harness.kinds import Context
from ..harness.results import Report, Row
from ..harness.study import Job, Point, carry_out
from ..harness.words import check_names, check_positive
from ..report.study_report import finish

LABEL_MODELS = ("NGE", "N2S2L")

FACTORIZATIONS = ("NMF", *LABEL_MODELS)

METHODS = ("1-NN", "logistic regression", "shrinkage LDA", "LabelSpreading", *FACTORIZATIONS)

Guess = Callable[[Any], np.ndarray]  # classes of new samples

Fit = Callable[[Any, np.ndarray], list[Guess]]  # one for each point; y is -1 for samples without a label


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, methods : names
    splits : random halves
    labels : labelled training samples of every class, each a setting; 0: all of them
    folds : of the cross-validation on labelled samples, which chooses everything below
    iterations, most_components : of the factorizations, whose rank is N m / (N + m), or less
    alphas, betas : weights of the labelled graphs of NGE and N2S2L, and of the neighbour graph of N2S2L
    neighbors : of that graph
    ridges, metrics, coefficients : of the coefficients that are compared
    penalties : C of logistic regression
    spread : neighbours of LabelSpreading
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    splits: int = 5
    labels: tuple[int, ...] = (2, 4, 0)
    folds: int = 3
    iterations: int = 50
    most_components: int = 200
    alphas: tuple[float, ...] = (1.0, 10.0)
    betas: tuple[float, ...] = (0.1, 1.0)
    neighbors: int = 3
    ridges: tuple[float, ...] = (0.03, 0.1, 0.3)
    metrics: tuple[str, ...] = ("euclidean", "cosine")
    coefficients: tuple[str, ...] = ("discriminative", "all")
    penalties: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    spread: tuple[int, ...] = (3, 5, 10)

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("method", self.methods, METHODS)
        check_positive(self, "splits", "folds", "iterations", "most_components", "neighbors")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    return finish(carry_out(__name__, parameters, context), context)


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, number of labels, split and method."""
    for problem, count, split, method in product(p.problems, p.labels, range(p.splits), p.methods):
        yield Job(problem, method, split, points_of(p, method), setting=f"labels={count or 'all'}")


def points_of(p: Parameters, method: str) -> tuple[Point, ...]:
    """List the parameter points of a method; those that need no other fit vary last."""
    grids: dict[str, dict[str, Sequence[Any]]] = {
        "logistic regression": {"C": p.penalties},
        "LabelSpreading": {"n_neighbors": p.spread},
        "NGE": {"alpha": p.alphas},
        "N2S2L": {"alpha": p.alphas, "beta": p.betas},
    }
    grid = dict(grids.get(method, {}))
    if method in FACTORIZATIONS:
        grid |= {"ridge": p.ridges, "metric": p.metrics}
    if method in LABEL_MODELS:
        grid |= {"coefficients": p.coefficients}
    return tuple(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))


def solve(job: Job) -> Iterator[Row]:
    """Measure the accuracy on the held-out half at every point, and on labelled samples held out of the fit."""
    data = job.dataset().sound()
    X, y = _samples(data), data.y
    train = share_per_class(y, 0.5, job.seed_for("half"))
    test, count = rest(len(y), train), job.setting.partition("=")[2]
    shown = np.arange(len(train)) if count == "all" else per_class(y[train], int(count), job.seed_for("labels"))
    labels, fit = hide_labels(y[train], shown), _fitter(job)
    held: list[list[float]] = [[] for _ in job.points]
    for kept, check in folds(labels, job.parameters.folds, job.seed_for("folds")) if len(job.points) > 1 else ():
        keep = np.sort(np.concatenate([kept, np.flatnonzero(labels < 0)]))
        for values, guess in zip(held, fit(X[train][keep], labels[keep]), strict=True):
            values.append(_right(labels[check], guess(X[train][check])))
    for point, values, guess in zip(job.points, held, fit(X[train], labels), strict=True):
        yield {"point": point, "accuracy": _right(y[test], guess(X[test])), "cv": fmean(values) if values else None}


def _samples(data: Dataset) -> Any:
    """Give samples as rows; those of term weights, which are sparse, at unit length."""
    from sklearn.preprocessing import normalize

    return data.flat if isinstance(data.flat, np.ndarray) else normalize(data.flat.tocsr())


def _right(y: np.ndarray, guess: np.ndarray) -> float:
    return 100 * float(np.mean(y == guess))


def _fitter(job: Job) -> Fit:
    if job.method in FACTORIZATIONS:
        return partial(_fit_factorizations, job)
    return lambda X, y: [
        partial(_quiet, _quiet(_classifier(job.method, point).fit, X, y).predict) for point in job.points
    ]


def _quiet(call: Callable[..., Any], *arguments: Any) -> Any:
    """Pass over the divisions by zero of LabelSpreading, which has samples that no label reaches."""
    with np.errstate(all="ignore"):
        return call(*arguments)


def _dense(X: Any) -> Any:
    """LDA and LabelSpreading take no sparse matrix, and all rivals shall have the same."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def _classifier(method: str, point: Point) -> Any:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from sklearn.semi_supervised import LabelSpreading

    from nnfactor import LabelledOnly

    rivals = {
        "1-NN": lambda: LabelledOnly(KNeighborsClassifier(1)),
        "logistic regression": lambda: LabelledOnly(LogisticRegression(max_iter=300, **point)),
        "shrinkage LDA": lambda: LabelledOnly(LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
        "LabelSpreading": lambda: LabelSpreading(kernel="knn", max_iter=1000, **point),
    }
    return make_pipeline(FunctionTransformer(_dense), rivals[method]())


def _fit_factorizations(job: Job, X: Any, y: np.ndarray) -> list[Guess]:
    """Fit once for every weight of the graphs; ridge and metric are read when a fitted model is asked."""
    from ..methods.faces import rank
    from ..methods.pipelines import Setup, build, fit_all

    k = min(rank(*X.shape), job.parameters.most_components)
    setup = Setup.of(job, k, job.parameters.iterations, seed=job.seed_for("start"))
    more = {"neighbors": job.parameters.neighbors} if job.method == "N2S2L" else {}
    weights = [{name: v for name, v in point.items() if name in ("alpha", "beta")} for point in job.points]
    distinct = [w for i, w in enumerate(weights) if w not in weights[:i]]
    models = fit_all(
        [build("NDTF" if job.method == "NGE" else job.method, setup, **more, **w) for w in distinct],
        X.astype(setup.dtype),
        y,
    )
    labelled = (X[y >= 0], y[y >= 0])
    return [
        partial(_guess, models[distinct.index(w)], {n: v for n, v in point.items() if n not in w}, labelled)
        for w, point in zip(weights, job.points, strict=True)
    ]


def _guess(model: Any, how: Point, labelled: tuple[Any, np.ndarray], X: Any) -> np.ndarray:
    """Classify by `predict`; NMF, which knows no labels, by the nearest labelled row of `transform`."""
    from ..methods.pipelines import nearest_neighbour

    model.set_params(transform_method="ridge", **{name: v for name, v in how.items() if name in model.get_params()})
    if hasattr(model, "predict"):
        return model.predict(X)
    F, y = labelled
    return nearest_neighbour(model.transform(F), y, model.transform(X), how["metric"])
