"""Sweeps with momentum: `her` for rules that minimise exactly, `bmme` for the multiplicative one.

Both are made like `solve.step` and stand in for it in `run`. What they remember is in the state, under "memory", one
number or factor per problem: `take` drops problems from it as from everything else. The factors of the state are
nonnegative at all times, and the multiplicative ones are never those that were extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from math import inf, log
from typing import Any

import torch
from torch import Tensor

from ..cache import tiny
from ..factors import normalize_columns, square_norms
from ..rules.base import Rule
from ..terms.base import Term, block_of, objective
from ..terms.fit import Fit
from .run import State

START, SHRINK, GROW, GROW_CAP = 0.5, 1.5, 1.01, 1.005  # of the weight, as Ang and Gillis (2019) choose them for HALS

ROUNDING = 16  # units in the last place of the objective at the start or at zero, whichever is lower

RISE = 0.1  # of the objective: after a sweep that would have raised it by more, one without momentum

APART = (
    128.0  # times that a column of an extrapolated factor is longer or shorter than its component's columns on average
)


def her(terms: Sequence[Term], rules: Mapping[str, Rule], unit: Sequence[str] = ()) -> Callable[[State], State]:
    """Sweeps of exact block minimisation with extrapolation and restart (HER; Ang and Gillis 2019, Algorithm 2).

    Every factor is improved at extrapolated values of the others, `F + w (F - F before)` clamped at 0 (their variant
    hp = 3). If the objective of the last factor with the extrapolated others has not fallen below that of the sweep
    before (NaN included), the sweep is thrown away: the factors before it are kept, the next sweep starts without
    momentum from them, and the weight w shrinks; otherwise w grows. Each problem of a batch has its own weight. The
    comparison is with the sweep before, kept or not: against the best ever a problem could be refused for ever. A
    rise by no more than rounding is none, or noise would decide once a problem has settled, and a batch would end
    elsewhere than the separate runs.

    Two safeguards are ours; on data with noise they hardly ever act. A component's factors may grow and shrink against
    each other, which no objective sees: each of d factors carries such a drift on by w, so that beyond w = 1/d it grows
    from sweep to sweep (to 1e18 in float32 at k = 1, until the fit was lost). So columns of extrapolated factors stay
    between 1/128 and 128 times the geometric mean of their component's lengths; the last factor, which is improved
    next, makes up for it: the model is the same. And after a sweep that would have raised the objective by more than a
    tenth, the next one has no momentum at all and is kept whatever it reaches: to be better than a disaster is not
    enough.

    The state's factors are the pair that was compared, and its "objective" is known without a further product with
    the data: the last factor's own. Not monotone, though only a restart raises the objective. For `hals`; entries that
    a multiplicative rule finds at 0 would stay there.

    Parameters
    ----------
    unit : sequence of str
        Factors whose columns are brought to length one before they are extrapolated, in place of the bound on lengths:
        for graphs with a gauge, which do not feel it, and whose weight on V then has one meaning all along. The lengths
        go into the next factor, which is improved next: nothing that is remembered of the others becomes void.

    Examples
    --------
    >>> import torch
    >>> from nnfactor.core import Fit, her, hals, run
    >>> X = torch.outer(torch.arange(1.0, 5), torch.arange(1.0, 4))
    >>> start = {"V": X[:, :1], "U1": X[:3, :1]}
    >>> result = run([Fit(X, ("V", "U1"))], {"U1": hals, "V": hals}, start, method=her)
    >>> bool(result.objective[0] < 1e-3)
    True
    """
    *names, last = rules

    def sweep(state: State) -> State:
        if "memory" not in state:
            factors = _unit_columns(state["factors"], unit, last)
            state = {**state, "factors": factors, **_fresh(terms, factors, rules)}
        memory = state["memory"]
        before, ahead = memory["before"], {**state["factors"], **memory["ahead"]}
        reach = _on(before[last], memory["reach"])
        new = {}
        for name, following in pairwise((*names, last)):
            improved = {**ahead, name: rules[name](ahead[name], block_of(terms, ahead, name))}
            ahead = _unit_columns(improved, [name] if name in unit else [], following)
            new[name] = ahead[name]
            ahead[name] = _further(new[name], before[name], reach)
        ahead = ahead if unit else _in_range(ahead, names, last)
        new[last] = rules[last](ahead[last], block_of(terms, ahead, last))
        value = objective(terms, {**ahead, last: new[last]})
        good = value <= memory["limit"]  # False for NaN
        kept = {name: _pick(good, F, before[name]) for name, F in new.items()}
        point = {name: _pick(good, ahead[name], state["factors"][name]) for name in names}
        ahead = {name: _pick(good, ahead[name], before[name]) for name in names}
        ahead[last] = _further(kept[last], before[last], reach)
        reached = torch.where(good, value, state["objective"])
        return {
            "factors": {**state["factors"], **point, last: kept[last]},
            "objective": reached,
            "memory": {**memory, "before": kept, "ahead": ahead, **_next(memory, good, value, reached)},
        }

    return sweep


def bmme(terms: Sequence[Term], rules: Mapping[str, Rule]) -> Callable[[State], State]:
    """Sweeps of a majorisation-minimisation rule with extrapolation (BMMe; Hien, Leplat and Gillis 2024).

    A factor is improved from `F + w max(0, F - F before)`, which moves entries up only, so that zeros stay zeros and
    nothing else becomes one; `w = (t - 1) / t'`, `t' = (1 + sqrt(1 + 4 t^2)) / 2` from t = 1 on (Nesterov). Converges
    for beta-divergences with 1 <= beta <= 2, without restarts; not monotone in every sweep. The proof also bounds
    `w` by a constant (theirs: 1e4) over `sqrt(number of the sweep) ||F - F before||`, which cannot bind in less than
    1e8 sweeps for factors in units of their size, and is left out.

    Examples
    --------
    >>> import torch
    >>> from nnfactor.core import BetaFit, bmme, multiplicative, run
    >>> X = torch.outer(torch.arange(1.0, 5), torch.arange(1.0, 4))
    >>> start = {"V": torch.ones(4, 1), "U1": torch.ones(3, 1)}
    >>> rules = {"U1": multiplicative, "V": multiplicative}
    >>> bool(run([BetaFit(X, ("V", "U1"))], rules, start, method=bmme).objective[0] < 1e-4)
    True
    """

    def sweep(state: State) -> State:
        factors = dict(state["factors"])
        before = {name: factors[name] for name in rules}
        memory = state.get("memory")
        t = memory["t"] if memory else _per_problem(before, 1.0)
        following = t.square().add_(0.25).sqrt_().add_(0.5)
        weight = _on(next(iter(before.values())), (t - 1).div_(following))
        for name, rule in rules.items():
            if memory:
                factors[name] = _higher(factors[name], memory["before"][name], weight)
            factors[name] = _flushed(rule(factors[name], block_of(terms, factors, name)))
        return {**state, "factors": factors, "memory": {"before": before, "t": following}}

    return sweep


def _fresh(terms: Sequence[Term], factors: Mapping[str, Tensor], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Objective and memory before the first sweep: nothing to extrapolate from.

    The memory is what is kept, what the next sweep starts from, and numbers for every problem: what the next objective
    must not exceed, what counts as rounding; the weight, the one before, its cap, and 1 plus the weight used next.
    """
    start = {name: factors[name] for name in rules}
    weight = _per_problem(start, START)
    value = objective(terms, factors).expand_as(weight)
    scale = [value, *(term.data.sqnorm().expand_as(value) for term in terms if isinstance(term, Fit))]
    rounding = reduce(torch.minimum, scale) * (ROUNDING * torch.finfo(next(iter(start.values())).dtype).eps)
    numbers = {"limit": value + rounding, "rounding": rounding}
    weights = {"weight": weight, "past": weight, "cap": weight.new_ones(weight.shape), "reach": 1 + weight}
    return {"objective": value, "memory": {"before": start, "ahead": start, **numbers, **weights}}


