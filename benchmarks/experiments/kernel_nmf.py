"""Kernel NMF against NMF, LNMF, polynomial NMF and kernel PCA (Zhang and Liu 2009, Tables 1 and 2, Figs. 1 and 3).

Random starts: `runs` of them are averaged. docs/findings/kernel_nmf_accuracy.md has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.datasets import check_problems
from ..data.splits import first_per_class, rest
from ..harness.kinds import Context
from ..harness.results import Figure, Report, Row, Section
from ..harness.study import Job, Point, carry_out
from ..harness.words import check_names, check_positive
from ..methods.faces import (
    RIDGES,
    Fitted,
    Measure,
    TestSet,
    Way,
    accuracies_of,
    choose_ridges,
    cross_validate,
    unit_bases,
    variants_of,
)
from ..report.scores import Scores
from ..report.study_report import curve_panel, finish

if TYPE_CHECKING:
    from ..methods.pipelines import Setup

METHODS = ("1-NN", "NMF", "NMF-HALS", "LNMF", "PNMF", "GNMF", "pKNMF", "gKPCA", "pKPCA")

GAUSSIAN, POLYNOMIAL = ("GNMF", "gKPCA"), ("PNMF", "pKNMF", "pKPCA")

KERNELS = ("GNMF", "pKNMF", "gKPCA", "pKPCA")

STARTED = ("NMF", "NMF-HALS", "LNMF", "PNMF", "GNMF", "pKNMF")

FIXED = {"NMF": {"solver": "multiplicative"}, "NMF-HALS": {"solver": "auto"}}

METRICS = ("accuracy", "residual", "condition")

VARIANTS = ("ridge", "nnls", "paper", "span")


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, methods : names
    variants : "ridge" for NMF and LNMF with shrunk coefficients, "nnls" for them and PNMF with nonnegative ones,
        "paper" for kernel NMF with its formula, "span" for NMF and LNMF in an orthonormal basis of the span of bases
    runs : random starts
    iterations : of every factorization, all of them; one of HALS has five sweeps, and it does a fifth as many
    degrees : of the polynomial kernels
    sigmas : of the Gaussian kernels, in median distances of the training samples; of equals the first is taken
    folds, repeats : of the cross-validation, and how often kernel methods cut the samples into folds anew
    ridges : strengths to choose from for "ridge"
    components : numbers of components beside k = N m / (N + m), each a setting (Fig. 1)
    curves : problems for which they are tried
    salt_and_pepper : shares of pixels of test images that become 0 or 1 (Fig. 3), each a setting
    gaussian : standard deviations of noise added to test images, pixels in [0, 1]
    metric : of the nearest neighbour
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    variants: tuple[str, ...] = VARIANTS
    runs: int = 10
    iterations: int = 500
    degrees: tuple[int, ...] = (2, 3, 4)
    sigmas: tuple[float, ...] = (4.0, 2.0, 1.0, 0.5, 0.25)
    folds: int = 3
    repeats: int = 5
    ridges: tuple[float, ...] = RIDGES
    components: tuple[int, ...] = ()
    curves: tuple[str, ...] = ()
    salt_and_pepper: tuple[float, ...] = ()
    gaussian: tuple[float, ...] = ()
    metric: str = "euclidean"

    def __post_init__(self) -> None:
        check_problems((*self.problems, *self.curves))
        check_names("method", self.methods, METHODS)
        check_names("variant", self.variants, VARIANTS)
        check_positive(self, "runs", "iterations", "folds", "repeats")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    outcome = carry_out(__name__, parameters, context)
    return finish(outcome, context, metrics=METRICS, sections=_curves(outcome.rows))


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, number of components and method."""
    for problem in p.problems:
        sizes = ("", *(f"k={k}" for k in p.components)) if problem in p.curves else ("",)
        for setting, method in product(sizes, p.methods):
            if setting == "" or method != "1-NN":
                yield Job(problem, method, 0, _points(p, method), setting)


def solve(job: Job) -> Iterator[Row]:
    """Measure accuracy at every point and start, clean and with noise; cross-validation with the first start."""
    p, data = job.parameters, job.dataset()
    train = first_per_class(data.y)
    test = rest(len(data.y), train)
    X, y, T, y_test = data.flat[train], data.y[train], data.flat[test], data.y[test]
    levels = [("", T), *_add_noise(p, T, job.seed_for("noise"))]
    tests = [
        TestSet(Z.astype(job.run.dtype), y_test, {"setting": "/".join(filter(None, (job.setting, level)))})
        for level, Z in levels
    ]
    held = _hold_out(job, X, y)
    measure = _measure(job)
    for start, models in enumerate(_fit_all(job, X, y, p.runs if job.method in STARTED else 1)):
        for i, (point, model) in enumerate(zip(job.points, models, strict=True)):
            ways = choose_ridges(measure.ways, {way: fmean(values[i]) for way, values in held.items()})
            found = accuracies_of(Fitted(model), ways, X.astype(job.run.dtype), y, tests)
            for way, accuracies in found.items():
                row: Row = {"point": point, "run": start} | ({"cv": fmean(held[way][i])} if held else {})
                row |= {"method": f"{job.method}-{way.variant}" if way.variant else job.method}
                # the error of PNMF is one of its feature space, which the norm of the images does not measure
                row |= {} if way.variant or job.method == "PNMF" else _shape(model, X)
                for sample, accuracy in zip(tests, accuracies, strict=True):
                    yield {**row, **sample.columns, "accuracy": accuracy}


