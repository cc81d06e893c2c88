"""S-RLSC against LapRLSC, SRC, 1-NN and harmonic functions (Fan et al. 2011, Figs. 5, 7 and 8, Tables 2 and 4-7).

"accuracy" is that of unlabelled training samples, "out_of_sample" that of held-out ones. The l1 codes of a split do not
depend on labels: they are computed once, and used at every m and point.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ..data.datasets import check_problems
from ..data.splits import folds, hide_labels, per_class, rest, share_per_class
from ..harness.kinds import Context
from ..harness.results import Figure, Report, Row, Section
from ..harness.study import Job, Point, carry_out, seed_of
from ..harness.words import check_names
from ..methods.printed_src import PrintedSRC
from ..report.scores import Scores, setting_of
from ..report.study_report import curve_panel, finish

LABELS = {
    "S-RLSC": "l1 codes as regulariser, the paper's CA, CI and sigma",
    "LapRLSC": "Laplacian of the 7-NN graph as regulariser, the paper's CA, CI and sigma",
    "SRC": "sparse-representation classification over the labelled samples",
    "SRC-printed": "the paper's program; D'x where it has no feasible point (`PrintedSRC`)",
    "1-NN": "nearest labelled sample",
    "GFHF": "harmonic function of the 7-NN graph; new samples by all training samples",
    "S-RLSC-tuned": "CI and sigma by cross-validation",
    "LapRLSC-tuned": "CI and sigma by cross-validation",
    "RLSC": "no regulariser but the kernel's norm (CI = 0): nothing is learnt from unlabelled samples",
    "S-RLSC-gamma": "the kernel exp(-d^2 / (2 sigma^2)), sigma as in the paper: gamma = 2",
    "LapRLSC-gamma": "the same kernel, gamma = 2",
    "LapRLSC-normalized": "normalised Laplacian",
    "LapRLSC-gamma-normalized": "normalised Laplacian, and gamma = 2",
    "LapRLSC-linear": "Laplacian of the linear neighbourhoods of 7 samples (Wang and Zhang 2008)",
    "S-RLSC-pca": "codes and kernel of the 40 main principal components, at unit length",
    "1-NN-raw": "samples as they are, not of unit length",
    "GFHF-raw": "samples as they are, not of unit length",
    "GFHF-near": "new samples by their 7 nearest training samples",
    "GFHF-cmn": "class mass normalisation (Zhu et al. 2003), new samples by their 7 nearest training samples",
}

INDUCTIVE = ("SRC", "SRC-printed", "1-NN", "1-NN-raw")  # learn from labelled samples alone

# method -> what differs from S-RLSC and LapRLSC
VARIANTS: dict[str, dict[str, Any]] = {
    "S-RLSC-gamma": {"gamma": 2.0},
    "LapRLSC-gamma": {"gamma": 2.0},
    "LapRLSC-normalized": {"laplacian": "normalized"},
    "LapRLSC-gamma-normalized": {"gamma": 2.0, "laplacian": "normalized"},
    "LapRLSC-linear": {"graph": "linear_neighborhood"},
}

HARMONIC: dict[str, dict[str, Any]] = {
    "GFHF-near": {"out_of_sample": "neighbors"},
    "GFHF-cmn": {"out_of_sample": "neighbors", "class_mass": True},
}

COMPONENTS = 40  # of S-RLSC-pca

TUNED = ("S-RLSC-tuned", "LapRLSC-tuned")

MEASURES = ("accuracy", "out_of_sample")

Answers = tuple[np.ndarray, np.ndarray | None]

COUNTS = (5, 10, 20)

FEWEST = 0.05  # of the training samples: fewer unlabelled ones say little


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, methods : names
    measures : "accuracy" on unlabelled samples, "out_of_sample" on those that were held out
    samples : samples of every class that are drawn; all of those that are not named
    labelled : numbers m of labelled samples per class, each a setting; 5, 10 and 20 for those that are not named.
        Those that leave fewer than one training sample in twenty unlabelled are left out where "accuracy" is asked for
    splits : random choices of who is held out and who is labelled
    held_out : share of every class
    noise : levels, each a setting but 0: uniform noise with a variance of so many mean distances between samples, both
        with pixels in 0..255
    widths : the same, but the interval of the noise is so many mean distances wide
    tol : certified duality gap of the l1 codes
    gaps : others to compare with, methods of their own (S-RLSC-gap0.001)
    gap_problems : where they are tried
    regularisers, sigmas : CI and sigma to choose from; the first of equals, so that the paper's come first
    folds : of the cross-validation
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = tuple(LABELS)
    measures: tuple[str, ...] = MEASURES
    samples: dict[str, int] = field(default_factory=dict)
    labelled: dict[str, tuple[int, ...]] = field(default_factory=dict)
    splits: int = 3
    held_out: float = 0.15
    noise: tuple[float, ...] = (0.0,)
    widths: tuple[float, ...] = ()
    tol: float = 1e-2
    gaps: tuple[float, ...] = ()
    gap_problems: tuple[str, ...] = ()
    regularisers: tuple[float, ...] = (0.01, 0.001, 0.1, 1.0)
    sigmas: tuple[float, ...] = (0.5, 0.25, 1.0, 2.0, 4.0)
    folds: int = 3

    def __post_init__(self) -> None:
        check_problems((*self.problems, *self.gap_problems, *self.samples, *self.labelled))
        check_names("method", self.methods, LABELS)
        check_names("measure", self.measures, MEASURES)
        if min([self.splits, *self.samples.values()]) < 1:
            raise ValueError("splits and samples must be at least 1")
        if min([self.folds, *(m for counts in self.labelled.values() for m in counts)]) < 2:
            raise ValueError("folds and labelled must be at least 2: cross-validation hides some of the labels")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be in (0, 1), got {self.held_out}")


class Draw(NamedTuple):
    """Everything that decides which samples train; m does not."""

    problem: str
    data: Path | None
    seed: int
    split: int
    each: int | None
    held_out: float
    noise: str


class Samples(NamedTuple):
    """Training samples and those held out, and their classes."""

    X: np.ndarray
    y: np.ndarray
    T: np.ndarray
    y_new: np.ndarray


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    outcome = carry_out(__name__, parameters, context)
    more: dict[str, Any] = {"sections": _curves(outcome.rows, parameters), "values": _changes(outcome.rows, parameters)}
    return finish(outcome, context, metrics=(*parameters.measures, "within"), **more)


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, split, level of noise and method, for all m."""
    noises = [*(f"noise={v:g}" if v else "" for v in p.noise), *(f"width={v:g}" for v in p.widths)]
    for problem, split, noise in product(p.problems, range(p.splits), noises):
        others = [_gap_name(gap) for gap in p.gaps if problem in p.gap_problems]
        for method in (*p.methods, *others):
            yield Job(problem, method, split, _points(p, method), noise)


