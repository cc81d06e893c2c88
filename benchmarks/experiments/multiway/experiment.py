"""Models of several modes against their peers: milliseconds to a common error, from the same start.

Data are planted with multiplicative noise. A method has arrived when its relative error is at most 0.1 % above the
least error of that method which ends highest: all come there, and "reached" says which go on. Ours is read from the
history of one fit, whose sweeps know the objective anyway. A peer runs twice, for its errors after every iteration and
for its time without reading them; its iterations count alike. Times are those of the processor, which are the same on
an idle machine with one thread, and still right on a busy one.
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

Trail = tuple[list[float], list[float]]  # seconds, relative errors

CASES: dict[str, tuple[str, Any]] = {  # model, sizes
    "NTD 60 x 50 x 40, ranks 6 5 4": ("ntd", ((60, 50, 40), (6, 5, 4))),
    "NTD 100 x 100 x 100, ranks 10": ("ntd", ((100, 100, 100), (10, 10, 10))),
    "NTD 30 x 20 x 15 x 10, ranks 4 4 3 3": ("ntd", ((30, 20, 15, 10), (4, 4, 3, 3))),
    "NTD 20 x 15 x 10, ranks 3": ("ntd", ((20, 15, 10), (3, 3, 3))),
    "PARAFAC2 50 slices of 200 x 60, k = 5": ("parafac2", (50, 200, 60, 5)),
    "PARAFAC2 30 slices of 500 x 100, k = 6": ("parafac2", (30, 500, 100, 6)),
    "PARAFAC2 10 slices of 30 x 12, k = 3": ("parafac2", (10, 30, 12, 3)),
    "PARAFAC2 nonnegative, 30 slices of 200 x 60, k = 5": ("nonnegative", (30, 200, 60, 5)),
    "PARAFAC2 nonnegative, 10 slices of 30 x 12, k = 3": ("nonnegative", (10, 30, 12, 3)),
    "Coupled 8 matrices of 200 x 150, k = 8": ("coupled", (8, 200, 150, 8)),
    "Coupled 3 matrices of 30 x 20, k = 3": ("coupled", (3, 30, 20, 3)),
}

METHODS = ("nnfactor", "TensorLy", "MatCoupLy")

PACKAGES = {"TensorLy": "tensorly", "MatCoupLy": "matcouply"}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems : names in `CASES`
    methods : names
    starts : runs from different starts and data, each a split
    iterations : of every method
    """

    problems: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    starts: int = 3
    iterations: int = 200

    def __post_init__(self) -> None:
        check_names("problem", self.problems, CASES)
        check_names("method", self.methods, METHODS)
        check_positive(self, "starts", "iterations")


def run(parameters: Parameters, context: Context) -> Report:
    """Race, then report."""
    skipped = {name: "the package is not installed" for name, p in PACKAGES.items() if not importlib.util.find_spec(p)}
    rows = [
        row
        for problem in parameters.problems
        for start in range(parameters.starts)
        for row in _race(problem, start, parameters, skipped)
    ]
    return finish(Outcome(tuple(rows), skipped), context, metrics=("to_target", "reached"))


def _race(problem: str, seed: int, p: Parameters, skipped: Any) -> Iterator[Row]:
    kind, sizes = CASES[problem]
    X, start = DATA[kind](np.random.default_rng(seed), *sizes)
    able = {m: trail for m, trail in TRAILS[kind].items() if m in p.methods and m not in skipped}
    with quiet():
        trails = {m: trail(X, start, p.iterations) for m, trail in able.items()}
    common = max(min(errors) for _, errors in trails.values())
    for method, (seconds, errors) in trails.items():
        at = next((i for i, error in enumerate(errors) if error <= 1.001 * common), None)
        base = {"kind": "score", "problem": problem, "setting": "same start", "split": seed}
        row = base | {"method": method, "point": {}, "reached": 100 * min(errors)}
        yield row if at is None else row | {"to_target": 1e3 * seconds[at]}


def _tucker_data(rng: Any, shape: Any, ranks: Any) -> tuple[Any, Any]:
    draw = lambda: ([rng.random((d, r)) for d, r in zip(shape, ranks, strict=True)], rng.random(ranks))
    planted, core = draw()
    X = _tucker([F**2 for F in planted], core**3) * rng.uniform(0.95, 1.05, shape)
    factors, core = draw()
    return X, (factors, core * X.sum() / _tucker(factors, core).sum())


