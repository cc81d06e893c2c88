"""Sweeps with momentum: `her` for rules that minimise, `bmme` for the multiplicative one.

HER is "heuristic extrapolation with restarts" (Ang and Gillis 2019), BMMe "block majorisation-minimisation with
extrapolation" (Hien, Leplat and Gillis 2024). What they need of earlier sweeps is in the state, under "memory", one
number or factor per problem: `take` drops problems from it as from everything else. The factors of the state are
nonnegative at all times, and those of `bmme` are never extrapolated ones.

HER compares with the sweep before, kept or not: against the best so far a problem could be refused for ever. A rise
within rounding counts as none; otherwise noise would decide once a problem has settled, and a batch would end elsewhere
than the separate runs. Only a restart raises the objective. Two safeguards are not in the paper; they hardly ever act:

* The columns of one component can grow and shrink against each other without a change of the objective. Each of d
  factors extrapolates this drift by w, so that it grows from sweep to sweep where w > 1/d. Therefore columns of
  extrapolated factors stay between 1/128 and 128 times the geometric mean of their component's lengths. The last
  factor, which is improved next, absorbs the change: the model is the same.
* After a sweep that would have raised the objective by more than a tenth, the next one has no momentum and is kept
  whatever it reaches; otherwise the next sweep would be accepted for improving on a bad point.

>>> import torch
>>> from nnfactor.core import Fit, her, hals, run
>>> X = torch.outer(torch.arange(1.0, 5), torch.arange(1.0, 4))
>>> start = {"V": X[:, :1], "U1": X[:3, :1]}
>>> result = run([Fit(X, ("V", "U1"))], {"U1": hals, "V": hals}, start, method=her)
>>> bool(result.objective[0] < 1e-3)
True
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from math import inf, log
from typing import Any

import torch
from torch import Tensor

from ...cache import tiny
from ...factors import at_hand, choose, normalize_columns, square_norms
from ...rules.base import Rule
from ...rules.multiplicative import multiplicative
from ...terms.base import Term, add_blocks, add_values, samples_of
from ..checks import check_rules
from ..cuda_graph import State, Sweep
from ..run import step
from .one_loop import bmme_in_one_loop, her_in_one_loop

START, SHRINK, GROW, GROW_CAP = 0.5, 1.5, 1.01, 1.005  # of the weight: the choice of Ang and Gillis (2019) for HALS
ROUNDING = 16  # units in the last place of the objective at the start or of ||X||^2, whichever is lower: no rise
RISE = 0.1  # of the objective: a sweep that would raise it by more is followed by one without momentum
STEP, LONGER, SHORTER, LONGEST = 1.0, 1.3, 3.0, 16.0  # of `nested`: the weight of what a sweep changed, measured
LONGER_STEP = 1.3  # of `bmme` under Kullback-Leibler, in estimators
APART = 128.0  # a column of an extrapolated factor is at most so many times as long or short as its component's mean


def her(
    terms: Sequence[Term],
    rules: Mapping[str, Rule],
    unit: Sequence[str] = (),
    within: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    bound: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
) -> Sweep:
    """Make sweeps of block minimisation with extrapolation and restarts (HER; Ang and Gillis 2019, Algorithm 2).

    A `method` of `run`, meant for `hals`: entries that a multiplicative rule finds at 0 would stay there. Every factor
    is improved at extrapolated values of the others, `F + w (F - F before)` clamped at 0 (their variant hp = 3). If the
    objective of the last factor with the extrapolated others is above that of the sweep before (or NaN), the sweep is
    discarded: the factors before it are kept, the next sweep starts from them without momentum, and the weight w
    shrinks; otherwise w grows. Each problem of a batch has its own weight.

    Parameters
    ----------
    unit : sequence of str
        Factors whose columns are brought to length one before they are extrapolated, their lengths going into the
        factor that is improved next: for graphs with `norms_of`, whose weight on V then is the same in all sweeps.
        Default: none, and the ratio of the lengths is bounded.
    within : dict of callable, optional
        Projections on sets that factors must lie in; extrapolated ones are projected too, and no length is changed.
    bound : callable, optional
        Keeps lengths of extrapolated columns in range where the model is not one CP model, and leaves it as it is.
    """
    check_rules(terms, rules)
    *names, last = rules
    norms = _norms_of(terms, rules) if names and not unit and within is None and bound is None else None
    steps = [term.overrelaxed() for term in terms] if len(terms) == 1 else terms  # the objective is checked

    def sweep(state: State) -> State:
        if "memory" not in state:
            state = {**state, **_start_memory(terms, _unit_columns(state["factors"], unit, last), rules)}
        memory = state["memory"]
        before, ahead, new = memory["before"], {**state["factors"], **memory["ahead"]}, {}
        ahead = bound(ahead) if bound else ahead  # first: products are kept for the very tensors of a sweep
        reach = memory["reach"].to(before[last].dtype)[..., None, None]
        extrapolate = lambda F, name: (within or {}).get(name, _positive)(torch.lerp(before[name], F, reach))
        for name, following in pairwise((*names, last)):
            improved = {**ahead, name: rules[name](ahead[name], add_blocks(steps, ahead, name))}
            ahead = _unit_columns(improved, [name] if name in unit else [], following)
            new[name], ahead[name] = ahead[name], extrapolate(ahead[name], name)
        ahead = _bound_lengths(ahead, names, last, norms) if norms else ahead
        new[last] = rules[last](ahead[last], add_blocks(steps, ahead, last))
        value = add_values(terms, {**ahead, last: new[last]})
        good = value <= memory["limit"]  # False for NaN
        kept = {name: choose(good, F, before[name]) for name, F in new.items()}
        point = {name: choose(good, ahead[name], state["factors"][name]) for name in names}
        ahead = {name: choose(good, ahead[name], before[name]) for name in names}
        ahead[last] = extrapolate(kept[last], last)
        reached = torch.where(good, value, state["objective"])
        return {
            "factors": {**state["factors"], **point, last: kept[last]},
            "objective": reached,
            "kept": good,  # `run` stops no problem whose last sweep was discarded
            "memory": {**memory, "before": kept, "ahead": ahead, **_update_numbers(memory, good, value, reached)},
        }

    return sweep if norms is None else _in_one_loop(sweep, terms, rules)


def _in_one_loop(sweep: Sweep, terms: Sequence[Term], rules: Mapping[str, Rule]) -> Sweep:
    start = partial(_start_memory, terms, rules=rules)
    return her_in_one_loop(sweep, terms, rules, start, (GROW, SHRINK, GROW_CAP, RISE, APART))


def _norms_of(terms: Sequence[Term], names: Iterable[str]) -> dict[str, Callable[[Tensor], Tensor]]:
    """Choose what computes squared lengths of columns: of the samples' factor their sums, which processes may share."""
    sample, sums = samples_of(terms)
    return {name: sums.square_norms if name == sample else square_norms for name in names}