def solve(job: Job) -> Iterator[Row]:
    """Measure what was asked for at every m and point."""
    p, draw = job.parameters, _draw(job)
    y = samples_of(draw).y
    if job.method in ("S-RLSC", "LapRLSC"):
        yield {"point": {}, "within": _within(job, draw)}
    if job.split == 0 and job.method == p.methods[0] and (any(p.noise) or p.widths):
        yield _picture(job, draw)
    for m in p.labelled.get(job.problem, COUNTS):
        labels = hide_labels(y, per_class(y, m, _seed(draw, "labels")))
        if "accuracy" in p.measures and np.mean(labels < 0) < FEWEST:
            continue
        setting = "/".join(part for part in (job.setting, f"m={m}") if part)
        for point in job.points:
            cv = _cross_validate(job, draw, labels, point) if len(_points(p, job.method)) > 1 else None
            yield {"setting": setting, "point": point, "cv": cv, **_measure(job, draw, labels, point)}


def _points(p: Parameters, method: str) -> tuple[Point, ...]:
    if method not in TUNED:
        return ({},)
    return tuple({"CI": c, "sigma": s} for c, s in product(p.regularisers, p.sigmas))


def _gap_name(gap: float) -> str:
    return f"S-RLSC-gap{gap:g}"


def _draw(job: Job) -> Draw:
    p = job.parameters
    return Draw(job.problem, job.data, job.run.seed, job.split, p.samples.get(job.problem), p.held_out, job.setting)