def _next(memory: Mapping[str, Any], good: Tensor, value: Tensor, reached: Tensor) -> dict[str, Tensor]:
    """The numbers of the memory that a sweep to `value` changes; it is kept if `good`."""
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
    """Columns of some factors at length one, their lengths in another one: the same model."""
    if not some:
        return factors
    names = (other, *some)
    return {**factors, **dict(zip(names, normalize_columns([factors[name] for name in names]), strict=True))}


def _per_problem(factors: Mapping[str, Tensor], number: float) -> Tensor:
    """The same float64 number for every problem."""
    F = max(factors.values(), key=Tensor.dim)
    return torch.full(F.shape[:-2], number, dtype=torch.float64, device=F.device)


def _further(F: Tensor, before: Tensor, reach: Tensor) -> Tensor:
    """`max(0, before + reach (F - before))`, the reach `(..., 1, 1)`, one or more."""
    return torch.lerp(before, F, reach).clamp_(min=0)


def _in_range(factors: dict[str, Tensor], names: Sequence[str], last: str) -> dict[str, Tensor]:
    """Columns of some factors between 1/`APART` and `APART` times the mean length of their component.

    The geometric mean over these factors and the last, which is improved next. (Bounded by the last one's length, which
    makes up for all of them at once, three factors or more would swing further with every sweep.) Of a component with
    a zero column any length is the same model: the mean is that of the longest component.
    """
    lengths = [torch.linalg.vector_norm(factors[name], dim=-2) for name in names]
    logs = torch.stack([*lengths, square_norms(factors[last]).squeeze(-2).sqrt()], dim=-2).log_()
    mean = logs.mean(-2, keepdim=True)
    mean = torch.where(mean == -inf, mean.amax(-1, keepdim=True), mean)
    excess = (logs[..., :-1, :] - mean).nan_to_num_(nan=0, posinf=0, neginf=0)
    times = excess.clamp(-log(APART), log(APART)).sub_(excess).exp_()
    return {**factors, **{name: factors[name] * c for name, c in zip(names, times.split(1, dim=-2), strict=True)}}