def _measure(job: Job, repeat: int = 0) -> Measure:
    p = job.parameters
    seed = job.seed_for("folds", repeat) if repeat else job.seed_for("folds")
    return Measure(variants_of(job.method, p.variants), (p.metric,), p.folds, seed, p.ridges, ("ridge",))


def _hold_out(job: Job, X: np.ndarray, y: np.ndarray) -> dict[Way, list[list[float]]]:
    """Per way and point, the held-out accuracy of every fold of every repetition, with the first start."""
    repeats = job.parameters.repeats if job.method in KERNELS else 1  # strengths of a ridge need no more
    measures = [_measure(job, r) for r in range(repeats)]
    if len(job.points) == 1 and len(measures[0].ways) == len({way[:2] for way in measures[0].ways}):
        return {}
    fit = lambda Z, z: list(map(Fitted, _fit_all(job, Z, z, runs=1)[0]))
    parts = [cross_validate(fit, measure, X, y) for measure in measures]
    return {way: [list(chain(*values)) for values in zip(*(c[way] for c in parts), strict=True)] for way in parts[0]}


def _shape(model: Any, X: np.ndarray) -> dict[str, float]:
    """Measure what a factorization leaves of the data, in percent, and the condition number of its unit bases."""
    if not hasattr(model, "components_") or not hasattr(model, "reconstruction_err_"):
        return {}
    residual = 100 * float(model.reconstruction_err_ / np.linalg.norm(X))
    return {"residual": residual, "condition": float(np.linalg.cond(unit_bases(model)))}


def _points(p: Parameters, method: str) -> tuple[Point, ...]:
    if method in GAUSSIAN:
        return tuple({"sigma": s} for s in p.sigmas)
    return tuple({"degree": d} for d in p.degrees) if method in POLYNOMIAL else ({},)


def _setup(job: Job, X: np.ndarray) -> Setup:
    """`k = N m / (N + m)` of these samples (a fold has fewer), or as many as the setting says."""
    from ..methods.pipelines import Setup

    n, m = X.shape
    k = int(job.setting.partition("=")[2]) if job.setting else round(n * m / (n + m))
    p = job.parameters
    iterations = max(1, p.iterations // 5) if job.method == "NMF-HALS" else p.iterations
    return Setup.of(job, min(k, n - 1), iterations)


def _fit_all(job: Job, X: np.ndarray, y: np.ndarray, runs: int) -> list[list[Any]]:
    """Per start, a model for every point; all of them one batch."""
    from ..methods.pipelines import fit_all

    setup = _setup(job, X)
    starts = [replace(setup, seed=job.seed_for("start", r)) for r in range(runs)]
    X = X.astype(setup.dtype)
    median = _median_distance(X) if job.method in GAUSSIAN else 1.0
    made = fit_all([_estimator(job.method, s, median, point) for s in starts for point in job.points], X, y)
    count = len(job.points)
    return [made[i : i + count] for i in range(0, len(made), count)]


def _estimator(method: str, setup: Setup, median: float, point: Point) -> Any:
    from sklearn.decomposition import KernelPCA

    from ..methods.pipelines import build

    point = {"sigma": point["sigma"] * median} if "sigma" in point else point
    if method == "gKPCA":
        return KernelPCA(setup.n_components, kernel="rbf", gamma=0.5 / point["sigma"] ** 2)
    if method == "pKPCA":
        return KernelPCA(setup.n_components, kernel="poly", degree=point["degree"], gamma=1, coef0=0)
    return build(method.removesuffix("-HALS"), setup, **point, **FIXED.get(method, {}))


def _median_distance(X: np.ndarray) -> float:
    from scipy.spatial.distance import pdist

    return float(np.median(pdist(X.astype(np.float64))))


def _add_noise(p: Parameters, T: np.ndarray, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Test images with noise, pixels kept in [0, 1]; the same for every method."""
    for share in p.salt_and_pepper:
        rng = np.random.default_rng([seed, 1])
        hit, white = rng.random(T.shape) < share, rng.random(T.shape) < 0.5
        yield f"salt={share:g}", np.where(hit, white.astype(T.dtype), T)
    for deviation in p.gaussian:
        rng = np.random.default_rng([seed, 2])
        yield f"gauss={deviation:g}", np.clip(T + deviation * rng.standard_normal(T.shape), 0, 1)


def _curves(rows: Sequence[Row]) -> list[Section]:
    """Accuracy against the number of components, or the noise."""
    scores, found = Scores(rows), []
    titles = {"k": "components", "salt": "share of pixels hit", "gauss": "standard deviation of the noise"}
    for problem in dict.fromkeys(r["problem"] for r in scores.rows):
        clean = {problem: 0.0}
        panels = [
            curve_panel(scores, f"{problem}/{name}=*", title, start=None if name == "k" else clean)
            for name, title in titles.items()
        ]
        if any(panels):
            found.append(Figure(f"{problem}: accuracy (%) at the chosen parameters", list(filter(None, panels))))
    return [Section("Curves", parts=found)] if found else []
