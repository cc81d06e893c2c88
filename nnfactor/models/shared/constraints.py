"""Penalties, bounds, fixed entries and terms of a user's own, added to the model of an estimator."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ...core import Fit, Term, compose, hals, her, multiplicative, projected_gradient, step
from ...core.data.as_data import as_tensor, is_sparse
from ...core.data.base import Data
from ...core.factors import as_factor
from ...core.rules.base import last_rule, leading_rule
from ...core.rules.constraints import Box, Simplex, UnitColumns, Within, stay_within
from ...core.solve.nnls import divergence_coefficients, nnls, normal_block, normal_equations
from ...core.solve.simplex_coefficients import simplex_coefficients
from ...core.terms.penalties import L21 as L21Term
from ...core.terms.rowwise_fit import RowwiseFit
from ...penalties import L1, L2, Penalty, check_penalty
from .base import mode_names, power
from .fitting import Model
from .parameters import loss_exponent, nonnegative

STEPS = 10  # of projected gradient for one product with the data: HALS takes 6 sweeps, of which each is two steps' work


class Constraints:
    """What a user asks of the factors, read once: of an estimator with the parameters that `NMF` documents."""

    def __init__(
        self, estimator: Any, names: Sequence[str], shapes: Sequence[tuple[int, ...]], like: Data, some: Any = None
    ) -> None:
        self.some = names if some is None else some  # the factors whose sets are wanted
        self.names, self.shapes, self.like = list(names), dict(zip(names, shapes, strict=True)), like
        self.n_rows = {name: d for name, (d, _) in self.shapes.items()}  # of all processes
        self.n_rows |= {} if like.sums.alone else {names[0]: like.shape[0]}
        rows_sum = [estimator.simplex] if isinstance(estimator.simplex, str) else estimator.simplex
        self.simplex = [name for name in _names_in("simplex", rows_sum, names) if name in self.some]
        self.bounds = {name: _read_bounds(name, pair) for name, pair in self._of("bounds", estimator.bounds)}
        given = self._of("fixed", estimator.fixed) if some is None else []
        self.fixed = {name: self._read_fixed(name, array) for name, array in given}
        self.penalties = [
            (name, p) for name, some in self._of("penalties", estimator.penalties) for p in _read_list(name, some)
        ]
        self.penalties += _scikit_learns(estimator, self.n_rows)
        both = [name for name in self.simplex if name in self.bounds or name in self.fixed]
        if both:
            raise ValueError(
                f"{both[0]!r} has simplex and bounds or fixed entries; rows that sum to one take no others"
            )

    def unit_columns(self) -> list[str]:
        """List the factors that are free while others have penalties: their columns get length one at most."""
        bound = {name for name, _ in self.penalties} | {*self.simplex, *self.bounds, *self.fixed}
        return [name for name in self.names if name not in bound] if self.penalties else []

    def sets(self, scales: Mapping[str, float]) -> dict[str, Within]:
        """Make the sets of the factors divided by their scales."""
        found: dict[str, Within] = {name: Simplex() for name in self.simplex}
        for name in dict.fromkeys((*self.bounds, *self.fixed)):
            lower, upper = cast(Any, [bound / scales[name] for bound in self.bounds.get(name, (0.0, torch.inf))])
            if name in self.fixed:
                values = self.fixed[name] / scales[name]
                free = values.isnan()
                lower, upper = torch.where(free, lower, values), torch.where(free, upper, values)
            found[name] = Box(lower, upper)
        return found

    def restore_fixed(self, factors: Sequence[Tensor]) -> list[Tensor]:
        """Put the entries that users fixed where they were: a run may be in another unit, and flushes tiny numbers."""
        known = (self.fixed.get(name) for name in self.names)
        return [F if K is None else torch.where(K.isnan(), F, K) for F, K in zip(factors, known, strict=True)]

    def terms(self, scales: Mapping[str, float], unit: float) -> list[Term]:
        """Make the terms of the penalties, in the unit of the run."""
        factor = lambda name, p: p.weight * scales[name] ** p.degree / unit
        found = [p.term(name, factor(name, p), self.n_rows[name]) for name, p in self.penalties]
        return [replace(t, eps=t.eps * self._row_size(t.on)) if isinstance(t, L21Term) else t for t in found]

    def _row_size(self, name: str) -> float:
        """Estimate the squared length of a row that is penalised, at most 1: of the factors that are share the data."""
        sharing = len(self.names) - len(self.unit_columns())
        return min(1.0, float(self.like.sqnorm()) ** (1 / sharing) / self.n_rows[name]) or 1.0

    def _of(self, parameter: str, given: Any) -> list[tuple[str, Any]]:
        """List what is given for which factor."""
        if given is None:
            return []
        if not isinstance(given, Mapping):
            raise ValueError(f"{parameter} must be a dict by factor, such as {{'V': ...}}, got {given!r}")
        _names_in(parameter, list(given), self.names)
        return [(name, value) for name, value in given.items() if name in self.some or parameter == "penalties"]

    def _read_fixed(self, name: str, array: Any) -> Tensor:
        """Read fixed entries: nonnegative numbers, NaN where an entry is free."""
        if name == self.names[0] and not self.like.sums.alone:
            array = self.like.sums.join(array, f"fixed[{name!r}]")
        if is_sparse(array):
            raise ValueError(f"fixed[{name!r}] is sparse; hand in a dense array, NaN where an entry is free")
        F, (d, k) = as_tensor(array, f"fixed[{name!r}]").to(self.like.device, self.like.dtype), self.shapes[name]
        if F.dim() != 2 or F.shape[0] != d:
            raise ValueError(f"fixed[{name!r}] has shape {tuple(F.shape)}; it must be ({d}, {k}), NaN where free")
        if (known := _count_known(F)) > k:
            raise ValueError(f"fixed[{name!r}] holds {known} components, more than n_components={k}")
        F = torch.nn.functional.pad(F[:, :k], (0, max(0, k - F.shape[1])), value=torch.nan)  # the others are free
        if bool((F < 0).any()) or bool(F.isinf().any()):
            raise ValueError(f"fixed[{name!r}] must hold finite numbers >= 0, and NaN where an entry is free")
        return as_factor(F)


def constrain(estimator: Any, model: Model, beta: float) -> Model:
    """Return the model with everything that the estimator asks of its factors."""
    _check_regularisation(estimator)
    if not is_asked(estimator):
        return model
    data = model.data[0]
    asked = data.sums.alike(lambda: Constraints(estimator, model.names, list(model.shapes.values()), data))
    unit = asked.unit_columns()
    if unit and beta != 2:
        raise ValueError(
            f"penalties that leave {', '.join(unit)} free vanish as the other factor shrinks; with another loss than "
            f"'frobenius' put one on {', '.join(unit)} too, or bounds"
        )
    names, bounded = model.names, {*asked.simplex, *unit}
    able = [name for name in names if name not in bounded]
    carrier = next((name for name in able if name not in (*asked.bounds, *asked.fixed)), able[0] if able else None)
    if carrier is None:
        raise ValueError("simplex holds for all factors; one must carry the size of the data: leave it out")
    of = {name: math.prod(model.scales) if name == carrier else 1.0 for name in names}
    sets = asked.sets(of) | {name: UnitColumns() for name in unit}
    if names[0] in unit:
        sets[names[0]] = UnitColumns(data.sums.column_norms)
    scales = list(of.values())
    terms = [Fit(t.data, t.modes) if isinstance(t, RowwiseFit) and sets else t for t in model.terms]
    own = _own_terms(estimator, model)
    terms += [*asked.terms(of, model.unit), *own]
    rules = {name: _rule_within(name, rule, sets.get(name), beta) for name, rule in model.rules.items()}
    frozen = [name for name, s in sets.items() if isinstance(s, Box) and data.sums.least(int(s.fixed()))]
    rules = {name: rule for name, rule in rules.items() if name not in frozen}
    if not rules:
        raise ValueError("fixed holds every entry of every factor; leave one free, or use transform")
    changed: dict[str, Any] = {"terms": terms, "rules": rules, "scales": scales, "within": sets}
    changed |= {"padded": not sets and not own, "finish": asked.restore_fixed}
    if model.method is her:
        changed["method"] = partial(her, within=sets)
    if sets:
        changed |= {"normalize": lambda factors: factors, "ordered": False, "shares_scales": False}
    return replace(model, **changed)


def with_own_terms(estimator: Any, model: Model) -> Model:
    """Return the model with the terms of the user's own.

    Where one penalises lengths, momentum must not bring bases to length one between the sweeps: they have none then.
    """
    own = _own_terms(estimator, model)
    if not own:
        return model
    method = model.method if all(term.scale_free for term in own) else step
    return replace(model, terms=[*model.terms, *own], method=method, padded=False)


def constrained_coefficients(estimator: Any, data: Data, bases: list[Tensor], scale: float) -> Tensor | None:
    """Compute coefficients of new samples within the set of V, and with L1 and L2 on it; None where nothing is asked.

    Exact for the simplex and for penalties, by descent for bounds; other losses than Frobenius take bounds and L1.
    """
    if not is_asked(estimator):
        return None
    k = bases[0].shape[-1]
    asked = Constraints(
        estimator,
        mode_names(data),
        [(data.shape[0], k), *(tuple(F.shape) for F in bases)],
        data,
        ("V",),
    )
    own = [p for name, p in asked.penalties if name == "V"]
    if not own and not asked.simplex and not asked.bounds:
        return None
    if estimator.transform_method != "nnls":
        raise ValueError("transform with penalties, bounds or a simplex on V needs transform_method='nnls'")
    box = asked.sets({"V": scale}).get("V")
    if estimator._beta != 2:
        return _divergence_coefficients_within(estimator, data, bases, scale, own, box)
    l1, l2 = (sum(p.weight for p in own if isinstance(p, kind)) for kind in (L1, L2))
    ridge = l2 * torch.eye(k, dtype=torch.float64, device=data.device)
    pieces = ((G + ridge, B - l1 / scale / 2) for G, B in normal_equations(data, bases))
    return torch.cat([_solve_within(G, B, box, 1 / scale) for G, B in pieces])


def _solve_within(G: Tensor, B: Tensor, box: Within | None, total: float) -> Tensor:
    """Minimise `v' G v - 2 b' v` for every row b of B within the set of V."""
    if isinstance(box, Simplex):
        return simplex_coefficients(G, B, total)
    V = nnls(G, B)
    return V if box is None else _descend_within(V, G, B, cast(Box, box))


def _divergence_coefficients_within(
    estimator: Any, data: Data, bases: list[Tensor], scale: float, penalties: Sequence[Penalty], box: Within | None
) -> Tensor:
    """Minimise another divergence within bounds and with penalties that its rule takes."""
    beta = estimator._beta
    if isinstance(box, Simplex):  # refused by `fit` too
        raise ValueError("transform with a simplex on V needs loss='frobenius'")
    unit = power(scale, beta)
    terms = [p.term("mode 0", p.weight * scale**p.degree / unit, data.shape[0]) for p in penalties if _of_rows(p)]
    tol, most = float(estimator.transform_tol), int(estimator.transform_max_iter)
    return divergence_coefficients(data, bases, beta, None, tol, most, terms, box)


def _of_rows(penalty: Penalty) -> bool:
    """Tell whether a penalty is of every sample by itself."""
    return isinstance(penalty, L1 | L2)


def _descend_within(V: Tensor, G: Tensor, B: Tensor, box: Box) -> Tensor:
    """Minimise within bounds along the coordinates, to 1e-9 of the largest coefficient."""
    block, V = normal_block(G, B), box(V)
    for _ in range(200):
        before, V = V, hals(V, block, sweeps=50, within=box)
        if bool((V - before).abs().max() <= 1e-9 * V.abs().max()):
            break
    return V


def known_components(estimator: Any) -> int:
    """Count the components of which `fixed` holds entries: ranks below have no place for them."""
    given = getattr(estimator, "fixed", None)
    values = given.values() if isinstance(given, Mapping) else ()
    return max((_count_known(as_tensor(F, "fixed")) for F in values if np.ndim(F) == 2 and not is_sparse(F)), default=0)


def _count_known(F: Tensor) -> int:
    """Count the columns up to the last one that has a known entry; those behind it are free."""
    return int((~F.isnan()).any(0).nonzero().max()) + 1 if not bool(F.isnan().all()) else 0


def is_asked(estimator: Any) -> bool:
    """Tell whether an estimator asks anything of its factors."""
    wanted = ("penalties", "fixed", "bounds", "simplex", "terms")
    if any(getattr(estimator, name, None) is not None for name in wanted):
        return True
    return hasattr(estimator, "alpha_W") and bool(estimator.alpha_W or _alpha_H(estimator))


def _rule_within(name: str, rule: Any, within: Within | None, beta: float) -> Any:
    """Choose the rule of a factor that must lie in a set."""
    if within is None:
        return rule
    if beta != 2 or rule is multiplicative:
        if not isinstance(within, Box):
            raise ValueError(
                f"a simplex, or penalties that leave {name!r} free, need loss='frobenius' and solver='auto', 'hals' or "
                "'projected'"
            )
        return compose(rule, partial(stay_within, within))
    own: Any = last_rule(rule)
    if isinstance(within, Box) and leading_rule(own) is hals:
        return partial(own, within=within)
    return partial(projected_gradient, steps=STEPS, within=within)


def _own_terms(estimator: Any, model: Model) -> list[Term]:
    """List terms of the user's own, made of the names and shapes of the factors if they are a function."""
    given = estimator.terms
    found = _call_with_shapes(given, dict(model.shapes)) if callable(given) else given
    if found is None:
        return []
    if not isinstance(found, Sequence) or not all(isinstance(t, Term) for t in found):
        raise ValueError(
            f"terms must be a list of nnfactor.core.Term, or a function of the factors' shapes, got {given!r}"
        )
    unknown = [n for t in found for n in t.factor_names if n not in model.names]
    if unknown:
        raise ValueError(f"terms depend on {unknown[0]!r}, which is no factor; there are {', '.join(model.names)}")
    return list(found)


