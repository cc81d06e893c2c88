"""Sums over samples that stand for the samples: what the bases need of a mini-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ..block import Block, Quad
from ..data.base import Data
from ..factors import contract_others, divide, gram, khatri_rao, square_norms
from .base import Factors, Term
from .laplacian import Laplacian

Sums = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class SufficientStatistics(Term):
    """`Fit` and gauged `Laplacian`s as the bases see them, from sums over samples that the state holds.

    State entries: "gram" `V'V (..., k, k)`, "linear_minus" `X'V (..., d_1 d_2 .., k)`, and "energy" `(..., 1, k)`, the
    sum of `weight c_j v_j' L v_j` over the graphs. Any order: the sums do not depend on the bases.

    Parameters
    ----------
    modes : sequence of str
        The feature factors, in mode order.
    square : Tensor or float
        `||X||^2`, which makes `value` the whole objective.
    """

    modes: tuple[str, ...]
    square: Tensor | float = 0.0

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The bases."""
        return self.modes

    def sum_samples(self, data: Data, factors: Factors) -> Sums:
        """What samples `data` with coefficients `factors["V"]` add to the sums (but for the graphs)."""
        V = factors["V"]
        return {"gram": gram(V), "linear_minus": data.times_transposed(V)}

    def block(self, factors: Factors, name: str) -> Block:
        """A Gram, weights of columns and a pull, exactly as a full pass over the samples would give them."""
        F, Us = factors[name], [factors[m] for m in self.modes]
        others = [U for m, U in zip(self.modes, Us, strict=True) if m != name]
        G = reduce(torch.mul, map(gram, others), factors["gram"].to(F.dtype))
        energy = reduce(torch.mul, map(square_norms, others), factors["energy"].to(F.dtype))
        linear_minus = contract_others(factors["linear_minus"].to(F.dtype), Us, self.modes.index(name))
        return Block(quads=(Quad(G), Quad(energy)), linear_minus=linear_minus)

    def value(self, factors: Factors) -> Tensor:
        """The objective of all samples in the sums, each with the coefficients it was summed with."""
        Us = [factors[m].double() for m in self.modes]
        cross = (factors["linear_minus"] * khatri_rao(Us)).sum((-2, -1))
        quadratic = (factors["gram"] * reduce(torch.mul, map(gram, Us))).sum((-2, -1))
        penalty = (factors["energy"] * reduce(torch.mul, map(square_norms, Us))).sum((-2, -1))
        return self.square - 2 * cross + quadratic + penalty


@dataclass(frozen=True, eq=False)
class KLStatistics(Term):
    """Kullback-Leibler of a matrix as the bases see it: a sum of the majorisers that were tight when a batch was seen.

    State entries: "linear_minus" `U * ((X / (V U'))' V) (..., m, k)` and "linear_plus" `V' 1 (..., 1, k)`, which add
    over batches; the sum of the majorisers is `sum linear_plus u - linear_minus log u`, least at
    `u = linear_minus / linear_plus` (Lefevre et al. 2011 for beta = 1).
    """

    modes: tuple[str, ...]

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The one basis."""
        return self.modes

    def sum_samples(self, data: Data, factors: Factors) -> Sums:
        """What samples add to the sums, at the current bases."""
        V, U = factors["V"], factors[self.modes[0]]
        linear_minus, linear_plus = data.ratio_products([V, U], 1, 1.0)
        return {"linear_minus": U * linear_minus, "linear_plus": linear_plus}

    def block(self, factors: Factors, name: str) -> Block:
        """The multiplicative rule turns it into `linear_minus / linear_plus` in one step."""
        U = factors[name]
        linear_minus, linear_plus = (factors[key].to(U.dtype) for key in ("linear_minus", "linear_plus"))
        return Block(
            linear_minus=divide(linear_minus, U) / 2, linear_plus=linear_plus / 2, quadratic=False, powers=(0.0, 1.0)
        )

    def value(self, factors: Factors) -> Tensor:
        """The majoriser up to a constant."""
        U = factors[self.modes[0]].double()
        return (factors["linear_plus"] * U).sum((-2, -1)) - torch.special.xlogy(factors["linear_minus"], U).sum(
            (-2, -1)
        )


def energies(graphs: Sequence[Laplacian], V: Tensor) -> Tensor:
    """`weight c_j v_j' L v_j` summed over graphs without a gauge, `(..., 1, k)`: what any other factor sees of them."""
    weights = [q.cols for graph in graphs for q in graph.block({graph.on: V}, "").quads]
    return reduce(torch.add, weights, V.new_zeros(*V.shape[:-2], 1, V.shape[-1]))


def zero_sums(term: SufficientStatistics | KLStatistics, factors: Factors) -> Sums:
    """Sums over no samples."""
    Us = [factors[m] for m in term.modes]
    k, wide, like = Us[0].shape[-1], khatri_rao(Us), Us[0].new_zeros((), dtype=torch.float64)
    rows = {"linear_minus": wide.shape[-2]} | (
        {"linear_plus": 1} if isinstance(term, KLStatistics) else {"gram": k, "energy": 1}
    )
    return {key: like.new_zeros(*wide.shape[:-2], k, n).mT for key, n in rows.items()}
