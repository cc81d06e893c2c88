"""Nonnegative semi-supervised learning against subspace and transductive methods (Wang et al. 2009b, Table 1, Fig. 4).

Labelled images are drawn at random; the others are classified. docs/findings/n2s2l_accuracy.md has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.occluders import occlude
from ..data.splits import folds, hide_labels, per_class, rest
from ..harness.kinds import Context
from ..harness.results import Report, Row
from ..harness.study import Job, Point, carry_out
from ..harness.words import check_positive
from ..methods.faces import (
    FACTORIZATIONS,
    FaceParameters,
    Fit,
    Fitted,
    Measure,
    TestSet,
    draw_patches,
    fit_batch,
    fit_nested,
    influence_section,
    influences,
    measure_rows,
    rank,
    variants_of,
)
from ..report.study_report import finish

if TYPE_CHECKING:
    from ..methods.pipelines import Setup

SUPERVISED = ("1-NN", "PCA", "LDA", "MFA")

PROJECTIONS = ("PCA", "LDA", "MFA")

TRANSDUCTIVE = ("HGF", "HGF-CMN", "CONS")

FACTORIZED = ("NMF", "NMF-HALS", "LNMF", "N2S2L", "N2S2L-mu")

METHODS = (*SUPERVISED, "sMFA", "sMFA-pca", *FACTORIZED, *TRANSDUCTIVE)

VARIED = ("alpha", "beta", "neighbors", "energy")

WHOLE_CLASS = 2**31 - 1  # n_c - 1 neighbours within the class


@dataclass(frozen=True)
class Parameters(FaceParameters):
    """What `[parameters]` may say beside `FaceParameters`.

    Attributes
    ----------
    labelled : labelled images per class
    iterations : of the factorizations, all of them
    multiplicative_iterations : of those by multiplicative rules, which are cheaper and slower
    alphas, betas : weights of N2S2L's graphs; sMFA has betas too
    neighbors : p of the neighbour graph of N2S2L and sMFA
    energies : shares of the variance that PCA leaves for HGF, HGF-CMN and CONS
    spread : alphas of CONS
    graph_neighbors : of the graph of HGF, HGF-CMN and CONS
    dimensions : numbers of directions of PCA, LDA, MFA and sMFA to choose from
    leading : numbers of principal components before sMFA-pca to choose from; sMFA has N - N_c, as in the paper
    folds : of the cross-validation: four hold out an image of half of the classes each where two are labelled, so that
        the other classes keep pairs; of HGF, HGF-CMN and CONS no more than there are labelled images per class
    patches : sides of the patches on unlabelled images, in pixels of 64 x 64 images, each a setting; 0 is clean
    """

    METHODS = METHODS

    methods: tuple[str, ...] = METHODS
    labelled: int = 2
    iterations: int = 50
    multiplicative_iterations: int = 300
    alphas: tuple[float, ...] = (10.0,)
    betas: tuple[float, ...] = (1e-6, 1e-2, 1.0, 100.0)
    neighbors: tuple[int, ...] = (1, 3)
    energies: tuple[float, ...] = (0.9, 0.95, 0.99)
    spread: tuple[float, ...] = (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    graph_neighbors: int = 7
    dimensions: tuple[int, ...] = (10, 20, 30, 39, 60, 79)
    leading: tuple[int, ...] = (40, 60, 80, 120)
    folds: int = 4
    patches: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "labelled")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    outcome = carry_out(__name__, parameters, context)
    clean = [r for r in outcome.rows if "patch" not in str(r["setting"])]
    sections = [*draw_patches(outcome.rows), *influence_section(clean, VARIED)]
    return finish(outcome, context, sections=sections, values=influences(clean, VARIED))


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, split and method."""
    for problem, split, method in product(p.problems, range(p.splits), p.methods):
        yield Job(problem, method, split, _points(p, method))


def solve(job: Job) -> Iterator[Row]:
    """Accuracy on the unlabelled images at every point and patch."""
    p, data = job.parameters, job.dataset().sound()
    labels = hide_labels(data.y, per_class(data.y, p.labelled, job.seed))
    known = labels >= 0
    covered = [_cover(job, data.X, known, patch) for patch in p.patches]
    columns: list[dict[str, Any]] = [{"setting": f"patch={patch}"} if patch else {} for patch in p.patches]
    if job.method in TRANSDUCTIVE:
        for Z, column in zip(covered, columns, strict=True):
            yield from _transduce(job, Z, labels, data.y, column)
        return
    ridges = p.ridges if job.method in FACTORIZED else ()
    variants = variants_of(job.method, p.variants)
    measure = Measure(variants, p.metrics, p.folds, job.seed_for("folds"), ridges, within=False)
    tests = [TestSet(Z[~known], data.y[~known], column) for Z, column in zip(covered, columns, strict=True)]
    if job.method in SUPERVISED or job.method in ("NMF", "NMF-HALS", "LNMF"):
        yield from measure_rows(
            job, _fit(job), measure, covered[0][known], labels[known], tests
        )  # no patch is on these
        return
    for Z, test in zip(covered, tests, strict=True):
        yield from measure_rows(job, _fit(job), measure, Z, labels, [test])


