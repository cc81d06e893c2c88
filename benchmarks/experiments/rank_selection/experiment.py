"""How often each criterion of `select_rank` finds the number of components, beside a loop around scikit-learn.

The loop does the same as bi-cross-validation with scikit-learn's `NMF`: such folds, five restarts of all data for each
rank, one fit from singular vectors for each fold, and the same rule, without weights. Tensors it cannot take.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...harness.kinds import Context
from ...harness.results import Report, Row
from ...harness.study import Outcome
from ...harness.words import check_names, check_positive
from ...report.study_report import finish
from .cases import KINDS, Kind, make_case, make_noise

GROUPS, ROUNDS, RESTARTS = 5, 2, 5  # as in select_rank


CRITERIA = ("auto", "bicross", "speckled", "stability", "core_consistency")


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    kinds : names in `cases.KINDS`
    criteria : of `select_rank`; each kind has those that go with it
    cases : of each kind; their ranks go from 3 to 12, and over
    noises : cases without components, of each kind
    most : the largest rank that is tried; the smallest is 2
    loops : cases that the loop around scikit-learn runs as well
    """

    kinds: tuple[str, ...] = tuple(KINDS)
    criteria: tuple[str, ...] = CRITERIA
    cases: int = 20
    noises: int = 4
    most: int = 14
    loops: int = 2

    def __post_init__(self) -> None:
        check_names("kind", self.kinds, KINDS)
        check_positive(self, "cases", "noises", "most")


def run(parameters: Parameters, context: Context) -> Report:
    """Select ranks, then report."""
    tick = context.progress(len(parameters.kinds) * (parameters.cases + parameters.noises), "rank_selection")
    rows = [row for name in parameters.kinds for row in _solve(name, parameters, context, tick)]
    return finish(Outcome(tuple(rows), {}), context, metrics=("right", "fit_seconds"))


def _solve(name: str, p: Parameters, context: Context, tick: Any) -> Iterator[Row]:
    kind, seed, ranks = KINDS[name], context.settings.seed, range(2, p.most + 1)
    base = {"kind": "score", "problem": name, "setting": "planted", "point": {}}
    for number in range(p.cases):
        X, k, snr = make_case(kind, number, seed)
        for criterion in _criteria(p, kind):
            found, seconds = _select(kind, X, ranks, criterion, number)
            right = 100.0 * (found == k)
            row = {"method": criterion, "split": number, "rank": k, "snr": snr, "found": found}
            yield {**base, **row, "right": right, "fit_seconds": seconds}
        if number < p.loops and X.ndim == 2:
            found, seconds = loop_scikit_learn(X, ranks, kind.loss, number)
            row = {"method": "scikit-learn, loop", "split": number, "rank": k, "snr": snr, "found": found}
            yield {**base, **row, "right": 100.0 * (found == k), "fit_seconds": seconds}
        tick(1)
    for number in range(p.noises):
        X = make_noise(kind, number, seed)
        for criterion in _criteria(p, kind):
            found, seconds = _select(kind, X, ranks, criterion, number)
            row = {"method": criterion, "split": number, "found": found, "setting": "noise"}
            yield {**base, **row, "right": 100.0 * (found is None), "fit_seconds": seconds}
        tick(1)


def _criteria(p: Parameters, kind: Kind) -> list[str]:
    """Leave out core consistency for matrices, whose every core is diagonal."""
    return [name for name in p.criteria if kind.is_tensor or name != "core_consistency"]


def _select(kind: Kind, X: Any, ranks: range, criterion: Any, seed: int) -> tuple[int | None, float]:
    from nnfactor import NMF, NTF, select_rank

    model = NTF if kind.is_tensor else NMF
    start = time.perf_counter()
    found = select_rank(model(2, loss=kind.loss, max_iter=500), X, ranks, criterion, random_state=seed)
    return found.rank, time.perf_counter() - start


def loop_scikit_learn(X: Any, ranks: range, loss: str, seed: int) -> tuple[int, float]:
    """Do the same with scikit-learn, one fit after the other; the rank, and the seconds."""
    from sklearn.decomposition import NMF, non_negative_factorization
    from sklearn.exceptions import ConvergenceWarning

    start, random = time.perf_counter(), np.random.default_rng(seed)
    options: dict[str, Any] = {"beta_loss": loss, "max_iter": 500, "solver": "cd" if loss == "frobenius" else "mu"}
    sides = [np.array_split(random.permutation(d), GROUPS) for d in X.shape]
    folds = [(sides[0][a], sides[1][(a + shift) % GROUPS]) for shift in range(ROUNDS) for a in range(GROUPS)]
    losses = np.zeros((len(folds), len(ranks)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for column, k in enumerate(ranks):
            fits = [NMF(k, init="random", random_state=s, **options) for s in range(RESTARTS)]
            for fit in fits:
                fit.fit(X)
            for i, (rows, columns) in enumerate(folds):
                kept, stay = (np.setdiff1d(np.arange(d), at) for d, at in zip(X.shape, (rows, columns), strict=True))
                fit = NMF(k, init="nndsvda", random_state=seed, **options)
                V = fit.fit_transform(X[np.ix_(kept, stay)])
                left = fit.transform(X[np.ix_(rows, stay)])
                above = X[np.ix_(kept, columns)].T
                right = non_negative_factorization(above, H=np.ascontiguousarray(V.T), update_H=False, **options)[0]
                losses[i, column] = _mean_loss(X[np.ix_(rows, columns)], left @ right.T, loss)
    return _within_one_error(losses, ranks), time.perf_counter() - start


def _mean_loss(A: Any, Y: Any, loss: str) -> float:
    if loss == "frobenius":
        return float(np.square(A - Y).mean())
    from scipy.special import kl_div

    return float(kl_div(A, 0.99 * Y + 0.01 * A.mean()).mean())


def _within_one_error(losses: Any, ranks: range) -> int:
    best = int(losses.mean(0).argmin())
    differences = losses - losses[:, [best]]
    within = differences.mean(0) <= differences.std(0, ddof=1) / np.sqrt(len(losses))
    return ranks[int(np.flatnonzero(within)[0])]
