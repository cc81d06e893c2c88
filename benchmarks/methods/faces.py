"""What the face studies of Wang et al. 2009a and 2009b share: fits at several points, features, distances.

One fit is measured many ways: a row per point, feature variant, distance and set of test images. Settings are
`problem/test set/distance`; the Euclidean distance and the clean images are not named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ..data.datasets import check_problems
from ..data.splits import folds
from ..harness.results import Figure, Panel, Row, Section, Table
from ..harness.study import Job, Point
from ..harness.words import check_names, check_positive
from ..report.scores import Scores
from ..report.study_report import curve_panel

if TYPE_CHECKING:
    from nnfactor.core.solve.ridge import Projection

    from .pipelines import Setup

PLAIN = ("NMF", "NMF-HALS", "LNMF", "PNMF", "NTF", "NTF-HALS")

DISCRIMINATIVE = ("2D-NDTF", "2D-NDTF-mu", "3D-NDTF", "3D-NDTF-mu", "N2S2L", "N2S2L-mu")

DISTANCES = ("euclidean", "cosine")

SHRUNK = tuple(name for name in (*PLAIN, *DISCRIMINATIVE) if name != "PNMF")  # that have transform_method="ridge"

RIDGES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3)  # of the largest singular value; 0 is the pseudo-inverse

# other features of the same fitted model, as methods of their own: N2S2L-all, NMF-nnls, GNMF-paper, ...
# name -> (methods that have it, what makes them other features, whether all of them are features)
VARIANTS: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "all": (DISCRIMINATIVE, "", True),
    "pinv": (SHRUNK, "pinv", False),
    "ridge": (SHRUNK, "ridge", False),
    "nnls": ((*PLAIN, *DISCRIMINATIVE), "nnls", False),
    "all-nnls": (DISCRIMINATIVE, "nnls", True),
    "paper": (("GNMF", "pKNMF"), "paper", False),
    "span": (("NMF", "NMF-HALS", "LNMF"), "span", False),
}

# name -> (estimator, options): multiplicative rules as the papers, and solvers that come much closer to a minimum
FACTORIZATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "NMF": ("NMF", {"solver": "multiplicative"}),
    "NMF-HALS": ("NMF", {"solver": "auto"}),
    "LNMF": ("LNMF", {}),
    "NTF": ("NTF", {"solver": "multiplicative"}),
    "NTF-HALS": ("NTF", {"solver": "auto"}),
    "2D-NDTF": ("NDTF", {"solver": "auto"}),
    "2D-NDTF-mu": ("NDTF", {"solver": "multiplicative"}),
    "3D-NDTF": ("NDTF", {"solver": "auto"}),
    "3D-NDTF-mu": ("NDTF", {"solver": "multiplicative"}),
    "N2S2L": ("N2S2L", {"solver": "auto"}),
    "N2S2L-mu": ("N2S2L", {"solver": "multiplicative"}),
}

Array = np.ndarray

Fit = Callable[[Array, Array], list["Fitted"]]


@dataclass(frozen=True)
class FaceParameters:
    """What the `[parameters]` of both studies of faces may say.

    Attributes
    ----------
    problems, methods : names
    variants : "all" for all coefficients of a discriminative method as features, "pinv" for those that are not shrunk,
        "nnls" for nonnegative ones, "all-nnls" for all nonnegative ones
    metrics : of the nearest neighbour; all but the Euclidean are settings of their own
    splits : random choices of the training images
    ridges : strengths to choose from by which coefficients are shrunk; 0 is the pseudo-inverse
    """

    METHODS: ClassVar[tuple[str, ...]] = ()

    problems: tuple[str, ...]
    methods: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("all", "pinv", "nnls", "all-nnls")
    metrics: tuple[str, ...] = DISTANCES
    splits: int = 5
    ridges: tuple[float, ...] = RIDGES

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("method", self.methods, self.METHODS)
        check_names("variant", self.variants, ("all", "pinv", "nnls", "all-nnls"))
        check_names("metric", self.metrics, DISTANCES)
        check_positive(self, "splits", "iterations", "multiplicative_iterations", "folds")


@dataclass(frozen=True)
class Fitted:
    """A model and how many of its coefficients are features (None: all)."""

    model: Any
    first: int | None = None


@dataclass(frozen=True)
class TestSet:
    """Images that are classified; `columns` of their rows say what they are ("setting", "run", ...)."""

    X: Array
    y: Array
    columns: Mapping[str, Any] = field(default_factory=dict)


class Way(NamedTuple):
    """Features, distance, and the strength of shrinkage (None: nothing is shrunk); variant "" is the method itself."""

    variant: str
    metric: str
    ridge: float | None = None


@dataclass(frozen=True)
class Measure:
    """How a split is measured.

    Attributes
    ----------
    variants, metrics : of the features, of the nearest neighbour
    folds, seed : of the cross-validation
    ridges : strengths to choose from; none: nothing is shrunk
    ridge_in : variants whose coefficients are shrunk
    within : whether a fold holds out a part of every class; otherwise of some classes, so that others keep all samples
    """

    variants: tuple[str, ...]
    metrics: tuple[str, ...]
    folds: int
    seed: int
    ridges: tuple[float, ...] = ()
    ridge_in: tuple[str, ...] = ("", "all")
    within: bool = True

    @property
    def ways(self) -> list[Way]:
        """List features and distances, each with all strengths that it may be shrunk by."""
        pairs = product(("", *self.variants), self.metrics)
        return [
            Way(v, m, r) for v, m in pairs for r in (self.ridges if v in self.ridge_in and self.ridges else (None,))
        ]


def rank(n: int, m: int) -> int:
    """Compute the papers' k: N m / (N + m), rounded."""
    return max(1, round(n * m / (n + m)))