def _call_with_shapes(function: Callable[[dict], Any], shapes: dict[str, tuple[int, int]]) -> Any:
    """Call a function of a user's with the shapes of the factors; one that does not take them is refused."""
    try:
        inspect.signature(function).bind(shapes)
    except TypeError:
        told = "a function of one argument, the shapes of the factors by name, as in lambda shapes: [...]"
        raise ValueError(f"terms must be a list of nnfactor.core.Term, or {told}; got {function!r}") from None
    return function(shapes)


def _names_in(parameter: str, given: Any, names: Sequence[str]) -> list[str]:
    """Refuse names that no factor has."""
    if given is not None and not isinstance(given, Sequence | Mapping):
        raise ValueError(f"{parameter} must be a factor or a list of factors, such as 'V', got {given!r}")
    given = list(given or [])
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(
            f"{parameter} names {unknown[0]!r}, which is no factor; there are {', '.join(map(repr, names))}"
        )
    return given


def _read_bounds(name: str, pair: Any) -> tuple[float, float]:
    known = lambda v: v is None or (isinstance(v, Real) and not isinstance(v, bool))
    numbers = [v for v in pair if known(v)] if isinstance(pair, Sequence | np.ndarray) else []
    if len(numbers) != 2 or len(pair) != 2:
        raise ValueError(f"bounds[{name!r}] must be a pair (lower, upper) of numbers or None, got {pair!r}")
    low, high = (0.0 if pair[0] is None else float(pair[0])), (torch.inf if pair[1] is None else float(pair[1]))
    if not 0 <= low < high:
        raise ValueError(f"bounds[{name!r}] must be 0 <= lower < upper, got {pair!r}")
    return low, high