def _higher(F: Tensor, before: Tensor, weight: Tensor) -> Tensor:
    """`F + weight max(0, F - before)`, the weight `(..., 1, 1)`."""
    return (F - before).clamp_(min=0).mul_(weight).add_(F)


def _flushed(F: Tensor) -> Tensor:
    """Entries whose square would vanish become 0: products with smaller numbers take a hundred times as long.

    A multiplicative rule shrinks what does not help by a factor in every sweep; the limit is 1e-19 in float32.
    """
    return torch.threshold(F, tiny(F.dtype) ** 0.5, 0)


def _on(F: Tensor, weight: Tensor) -> Tensor:
    """A number per problem as `(..., 1, 1)` in the dtype of F."""
    return weight.to(F.dtype)[..., None, None]


def _pick(good: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """`torch.where(good, new, old)` problem by problem; copying whole problems is several times faster on the CPU.

    One problem on the CPU needs no copy: there the answer is known, nothing has to be waited for.
    """
    if _at_hand(good):
        return new if good else old
    *batch, n, k = new.shape
    pair = torch.cat([old.mT.reshape(-1, k * n), new.mT.reshape(-1, k * n)])
    index = good.reshape(-1).long()
    size = len(index)
    index = index if size == 1 else index * size + torch.arange(size, device=index.device)
    return pair.index_select(0, index).view(*batch, k, n).mT


def _at_hand(good: Tensor) -> bool:
    """Whether one answer for all can be read without waiting for a device."""
    return good.numel() == 1 and type(good) is Tensor and good.is_cpu
