"""How much faster seeds and parameter points of one split are as one batch than one after the other.

What the studies do in every job: fits of one model to the same data that differ in seed or weights. A batch and a loop
take turns, round after round, the first one discarded; the numbers are ratios within a round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ..data.datasets import check_problems, load, load_available
from ..data.samples import Dataset
from ..data.splits import hide_labels, per_class
from ..harness.kinds import Context
from ..harness.results import Report, Row
from ..harness.study import Outcome
from ..harness.words import check_names, check_positive
from ..report.study_report import finish

# method -> the parameter points of a batch; every point has all the starts
POINTS: dict[str, tuple[dict[str, float], ...]] = {
    "NMF": ({},),
    "LNMF": ({},),
    "GNMF": ({},),
    "GraphNMF": tuple({"lam": 10.0**e} for e in range(-2, 2)),
    "NDTF": tuple({"alpha": 10.0**e} for e in range(4)),
    "N2S2L": tuple({"beta": 10.0**e} for e in range(-2, 2)),
}
RESAMPLED = 20  # bootstrap samples, each the data of one fit
SMALL = 200  # samples of each, at most: resampling is for small data


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems : names
    methods : names in `POINTS`
    starts : random starts of every parameter point
    components : ranks, each a setting
    iterations : of every fit
    rounds : how often a batch and a loop are timed
    labelled : labelled samples per class, where a method uses labels
    resampled : methods that are also fitted to bootstrap samples of at most 200 samples, each to its own
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = tuple(POINTS)
    starts: int = 5
    components: tuple[int, ...] = (10, 40)
    iterations: int = 50
    rounds: int = 5
    labelled: int = 3
    resampled: tuple[str, ...] = ("NMF",)

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("method", self.methods, POINTS)
        check_names("method", self.resampled, POINTS)
        check_positive(self, "starts", "iterations", "rounds", "labelled")


def run(parameters: Parameters, context: Context) -> Report:
    """Time, then report."""
    found, skipped = load_available(parameters.problems, lambda name: load(name, context.data, context.settings.seed))
    rows = [row for data in found.values() for row in _time(parameters, data, context)]
    return finish(Outcome(tuple(rows), skipped), context, metrics=("speedup",))


def _time(p: Parameters, data: Dataset, context: Context) -> Iterator[Row]:
    from ..methods.pipelines import Setup, batch_speedup, build

    y = hide_labels(data.y, per_class(data.y, p.labelled, context.settings.seed))
    X = data.flat.astype(context.settings.dtype)
    for k, method in product(p.components, p.methods):
        setup = Setup(k, max_iter=p.iterations, dtype=context.settings.dtype, device=context.settings.device)
        starts = [replace(setup, seed=s) for s in range(p.starts)]
        made = lambda method=method, starts=starts: [build(method, s, **q) for s in starts for q in POINTS[method]]
        labels: Any = y if method in ("NDTF", "N2S2L") else None
        base = {"kind": "score", "problem": data.name, "setting": f"k={k}", "method": method, "point": {}}
        for turn, ratio in enumerate(batch_speedup(made, X, labels, p.rounds)):
            yield {**base, "split": turn, "fits": len(made()), "speedup": ratio}
    draw = np.random.default_rng(context.settings.seed)
    rows = X[draw.permutation(len(X))[:SMALL]]
    samples = [rows[draw.integers(len(rows), size=len(rows))] for _ in range(RESAMPLED)]
    for k, method in product(p.components, p.resampled):
        setup = Setup(k, max_iter=p.iterations, dtype=context.settings.dtype, device=context.settings.device)
        made = lambda method=method, setup=setup: [build(method, replace(setup, seed=s)) for s in range(RESAMPLED)]
        name = f"{method}, bootstrap samples"
        base = {"kind": "score", "problem": data.name, "setting": f"k={k}", "method": name, "point": {}}
        for turn, ratio in enumerate(batch_speedup(made, samples, None, p.rounds)):
            yield {**base, "split": turn, "fits": RESAMPLED, "speedup": ratio}
