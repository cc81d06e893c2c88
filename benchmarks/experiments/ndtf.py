"""Nonnegative discriminative tensor factorization against subspace methods (Wang et al. 2009a, Table 2 and Fig. 4).

NTF and 3D-NDTF take images as matrices, the others as vectors. docs/findings/ndtf_accuracy.md has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.occluders import OBJECTS, occlude
from ..data.splits import rest, share_per_class
from ..harness.kinds import Context
from ..harness.results import Report, Row
from ..harness.study import Job, Point, carry_out
from ..harness.words import check_names
from ..methods.faces import (
    FACTORIZATIONS,
    FaceParameters,
    Fit,
    Measure,
    TestSet,
    draw_patches,
    fit_batch,
    fit_nested,
    influence_section,
    measure_rows,
    rank,
    variants_of,
)
from ..report.study_report import finish

if TYPE_CHECKING:
    from ..methods.pipelines import Setup

PROJECTIONS = ("PCA", "LDA", "MFA")

METHODS = ("1-NN", *PROJECTIONS, *(name for name in FACTORIZATIONS if not name.startswith("N2S2L")))

MATRICES = ("NTF", "NTF-HALS", "3D-NDTF", "3D-NDTF-mu")


@dataclass(frozen=True)
class Parameters(FaceParameters):
    """What `[parameters]` may say beside `FaceParameters`.

    Attributes
    ----------
    iterations : of the factorizations, all of them
    multiplicative_iterations : of those by multiplicative rules, which are cheaper and slower
    tensor_iterations : of 3D-NDTF, whose rank-one images settle more slowly; 0: `iterations`
    alphas : weights of NDTF's graphs
    dimensions : numbers of directions of PCA, LDA and MFA to choose from
    rank_factor : k is so many times N m / (N + m)
    folds : of the cross-validation
    patches : sides of the patches on test images, in pixels of 64 x 64 images, each a setting
    objects : what the patches show, each a run
    """

    METHODS = METHODS

    methods: tuple[str, ...] = METHODS
    iterations: int = 50
    multiplicative_iterations: int = 500
    tensor_iterations: int = 0
    alphas: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    dimensions: tuple[int, ...] = (20, 39, 60, 80, 100, 120, 160)
    rank_factor: float = 1.0
    folds: int = 3
    patches: tuple[int, ...] = ()
    objects: tuple[str, ...] = tuple(OBJECTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("object", self.objects, OBJECTS)


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    outcome = carry_out(__name__, parameters, context)
    rows = outcome.rows
    clean = [r for r in rows if "patch" not in str(r["setting"])]
    return finish(outcome, context, sections=[*draw_patches(rows, "object"), *influence_section(clean, ("alpha",))])


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, split and method."""
    for problem, split, method in product(p.problems, range(p.splits), p.methods):
        yield Job(problem, method, split, _points(p, method))


def solve(job: Job) -> Iterator[Row]:
    """Measure accuracy at every point, with every distance and kind of features, on clean and covered test images."""
    p, data = job.parameters, job.dataset().sound()
    train = share_per_class(data.y, 0.5, job.seed)
    test = rest(len(data.y), train)
    shaped = (lambda Z: Z) if job.method in MATRICES else (lambda Z: Z.reshape(len(Z), -1))
    tests = [TestSet(shaped(Z), data.y[test], columns) for Z, columns in _tests(job, data.X[test])]
    ridges = p.ridges if job.method in FACTORIZATIONS else ()
    measure = Measure(variants_of(job.method, p.variants), p.metrics, p.folds, job.seed_for("folds"), ridges)
    yield from measure_rows(job, _fit(job), measure, shaped(data.X[train]), data.y[train], tests)
    if job.split == 0 and p.patches and job.method == p.methods[0]:
        yield _pictures(job, data.X[test])


def _points(p: Parameters, method: str) -> tuple[Point, ...]:
    if method in PROJECTIONS:
        return tuple({"dimensions": d} for d in p.dimensions)
    return tuple({"alpha": a} for a in p.alphas) if "NDTF" in method else ({},)


def _tests(job: Job, X: np.ndarray) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Test images and the columns of their rows; places of the patches are the same for all methods."""
    yield X, {}
    for patch, (i, name) in product(job.parameters.patches, enumerate(job.parameters.objects)):
        covered = occlude(X, patch, name, job.seed_for("patch", name))
        yield covered, {"setting": f"patch={patch}", "run": i, "object": name}


def _fit(job: Job) -> Fit:
    from nnfactor import MFA

    from ..methods.pipelines import PCA, Raw, UnitLDA

    projections: dict[str, Any] = {
        "1-NN": Raw,
        "PCA": partial(PCA, svd_solver="full"),
        "LDA": UnitLDA,
        "MFA": partial(MFA, max(job.parameters.dimensions, default=40)),
    }
    if job.method in projections:
        return fit_nested(projections[job.method], job.points)
    name, options = FACTORIZATIONS[job.method]
    return fit_batch(name, partial(_setup, job), job.points, first=name == "NDTF", **options)


def _setup(job: Job, X: np.ndarray) -> Setup:
    """`k = N m / (N + m)` of these samples; a fold has fewer."""
    from ..methods.pipelines import Setup

    k = max(1, round(job.parameters.rank_factor * rank(len(X), int(np.prod(X.shape[1:])))))
    return Setup.of(job, k, _iterations(job.parameters, job.method), seed=job.seed_for("start"))


def _iterations(p: Parameters, method: str) -> int:
    """How long a factorization runs."""
    if FACTORIZATIONS[method][1].get("solver") != "auto":
        return p.multiplicative_iterations
    return p.tensor_iterations or p.iterations if method == "3D-NDTF" else p.iterations


def _pictures(job: Job, X: np.ndarray) -> Row:
    """One image per object and size."""
    from ..data.pictures import row

    shown = [Z[3 * i] for i, (Z, _) in enumerate(_tests(job, X))]
    p = job.parameters
    caption = f"test images, clean and with patches of {', '.join(map(str, p.patches))} ({', '.join(p.objects)})"
    return row(job.points[0], caption, np.array(shown), columns=len(shown))
