"""SULF against factorizations of one view and of all, CCA, co-training and co-regularized spectral clustering.

Jiang et al. 2014, Tables 3 and 4, Fig. 2; docs/findings/sulf_classification.md has the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ..data.datasets import check_problems
from ..data.splits import folds, hide_labels, rest, share_per_class
from ..harness.errors import ConfigError
from ..harness.kinds import Context
from ..harness.results import Figure, Report, Row, Section
from ..harness.study import Job, carry_out, load_cached
from ..harness.words import check_names, check_positive
from ..methods.latent import METHODS, Learnt, Views, points, scale_views
from ..report.scores import Scores
from ..report.study_report import curve_panel, finish

# views without negative entries: kar of mfeat has some
VIEWS = {
    "reuters1200_5views": ("EN", "FR", "GR", "SP", "IT"),
    "reuters1200_3views": ("EN", "FR", "SP"),
    "msrc_v5_5views": ("CM", "HOG", "GIST", "LBP", "CENTRIST"),
    "mfeat_6views": ("fou", "fac", "pix", "zer", "mor"),
    "digit_views": ("pixels", "fourier", "profiles"),
    "nus_wide_object": ("view 0", "view 1", "view 2"),  # three in the paper
    "corel5k": ("view 0", "view 1", "view 2"),
}

# ways to measure one fit, as methods of their own: SULF-ridge, NMF-b-unit, ...
CLASSIFIERS = ("ridge", "transform")

TASKS = ("classification", "clustering")

Way = tuple[str, float]  # variant, and strength of the ridge (0: none)

Measure = Callable[[Learnt, np.ndarray, np.ndarray], dict[Way, dict[str, float]]]


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    task : "classification" or "clustering"
    problems, methods : names
    variants : "ridge" for ridge regression on SULF's V instead of W, "transform" for the same on V computed without \
labels (of SULF1 too); "unit" for k-means on rows of unit length
    splits : random choices of the labelled samples
    runs : random starts in each
    labels : labelled shares of every class, each a setting
    components : K
    iterations : of factorizations; of SULF before it is told the labels
    label_iterations : of SULF after that
    pcsc_rounds : of PCSC, a round being an eigendecomposition of n x n per view
    folds : of the cross-validation on labelled samples
    ridges : ridges of the classifiers, for V with a mean squared length of 1
    pca : principal components of a view, for CCA and co-training
    alpha : ridges of co-training
    pcsc_lam : weights of the agreement in PCSC
    sgnmf_lam : weights of the graph in SGNMF
    sulf_lam : weights of ||pi||^2 in SULF, over the number of samples
    beta, gamma : weights of the labels in SULF; of the rows of W, over beta
    """

    task: str
    problems: tuple[str, ...]
    methods: tuple[str, ...]
    variants: tuple[str, ...] = ()
    splits: int = 5
    runs: int = 10
    labels: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    components: int = 50
    iterations: int = 100
    label_iterations: int = 30
    pcsc_rounds: int = 5
    folds: int = 3
    ridges: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    pca: tuple[int, ...] = (20, 50, 100)
    alpha: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    pcsc_lam: tuple[float, ...] = (0.0, 0.05)
    sgnmf_lam: tuple[float, ...] = (1.0, 10.0)
    sulf_lam: tuple[float, ...] = (0.5,)
    beta: tuple[float, ...] = (0.001, 1.0)
    gamma: tuple[float, ...] = (0.1, 1.0)

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("problem", self.problems, tuple(VIEWS))
        check_names("method", self.methods, tuple(METHODS))
        check_names("variant", self.variants, (*CLASSIFIERS, "unit"))
        if self.task == "clustering" and "CoTra" in self.methods:
            raise ConfigError("parameters.methods: CoTra gives classes and no coordinates; it is for classification")
        if self.task not in TASKS:
            raise ConfigError(f"parameters.task: {self.task!r}; use one of {', '.join(TASKS)}")
        check_positive(self, "splits", "runs", "components", "iterations", "label_iterations", "folds")
        if not all(0 < share < 1 for share in self.labels):
            raise ValueError(f"labels are shares between 0 and 1, got {list(self.labels)}")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    outcome = carry_out(__name__, parameters, context)
    metrics = ("accuracy", "nmi") if parameters.task == "clustering" else ("accuracy",)
    return finish(outcome, context, metrics=metrics, sections=_curves(outcome.rows, metrics))


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, split and method, for all shares of labels: without labels one fit serves all of them."""
    for problem, split, name in product(p.problems, range(p.splits), p.methods):
        yield Job(problem, name, split, tuple(points(name, _grid(p, name), VIEWS[problem])))


def solve(job: Job) -> Iterator[Row]:
    """Accuracy (and mutual information) on unlabelled samples, at every share, point and start."""
    p, y = job.parameters, job.dataset().y
    learn = learner(job)
    for share in p.labels:
        labels = hide_labels(y, share_per_class(y, share, job.seed_for("labels", share)))
        measure = partial(MEASURES[p.task], job, y)
        held = _hold_out(job, learn, measure, labels)
        test = np.flatnonzero(labels < 0)
        for start, learnt in enumerate(learn(labels, p.runs)):
            for point, one, cv in zip(job.points, learnt, held, strict=True):
                found = measure(one, labels, test)
                best = {v: max((way for way in found if way[0] == v), key=lambda way: cv[way]) for v, _ in found}
                for variant, way in best.items():
                    row = {"point": point, "run": start, "setting": f"labels={100 * share:g}", "cv": cv[way]}
                    name = f"{job.method}-{variant}" if variant else job.method
                    yield {**row, **found[way], "method": name, "ridge": way[1] or None}


def learner(job: Job) -> Callable[[np.ndarray, int], list[list[Learnt]]]:
    """Labels and number of starts -> what is learnt, per start and point; only once if labels have no part in it."""
    p, method = job.parameters, METHODS[job.method]
    views = replace(prepare_views(job), rounds=p.pcsc_rounds)
    seeds = [job.seed_for("start", r) for r in range(p.runs)]
    learn = lambda labels, runs: method.learn(views, labels, job.points, seeds[:runs])
    if method.supervised:
        return learn
    once = learn(np.full(views.n, -1), p.runs)
    return lambda labels, runs: once[:runs]


def prepare_views(job: Job) -> Views:
    """Prepare the views of a job's problem, and say how long factorizations run."""
    p, data = job.parameters, job.dataset()
    run = (p.components, p.iterations, p.label_iterations, data.n_classes, job.run.dtype, job.run.device)
    return Views(_views(job.problem, job.data, job.run.seed, job.run.dtype), VIEWS[job.problem], *run)