def _cover(job: Job, X: np.ndarray, known: np.ndarray, patch: int) -> np.ndarray:
    """Cover the unlabelled images, at the same places for every method and size; images as vectors."""
    Z = X.copy()
    Z[~known] = occlude(Z[~known], patch, "any", job.seed_for("patch"))
    return Z.reshape(len(Z), -1)


def _points(p: Parameters, method: str) -> tuple[Point, ...]:
    if method in ("N2S2L", "N2S2L-mu"):
        every = product(p.alphas, p.betas, p.neighbors)
        return tuple({"alpha": a, "beta": b, "neighbors": k} for a, b, k in every)
    if method.startswith("sMFA"):
        leading: list[Point] = [{"pca": n} for n in p.leading] if method == "sMFA-pca" else [{}]
        weights = product(p.betas, p.neighbors, p.dimensions, leading)
        return tuple({"beta": b, "neighbors": k, "dimensions": d, **n} for b, k, d, n in weights)
    if method in PROJECTIONS:
        return tuple({"dimensions": d} for d in p.dimensions)
    if method == "CONS":
        return tuple({"energy": e, "alpha": a} for e, a in product(p.energies, p.spread))
    return tuple({"energy": e} for e in p.energies) if method in TRANSDUCTIVE else ({},)


def _fit(job: Job) -> Fit:
    from nnfactor import MFA

    from ..methods.pipelines import PCA, Raw, UnitLDA

    if job.method in FACTORIZED:
        name, options = FACTORIZATIONS[job.method]
        graph = {"graph": _whole_class()} if name == "N2S2L" else {}
        return fit_batch(name, partial(_setup, job), job.points, first=name == "N2S2L", **options, **graph)
    if job.method.startswith("sMFA"):
        return partial(_smfa, job)
    projections: dict[str, Any] = {
        "1-NN": Raw,
        "PCA": partial(PCA, svd_solver="full"),
        "LDA": UnitLDA,
        "MFA": partial(MFA, 10**6, n_neighbors=WHOLE_CLASS),
    }
    return fit_nested(projections[job.method], job.points)


def _whole_class() -> Any:
    """Make the paper's graphs: n_c - 1 neighbours within the class."""
    from nnfactor import MarginalFisher

    return MarginalFisher(n_neighbors=WHOLE_CLASS)


def _smfa(job: Job, X: np.ndarray, y: np.ndarray) -> list[Fitted]:
    """Fit once for every weight and graph; the first directions are those of fewer dimensions."""
    from nnfactor import SMFA

    d = max(job.parameters.dimensions, default=40)
    key = lambda p: (p["beta"], p["neighbors"], p.get("pca", "auto"))
    models = {
        (b, k, pca): SMFA(d, n_neighbors=WHOLE_CLASS, beta=b, neighbors=k, pca=pca).fit(X.astype(np.float64), y)
        for b, k, pca in dict.fromkeys(map(key, job.points))
    }
    return [Fitted(models[key(p)], p["dimensions"]) for p in job.points]


def _setup(job: Job, X: np.ndarray) -> Setup:
    """`k = N m / (N + m)` for N labelled images, also where a fold hides some: q classes would not fit otherwise."""
    from ..methods.pipelines import Setup

    p = job.parameters
    iterations = p.iterations if FACTORIZATIONS[job.method][1].get("solver") == "auto" else p.multiplicative_iterations
    k = rank(p.labelled * job.dataset().sound().n_classes, int(np.prod(X.shape[1:])))
    return Setup.of(job, k, iterations, seed=job.seed_for("start"))


def _transduce(
    job: Job, X: np.ndarray, labels: np.ndarray, truth: np.ndarray, columns: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """HGF, HGF-CMN and CONS: labels of the unlabelled images themselves."""
    from ..methods.pipelines import PCA

    checks = [check for _, check in folds(labels, job.parameters.folds, job.seed_for("folds"))]
    shown = [hide_labels(labels, rest(len(labels), check)) for check in checks]
    energies = dict.fromkeys(point["energy"] for point in job.points)
    spaces = {energy: PCA(energy, svd_solver="full").fit_transform(X) for energy in energies}
    for point in job.points:
        Z = spaces[point["energy"]]
        held = [_right(job, point, Z, known, truth, check) for known, check in zip(shown, checks, strict=True)]
        accuracy = _right(job, point, Z, labels, truth, np.flatnonzero(labels < 0))
        yield {**columns, "point": point, "accuracy": accuracy, "cv": fmean(held)}


def _right(job: Job, point: Point, Z: np.ndarray, labels: np.ndarray, truth: np.ndarray, at: np.ndarray) -> float:
    """Accuracy in percent of those `at`; a sample that no label reaches is wrong."""
    from nnfactor import HarmonicFunction, LocalGlobalConsistency

    from ..methods.pipelines import percent_right

    p = {"n_neighbors": min(job.parameters.graph_neighbors, len(Z) - 1)}
    if job.method == "CONS":
        model: Any = LocalGlobalConsistency(alpha=point["alpha"], **p)
    else:
        model = HarmonicFunction(class_mass=job.method == "HGF-CMN", **p)
    return percent_right(truth[at], np.asarray(model.fit(Z, labels).transduction_)[at])
