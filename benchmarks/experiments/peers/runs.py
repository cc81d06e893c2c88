"""Running the comparison: problem by problem, start by start."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...harness.errors import MissingData
from ...harness.kinds import Context
from ...timing import roofline
from ...timing.clock import Clock
from .costs import memory, multiplicative_sweep, sparse_iterations, time_products
from .methods import Method, build, objective, why_not
from .numbers import Everything, Outcome, Trail
from .parameters import JUDGED, Parameters
from .problems import KL, NTF, PROBLEMS, Spec, starts
from .race import Limits, climb
from .restarts import run_restarts


def measure_all(p: Parameters, context: Context) -> Everything:
    """Measure all parts."""
    device, seed = context.device, context.settings.seed
    clock = Clock.on(device, context.settings.threads)
    rates = roofline.measure(device, context.dtype)
    found = Everything([], [], [], [], rates, {})
    for name, X in _problems(p, context, found.skipped):
        context.say(PROBLEMS[name].title)
        outcome, sweep = _problem(p, name, X, context, clock, rates)
        found.outcomes.append(outcome)
        found.sweeps.extend(sweep)
    for name in p.restarts:
        context.say(f"{p.n_restarts} restarts, {name}")
        skip = "sklearn_cd" not in p.methods or device.type != "cpu"
        found.restarts.append(run_restarts(name, p.n_restarts, device, clock, seed, skip))
    for name in p.sparse:
        context.say(f"sparse iterations, {name}")
        found.sparse.append(sparse_iterations(name, device, clock, seed))
    if not (found.outcomes or found.restarts or found.sparse):
        raise MissingData("nothing to run: " + "; ".join(f"{n}: {why}" for n, why in found.skipped.items()))
    return found


def _problems(p: Parameters, context: Context, skipped: dict[str, str]) -> Any:
    """Names and data of what can be run, and why others are not: no folder skips, a bad file in it is an error."""
    for name in p.problems:
        spec = PROBLEMS[name]
        if spec.folder and context.data is None:
            skipped[name] = "no data folder: give --data DIR or NNFACTOR_DATA"
        elif spec.instead_of in p.problems and context.data is not None:
            skipped[name] = f"stands in for {spec.instead_of}, which is run itself"
        else:
            try:
                X = spec.make(context.data, context.settings.seed)
            except ImportError as error:
                skipped[name] = f"its data come with a package that is missing: {error}"
                continue
            yield name, X.astype(context.settings.dtype)


def _problem(
    p: Parameters, name: str, X: Any, context: Context, clock: Clock, rates: roofline.Rates
) -> tuple[Outcome, list[Any]]:
    spec, device = PROBLEMS[name], context.device
    begins = starts(X.shape, spec.n_components, float(X.mean()), p.starts, context.settings.seed)
    methods, skipped = _methods(p, X, spec, clock, device)
    trails = _climbs(p, methods, JUDGED[spec.group], begins, partial(_error, objective(X, spec.loss), spec))
    entries = int(X.nnz) if not isinstance(X, np.ndarray) else X.size
    size = X.dtype.itemsize
    least = roofline.two_products(rates, entries, X.shape, spec.n_components, not isinstance(X, np.ndarray), size)
    outcome = Outcome(
        problem=name,
        title=spec.title,
        group=spec.group,
        shape=tuple(X.shape),
        n_components=spec.n_components,
        entries=entries,
        trails=trails,
        labels={m.name: m.label for m in methods if m.label},
        products=time_products(X, begins[0], device, clock),
        roofline=least,
        memory=memory(methods, begins[0], device) if p.memory else {},
        resident=entries * size + sum(F.nbytes for F in begins[0]),
        skipped=skipped,
    )
    return outcome, [multiplicative_sweep(X, spec, begins[0], device, clock)] if spec.group == NTF else []


def _error(measure: Any, spec: Spec, factors: Any) -> float:
    """Measure the residual's norm, or the divergence."""
    value = measure(factors)
    return value if spec.loss == KL else float(np.sqrt(value))


def _methods(p: Parameters, X: Any, spec: Spec, clock: Clock, device: Any) -> tuple[list[Method], dict[str, str]]:
    methods, skipped = [], {}
    for name in p.methods:
        reason = why_not(name, spec, device)
        if reason is None:
            methods.append(build(name, X, spec, clock, device))
        elif reason:
            skipped[name] = reason
    return methods, skipped


def _climbs(
    p: Parameters, methods: list[Method], rivals: tuple[str, ...], begins: list[Any], error: Any
) -> dict[str, tuple[Trail, ...]]:
    limits = Limits(p.seconds, p.max_iter, p.settle, p.growth)
    trails: dict[str, list[Trail]] = {m.name: [] for m in methods}
    for i, start in enumerate(begins):
        chosen = [m for m in methods if i < p.other_starts or m.name in ("ours", *rivals)]
        for method, trail in climb(chosen, start, error, limits, turn=i).items():
            trails[method].append(trail)
    return {name: tuple(t) for name, t in trails.items()}