def _slices(rng: Any, n_slices: int, rows: int, columns: int, k: int) -> tuple[Any, Any]:
    """Peaks that move together from slice to slice."""
    C, lengths = rng.gamma(0.5, size=(columns, k)), rng.integers(int(0.8 * rows), int(1.2 * rows) + 1, n_slices)
    X = []
    for n in lengths:
        centres = np.linspace(0.15, 0.6, k) * rows + rng.integers(0, max(2, rows // 10))
        profiles = np.exp(-(((np.arange(n)[:, None] - centres) / (0.05 * rows)) ** 2))
        X.append((profiles * (rng.random(k) + 0.3)) @ C.T * rng.uniform(0.9, 1.1, (n, columns)))
    return X, (np.ones((n_slices, k)), rng.random((columns, k)), np.eye(k))


def _matrices(rng: Any, count: int, rows: int, columns: int, k: int) -> tuple[Any, Any]:
    C = rng.gamma(0.5, size=(columns, k))
    X = [rng.gamma(0.5, size=(rows, k)) @ C.T * rng.uniform(0.9, 1.1, (rows, columns)) for _ in range(count)]
    return X, ([rng.random((rows, k)) for _ in X], rng.random((columns, k)))


def _ours(fit: Callable[[int], Any], norm: float, iterations: int) -> Trail:
    """Read the history of one fit, after a short one that is discarded; what comes before the loop counts."""
    fit(2)
    began, busy = time.perf_counter(), time.process_time()
    model = fit(iterations)
    passed, seconds = time.perf_counter() - began, model.history_["seconds"]
    share = (time.process_time() - busy) / passed
    return list(share * (seconds + passed - seconds[-1])), list(np.sqrt(model.history_["objective"] / norm))


def _peer(run: Callable[[bool], Any], errors: Callable[[Any], Any]) -> Trail:
    """Run once for the errors, once for the time."""
    found = list(errors(run(True)))
    began = time.process_time()
    run(False)
    each = (time.process_time() - began) / len(found)
    return [each * (i + 1) for i in range(len(found))], found


def _ntd(X: Any, start: Any, iterations: int) -> Trail:
    from nnfactor import NTD

    init = (*start[0], start[1])
    fit = lambda n: NTD(start[1].shape, init=init, max_iter=n, tol=0, device="cpu").fit(X)
    return _ours(fit, np.square(X).sum(), iterations)


def _tensorly_tucker(X: Any, start: Any, iterations: int) -> Trail:
    from tensorly.decomposition import non_negative_tucker_hals

    given = lambda: (start[1].copy(), [F.copy() for F in start[0]])
    options = {"n_iter_max": iterations, "algorithm": "fista"}
    run = lambda told: non_negative_tucker_hals(
        X, start[1].shape, init=given(), tol=1e-300 if told else 0, return_errors=told, **options
    )
    return _peer(run, lambda found: map(float, found[1]))


def _parafac2(X: Any, start: Any, iterations: int, evolving: Any = "free") -> Trail:
    from nnfactor import PARAFAC2

    k = len(start[2])
    fit = lambda n: PARAFAC2(k, evolving=evolving, init=start, max_iter=n, tol=0, device="cpu").fit(X)
    return _ours(fit, sum(np.square(A).sum() for A in X), iterations)


def _nonnegative(X: Any, start: Any, iterations: int) -> Trail:
    return _parafac2(X, start, iterations, "nonnegative")


def _tensorly_parafac2(X: Any, start: Any, iterations: int) -> Trail:
    """Take TensorLy's solver with its line search, which needs an error in every iteration."""
    from tensorly.decomposition import parafac2
    from tensorly.parafac2_tensor import Parafac2Tensor

    (A, C, B), k = start, len(start[2])
    given = lambda: Parafac2Tensor(
        (np.ones(k), [F.copy() for F in (A, B, C)], [np.eye(len(x), k) for x in X]),
    )
    run = lambda told: parafac2(
        X, k, n_iter_max=iterations, init=given(), nn_modes=[0, 2], tol=1e-300, linesearch=True, return_errors=told
    )
    return _peer(run, lambda found: map(float, found[1]))


def _matcouply_parafac2(X: Any, start: Any, iterations: int) -> Trail:
    from matcouply.decomposition import parafac2_aoadmm

    (A, C, _), k = start, len(start[2])
    given = (None, (A.copy(), [np.eye(len(x), k) for x in X], C.copy()))
    limits = {"tol": 0, "absolute_tol": 0, "feasibility_tol": 0, "n_iter_max": iterations, "random_state": 0}
    run = lambda told: parafac2_aoadmm(X, k, init=given, non_negative=True, return_errors=True, **limits)
    return _peer(run, lambda found: _relative(found[-1]))


def _coupled(X: Any, start: Any, iterations: int) -> Trail:
    from nnfactor import Coupled

    rows, C = start
    modes = [(f"rows {i}", "columns") for i in range(len(X))]
    init = {"columns": C} | {m[0]: F for m, F in zip(modes, rows, strict=True)}
    norms = [float(np.square(A).sum()) for A in X]
    k = C.shape[1]
    fit = lambda n: Coupled(k, modes=modes, weights=norms, init=init, max_iter=n, tol=0, device="cpu").fit(X)
    return _ours(fit, sum(norms), iterations)


def _matcouply(X: Any, start: Any, iterations: int) -> Trail:
    from matcouply.decomposition import cmf_aoadmm

    rows, C = start
    given = (None, (np.ones((len(X), C.shape[1])), [F.copy() for F in rows], C.copy()))
    limits = {"tol": 0, "absolute_tol": 0, "feasibility_tol": 0, "n_iter_max": iterations, "random_state": 0}
    run = lambda told: cmf_aoadmm(X, C.shape[1], init=given, non_negative=True, return_errors=True, **limits)
    return _peer(run, lambda found: _relative(found[-1]))


def _relative(told: Any) -> Iterator[float]:
    """List the relative errors after every iteration, of which MatCoupLy also tells the one at the start."""
    return map(float, told.rec_errors[1:])


def _tucker(factors: Any, core: Any) -> Any:
    for mode, F in enumerate(factors):
        core = np.moveaxis(np.moveaxis(core, mode, -1) @ F.T, -1, mode)
    return core


DATA: dict[str, Callable[..., tuple[Any, Any]]] = {
    "ntd": _tucker_data,
    "parafac2": _slices,
    "nonnegative": _slices,
    "coupled": _matrices,
}

TRAILS: dict[str, dict[str, Callable[..., Trail]]] = {
    "ntd": {"nnfactor": _ntd, "TensorLy": _tensorly_tucker},
    "parafac2": {"nnfactor": _parafac2, "TensorLy": _tensorly_parafac2},
    "nonnegative": {"nnfactor": _nonnegative, "MatCoupLy": _matcouply_parafac2},
    "coupled": {"nnfactor": _coupled, "MatCoupLy": _matcouply},
}
