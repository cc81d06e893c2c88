"""Missing entries: milliseconds to a common error on the observed ones, against imputing in a loop and a masked solver.

Data are planted with multiplicative noise, and entries hidden at random. Every method starts from the same factors and
runs for a number of iterations; its error on the observed entries is computed outside the clock. It has arrived at 1 %
above the least error that any method reached. "complete" is the same fit of the data before anything was hidden, to 1 %
above its own least error: what is lost to the gaps. "hidden" is the error on the hidden entries at the end.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...harness.kinds import Context
from ...harness.results import Report, Row
from ...harness.study import Outcome
from ...harness.words import check_names, check_positive
from ...report.study_report import finish
from ..peers.methods import quiet

Trail = tuple[list[float], list[float], float]  # seconds, observed errors, and the hidden error at the end

CASES = {  # shape, rank
    "2000 x 500, k = 20": ((2000, 500), 20),
    "300 x 200, k = 8": ((300, 200), 8),
    "60 x 50 x 40, k = 6": ((60, 50, 40), 6),
    "30 x 20 x 10, k = 3": ((30, 20, 10), 3),
}

METHODS = ("complete", "nnfactor", "scikit-learn, imputing", "TensorLy, masked")


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems : names in `CASES`
    shares : of hidden entries, each a setting
    methods : names
    starts : runs from different starts, each a split
    iterations : of nnfactor and TensorLy; scikit-learn has a tenth of it between two imputations
    """

    problems: tuple[str, ...]
    shares: tuple[float, ...] = (0.01, 0.3, 0.9)
    methods: tuple[str, ...] = METHODS
    starts: int = 3
    iterations: int = 300

    def __post_init__(self) -> None:
        check_names("problem", self.problems, CASES)
        check_names("method", self.methods, METHODS)
        check_positive(self, "starts", "iterations")


def run(parameters: Parameters, context: Context) -> Report:
    """Race, then report."""
    skipped = {} if importlib.util.find_spec("tensorly") else {"TensorLy, masked": "the package is not installed"}
    rows = [
        row
        for problem in parameters.problems
        for share in parameters.shares
        for start in range(parameters.starts)
        for row in _race(problem, share, start, parameters, skipped)
    ]
    return finish(Outcome(tuple(rows), skipped), context, metrics=("to_target", "hidden"))


def _race(problem: str, share: float, seed: int, p: Parameters, skipped: Any) -> Iterator[Row]:
    shape, k = CASES[problem]
    rng = np.random.default_rng(seed)
    planted = [rng.gamma(0.5, size=(d, k)) for d in shape]
    X = _model(planted) * rng.gamma(100, 0.01, shape)
    seen = rng.random(shape) >= share
    start = [rng.random((d, k)) for d in shape]
    size = (X.mean() / _model(start).mean()) ** (1 / len(shape))
    start = [F * size for F in start]
    able = [m for m in p.methods if m not in skipped and not (m.startswith("scikit") and len(shape) > 2)]
    trails = {m: TRAILS[m](X, seen, start, p.iterations) for m in able}
    least = min((min(errors) for m, (_, errors, _) in trails.items() if m != "complete"), default=0.0)
    for method, (seconds, errors, hidden) in trails.items():
        target = 1.01 * (min(errors) if method == "complete" else least)
        at = next((i for i, error in enumerate(errors) if error <= target), None)
        base = {"kind": "score", "problem": problem, "setting": f"hidden={share}", "split": seed}
        row = base | {"method": method, "point": {}, "hidden": 100 * hidden}
        yield row if at is None else row | {"to_target": 1e3 * seconds[at]}


def _complete(X: Any, seen: Any, start: list[Any], iterations: int) -> Trail:
    return _ours(X, np.ones_like(seen), start, iterations)


def _ours(X: Any, seen: Any, start: list[Any], iterations: int) -> Trail:
    from nnfactor import NTF

    given = np.where(seen, X, np.nan)
    with quiet():
        fit = lambda n: NTF(
            start[0].shape[1], init=tuple(start), missing="nan", max_iter=n, tol=0, normalize=None, device="cpu"
        ).fit(given)
        fit(2)
        model = fit(iterations)
    Y = _model([model.embedding_, *model.factors_])
    norm = np.square(X[seen]).sum()
    seconds, objective = model.history_["seconds"], model.history_["objective"]
    return list(seconds - seconds[0]), list(np.sqrt(objective / norm)), _hidden_error(X, seen, Y)


def _imputing(X: Any, seen: Any, start: list[Any], iterations: int) -> Trail:
    """Complete the data by the model, take ten iterations of coordinate descent, and so on."""
    from sklearn.decomposition import NMF

    V, H = start[0].copy(), np.ascontiguousarray(start[1].T)
    model = NMF(len(H), init="custom", solver="cd", max_iter=10, tol=0)
    passed, seconds, errors = 0.0, [0.0], [_observed_error(X, seen, V @ H)]
    with quiet():
        for _ in range(max(1, iterations // 10)):
            began = time.perf_counter()
            V = model.fit_transform(np.where(seen, X, V @ H), W=V, H=H)
            H = model.components_
            passed += time.perf_counter() - began
            seconds.append(passed)
            errors.append(_observed_error(X, seen, V @ H))
    return seconds, errors, _hidden_error(X, seen, V @ H)


def _masked(X: Any, seen: Any, start: list[Any], iterations: int) -> Trail:
    """Take TensorLy's masked solver, twenty iterations at a time."""
    import tensorly as tl
    from tensorly.cp_tensor import CPTensor
    from tensorly.decomposition import non_negative_parafac

    given, mask, factors = np.where(seen, X, 0), seen.astype(float), [F.copy() for F in start]
    passed, seconds, errors = 0.0, [0.0], [_observed_error(X, seen, _model(factors))]
    with quiet(), tl.backend_context("numpy", local_threadsafe=True):
        for _ in range(max(1, iterations // 20)):
            init = CPTensor((None, [F.copy() for F in factors]))
            began = time.perf_counter()
            found = non_negative_parafac(given, factors[0].shape[1], n_iter_max=20, init=init, tol=0, mask=mask)
            passed += time.perf_counter() - began
            weights = 1 if found.weights is None else found.weights
            factors = [found.factors[0] * weights, *found.factors[1:]]
            seconds.append(passed)
            errors.append(_observed_error(X, seen, _model(factors)))
    return seconds, errors, _hidden_error(X, seen, _model(factors))


TRAILS: dict[str, Callable[..., Trail]] = dict(zip(METHODS, (_complete, _ours, _imputing, _masked), strict=True))


def _model(factors: list[Any]) -> Any:
    letters = "abcd"[: len(factors)]
    return np.einsum(",".join(f"{x}k" for x in letters) + "->" + letters, *factors, optimize=True)


def _observed_error(X: Any, seen: Any, Y: Any) -> float:
    return float(np.sqrt(np.square((X - Y)[seen]).sum() / np.square(X[seen]).sum()))


def _hidden_error(X: Any, seen: Any, Y: Any) -> float:
    return 0.0 if seen.all() else float(np.sqrt(np.square((X - Y)[~seen]).sum() / np.square(X[~seen]).sum()))