def _seed(draw: Draw, *what: Any) -> int:
    """Draw the same seed for every method and level of noise."""
    return seed_of(draw.seed, draw.problem, draw.split, *what)


@lru_cache(maxsize=2)
def samples_of(draw: Draw) -> Samples:
    """Drawn, with their noise, split."""
    from ..harness.study import load_cached

    data = load_cached(draw.problem, draw.data, draw.seed).sound()
    if draw.each:
        data = data.rows(per_class(data.y, draw.each, _seed(draw, "samples")))
    X = data.flat.astype(np.float64)
    if draw.noise:
        X = X + _noise(X, draw.noise, _seed(draw, "noise"))
    new = share_per_class(data.y, draw.held_out, _seed(draw, "held out"))
    old = rest(len(data.y), new)
    return Samples(X[old], data.y[old], X[new], data.y[new])


def _noise(X: np.ndarray, setting: str, seed: int) -> np.ndarray:
    """Uniform, mean 0; its variance or the width of its interval is a multiple of the mean distance of two samples.

    Variance, width and distance are those of grey levels 0..255.
    """
    from scipy.spatial.distance import pdist

    kind, _, level = setting.partition("=")
    measure = float(level) * 255 * pdist(X).mean()
    half_width = (measure / 2 if kind == "width" else np.sqrt(3 * measure)) / 255
    return np.random.default_rng(seed).uniform(-half_width, half_width, X.shape)


@lru_cache(maxsize=2)
def codes_of(draw: Draw, tol: float, device: str, pca: bool) -> np.ndarray:
    """Compute the l1 codes of the training samples; jobs of one split follow each other."""
    import torch

    from nnfactor.sparse_coding.basis_pursuit import l1_codes

    X = samples_of(draw).X
    X = _principal(X, X) if pca else X
    return l1_codes(torch.from_numpy(X).to(device), tol=tol).codes.cpu().numpy()


