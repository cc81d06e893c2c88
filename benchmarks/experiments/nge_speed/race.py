"""One setting of the NGE comparison (problem, order, alpha): run the family, return plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch

from nnfactor.core import iterate, m_matrix, multiplicative

from ...data.problems import Problem
from ...methods import exact_solves as rules
from ...timing.clock import Clock, Lane, race, stops
from ...timing.memory import peak_growth
from .family import Instance, Method, family, instance
from .numbers import Agreement, Measured, Outcome
from .parameters import Parameters

REFERENCE_TOL = 1e-10

PRODUCTS = "products"


def run_setting(
    parameters: Parameters, problem: Problem, order: int, alpha: float, run: Any, tick: Callable[[int], Any]
) -> Outcome:
    """Time all methods of the parameters on one setting. `run` has `device`, `dtype` and `settings.seed`."""
    graph = {"n_neighbors": parameters.n_neighbors, "n_pairs": parameters.n_pairs}
    at = instance(problem, order, alpha, run.settings.seed, run.device, run.dtype, **graph)
    methods = {name: family(parameters.tight_tol)[name] for name in parameters.methods}
    lanes = _lanes(parameters, methods, at)
    curves: dict[str, list[tuple[int, float]]] = {lane.name: [] for lane in lanes}

    def look(lane: Lane, iteration: int) -> None:
        if lane.name != PRODUCTS:
            curves[lane.name].append((iteration, at.objective(lane.state)))

    points = stops(parameters.iterations, max(10, parameters.solved_iterations), parameters.stretch)
    race(lanes, points, Clock.on(run.device), look, tick)
    measured = {lane.name: Measured(tuple(lane.stretches), tuple(curves[lane.name])) for lane in lanes}
    return Outcome(
        problem=problem.name,
        title=problem.title,
        paper=problem.paper,
        order=order,
        alpha=alpha,
        shape=tuple(at.X.shape),
        k=at.k,
        q=at.q,
        iterations=parameters.iterations,
        products=measured.pop(PRODUCTS),
        methods=measured,
        memory={name: _memory(at, m) for name, m in methods.items()} if parameters.memory else {},
        resident=sum(Z.numel() * Z.element_size() for Z in (at.X, *at.start.values())),
        agreement=tuple(agreement(at, parameters.solved_iterations)),
    )


def total_iterations(parameters: Parameters) -> int:
    """Count the ticks of one setting."""
    few = sum(name in parameters.SOLVED for name in parameters.methods)
    full = len(parameters.methods) - few + 1
    return full * parameters.iterations + few * min(parameters.solved_iterations, parameters.iterations)


def agreement(at: Instance, iterations: int) -> Iterator[Agreement]:
    """In float64: the dense solvers against CG to a relative residual of 1e-10, from the same start."""
    exact = at.to(torch.float64)
    reference = _states(exact, Method(multiplicative, partial(m_matrix, tol=REFERENCE_TOL)), iterations)
    for name, rule in (("inverses", rules.inverses), ("cholesky", rules.cholesky)):
        states = _states(exact, Method(multiplicative, rule), iterations)
        for i, (state, wanted) in enumerate(zip(states, reference, strict=True), 1):
            ours, theirs = exact.objective(state), exact.objective(wanted)
            V, W = state["factors"]["V"], wanted["factors"]["V"]
            yield Agreement(name, i, float((V - W).norm() / W.norm()), abs(ours - theirs) / theirs)


def _lanes(parameters: Parameters, methods: dict[str, Method], at: Instance) -> list[Lane]:
    start = {"factors": at.start}
    limits = {name: parameters.solved_iterations for name in parameters.SOLVED}
    lanes = [
        Lane(name, _without_gradients(at.sweep(m)), start, limits.get(name, parameters.iterations))
        for name, m in methods.items()
    ]
    return [*lanes, Lane(PRODUCTS, _without_gradients(at.products()), start, parameters.iterations)]


def _without_gradients(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return torch.no_grad()(step)


def _states(at: Instance, method: Method, iterations: int) -> list[Any]:
    with torch.no_grad():
        return list(islice(iterate(at.sweep(method), {"factors": at.start}), iterations))


def _memory(at: Instance, method: Method) -> int | None:
    """Of two iterations from the start: the second has the first one's factors beside its own."""
    sweep = _without_gradients(at.sweep(method))
    return peak_growth(lambda: sweep(sweep({"factors": at.start})), at.X.device)
