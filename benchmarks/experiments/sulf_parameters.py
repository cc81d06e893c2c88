"""SULF against beta, gamma and lam, its start, and how its objective falls (Jiang et al. 2014, Fig. 3).

One weight varies, the others stay. The printed rule of V is shown beside the corrected one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..data.datasets import check_problems
from ..data.splits import hide_labels, share_per_class
from ..harness.kinds import Context
from ..harness.results import Figure, Line, Panel, Report, Row, Section
from ..harness.study import Job, Point, carry_out
from ..harness.words import check_names, check_positive
from ..methods.latent import describe_fit, sulf
from ..report.scores import Scores
from ..report.study_report import curve_panel, finish
from .sulf import VIEWS, classify, cluster_samples, prepare_views

METHODS = ("SULF", "SULF-random")

# name -> options of SULF
RULES: dict[str, dict[str, Any]] = {
    "corrected": {},
    "corrected-root": {"exponent": 0.5},
    "printed-root": {"exponent": 0.5, "v_rule": "printed"},
}

METRICS = ("accuracy", "clusters", "nmi")


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, methods : names; "SULF-random" is told the labels from the first iteration
    rules : whose objective is drawn, from a random start: "corrected", with the paper's root ("corrected-root"), and \
"printed-root"
    curves : betas that it is drawn for
    splits, runs : random choices of the labelled samples, and starts in each
    labels : labelled share of every class
    components, iterations, label_iterations, ridges : as for the kind "sulf"
    beta, gamma, lam : the values of each; gamma over beta, lam over the number of samples
    at_beta, at_gamma, at_lam : where it stays while another one varies
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    rules: tuple[str, ...] = tuple(RULES)
    curves: tuple[float, ...] = (1.0, 100.0, 1e8)
    splits: int = 5
    runs: int = 10
    labels: float = 0.2
    components: int = 50
    iterations: int = 100
    label_iterations: int = 30
    ridges: tuple[float, ...] = (1.0,)
    beta: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, 1e4, 1e8)
    gamma: tuple[float, ...] = (1e-6, 0.01, 0.1, 1.0, 10.0)
    lam: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    at_beta: float = 1.0
    at_gamma: float = 0.1
    at_lam: float = 0.5
    variants: tuple[str, ...] = ("ridge", "transform")

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("problem", self.problems, tuple(VIEWS))
        check_names("method", self.methods, METHODS)
        check_names("rule", self.rules, tuple(RULES))
        check_positive(self, "splits", "runs", "components", "iterations", "label_iterations")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report."""
    outcome = carry_out(__name__, parameters, context)
    sections = [*_sweeps(outcome.rows), *_objectives(outcome.rows)]
    return finish(outcome, context, metrics=METRICS, sections=sections)


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, split and start; and one per rule."""
    for problem in p.problems:
        for split, method in product(range(p.splits), p.methods):
            yield Job(problem, method, split)
        yield from (Job(problem, rule) for rule in p.rules)


def solve(job: Job) -> Iterator[Row]:
    """Classification and clustering at every value of every weight; or the objective, iteration by iteration."""
    y, p = job.dataset().y, job.parameters
    split = Job(job.problem, "", job.split, run=job.run)
    labels = hide_labels(y, share_per_class(y, p.labels, split.seed_for("labels")))
    if job.method in RULES:
        for beta in p.curves:
            yield {"kind": "curve", "point": {}, "setting": f"beta={beta:g}", **_objective(job, labels, beta)}
        return
    views, at = prepare_views(job), np.flatnonzero(labels < 0)
    for setting, point in _settings(p).items():
        for start in range(p.runs):
            model = sulf(job.method, views, list(views.views), labels, point, split.seed_for("start", start))
            learnt = describe_fit(model, list(views.views), True)
            clusters = cluster_samples(job, y, learnt, labels, at)["", 0.0]
            row = {"point": {}, "run": start, "setting": setting}
            for (variant, _), found in classify(job, y, learnt, labels, at).items():
                more = {} if variant else {"clusters": clusters["accuracy"], "nmi": clusters["nmi"]}
                yield {**row, **found, **more, "method": f"{job.method}-{variant}" if variant else job.method}


def _settings(p: Parameters) -> dict[str, Point]:
    """Where one weight varies: name of the setting -> the point."""
    still = {"beta": p.at_beta, "gamma/beta": p.at_gamma, "lam/n": p.at_lam}
    sweeps = {"beta": p.beta, "gamma/beta": p.gamma, "lam/n": p.lam}
    return {f"{name.partition('/')[0]}={v:g}": {**still, name: v} for name, values in sweeps.items() for v in values}


def _objective(job: Job, labels: np.ndarray, beta: float) -> dict[str, Any]:
    """From a random start; a rule that diverges stops where its objective is no longer finite."""
    p, views = job.parameters, prepare_views(job)
    point = {"beta": beta, "gamma/beta": p.at_gamma, "lam/n": p.at_lam}
    seen: list[tuple[int, float]] = []
    more = {"callback": lambda told: seen.append((told.iteration, float(told.objective))), **RULES[job.method]}
    with suppress(FloatingPointError):
        sulf("SULF-random", views, list(views.views), labels, point, job.run.seed, **more)
    kept = [(i, v) for i, v in seen if np.isfinite(v)]
    return {"iteration": [i for i, _ in kept], "objective": [v for _, v in kept]}


def _sweeps(rows: Sequence[Row]) -> list[Section]:
    """Draw a figure per problem, a panel per weight."""
    titles = {"beta": "beta", "gamma": "gamma / beta", "lam": "lam / samples"}
    figures = []
    for metric, words in zip(METRICS, ("classification", "clustering"), strict=False):
        scores = Scores(rows, metric)
        for problem in dict.fromkeys(r["problem"] for r in scores.rows):
            panels = [curve_panel(scores, f"{problem}/{n}=*", title, log_x=True) for n, title in titles.items()]
            figures.append(Figure(f"{problem}, {words}", list(filter(None, panels))))
    return [Section("Against the weights", parts=figures)] if figures else []


def _objectives(rows: Sequence[Row]) -> list[Section]:
    """Draw a figure per problem, a panel per beta."""
    curves = [r for r in rows if r["kind"] == "curve"]
    figures = []
    for problem in dict.fromkeys(r["problem"] for r in curves):
        mine = [r for r in curves if r["problem"] == problem and r["objective"]]
        panels = []
        for setting in dict.fromkeys(r["setting"] for r in mine):
            here = [r for r in mine if r["setting"] == setting]
            lines = [Line(r["method"], r["iteration"], r["objective"]) for r in here]
            panels.append(Panel(f"iteration ({setting})", "objective", lines, log_x=False))
        figures.append(Figure(f"{problem}: objective from one random start", panels))
    text = ["A curve ends where its objective is no longer finite."]
    return [Section("Objective against iteration", text, figures)] if figures else []