def _principal(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Coordinates of Z in the main components of X, both at unit length before."""
    from ..methods.pipelines import PCA

    pca = PCA(min(COMPONENTS, *X.shape), svd_solver="full").fit(_unit(X))
    return pca.transform(_unit(Z))


def _unit(X: np.ndarray) -> np.ndarray:
    """At unit length; a sample of zeros stays."""
    from sklearn.preprocessing import normalize

    return normalize(X)


class Nearest:
    """The class of the nearest labelled sample."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        """Keep the labelled samples."""
        self.known = X, y

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Classify new samples."""
        from ..methods.pipelines import nearest_neighbour

        return nearest_neighbour(*self.known, X)


def _model(job: Job, draw: Draw, point: Point) -> Any:
    """Make an estimator by the name of the method."""
    from nnfactor import SRC, SRLSC, HarmonicFunction, LapRLSC

    name = job.method
    device: dict[str, Any] = {"device": job.run.device, **VARIANTS.get(name, {})}
    if name.startswith("1-NN"):
        return Nearest()
    if name == "SRC":
        return SRC(tol=job.parameters.tol, **device)
    if name == "SRC-printed":
        return PrintedSRC(tol=job.parameters.tol, **device)
    if name.startswith("LapRLSC"):
        return LapRLSC(**point, **device)
    if name.startswith("GFHF"):
        return HarmonicFunction(**HARMONIC.get(name, {}), **device)
    if name == "RLSC":
        n = len(samples_of(draw).X)
        return SRLSC(CI=0, codes=np.zeros((n, n)), **device)
    tol = next((gap for gap in job.parameters.gaps if name == _gap_name(gap)), job.parameters.tol)
    return SRLSC(codes=codes_of(draw, tol, job.run.device, name.endswith("-pca")), **point, **device)


def _answers(job: Job, draw: Draw, labels: np.ndarray, point: Point, *, seen: np.ndarray, new: bool) -> Answers:
    """Classes of the training samples `seen`, and of those held out if `new`; what no label reaches has class -1."""
    data, model = samples_of(draw), _model(job, draw, point)
    X = _scale(job, draw, data.X)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no label reaches")
        if job.method in INDUCTIVE:
            model.fit(X[labels >= 0], labels[labels >= 0])
            found = model.predict(X[seen]) if len(seen) else seen
        else:
            found = np.asarray(model.fit(X, labels).transduction_)[seen]
        return found, model.predict(_scale(job, draw, data.T)) if new else None


def _measure(job: Job, draw: Draw, labels: np.ndarray, point: Point) -> dict[str, float]:
    """Percent right, as far as asked for."""
    from ..methods.pipelines import percent_right

    data, measures = samples_of(draw), job.parameters.measures
    seen = np.flatnonzero(labels < 0) if "accuracy" in measures else np.zeros(0, dtype=int)
    found, new = _answers(job, draw, labels, point, seen=seen, new="out_of_sample" in measures)
    rates = {"accuracy": percent_right(data.y[seen], found)} if len(seen) else {}
    return rates if new is None else rates | {"out_of_sample": percent_right(data.y_new, new)}


def _cross_validate(job: Job, draw: Draw, labels: np.ndarray, point: Point) -> float:
    """Percent right of labelled samples whose labels are hidden in turn; the samples stay, as unlabelled ones do."""
    from ..methods.pipelines import percent_right

    rates = []
    for _, check in folds(labels, job.parameters.folds, _seed(draw, "folds")):
        shown = hide_labels(labels, rest(len(labels), check))
        found, _ = _answers(job, draw, shown, point, seen=check, new=False)
        rates.append(percent_right(labels[check], found))
    return fmean(rates)


def _scale(job: Job, draw: Draw, Z: np.ndarray) -> np.ndarray:
    """Bring samples to the features of the method."""
    if job.method.endswith("-pca"):
        Z = _principal(samples_of(draw).X, Z)
    return Z if job.method.endswith("-raw") else _unit(Z)


def _within(job: Job, draw: Draw) -> float:
    """How much of the regulariser ties samples of one class: percent of the absolute weights."""
    y = samples_of(draw).y
    if job.method == "S-RLSC":
        weights = np.abs(codes_of(draw, job.parameters.tol, job.run.device, False))
    else:
        from nnfactor.graphs import knn_graph

        weights = knn_graph(_scale(job, draw, samples_of(draw).X), 7).toarray()
    return 100 * float(weights[y[:, None] == y].sum() / weights.sum())


def _picture(job: Job, draw: Draw) -> Row:
    """Show a few held-out samples at this level of noise."""
    from ..data.pictures import row

    T = samples_of(draw).T
    images = T[:: max(1, len(T) // 10)][:10].reshape(-1, *job.dataset().X.shape[1:])
    return row(job.points[0], f"samples, {job.setting or 'no noise'}", images, columns=10, zoom=2)


def _curves(rows: Sequence[Row], p: Parameters) -> list[Section]:
    """Against m: a figure per problem and level of noise, a panel per measure."""
    plain = [r for r in rows if "-gap" not in r["method"]]
    tables = [Scores(plain, name) for name in p.measures]
    figures = []
    for group in dict.fromkeys(s.rpartition("/")[0] for s in tables[0].settings):
        panels = [
            curve_panel(t, f"{group}/m=*", "labelled samples per class", y=t.metric.replace("_", " "), log_x=True)
            for t in tables
        ]
        figures.append(Figure(f"{group} (%, at the chosen parameters)", list(filter(None, panels))))
    return [Section("Curves", parts=figures)] if figures else []


def _changes(rows: Sequence[Row], p: Parameters) -> dict[str, float]:
    """Points of percent that another gap changes: in the mean over settings and splits, and at most in a setting."""
    found, metric = {}, p.measures[0]
    at = {(r["method"], setting_of(r), r["split"]): r[metric] for r in rows if metric in r}
    for gap in p.gaps:
        pairs: dict[str, list[float]] = {}
        for (method, setting, split), value in at.items():
            if method == _gap_name(gap) and ("S-RLSC", setting, split) in at:
                pairs.setdefault(setting, []).append(value - at["S-RLSC", setting, split])
        if pairs:
            found[f"change-gap{gap:g}"] = fmean(abs(v) for values in pairs.values() for v in values)
            found[f"largest-gap{gap:g}"] = max(abs(fmean(values)) for values in pairs.values())
    return found