def variants_of(method: str, names: Sequence[str]) -> tuple[str, ...]:
    """List those that the method has."""
    return tuple(v for v in names if method in VARIANTS[v][0])


def measure_rows(
    job: Job, fit: Fit, measure: Measure, X: Array, y: Array, tests: Sequence[TestSet]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a job. `fit(X, y)` returns a model for every point; y is -1 for samples without a label.

    Strengths of shrinkage are chosen point by point, so that a row's `cv` is the best over them.
    """
    asked = len(job.points) > 1 or len(measure.ways) > len({w[:2] for w in measure.ways})
    cv = cross_validate(fit, measure, X, y) if asked else {}
    for i, (point, fitted) in enumerate(zip(job.points, fit(X, y), strict=True)):
        ways = choose_ridges(measure.ways, {way: fmean(values[i]) for way, values in cv.items()})
        for way, accuracies in accuracies_of(fitted, ways, X, y, tests).items():
            for test, accuracy in zip(tests, accuracies, strict=True):
                row = {**test.columns, "point": point, "accuracy": accuracy, "cv": fmean(cv[way][i]) if cv else None}
                yield name_row(job.method, way, row)


def choose_ridges(ways: Sequence[Way], held: Mapping[Way, float]) -> list[Way]:
    """Keep one strength of features and distances: that of the largest held-out accuracy, the weakest of equals."""
    groups: dict[Any, list[Way]] = {}
    for way in ways:
        groups.setdefault(way[:2], []).append(way)
    return [max(group, key=lambda way: held.get(way, 0.0)) for group in groups.values()]


def name_row(method: str, way: Way, row: dict[str, Any]) -> dict[str, Any]:
    """Complete a row with the names of its method and setting."""
    distance = "" if way.metric == "euclidean" else way.metric
    setting = "/".join(part for part in (row.get("setting", ""), distance) if part)
    shrunk = {} if way.ridge is None else {"ridge": way.ridge}
    return {**row, **shrunk, "method": f"{method}-{way.variant}" if way.variant else method, "setting": setting}


def accuracies_of(
    fitted: Fitted, ways: Sequence[Way], X: Array, y: Array, tests: Sequence[TestSet]
) -> dict[Way, list[float]]:
    """Measure 1-NN accuracy on every test set in every way; training and test images go the same way."""
    from .pipelines import nearest_neighbour, percent_right

    known = y >= 0
    see = lru_cache(partial(_transform_all, fitted.model, X[known], tests))
    project = lru_cache(partial(_project_all, fitted.model, X[known], tests))
    found: dict[Way, list[float]] = {}
    for way in ways:
        _, how, everything = VARIANTS.get(way.variant, ((), "", False))
        if way.ridge is None:
            coefficients = see(how)
        else:
            projection, ends = project()
            coefficients = np.split(projection.coefficients(way.ridge).numpy(), ends)
        F, *G = (Z[:, : None if everything else fitted.first] for Z in coefficients)
        nearest = [nearest_neighbour(F, y[known], g, way.metric) for g in G]
        found[way] = [percent_right(t.y, guess) for t, guess in zip(tests, nearest, strict=True)]
    return found


def _transform_all(model: Any, X: Array, tests: Sequence[TestSet], how: str) -> list[Array]:
    """Coefficients of the training samples and of every test set."""
    from .pipelines import features

    if how == "span":
        model = Span(model)
    elif how:
        model = copy(model).set_params(**{"features" if how == "paper" else "transform_method": how})
    return [features(model, Z) for Z in (X, *(t.X for t in tests))]


def _project_all(model: Any, X: Array, tests: Sequence[TestSet]) -> tuple[Projection, list[int]]:
    """Project all samples on the bases, for coefficients of every strength from one decomposition; and where they end.

    As `transform_method="ridge"`, but for bases at unit length: those of LNMF differ, and would weigh distances.
    """
    import torch

    from nnfactor.core.data.as_data import as_data
    from nnfactor.core.factors import as_factor
    from nnfactor.core.solve.ridge import project

    Z = [X, *(t.X for t in tests)]
    dtype = torch.from_numpy(np.empty(0, model.factors_[0].dtype)).dtype
    units = [F / np.maximum(np.linalg.norm(F, axis=0), 1e-30) for F in map(np.asarray, model.factors_)]
    data = as_data(torch.from_numpy(np.concatenate(Z)).to(dtype))
    found = project(data, [as_factor(torch.from_numpy(F).to(dtype)) for F in units])
    return found, list(np.cumsum([len(part) for part in Z])[:-1])


@dataclass
class Span:
    """Coordinates in an orthonormal basis of what the bases span: the same space, distances as they are there."""

    model: Any

    def transform(self, X: Array) -> Array:
        """Give coordinates of samples."""
        return X @ np.linalg.qr(unit_bases(self.model))[0]


def unit_bases(model: Any) -> Array:
    """Bring the bases of a factorization of a matrix to unit length, as columns."""
    W = np.asarray(model.components_, dtype=np.float64).T
    return W / np.maximum(np.linalg.norm(W, axis=0), 1e-30)


def cross_validate(fit: Fit, measure: Measure, X: Array, y: Array) -> dict[Way, list[list[float]]]:
    """Per way and point, the held-out accuracy of every fold. Unlabelled samples stay in every fit."""
    held: dict[Way, list[list[float]]] = {way: [] for way in measure.ways}
    for kept, check in folds(y, measure.folds, measure.seed, within=measure.within):
        keep = np.sort(np.concatenate([kept, np.flatnonzero(y < 0)]))
        models, test = fit(X[keep], y[keep]), [TestSet(X[check], y[check])]
        scored = [accuracies_of(m, measure.ways, X[keep], y[keep], test) for m in models]
        for way, values in held.items():
            values.append([s[way][0] for s in scored])
    return {way: [list(point) for point in zip(*values, strict=True)] for way, values in held.items()}


def fit_nested(estimator: Any, points: Sequence[Point]) -> Fit:
    """Fit once for all "dimensions" a projection whose first directions are those of every smaller one."""

    def fit(X: Array, y: Array) -> list[Fitted]:
        model = estimator().fit(X[y >= 0].astype(np.float64), y[y >= 0])
        return [Fitted(model, point.get("dimensions")) for point in points]

    return fit


def fit_batch(name: str, setup: Callable[[Array], Setup], points: Sequence[Point], first: bool, **fixed: Any) -> Fit:
    """Fit factorizations at several points as one batch; `first`: features are the discriminative coefficients."""

    def fit(X: Array, y: Array) -> list[Fitted]:
        from .pipelines import build, fit_all

        common = setup(X)
        X = X.astype(common.dtype)
        models = fit_all([build(name, common, **fixed, **point) for point in points], X, y)
        return [Fitted(m, m.n_discriminative_ if first else None) for m in models]

    return fit


def draw_patches(rows: Sequence[Row], by: str = "") -> list[Section]:
    """Accuracy against the size of the patch, a panel per problem and distance (and per value of a column `by`)."""
    values = list(dict.fromkeys(r[by] for r in rows if r.get(by))) if by else []
    panels = _patch_panels(Scores(rows), "")
    for value in values:
        panels += _patch_panels(Scores([r for r in rows if r.get(by, value) == value]), f", {value}")
    figures = [Figure("Accuracy (%) at the chosen parameters", panels[i : i + 3]) for i in range(0, len(panels), 3)]
    return [Section("Accuracy against the size of the patch", parts=figures)] if figures else []


def _patch_panels(scores: Scores, note: str) -> list[Panel]:
    panels = []
    for problem, distance in product(dict.fromkeys(r["problem"] for r in scores.rows), ("", "/cosine")):
        title = f"patch ({problem}, {distance[1:] or 'Euclidean'}{note})"
        pattern = f"{problem}/patch=*[0-9]{distance}"
        panels.append(curve_panel(scores, pattern, title, start={f"{problem}{distance}": 0.0}))
    return [panel for panel in panels if panel]


def influence_section(rows: Sequence[Row], names: Sequence[str]) -> list[Section]:
    """For every value of a parameter: mean test accuracy over all other parameters, and at the best of them."""
    table = [
        [problem, distance or "Euclidean", method, f"{name} = {value:g}", fmean(means), max(means)]
        for (problem, distance, method), name, value, means in _by_value(rows, names)
    ]
    head = ["problem", "distance", "method", "parameter", "mean over the others", "best of the others"]
    text = ["Accuracy (%) on test images, means over the splits."]
    return [Section("Influence of the parameters", text, [Table("", head, table)])] if table else []


def influences(rows: Sequence[Row], names: Sequence[str]) -> dict[str, float]:
    """Average over all other parameters, by name: PROBLEM/DISTANCE/METHOD/NAME=VALUE."""
    return {
        "/".join([*(word for word in group if word), f"{name}={value:g}"]): fmean(means)
        for group, name, value, means in _by_value(rows, names)
    }


def _by_value(
    rows: Sequence[Row], names: Sequence[str]
) -> Iterator[tuple[tuple[str, str, str], str, float, list[float]]]:
    """(problem, distance, method), parameter, value: means over the splits at every point that has it."""
    accuracies: dict[Any, dict[float, dict[str, list[float]]]] = {}
    for r, name in product((r for r in rows if r["kind"] == "score"), names):
        if name in r["point"]:
            by_point = accuracies.setdefault(((r["problem"], r["setting"], r["method"]), name), {})
            at = by_point.setdefault(r["point"][name], {}).setdefault(json.dumps(r["point"]), [])
            at.append(r["accuracy"])
    for (group, name), values in accuracies.items():
        for value in sorted(values) if len(values) > 1 else ():
            yield group, name, value, [fmean(v) for v in values[value].values()]
