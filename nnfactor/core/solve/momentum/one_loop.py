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
LANES = 32  # columns that the loop of ratios takes at once
NUMBERS = ("limit", "rounding", "weight", "past", "cap", "reach")  # of a problem of `her`, as its loop has them


class Problems(NamedTuple):
    """Small problems as a loop takes them: matrices row by row, and the modes in the order of their two groups."""

    rows: Tensor  # (sets, r, c)
    owners: Sequence[int]
    names: list[str]
    modes: Any


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

    def several(state: State, count: int, tell: bool) -> tuple[State, np.ndarray] | None:
        found = _problems(loops, data, terms[0].modes, rules, state, lambda r, c, k: 4.0 * r * c * k + sweeps(k))
        if found is None:
            return None
        state = state if "memory" in state else {**state, **start(state["factors"])}
        memory, names, problems = state["memory"], found.names, state["objective"].numel()
        numbers = np.stack([memory[name].reshape(-1).numpy() for name in NUMBERS], 1)
        factors = [_pack(Fs, names) for Fs in (memory["before"], memory["ahead"], state["factors"])]
        kept, objective = np.ones(problems, dtype=bool), state["objective"].reshape(-1).numpy().copy()
        squares = data.sqnorm().reshape(-1).expand(problems).contiguous().numpy()
        point = loops.Point(*factors, numbers, objective, kept)
        times = np.array([inner[name] for name in names])
        given = found.rows.numpy(), found.owners, squares, found.modes, times
        values = loops.sweep_problems(*given, point, loops.Momentum(*constants), count)
        of = lambda array: torch.from_numpy(array).reshape(state["objective"].shape)
        before, ahead, reached = (_unpack(flat, state["factors"], names) for flat in factors)
        reached_numbers = {name: of(column.copy()) for name, column in zip(NUMBERS, numbers.T, strict=True)}
        return {
            "factors": {**state["factors"], **reached},
            "objective": of(objective),
            "kept": of(kept),
            "memory": {"before": before, "ahead": ahead, **reached_numbers},
        }, values

    return _make(sweep, several)


def bmme_in_one_loop(sweep: Sweep, terms: Sequence[Term], rules: Mapping[str, Rule], step: float) -> Sweep:
    """Return a sweep of `bmme` under Kullback-Leibler that is one compiled loop wherever problems are small."""
    plain = {name: rule for name, rule in rules.items() if list_rules(rule) == [(multiplicative, {"step": step})]}
    data = _dense_data(terms, BetaFit, plain)
    if data is None or cast(BetaFit, terms[0]).beta != 1 or (loops := compiled_loops("extrapolated_ratios")) is None:
        return sweep

    def several(state: State, count: int, tell: bool) -> tuple[State, np.ndarray | None] | None:
        work = lambda r, c, k: 8.0 * r * max(c, LANES) * k
        found = _problems(loops, data, terms[0].modes, rules, state, work)
        if found is None:
            return None
        memory, names = state.get("memory"), found.names
        now = _pack(state["factors"], names)
        before = _pack(memory["before"], names) if memory else np.zeros_like(now)
        t = memory["t"].reshape(-1).numpy().copy() if memory else np.ones(len(now))
        floors = data.floors(len(now)).to(found.rows.dtype).contiguous().numpy()
        trail = loops.Trail(now, before, t, memory is not None)
        values = loops.sweep_ratios(found.rows, found.owners, floors, found.modes, trail, step, count, tell)
        shape = state["factors"][names[0]].shape[:-2]
        reached = {"before": _unpack(before, state["factors"], names), "t": torch.from_numpy(t).reshape(shape)}
        factors = {**state["factors"], **_unpack(now, state["factors"], names)}
        return {**state, "factors": factors, "memory": reached}, values

    return _make(sweep, several)


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
    """Copy factors out of one array, as sweeps of torch make them."""
    shapes = [like[name].mT.shape for name in names]
    parts = torch.from_numpy(flat).split([prod(shape[-2:]) for shape in shapes], 1)
    return {name: part.clone().view(shape).mT for name, part, shape in zip(names, parts, shapes, strict=True)}