def _read_list(name: str, some: Any) -> list[Penalty]:
    some = [some] if isinstance(some, Penalty) else some
    if not isinstance(some, Sequence):
        raise ValueError(f"penalties[{name!r}] must be a list of penalties, got {some!r}")
    for penalty in some:
        check_penalty(name, penalty)
    return list(some)


def _alpha_H(estimator: Any) -> float:
    return estimator.alpha_W if estimator.alpha_H == "same" else estimator.alpha_H


def _check_regularisation(estimator: Any) -> None:
    """Refuse bad parameters, also where they do nothing."""
    nonnegative("alpha_W", estimator.alpha_W)
    nonnegative("alpha_H", _alpha_H(estimator), note=", or 'same'")
    nonnegative("l1_ratio", estimator.l1_ratio)
    if estimator.l1_ratio > 1:
        raise ValueError(f"l1_ratio must be in 0..1, got {estimator.l1_ratio!r}")


def _scikit_learns(estimator: Any, n_rows: Mapping[str, int]) -> list[tuple[str, Penalty]]:
    """Translate `alpha_W`, `alpha_H` and `l1_ratio`, whose objective is half of ours for the Frobenius loss."""
    if not (estimator.alpha_W or _alpha_H(estimator)):
        return []
    if len(n_rows) != 2:
        raise ValueError("alpha_W and alpha_H are those of matrices; use penalties={'V': [L1(...)], 'U1': [...]}")
    times = 2.0 if loss_exponent(estimator) == 2 else 1.0
    n, m = n_rows["V"], n_rows["U1"]
    found: list[tuple[str, Penalty]] = []
    for name, alpha, size in (("V", estimator.alpha_W, m), ("U1", _alpha_H(estimator), n)):
        found += [
            (name, L1(times * alpha * estimator.l1_ratio * size)),
            (name, L2(times * alpha * (1 - estimator.l1_ratio) * size / 2)),
        ]
    return [(name, p) for name, p in found if p.weight]