def _positive(F: Tensor) -> Tensor:
    return F.clamp_(min=0)


def nested(
    terms: Sequence[Term],
    rules: Mapping[str, Rule],
    rare: Sequence[str],
    times: int = 1,
    within: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    bound: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
) -> Sweep:
    """Make sweeps that improve the `rare` factors once, then the others `times` times.

    A `method` of `run`. With `within` a sweep begins at `F + w (F - F before)` for all factors that are not rare, as a
    line search along what the last sweep changed (Bro 1998): if the objective would rise, the sweep is discarded, the
    next one has no momentum, and the weight w of that problem shrinks; otherwise w grows.

    Parameters
    ----------
    within : dict of callable, optional
        The set of each factor that is extrapolated, as a projection. None: plain sweeps.
    bound : callable, optional
        Keeps lengths of columns in range, without a change of the model.
    """
    once, often = ({n: r for n, r in rules.items() if (n in rare) == first} for first in (True, False))
    first, others = step(terms, once), step(terms, often)

    def plain(state: State) -> State:
        state = first(state)
        for _ in range(times):
            state = others(state)
        return state

    def sweep(state: State) -> State:
        factors = state["factors"]
        now = {name: factors[name] for name in rules}
        memory: dict[str, Any] = state.get("memory") or _start_search(terms, factors, now)
        reach = (1 + memory["weight"]).to(now[rare[0]].dtype)[..., None, None]
        ahead = {n: project(torch.lerp(memory["before"][n], now[n], reach)) for n, project in (within or {}).items()}
        new = plain({"factors": {**factors, **ahead}})["factors"]
        value = add_values(terms, new)
        good = value <= memory["value"] * (1 + ROUNDING * torch.finfo(reach.dtype).eps)  # False for NaN
        new = bound(new) if bound else new
        kept = {name: choose(good, new[name], F) for name, F in now.items()}
        weight = torch.where(good, (LONGER * memory["weight"]).clamp(max=LONGEST), memory["weight"] / SHORTER)
        reached = torch.where(good, value, memory["value"])
        settled = good | ~memory["good"]  # a sweep without momentum that raises the value has reached its rounding
        memory = {"before": now, "weight": weight, "value": reached, "good": good}
        return {"factors": {**factors, **kept}, "objective": reached, "kept": settled, "memory": memory}

    return plain if within is None else sweep


