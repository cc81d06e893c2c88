"""Solver names: the rules of the factors and the method that makes a sweep of them."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import cast

from ...core import BetaFit, Fit, Rule, Term, bmme, compose, hals, her, multiplicative, projected_gradient, step
from ...core.data.base import Data
from ...core.data.weighted import Weighted
from ...core.solve.momentum.extrapolation import LONGER_STEP
from ...core.solve.run import Method
from ...core.terms.rowwise_fit import RowwiseFit
from .parameters import one_of

MOST_SWEEPS = 4  # of HALS for one product: six saved a tenth of the iterations and no time

CG, MOST_CG = 4, 24  # automatic CG steps, at least and at most

STRONG = 1000.0  # strength of graphs (see `cg_steps`) up to which the fewest are enough; with momentum a tenth of it


def cg_steps(strength: float, momentum: bool = True) -> int:
    """CG steps for one product with the data: as the cube root of a graph's weight times its mean degree, if large."""
    enough = STRONG / 10 if momentum else STRONG
    times = min(max(1.0, strength / enough), (MOST_CG / CG) ** 3)
    return round(CG * times ** (1 / 3))


def hals_sweeps(shape: Sequence[int], n_components: int) -> tuple[int, ...]:
    """HALS sweeps over the factor of every mode, for one product of that mode with data of this shape.

    One, and as many more as take half the time of the product and a sweep (Gillis and Glineur 2012): a product takes
    `prod(shape) k` operations, a sweep over d rows `d k^2`. Zeros that sparse data do not store count as well: the same
    data give the same factors however they are stored.
    """
    product = prod(shape)
    return tuple(min(MOST_SWEEPS, 1 + int((1 + product / (d * n_components)) / 2)) for d in shape)


def fastest(
    names: Sequence[str], shape: Sequence[int], n_components: int, solve: Rule, norms_of: bool = True
) -> tuple[dict[str, Rule], Method]:
    """Choose rules by factor and the method of a sweep: bases by HALS; V by `solve`, which knows its graphs, then HALS.

    `norms_of`: the graphs weigh columns by the lengths of the bases, so that those may be brought to one, and then
    sweeps have momentum. Without them the objective falls as V shrinks and the bases grow, out of float32's range.
    """
    V, *bases = names
    own, *others = (partial(hals, sweeps=n) for n in hals_sweeps(shape, n_components))
    rules: dict[str, Rule] = {**dict(zip(bases, others, strict=True)), V: compose(solve, own)}
    return rules, partial(her, unit=tuple(bases)) if norms_of else step


def fit_term(data: Data, names: tuple[str, ...], beta: float, rule: Rule, n_components: int) -> Term:
    """Choose the term of the data: of weighted ones, that in which the rule needs the least time."""
    if beta != 2 or (data.weighted and rule is multiplicative):
        return BetaFit(data, names, beta)
    descends = isinstance(rule, partial) or rule is hals
    return (RowwiseFit if data.weighted and descends and cast(Weighted, data).has_few(n_components) else Fit)(
        data, names
    )


def unsupervised_method(solver: str, beta: float) -> Method:
    """Choose what makes a sweep: with momentum under "auto", else plain."""
    if solver != "auto":
        return step
    return her if beta == 2 else partial(bmme, step=LONGER_STEP)


def unsupervised_rule(solver: str, beta: float, order: int = 2, mostly_zero: bool = False) -> Rule:
    """Choose the rule of a solver name in models without graphs; `mostly_zero`: the data's entries, stored or not."""
    named: dict[str, Rule] = {
        "multiplicative": multiplicative,
        "mu": multiplicative,
        "hals": hals,
        "projected": projected_gradient,
    }
    if solver != "auto" and solver not in named:
        one_of("solver", solver, ("auto", *named))
    if beta != 2:
        if solver in ("hals", "projected"):
            raise ValueError(
                f"solver={solver!r} minimises the Frobenius loss only; for beta = {beta:g} use 'multiplicative' "
                "or 'auto'"
            )
        return multiplicative
    sweeps = 5 if order > 2 else 4 if mostly_zero else 6
    return named.get(solver) or partial(hals, sweeps=sweeps)
