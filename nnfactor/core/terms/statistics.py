"""Sums over samples that stand for the samples in the blocks of the bases (mini-batches)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import ClassVar, cast

import torch
from torch import Tensor

from ..block import Block, Quad
from ..data.base import Data
from ..data.weighted import Weighted
from ..factors import as_factor, contract_others, divide, gram, khatri_rao, square_norms, zero_factor
from .base import Factors, Term
from .beta import BetaFit
from .fit import Fit
from .laplacian import Laplacian

Sums = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class SufficientStatistics(Term):
    """`Fit` and scale-free `Laplacian`s in the bases, from sums over samples that the state holds.

    State entries: "gram" `V'V (..., k, k)`, "linear_minus" `X'V (..., d_1 d_2 .., k)`, and "energy" `(..., 1, k)`, the
    sum of `weight c_j v_j' L v_j` over the graphs. Any order: the sums do not depend on the bases.

    Of weighted data the sums are those of a majoriser, which touches where a batch was visited: of data that the model
    completed. "square" `(..., 1, 1)` is then the sum of squares of these, since it depends on the visit.
    """

    modes: tuple[str, ...]  # the feature factors
    square: Tensor | float = 0.0  # ||X||^2, which makes `value` the whole objective
    start_weight: ClassVar[float] = 1e-6  # see `learn_batch`: enough for the first batch that has a feature

    def sum_samples(self, data: Data, factors: Factors) -> Sums:
        """Compute what samples `data` with coefficients `factors["V"]` add to the sums (but for the graphs)."""
        V = factors["V"]
        if not data.weighted:
            return {"gram": gram(V), "linear_minus": data.times_transposed(V)}
        Fs = [V, *(factors[m] for m in self.modes)]
        sums = {"gram": gram(V) * data.peak, "linear_minus": data.completed(Fs, 1)}
        return sums | {"square": cast(Weighted, data).completed_square(Fs)[..., None, None]}

    def sum_model(self, factors: Factors) -> Sums:
        """Compute the sums of samples that the model itself makes, `[[V, U1, ...]]`: its bases are stationary for them.

        The factors hold the "energy" of V.
        """
        wide, G = khatri_rao([factors[m].double() for m in self.modes]), gram(factors["V"].double())
        energy = factors["energy"].double()
        return {"gram": G, "linear_minus": as_factor(wide @ G + wide * energy), "energy": energy}

    def forget(self, sums: Sums, keep: float) -> Sums:
        """Let samples count `keep` times as much."""
        return {key: keep * total for key, total in sums.items()}

    def block(self, factors: Factors, name: str) -> Block:
        """Return a Gram, weights of columns and a linear part, as a full pass over the samples would give them."""
        F, Us = factors[name], [factors[m] for m in self.modes]
        others = [U for m, U in zip(self.modes, Us, strict=True) if m != name]
        G = reduce(torch.mul, map(gram, others), factors["gram"].to(F.dtype))
        energy = reduce(torch.mul, map(square_norms, others), factors["energy"].to(F.dtype))
        linear_minus = contract_others(factors["linear_minus"].to(F.dtype), Us, self.modes.index(name))
        return Block(quads=(Quad(G), Quad(energy)), linear_minus=linear_minus)

    def value(self, factors: Factors) -> Tensor:
        """Compute the objective of all samples in the sums, each with the coefficients it was summed with."""
        Us = [factors[m].double() for m in self.modes]
        cross = (factors["linear_minus"] * khatri_rao(Us)).sum((-2, -1))
        quadratic = (factors["gram"] * reduce(torch.mul, map(gram, Us))).sum((-2, -1))
        penalty = (factors["energy"] * reduce(torch.mul, map(square_norms, Us))).sum((-2, -1))
        square = factors["square"].squeeze((-2, -1)) if "square" in factors else self.square
        return square - 2 * cross + quadratic + penalty

    def magnitude(self) -> Tensor | float:
        """Return `||X||^2`."""
        return self.square


@dataclass(frozen=True, eq=False)
class KLStatistics(Term):
    """Kullback-Leibler of a matrix in the bases: a sum of majorisers, each tight where its batch was visited.

    State entries: "linear_minus" `U * ((X / (V U'))' V) (..., m, k)` and "linear_plus" `V' 1 (..., 1, k)`, which add
    over batches; the sum of the majorisers is `sum linear_plus u - linear_minus log u`, least at
    `u = linear_minus / linear_plus` (Lefevre et al. 2011 for beta = 1). Of a stream also "counts" `(..., m, 1)`: how
    much of each feature there was.
    """

    modes: tuple[str, ...]
    start_weight: ClassVar[float] = 0.01  # entries near zero grow slowly: 1e-6 ended 1 to 5 % higher on sparse counts

    def sum_samples(self, data: Data, factors: Factors) -> Sums:
        """Compute what samples add to the sums, at the current bases."""
        V, U = factors["V"], factors[self.modes[0]]
        linear_minus, linear_plus = data.ratio_products([V, U], 1, 1.0)
        return {"linear_minus": U * linear_minus, "linear_plus": linear_plus}

    def sum_model(self, factors: Factors) -> Sums:
        """Compute the sums of samples that the model itself makes, `V U'`: its bases are stationary for them."""
        linear_plus = factors["V"].double().sum(-2, keepdim=True)
        linear_minus = factors[self.modes[0]].double() * linear_plus
        counts = linear_minus.sum(-1, keepdim=True)
        return {"linear_minus": linear_minus, "linear_plus": linear_plus, "counts": counts}

    def forget(self, sums: Sums, keep: float) -> Sums:
        """Let samples count `keep ** 2` times as much, but their features' frequencies `keep ** 0.5` times.

        The sum of a row of "linear_minus" is the count of the feature, exactly; words that one batch in ten holds would
        otherwise be all but forgotten. Only its split between the components was found with poor bases, and it holds
        these bases as a factor: it is out of date sooner than the sums of a quadratic loss.
        """
        keep = keep**2
        linear_minus, counts = sums["linear_minus"], sums["counts"]
        rows = linear_minus.sum(-1, keepdim=True)
        target = counts * divide(keep * rows.sum(-2, keepdim=True), counts.sum(-2, keepdim=True))
        return {
            "linear_minus": as_factor(linear_minus * divide(target, rows)),
            "linear_plus": keep * sums["linear_plus"],
            "counts": keep**0.25 * counts,
        }

    def block(self, factors: Factors, name: str) -> Block:
        """Return a block that the multiplicative rule turns into `linear_minus / linear_plus` in one step."""
        U = factors[name]
        linear_minus, linear_plus = (factors[key].to(U.dtype) for key in ("linear_minus", "linear_plus"))
        return Block(
            linear_minus=divide(linear_minus, U) / 2, linear_plus=linear_plus / 2, quadratic=False, powers=(0.0, 1.0)
        )

    def value(self, factors: Factors) -> Tensor:
        """Compute the majoriser up to a constant."""
        U = factors[self.modes[0]].double()
        logarithms = torch.special.xlogy(factors["linear_minus"], U)
        return (factors["linear_plus"] * U).sum((-2, -1)) - logarithms.sum((-2, -1))


def energies(graphs: Sequence[Laplacian], V: Tensor) -> Tensor:
    """Sum `weight c_j v_j' L v_j` over graphs whose `norms_of` is empty, `(..., 1, k)`: their weights of a basis."""
    weights = [q.column_matrix for graph in graphs for q in graph.block({graph.on: V}, "").quads]
    return reduce(torch.add, weights, V.new_zeros(*V.shape[:-2], 1, V.shape[-1]))


def quadratic(fit: Term) -> Fit | BetaFit:
    """Return a data term for which there are sums: of beta = 2 the quadratic one."""
    assert isinstance(fit, Fit | BetaFit)
    return fit if isinstance(fit, Fit) or fit.beta != 2 else Fit(fit.data, fit.modes)


def statistics_of(fit: Term) -> SufficientStatistics | KLStatistics:
    """Make the sums that stand for the samples of a data term: `Fit`, or `BetaFit` with beta = 1."""
    fit = quadratic(fit)
    return SufficientStatistics(fit.modes[1:]) if isinstance(fit, Fit) else KLStatistics(fit.modes[1:])


def zero_sums(term: SufficientStatistics | KLStatistics, factors: Factors) -> Sums:
    """Return sums over no samples."""
    Us = [factors[m] for m in term.modes]
    k, like = Us[0].shape[-1], Us[0][..., :1, :].double()
    rows = {"linear_plus": 1} if isinstance(term, KLStatistics) else {"gram": k, "energy": 1}
    rows["linear_minus"] = prod(U.shape[-2] for U in Us)
    return {key: zero_factor(n, like) for key, n in rows.items()}