@lru_cache(maxsize=2)
def _views(problem: str, data: Path | None, seed: int, dtype: str) -> tuple[Any, ...]:
    return scale_views(load_cached(problem, data, seed), VIEWS[problem], dtype)


def _grid(p: Parameters, name: str) -> dict[str, Sequence[Any]]:
    lam = p.pcsc_lam if name == "PCSC" else p.sgnmf_lam
    sulf = {"lam/n": p.sulf_lam, "beta": p.beta, "gamma/beta": p.gamma}
    return {"lam": lam, "pca": p.pca, "alpha": p.alpha, **sulf}


def _hold_out(job: Job, learn: Any, measure: Measure, labels: np.ndarray) -> list[dict[Way, float]]:
    """Per point and way, the mean accuracy on held-out labelled samples, with the first start.

    Held-out samples become unlabelled: whoever learns from unlabelled samples still sees them.
    """
    held: list[dict[Way, list[float]]] = [{} for _ in job.points]
    for _, check in folds(labels, job.parameters.folds, job.seed_for("folds")):
        shown = hide_labels(labels, rest(len(labels), check))
        for ways, one in zip(held, learn(shown, 1)[0], strict=True):
            for way, found in measure(one, shown, check).items():
                ways.setdefault(way, []).append(found["accuracy"])
    return [{way: fmean(values) for way, values in ways.items()} for ways in held]


