"""The fastest sweep of a model with graphs on V: what solver="auto" means in `NGE`, `N2S2L` and `GraphNMF`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from ..core import Rule, accelerated, composed, hals, step
from ..core.solve.run import Method

MOST_SWEEPS = 4
CG, MOST_CG = 4, 24  # automatic CG steps, at least and at most
STRONG = 1000.0  # the strength of graphs up to which the fewest are enough; with momentum a tenth of it


def cg_steps(strength: float, momentum: bool = True) -> int:
    """CG steps for one product with the data: growing as the cube root of the graphs' strength, where that is large.

    The strength is the weight of a graph times its mean degree.
    """
    enough = STRONG / 10 if momentum else STRONG
    times = min(max(1.0, strength / enough), (MOST_CG / CG) ** 3)
    return round(CG * times ** (1 / 3))


def hals_sweeps(shape: Sequence[int], n_components: int) -> tuple[int, ...]:
    """HALS sweeps over the factor of every mode, for one product of that mode with data of this shape.

    One, and as many more as take half the time of the product and a sweep (Gillis and Glineur 2012), by their
    arithmetic: a product takes `prod(shape) k`, a sweep over d rows `d k^2`. Four at most: to 10 % above the best
    objective, six saved a tenth of the iterations and no time. Zeros that sparse data do not store count as well: the
    same data give the same factors however they are stored.
    """
    product = prod(shape)
    return tuple(min(MOST_SWEEPS, 1 + int((1 + product / (d * n_components)) / 2)) for d in shape)


def fastest(
    names: Sequence[str], shape: Sequence[int], n_components: int, solve: Rule, gauge: bool = True
) -> tuple[dict[str, Rule], Method]:
    """Rules by factor, V (the first name) last, and the method that makes a sweep of them.

    Bases by HALS; V by `solve`, which knows its graphs, then HALS on the same product. `gauge`: the graphs weigh
    columns by the lengths of the bases, so that those may be brought to one, and then sweeps have momentum. Without a
    gauge the objective falls as V shrinks and the bases grow; momentum would carry them out of float32's range.
    """
    V, *bases = names
    own, *others = (partial(hals, sweeps=n) for n in hals_sweeps(shape, n_components))
    rules: dict[str, Rule] = {**dict(zip(bases, others, strict=True)), V: composed(solve, own)}
    return rules, partial(accelerated, unit=tuple(bases)) if gauge else step
