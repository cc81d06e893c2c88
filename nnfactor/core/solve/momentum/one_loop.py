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
    """Where a loop is: a state, and what it goes on with from this very state, whose tensors are copies of the arrays.

    A call that begins at `state` writes to the arrays; one that begins at any other state makes some of its own.
    """

    state: State
    names: Sequence[str]
    given: Any
    arrays: Any


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

    def begin(state: State) -> Reached | None:
        found = _problems(loops, data, terms[0].modes, rules, state, lambda r, c, k: 4.0 * r * c * k + sweeps(k))
        if found is None:
            return None
        state = state if "memory" in state else {**state, **start(state["factors"])}
        point = _point_of(loops, state, found.names)
        squares = data.sqnorm().reshape(-1).expand(len(point.kept)).contiguous().numpy()
        times = np.array([inner[name] for name in found.names])
        return Reached(state, found.names, (found.rows.numpy(), found.owners, squares, found.modes, times), point)

    def go_on(at: Reached, count: int, tell: bool) -> tuple[Reached, np.ndarray]:
        values = loops.sweep_problems(*at.given, at.arrays, loops.Momentum(*constants), count)
        return at._replace(state=_state_at(at.arrays, at.state, at.names)), values

    return _make(sweep, begin, go_on)


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

    def begin(state: State) -> Reached | None:
        found = _problems(loops, data, terms[0].modes, rules, state, loops.operations)
        if found is None:
            return None
        trail = _trail_of(loops, state, found.names)
        floors = data.floors(len(trail.t)).to(found.rows.dtype).contiguous().numpy()
        return Reached(state, found.names, (found.rows, found.owners, floors, found.modes), trail)

    def go_on(at: Reached, count: int, tell: bool) -> tuple[Reached, np.ndarray | None]:
        values = loops.sweep_ratios(*at.given, at.arrays, step, count, tell)
        after = _state_after(at.arrays, at.state, at.names)
        return at._replace(state=after, arrays=at.arrays._replace(begun=True)), values

    return _make(sweep, begin, go_on)


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


def _make(
    sweep: Sweep,
    begin: Callable[[State], Reached | None],
    go_on: Callable[[Reached, int, bool], tuple[Reached, np.ndarray | None]],
) -> Sweep:
    """Return a sweep that is the loop, or `sweep` where problems are not small; `many` is the loop for `run`."""
    last: Reached | None = None

    def several(state: State, count: int, tell: bool) -> tuple[State, np.ndarray | None] | None:
        nonlocal last
        at = last if last is not None and state is last.state else begin(state)
        if at is None:
            return None
        last, values = go_on(at, count, tell)
        return last.state, values

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
