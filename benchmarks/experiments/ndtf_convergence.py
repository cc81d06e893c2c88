"""The objective of NDTF against the iteration: multiplicative rules and the M-matrix rule (Wang et al. 2009a, Fig. 1).

All start from the same factors. The objective is given relative to the lowest that any of them reaches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..data.datasets import check_problems
from ..data.splits import share_per_class
from ..harness.kinds import Context
from ..harness.results import Figure, Line, Panel, Report, Row, Section
from ..harness.study import Job, Outcome, carry_out
from ..harness.words import check_names
from ..methods.faces import rank
from ..report.study_report import finish

# name -> options of the estimator
SOLVERS: dict[str, dict[str, Any]] = {
    "printed": {"solver": "multiplicative", "basis_rule": "paper"},
    "exact": {"solver": "multiplicative", "basis_rule": "exact"},
    "m-matrix-printed": {"solver": "m_matrix", "basis_rule": "paper", "inner_iter": 30},
    "m-matrix": {"solver": "m_matrix", "basis_rule": "exact", "inner_iter": 30},
    "auto": {"solver": "auto"},
}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems : names
    solvers : "printed" and "exact" multiplicative rules; "m-matrix-printed" and "m-matrix" with either basis rule, \
the graph systems by 30 CG steps; "auto"
    alphas : weights of the graphs, each a setting
    orders : 2 (images as vectors), 3 (as matrices)
    iterations : int
    at : iterations whose objective goes into the tables
    splits : random halves of the images, and starts
    """

    problems: tuple[str, ...]
    solvers: tuple[str, ...] = tuple(SOLVERS)
    alphas: tuple[float, ...] = (10.0, 100.0, 1000.0)
    orders: tuple[int, ...] = (2,)
    iterations: int = 200
    at: tuple[int, ...] = (1, 5, 20, 50, 100, 200)
    splits: int = 1

    def __post_init__(self) -> None:
        check_problems(self.problems)
        check_names("solver", self.solvers, tuple(SOLVERS))
        if set(self.orders) - {2, 3}:
            raise ValueError(f"orders may be 2 (vectors) and 3 (images as matrices), got {list(self.orders)}")
        if self.iterations < 1 or self.splits < 1 or not all(1 <= i <= self.iterations for i in self.at):
            raise ValueError("splits and iterations must be at least 1, and `at` between 1 and iterations")


def run(parameters: Parameters, context: Context) -> Report:
    """Carry out what is not there yet, then report relative to the lowest objective."""
    outcome = carry_out(__name__, parameters, context)
    curves = [r for r in outcome.rows if r["kind"] == "curve"]
    lowest = {key: min(min(r["objective"]) for r in curves if _key(r) == key) for key in map(_key, curves)}
    scores = tuple(_scores(curves, lowest, parameters.at))
    sections = [Section("Curves", parts=_figures(curves, lowest))]
    shown = Outcome((*outcome.rows, *scores), outcome.skipped)
    return finish(shown, context, metrics=("objective_percent",), sections=sections)


def plan(p: Parameters) -> Iterator[Job]:
    """Plan a job per problem, split, order, alpha and solver."""
    for problem, split, order, alpha, solver in product(p.problems, range(p.splits), p.orders, p.alphas, p.solvers):
        yield Job(problem, solver, split, setting=f"{order}D/alpha={alpha:g}")


def solve(job: Job) -> Iterator[Row]:
    """Record the objective after every iteration."""
    from ..methods.pipelines import Setup, build

    data = job.dataset().sound()
    start = Job(job.problem, "", job.split, run=job.run)  # images and start are the same for every setting
    train = share_per_class(data.y, 0.5, start.seed)
    order, alpha = job.setting.split("D/alpha=")
    X = data.X[train] if order == "3" else data.flat[train]
    k = rank(len(train), data.X[0].size)
    setup = Setup.of(job, k, job.parameters.iterations, seed=start.seed_for("start"))
    model = build("NDTF", setup, alpha=float(alpha), **SOLVERS[job.method]).fit(X.astype(job.run.dtype), data.y[train])
    objective = np.asarray(model.history_["objective"], dtype=np.float64)
    iterations = np.asarray(model.history_["iteration"], dtype=int)
    yield {"kind": "curve", "point": {}, "iteration": iterations.tolist(), "objective": objective.tolist()}


def _key(row: Row) -> tuple[Any, ...]:
    return row["problem"], row["setting"], row["split"]


def _scores(curves: Sequence[Row], lowest: dict[Any, float], at: Sequence[int]) -> Iterator[Row]:
    """Percent of the lowest objective at chosen iterations."""
    for r, i in product(curves, at):
        if i in r["iteration"]:
            percent = 100 * r["objective"][r["iteration"].index(i)] / lowest[_key(r)]
            base = {name: r[name] for name in ("problem", "split", "method")}
            yield {"kind": "score", **base, "point": {}, "setting": f"{r['setting']}/{i}", "objective_percent": percent}


def _figures(curves: Sequence[Row], lowest: dict[Any, float]) -> list[Figure]:
    """Draw a panel per setting, first split."""
    panels = []
    for key in dict.fromkeys(_key(r) for r in curves if r["split"] == 0):
        mine = [r for r in curves if _key(r) == key]
        seen = lambda r: [(i, v) for i, v in zip(r["iteration"], r["objective"], strict=True) if i > 0]
        lines = [Line(r["method"], [i for i, _ in seen(r)], [v / lowest[key] for _, v in seen(r)]) for r in mine]
        panels.append(Panel(f"iteration ({key[0]}, {key[1]})", "objective / lowest", lines))
    return [Figure("Objective against iteration", panels[i : i + 3]) for i in range(0, len(panels), 3)]