def _start_search(terms: Sequence[Term], factors: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the memory before the first sweep, which extrapolates nothing."""
    value = add_values(terms, factors)
    good = torch.ones_like(value, dtype=torch.bool)
    return {"before": now, "weight": torch.full_like(value, STEP), "value": value, "good": good}


def bmme(terms: Sequence[Term], rules: Mapping[str, Rule], step: float = 1.0) -> Sweep:
    """Make sweeps of a majorisation-minimisation rule with extrapolation (BMMe; Hien, Leplat and Gillis 2024).

    A `method` of `run`, as in the example of `her`. A factor is improved from `F + w max(0, F - F before)`, which moves
    entries up only, so that zeros stay zeros and nothing else becomes one; `w = (t - 1) / t'`,
    `t' = (1 + sqrt(1 + 4 t^2)) / 2` from t = 1 on (Nesterov). Converges for beta-divergences with 1 <= beta <= 2,
    without restarts; not monotone in every sweep. The proof also bounds `w` by `1e4 / sqrt(sweep) / ||F - F before||`,
    which cannot bind in less than 1e8 sweeps for factors in units of their size, and is left out.

    `step` is that of `multiplicative`, for factors with this rule. Weights near 1 bear steps up to 4/3: on a quadratic
    they are stable for steps below `2 (1 + w) / (1 + 2 w)`. `LONGER_STEP` saved 13 to 40 % of the iterations to 1.02
    and 1.005 times the lowest divergence on counts, faces and expressions, none on digits; 1.75 diverged on all.
    """
    check_rules(terms, rules)
    rules = {name: partial(rule, step=step) if rule is multiplicative else rule for name, rule in rules.items()}
    own = {name: isinstance(rule, partial) and rule.func is multiplicative for name, rule in rules.items()}

    def sweep(state: State) -> State:
        factors, memory = dict(state["factors"]), state.get("memory")
        before = {name: factors[name] for name in rules}
        t = memory["t"] if memory else _per_problem(before, 1.0)
        following = t.square().add_(0.25).sqrt_().add_(0.5)
        weight = (t - 1).div_(following).to(next(iter(before.values())).dtype)[..., None, None]
        for name, rule in rules.items():
            if memory:
                factors[name] = (before[name] - memory["before"][name]).clamp_(min=0).mul_(weight).add_(before[name])
            new = rule(factors[name], add_blocks(terms, factors, name))
            # the rule shrinks entries that do not help for ever, and products with denormal squares are slow
            cut = torch.threshold_ if own[name] else torch.threshold  # another rule may return what is not its own
            factors[name] = cut(new, tiny(new.dtype) ** 0.5, 0)
        return {**state, "factors": factors, "memory": {"before": before, "t": following}}

    return bmme_in_one_loop(sweep, terms, rules, step)


def _start_memory(terms: Sequence[Term], factors: Mapping[str, Tensor], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return factors, objective and memory before the first sweep, which extrapolates nothing.

    The memory holds the factors that are kept ("before"), those from which the next sweep starts ("ahead"), and numbers
    for every problem: the "limit" of the next objective, what counts as "rounding"; the "weight", the one before
    ("past"), its "cap", and 1 plus the weight used next ("reach").
    """
    start = {name: factors[name] for name in rules}
    weight = _per_problem(start, START)
    value = add_values(terms, factors).expand_as(weight)
    sizes = [term.magnitude() for term in terms]  # of the data, where a term has some
    scale = [value, *(size.expand_as(value) for size in sizes if isinstance(size, Tensor))]
    rounding = reduce(torch.minimum, scale) * (ROUNDING * torch.finfo(next(iter(start.values())).dtype).eps)
    numbers = {"limit": value + rounding, "rounding": rounding}
    weights = {"weight": weight, "past": weight, "cap": weight.new_ones(weight.shape), "reach": 1 + weight}
    return {"factors": factors, "objective": value, "memory": {"before": start, "ahead": start, **numbers, **weights}}


def _update_numbers(memory: Mapping[str, Any], good: Tensor, value: Tensor, reached: Tensor) -> dict[str, Tensor]:
    """Return the numbers of the memory that a sweep to `value` changes; it is kept if `good`."""
    weight, past, cap, rounding = (memory[name] for name in ("weight", "past", "cap", "rounding"))
    known = value.nan_to_num(nan=torch.inf)
    disaster = known > torch.add(rounding, reached, alpha=1 + RISE)
    after = torch.where(good, torch.minimum(cap, GROW * weight), weight / SHRINK)
    return {
        "limit": torch.where(disaster, torch.finfo(known.dtype).max, known + rounding),
        "weight": after,
        "past": weight,
        "cap": torch.where(good, (GROW_CAP * cap).clamp(max=1), past),
        "reach": torch.where(disaster, 1, 1 + after),
    }


def _unit_columns(factors: dict[str, Tensor], some: Sequence[str], other: str) -> dict[str, Tensor]:
    """Bring columns of some factors to length one and multiply another factor with the lengths: the same model."""
    if not some:
        return factors
    names = (other, *some)
    return {**factors, **dict(zip(names, normalize_columns([factors[name] for name in names]), strict=True))}


def _per_problem(factors: Mapping[str, Tensor], number: float) -> Tensor:
    """Return the same float64 number for every problem."""
    F = max(factors.values(), key=Tensor.dim)
    return torch.full(F.shape[:-2], number, dtype=torch.float64, device=F.device)


def _bound_lengths(
    factors: dict[str, Tensor], names: Sequence[str], last: str, norms: Mapping[str, Callable[[Tensor], Tensor]]
) -> dict[str, Tensor]:
    """Bring columns of some factors between 1/`APART` and `APART` times the geometric mean length of their component.

    The mean includes the last factor: by its length alone three factors or more would swing further with every sweep.
    For a component with a zero column any length is the same model: its mean is that of the longest component.
    """
    squares = torch.stack([norms[n](factors[n]).squeeze(-2) for n in (*names, last)], dim=-2)  # of Grams
    far = APART ** (2 + 2 / len(names))  # logarithms that are no further apart are that near to their mean
    if at_hand(squares) and bool((squares.amax(-2) <= far * squares.amin(-2)).all()):
        return factors  # an answer at hand, and nearly always this one
    logs = squares.log_().mul_(0.5)
    mean = logs.mean(-2, keepdim=True)
    mean = torch.where(mean == -inf, mean.amax(-1, keepdim=True), mean)
    excess = (logs[..., :-1, :] - mean).nan_to_num_(nan=0, posinf=0, neginf=0)
    times = excess.clamp(-log(APART), log(APART)).sub_(excess).exp_()
    return {**factors, **{name: factors[name] * c for name, c in zip(names, times.split(1, dim=-2), strict=True)}}
