"""Running time against image size: NMF, LNMF, polynomial and Gaussian kernel NMF (Zhang and Liu 2009, Fig. 2).

All methods factor the same images with the same number of components, in turn: round after round, the first discarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ..data.datasets import check_problems, load, load_available
from ..data.samples import Dataset
from ..data.splits import first_per_class
from ..harness.errors import ConfigError
from ..harness.kinds import Context
from ..harness.results import Figure, Line, Panel, Report, Row, Section
from ..harness.study import Outcome
from ..harness.words import check_names, check_positive
from ..report.scores import Scores
from ..report.study_report import finish

METHODS = ("NMF", "LNMF", "PNMF", "GNMF")


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems : names; images of at least the largest size
    sizes : heights of square images, made by averaging pixels; divisors of the problem's
    methods : names
    rounds : how often each is timed
    iterations : of every factorization
    n_components : int
    degree : of PNMF
    """

    problems: tuple[str, ...]
    sizes: tuple[int, ...] = (16, 32, 64)
    methods: tuple[str, ...] = METHODS
    rounds: int = 5
    iterations: int = 100
    n_components: int = 50
    degree: int = 2

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("method", self.methods, METHODS)
        check_positive(self, "rounds", "iterations", "n_components")


def run(parameters: Parameters, context: Context) -> Report:
    """Time, then report."""
    found, skipped = load_available(parameters.problems, lambda name: load(name, context.data, context.settings.seed))
    rows = [row for data in found.values() for row in _time(parameters, data, context)]
    sections = [Section("Curves", parts=_figures(parameters, Scores(rows, "seconds")))]
    return finish(Outcome(tuple(rows), skipped), context, metrics=("seconds", "growth"), sections=sections)


def shrink(images: np.ndarray, size: int) -> np.ndarray:
    """Square images at a smaller size, means over pixels."""
    n, h, w = images.shape
    if h % size or w % size:
        raise ConfigError(f"parameters.sizes: {size} does not divide images of {h} x {w}")
    return images.reshape(n, size, h // size, size, w // size).mean((2, 4))


def _time(p: Parameters, data: Dataset, context: Context) -> Iterator[Row]:
    """Rows of every round: seconds of a fit at each size, and how much longer the largest takes than the smallest."""
    from ..timing.clock import Clock, time_rounds

    X = {s: shrink(data.X[first_per_class(data.y)], s).reshape(-1, s * s) for s in p.sizes}
    works = {(m, s): partial(_fit, p, m, X[s], context) for m, s in product(p.methods, p.sizes)}
    clock = Clock.on(context.device, context.settings.threads)
    tick = context.progress(len(works) * (p.rounds + 1), "kernel_nmf_time")
    for turn, seconds in enumerate(time_rounds(works, p.rounds, clock, tick)):
        yield from _rows(p, data.name, turn, seconds)


def _rows(p: Parameters, problem: str, turn: int, seconds: dict[Any, float]) -> Iterator[Row]:
    base = {"kind": "score", "problem": problem, "split": turn, "point": {}}
    for method, size in product(p.methods, p.sizes):
        yield {**base, "method": method, "setting": f"{size}x{size}", "seconds": seconds[method, size]}
    for method in p.methods:
        growth = seconds[method, max(p.sizes)] / seconds[method, min(p.sizes)]
        yield {**base, "method": method, "setting": f"{max(p.sizes)}:{min(p.sizes)}", "growth": growth}


def _fit(p: Parameters, method: str, X: np.ndarray, context: Context) -> Any:
    from ..methods.pipelines import Setup, build

    setup = Setup(p.n_components, max_iter=p.iterations, device=context.settings.device, dtype=context.settings.dtype)
    point = {"solver": "multiplicative"} if method == "NMF" else {"degree": p.degree} if method == "PNMF" else {}
    return build(method, replace(setup, seed=0), **point).fit(X.astype(setup.dtype))


def _figures(p: Parameters, scores: Scores) -> list[Figure]:
    panels = []
    for problem in dict.fromkeys(r["problem"] for r in scores.rows):
        seconds = lambda m, problem=problem: [scores.value("chosen", m, f"{problem}/{s}x{s}") for s in p.sizes]
        lines = [Line(m, [s * s for s in p.sizes], seconds(m)) for m in p.methods]
        panels.append(Panel(f"pixels ({problem})", f"seconds, {p.iterations} iterations", lines))
    return [Figure("Running time against image size, means over the rounds", panels)]
