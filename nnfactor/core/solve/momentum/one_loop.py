"""Sweeps with momentum compiled as a whole, for dense data so small that the host would take longer than they do."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ...compiled import compiled_loops
from ...data.dense import Dense, DenseProducts
from ...data.stacked import Stacked
from ...rules.base import Rule, list_rules
from ...rules.hals import hals
from ...rules.multiplicative import multiplicative
from ...terms.base import Term
from ...terms.beta import BetaFit
from ...terms.fit import DataTerm, Fit
from ..cuda_graph import State, Sweep

SMALL = 20e6  # operations of a sweep of all problems: for fewer the loop takes less time than torch with its threads
FIXED = 150e3  # operations in the time of what else a sweep of one problem does; torch does it for a batch at once
NUMBERS = ("limit", "rounding", "weight", "past", "cap", "reach")  # of a problem of `her`, as its loop has them


class Problems(NamedTuple):
    """Small problems as a loop takes them: matrices row by row, and the modes in the order of their two groups."""

    rows: Tensor  # (sets, r, c)
    owners: Sequence[int]
    names: list[str]
    modes: Any


class Reached(NamedTuple):
    """Where a loop ended: the state that it returned, and what it goes on with from this very state.

    The state has copies of the arrays, for the loop writes to them.
    """

    state: State = {}
    names: Sequence[str] = ()
    given: Any = None
    arrays: Any = None


def her_in_one_loop(
    sweep: Sweep,
    terms: Sequence[Term],
    rules: Mapping[str, Rule],
    start: Callable[[Mapping[str, Tensor]], State],
    constants: Sequence[float],
) -> Sweep:
    """Return a sweep of `her` that is one compiled loop wherever problems are small."""
    inner = {name: n for name, rule in rules.items() if (n := _inner_sweeps(rule))}
    if (data := _dense_data(terms, Fit, inner)) is None or (loops := compiled_loops("extrapolated")) is None:
        return sweep
    sweeps = lambda k: sum(2.0 * k * k * data.shape[i] * inner[name] for i, name in enumerate(terms[0].modes))

    last = Reached()

    def several(state: State, count: int, tell: bool) -> tuple[State, np.ndarray] | None:
        nonlocal last
        names, given, point = last.names, last.given, last.arrays
        if state is not last.state:
            found = _problems(loops, data, terms[0].modes, rules, state, lambda r, c, k: 4.0 * r * c * k + sweeps(k))
            if found is None:
                return None
            state = state if "memory" in state else {**state, **start(state["factors"])}
            names, point = found.names, _point_of(loops, state, found.names)
            squares = data.sqnorm().reshape(-1).expand(len(point.kept)).contiguous().numpy()
            given = found.rows.numpy(), found.owners, squares, found.modes, np.array([inner[name] for name in names])
        values = loops.sweep_problems(*given, point, loops.Momentum(*constants), count)
        last = Reached(_state_at(point, state, names), names, given, point)
        return last.state, values

    return _make(sweep, several)


def _point_of(loops: Any, state: State, names: Sequence[str]) -> Any:
    """Copy a state of `her` into the arrays of its loop."""
    memory = state["memory"]
    factors = [_pack(Fs, names) for Fs in (memory["before"], memory["ahead"], state["factors"])]
    numbers = torch.stack([memory[name].reshape(-1) for name in NUMBERS], 1).numpy()
    objective = state["objective"].reshape(-1).numpy().copy()
    return loops.Point(*factors, numbers, objective, np.ones(len(objective), dtype=bool))


def _state_at(point: Any, like: State, names: Sequence[str]) -> State:
    """Copy a state of `her` out of the arrays of its loop."""
    factors, shape = like["factors"], like["objective"].shape
    before, ahead, reached = (_unpack(flat, factors, names) for flat in (point.before, point.ahead, point.reached))
    numbers = zip(NUMBERS, torch.from_numpy(point.numbers.T.copy()).view(-1, *shape), strict=True)
    return {
        "factors": {**factors, **reached},
        "objective": torch.from_numpy(point.objective.copy()).view(shape),
        "kept": torch.from_numpy(point.kept.copy()).view(shape),
        "memory": {"before": before, "ahead": ahead, **dict(numbers)},
    }


def bmme_in_one_loop(sweep: Sweep, terms: Sequence[Term], rules: Mapping[str, Rule], step: float) -> Sweep:
    """Return a sweep of `bmme` under Kullback-Leibler that is one compiled loop wherever problems are small."""
    plain = {name: rule for name, rule in rules.items() if list_rules(rule) == [(multiplicative, {"step": step})]}
    data = _dense_data(terms, BetaFit, plain)
    if data is None or cast(BetaFit, terms[0]).beta != 1 or (loops := compiled_loops("extrapolated_ratios")) is None:
        return sweep
    last = Reached()

    def several(state: State, count: int, tell: bool) -> tuple[State, np.ndarray | None] | None:
        nonlocal last
        names, given, trail = last.names, last.given, last.arrays
        if state is not last.state:
            found = _problems(loops, data, terms[0].modes, rules, state, loops.operations)
            if found is None:
                return None
            names, trail = found.names, _trail_of(loops, state, found.names)
            floors = data.floors(len(trail.t)).to(found.rows.dtype).contiguous().numpy()
            given = found.rows, found.owners, floors, found.modes
        values = loops.sweep_ratios(*given, trail, step, count, tell)
        last = Reached(_state_after(trail, state, names), names, given, trail._replace(begun=True))
        return last.state, values

    return _make(sweep, several)


def _trail_of(loops: Any, state: State, names: Sequence[str]) -> Any:
    """Copy a state of `bmme` into the arrays of its loop."""
    memory, now = state.get("memory"), _pack(state["factors"], names)
    before = _pack(memory["before"], names) if memory else np.zeros_like(now)
    t = memory["t"].reshape(-1).numpy().copy() if memory else np.ones(len(now))
    return loops.Trail(now, before, t, memory is not None)


def _state_after(trail: Any, like: State, names: Sequence[str]) -> State:
    """Copy a state of `bmme` out of the arrays of its loop."""
    factors = like["factors"]
    t = torch.from_numpy(trail.t.copy()).view(factors[names[0]].shape[:-2])
    memory = {"before": _unpack(trail.before, factors, names), "t": t}
    return {**like, "factors": {**factors, **_unpack(trail.now, factors, names)}, "memory": memory}


def _make(sweep: Sweep, several: Callable[[State, int, bool], tuple[State, Any] | None]) -> Sweep:
    """Return a sweep that is the loop, or `sweep` where problems are not small; `many` is the loop for `run`."""

    def one(state: State) -> State:
        reached = several(state, 1, False)
        return sweep(state) if reached is None else reached[0]

    one.many = several  # type: ignore[attr-defined]
    return one


def _dense_data(terms: Sequence[Term], kind: type[DataTerm], rules: Mapping[str, Any]) -> DenseProducts | None:
    """Return the data if they are dense, of an only term of this very kind, whose factors all have one of `rules`."""
    term = terms[0]
    if len(terms) > 1 or type(term) is not kind or rules.keys() != {*term.modes}:
        return None
    return cast(DenseProducts, term.data) if type(term.data) in (Dense, Stacked) else None


def _problems(
    loops: Any,
    data: DenseProducts,
    names: Sequence[str],
    rules: Mapping[str, Rule],
    state: State,
    work: Callable[..., float],
) -> Problems | None:
    """Describe problems to a loop if they are on the CPU, small, and in memory as it needs them.

    `work` counts the operations of a sweep over a matrix of so many rows and columns with so many components.
    """
    factors = [state["factors"][name] for name in names]
    *batch, _, k = factors[0].shape
    rows, owners = data.matrices(prod(batch))
    ordered, cut = [*names], data.cut
    if not rows.is_contiguous():  # columns are rows then, and come first
        rows, ordered, cut = rows.mT, [*names[cut:], *names[:cut]], len(names) - cut
    if not rows.is_cpu or not rows.is_contiguous() or compiled_loops("extrapolated", rows, *factors) is None:
        return None
    if prod(batch) * (work(*rows.shape[1:], k) + FIXED) > (SMALL if prod(batch) == 1 else SMALL / 2):
        return None
    sizes = [state["factors"][name].shape[-2] for name in ordered]
    modes = loops.Modes(np.array(sizes), cut, np.array([ordered.index(name) for name in rules]))
    return Problems(rows, owners, ordered, modes)


def _inner_sweeps(rule: Rule) -> int | None:
    """Return how often HALS sweeps over the columns, or None for another rule or other bounds."""
    (used, settings), *others = list_rules(rule)
    return settings.get("sweeps", 1) if used is hals and not others and settings.keys() <= {"sweeps"} else None


def _pack(factors: Mapping[str, Tensor], names: Sequence[str]) -> np.ndarray:
    """Copy factors to one array, `(B, k * rows of all)`, component-major."""
    problems = prod(factors[names[0]].shape[:-2])
    return torch.cat([factors[name].mT.reshape(problems, -1) for name in names], 1).numpy()


def _unpack(flat: np.ndarray, like: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
    """Copy factors out of one array, each to memory of its own, as sweeps of torch make them."""
    whole, begin, factors = torch.from_numpy(flat), 0, {}
    for name in names:
        *batch, rows, k = like[name].shape
        end = begin + rows * k
        factors[name] = whole[:, begin:end].clone().view(*batch, k, rows).mT
        begin = end
    return factors