def classify(job: Job, y: np.ndarray, learnt: Learnt, labels: np.ndarray, at: np.ndarray) -> dict[Way, Any]:
    """Accuracy of the classes of samples `at`: the method's own, or by ridge regression on its coordinates."""
    from ..methods.pipelines import percent_right

    p, found = job.parameters, {}
    if learnt.classes is not None:
        found["", 0.0] = percent_right(y[at], learnt.classes[at])
    for variant, V in _spaces(learnt, METHODS[job.method].own, p.variants):
        guesses = zip(p.ridges, ridge_classes(V, labels, p.ridges), strict=True)
        found |= {(variant, r): percent_right(y[at], c[at]) for r, c in guesses}
    return {way: {"accuracy": value} for way, value in found.items()}


def _spaces(learnt: Learnt, own: bool, variants: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Coordinates for ridge regression: of methods that do not classify by themselves, and of the variants."""
    if learnt.V is not None and (not own or "ridge" in variants):
        yield "ridge" if own else "", learnt.V
    if learnt.blind is not None and "transform" in variants:
        yield "transform", learnt.blind()


def ridge_classes(V: np.ndarray, labels: np.ndarray, ridges: Sequence[float]) -> list[np.ndarray]:
    """Classes of all samples by ridge regression with an intercept on one-hot labels, one array per ridge."""
    known = labels >= 0
    V = V / (np.sqrt(np.square(V).sum() / len(V)) or 1.0)
    center = V[known].mean(0)
    Y = np.eye(labels.max() + 1)[labels[known]]
    L, s, Rt = np.linalg.svd(V[known] - center, full_matrices=False)
    B = L.T @ (Y - Y.mean(0))
    return [((V - center) @ Rt.T @ (B * (s / (s**2 + r))[:, None]) + Y.mean(0)).argmax(1) for r in ridges]


def cluster_samples(job: Job, y: np.ndarray, learnt: Learnt, labels: np.ndarray, at: np.ndarray) -> dict[Way, Any]:
    """k-means on all unlabelled samples, judged on those `at`; with rows as they are, or of unit length."""
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import normalize

    from nnfactor.metrics import clustering_accuracy, normalized_mutual_information

    free = np.flatnonzero(labels < 0)
    V, judged = np.asarray(learnt.V)[free], np.searchsorted(free, at)
    spaces = {"": V}
    if "unit" in job.parameters.variants:
        spaces["unit"] = normalize(V)
    found = {}
    for variant, Z in spaces.items():
        seed = job.seed_for("k-means")
        clusters = KMeans(job.dataset().n_classes, n_init=5, random_state=seed).fit(Z).labels_[judged]
        accuracy, nmi = (100 * f(y[at], clusters) for f in (clustering_accuracy, normalized_mutual_information))
        found[variant, 0.0] = {"accuracy": accuracy, "nmi": nmi}
    return found


MEASURES = {"classification": classify, "clustering": cluster_samples}


def _curves(rows: Sequence[Row], metrics: Sequence[str]) -> list[Section]:
    """Against the share of labels, a panel per problem."""
    plain = [r for r in rows if r["method"] in METHODS]
    figures = []
    for scores in (Scores(plain, metric) for metric in metrics):
        problems = dict.fromkeys(r["problem"] for r in scores.rows)
        several = [p for p in problems if len(scores.matching([f"{p}/labels=*"])) > 1]
        panels = [curve_panel(scores, f"{p}/labels=*", f"labelled, percent ({p})", y=scores.metric) for p in several]
        found = list(filter(None, panels))
        title = f"{scores.metric} at the chosen parameters"
        figures += [Figure(title, found[i : i + 2]) for i in range(0, len(found), 2)]
    return [Section("Against the share of labels", parts=figures)] if figures else []
