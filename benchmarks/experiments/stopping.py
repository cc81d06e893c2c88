"""When a fit may stop: its objective against a long run from the same start, in percent, and its iterations.

"default" are fits as the estimators make them. Other rules are applied to the long run, every ten iterations. They
bound the fall over the last stretch, relative to the start ("start") or to the objective now ("fall"), over the second
half of all stretches ("half"), or in future, if falls go on to shrink as now ("remaining").
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..data.datasets import load
from ..data.splits import hide_labels, per_class
from ..harness.kinds import Context
from ..harness.results import Report, Row
from ..harness.study import Outcome
from ..harness.words import check_names
from ..report.study_report import finish
from .peers.problems import KL, poisson, sparse_counts

RULES = {
    "start": lambda f: (f[-2] - f[-1]) / f[0],
    "fall": lambda f: (f[-2] - f[-1]) / f[-1],
    "half": lambda f: (f[len(f) // 2] - f[-1]) / f[-1],
    "remaining": lambda f: (f[-2] - f[-1]) / f[-1] / max(0.01, 1 - (f[-2] - f[-1]) / max(f[-3] - f[-2], 1e-300)),
}


def _planted(noise: float) -> Any:
    rng = np.random.default_rng(0)
    X = rng.random((200, 5)) @ rng.random((5, 50))
    return X + noise * X.mean() * np.abs(rng.normal(size=X.shape))


def _spectra(noise: float) -> Any:
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 60)[:, None]
    bumps = [np.exp(-(((x - np.array(at)) / 0.17) ** 2)) for at in ((0.3, 0.4, 0.5), (0.4, 0.5, 0.65))]
    T = np.einsum("ir,jr,kr->ijk", rng.random((10, 3)) + 0.2, *bumps)
    return T + noise * T.max() * np.abs(rng.normal(size=T.shape))


DIGITS, RANDOM = lambda: load("digits_400", None).flat, {"init": "random"}
CASES: dict[str, tuple[str, int, dict[str, Any], Any]] = {  # estimator, rank, options, what makes the data
    "digits": ("NMF", 10, {}, DIGITS),
    "digits, k = 40": ("NMF", 40, RANDOM, DIGITS),
    "faces": ("NMF", 20, {}, lambda: load("faces_32x32", None).flat),
    **{f"noise {e}": ("NMF", 5, {}, partial(_planted, e)) for e in (0.0, 1e-4, 1e-3, 1e-2)},
    "noise 0.01, multiplicative": ("NMF", 5, {"solver": "multiplicative"}, partial(_planted, 1e-2)),
    **{f"baseline {b}": ("NMF", 6, {}, lambda b=b: b + _planted(0.1)) for b in (0, 10, 100)},
    **{f"baseline {b}, random": ("NMF", 6, RANDOM, lambda b=b: b + _planted(0.1)) for b in (0, 10, 100)},
    **{f"spectra, noise {e}": ("NTF", 3, {}, partial(_spectra, e)) for e in (0.0, 1e-3)},
    **{f"counts, k = {k}": ("NMF", k, {"loss": KL} | RANDOM, lambda: poisson((21, 96), 4, 20, 0)) for k in range(2, 7)},
    "sparse counts": ("NMF", 6, {"loss": KL}, lambda: sparse_counts((300, 800), 6, 0.02, 0)),
    "digits, Itakura-Saito": ("NMF", 10, {"loss": 0}, lambda: DIGITS() + 0.1),
    **{f"digits, NGE {a:g}": ("NGE", 40, {"alpha": a}, DIGITS) for a in (1.0, 1e4)},
    "digits, N2S2L": ("N2S2L", 40, {}, DIGITS),
    "digits, GraphNMF": ("GraphNMF", 20, {}, DIGITS),
    "digits, SemiNMF": ("SemiNMF", 10, {}, lambda: DIGITS() - DIGITS().mean(0)),
    "digits, KernelNMF": ("KernelNMF", 10, {}, DIGITS),
    "digits, SULF": ("SULF", 10, {}, DIGITS),
}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems : names in `CASES`; ", float32" after one: in single precision
    rules : names in `RULES`, each with its bound
    iterations : of the long run
    """

    problems: tuple[str, ...] = tuple(CASES)
    rules: tuple[str, ...] = ("start 1e-4",)
    iterations: int = 4000

    def __post_init__(self) -> None:
        check_names("problem", (name.removesuffix(", float32") for name in self.problems), CASES)
        check_names("rule", (name.split()[0] for name in self.rules), RULES)


def run(parameters: Parameters, context: Context) -> Report:
    """Fit, then report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is what is measured
        rows = [row for name in parameters.problems for row in _rows(name, parameters, context)]
    return finish(Outcome(tuple(rows), {}), context, metrics=("excess", "said", "iterations", "fit_seconds"))


def _rows(name: str, p: Parameters, context: Context) -> Iterator[Row]:
    import nnfactor

    model, k, options, make = CASES[name.removesuffix(", float32")]
    X, labels = make().astype("float32" if name.endswith("float32") else "float64"), load("digits_400", None).y
    y = hide_labels(labels, per_class(labels, 10, 0)) if len(labels) == X.shape[0] else None
    build = partial(getattr(nnfactor, model), k, random_state=context.settings.seed, device=context.settings.device)
    told, long = (build(**options, **how).fit(X, y) for how in ({}, {"tol": 0, "max_iter": p.iterations}))
    read, lowest = long.history_["iteration"] % 10 == 0, min(long.loss_, told.loss_)
    f, seconds = (long.history_[key][read] for key in ("objective", "seconds"))
    least = float(max(1e-13, np.finfo(X.dtype).eps) * np.square(X.data).sum())  # no less is an excess
    stops = {"default": (told.loss_, told.n_iter_, told.history_["seconds"][-1])}
    for rule in p.rules:
        bound, tol = RULES[rule.split()[0]], float(rule.split()[1])
        n = next((n for n in range(3, len(f)) if f[n] <= f[n - 1] and bound(f[: n + 1]) <= tol), len(f) - 1)
        stops[rule] = f[n], 10 * n, seconds[n]
    for method, (value, n, s) in stops.items():
        excess = 100 * (value - lowest) / (lowest + least)
        base = {"kind": "score", "problem": name, "setting": "", "split": 0, "method": method, "point": {}}
        said = {"said": excess if told.converged_ else 0.0} if method == "default" else {}
        yield base | said | {"excess": excess, "iterations": n, "fit_seconds": s}
