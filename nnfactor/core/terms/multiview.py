"""Several views of the same samples, their weights, and labels: the terms of SULF (Jiang et al. 2014) and Semi-NMF.

Jiang, Liu, Li and Lu (2014), "Semi-supervised unified latent factor learning with multi-view data"; Ding, Li and Jordan
(2010) for Semi-NMF. View weights are a factor of one row, `(..., 1, P)`: rules update them like every other factor.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..block import Block, Design, Quad, RowSubset, add_in_place, split, split_signs
from ..cache import cached
from ..factors import multiply_transposed
from .base import Factors, Term, WeightLike, per_column
from .fit import Fit


@dataclass(frozen=True, eq=False)
class SemiFit(Fit):
    """`||X - V U'||^2` where the data and all factors but one may have any sign.

    Every coefficient of `Fit` is split into its positive and its negative part (Jiang et al. 2014, Eq. 6): the
    multiplicative rule keeps a factor nonnegative, and `unconstrained` solves for one that need not be.
    """

    def block(self, factors: Factors, name: str, weight: Tensor | None = None) -> Block:
        """Split the coefficients of `Fit`."""
        return split(super().block(factors, name, weight))


@dataclass(frozen=True, eq=False)
class Views(Term):
    """`sum_p pi_p s_p ||X^p - V U^p'||^2`: matrices of the same samples, which share V (Jiang et al. 2014, Eq. 8).

    Parameters
    ----------
    fits : sequence of Fit
        One per view; the first of its two modes is the shared factor.
    weights : str
        Name of the state entry that holds pi, `(..., 1, P)`.
    scales : sequence of float, optional
        s_p > 0, e.g. one over the energy of view p. Default: 1.
    excluded : sequence of int, optional
        Views that rules of pi give no weight.
    """

    fits: tuple[Fit, ...]
    weights: str = "pi"
    scales: tuple[float, ...] = ()
    excluded: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fits", tuple(self.fits))
        scales = tuple(map(float, self.scales)) or (1.0,) * len(self.fits)
        if len(scales) != len(self.fits):
            raise ValueError(f"scales has {len(scales)} numbers, but there are {len(self.fits)} views")
        object.__setattr__(self, "scales", scales)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The shared factor, the views' own, and the weights."""
        return (*dict.fromkeys(name for fit in self.fits for name in fit.modes), self.weights)

    def block(self, factors: Factors, name: str) -> Block:
        """Return half the views' distances as `linear_plus` for pi, elsewhere the weighted blocks of the fits.

        The own factor of a view of weight 0 is updated as if the weight were 1. The objective does not depend on that
        factor, and only a factor that follows V lets the view get weight again.
        """
        pi = factors[self.weights]
        if name == self.weights:
            costs = self.distances(factors)
            for p in self.excluded:
                costs[..., p] = torch.inf
            return Block(linear_plus=costs / 2)
        weights = cached(pi, self._scale if name == self.fits[0].modes[0] else self._scale_positive).split(1, dim=-1)
        both = [(fit, w) for fit, w in zip(self.fits, weights, strict=True) if name in fit.modes]
        return add_in_place([fit.block(factors, name, w) for fit, w in both])

    def distances(self, factors: Factors) -> Tensor:
        """Compute `s_p ||X^p - V U^p'||^2`, float64 `(..., 1, P)`; kept unscaled, for pi and the objective need it."""
        keep = lambda fit: fit.data.cache("value", [factors[m] for m in fit.modes], lambda: fit.value_from(factors, 1))
        return self._scale(torch.stack([keep(fit) for fit in self.fits], dim=-1).unsqueeze(-2))

    def _scale(self, Z: Tensor) -> Tensor:
        """Multiply one number for each view, `(..., 1, P)`, with the view's scale."""
        make = lambda: torch.stack([Z.new_full((), s) for s in self.scales])
        return Z * self.fits[0].data.cache(("scales", self.scales, Z.dtype), (), make)

    def _scale_positive(self, pi: Tensor) -> Tensor:
        """Do so with weights of which 0 counts as 1."""
        return self._scale(pi + (pi == 0))

    def value(self, factors: Factors) -> Tensor:
        """Compute the weighted sum of the distances."""
        return (factors[self.weights] * self.distances(factors)).sum((-2, -1))

    def direct(self, factors: Factors) -> Tensor:
        """Compute it from the residuals themselves."""
        distances = torch.stack([fit.direct(factors) for fit in self.fits], dim=-1).unsqueeze(-2)
        return (factors[self.weights] * self._scale(distances)).sum((-2, -1))

    def magnitude(self) -> Tensor | float:
        """Return `sum_p s_p ||X^p||^2`: the weights are at most 1."""
        return sum(s * fit.magnitude() for s, fit in zip(self.scales, self.fits, strict=True))


@dataclass(frozen=True, eq=False)
class Labels(Term):
    """`weight ||V_l W - Y||^2` over the labelled rows of V; W (k, C) has any sign (Jiang et al. 2014, Eq. 9).

    Together with `Views` the multiplicative rule of labelled rows is the corrected Eq. 26, b the weight:

        V_l *= [(sum_p pi_p X_l^p U^p   + b (Y W')+ + b V_l (W W')-)
              / (sum_p pi_p V_l U^p'U^p + b (Y W')- + b V_l (W W')+)] ** power

    Other rows have no part in b: Eq. 27.

    Parameters
    ----------
    targets : Tensor (n, C)
        Y, one-hot rows as a rule. Rows of unlabelled samples are ignored.
    labelled : bool array or Tensor (n,)
    modes : (str, str)
        Names of V and W.
    weight : float, Tensor or Weight
        As for `Laplacian`.
    printed : bool
        Eqs. 22-26 as printed: the block of V lacks `weight V_l W W'` (the paper takes the inverse in W for a constant).
        It is no gradient of anything and makes the iteration diverge; for study only.
    """

    targets: Tensor
    labelled: Tensor | np.ndarray
    modes: tuple[str, str] = ("V", "W")
    weight: WeightLike = 1.0
    printed: bool = False
    _rows: RowSubset = field(init=False, repr=False)  # the labelled ones
    _known: Tensor = field(init=False, repr=False)  # their targets (r, C)

    def __post_init__(self) -> None:
        shapes = tuple(self.targets.shape), tuple(self.labelled.shape)
        if len(shapes[0]) != 2 or shapes[1] != shapes[0][:1]:
            raise ValueError(f"targets must be (n, C) and labelled (n,), got {shapes[0]} and {shapes[1]}")
        on = self.targets.device
        known = self.labelled if isinstance(self.labelled, Tensor) else torch.from_numpy(self.labelled)
        rows = known.nonzero()[:, 0] if known is self.labelled else torch.from_numpy(np.flatnonzero(self.labelled))
        rows, mask = rows.to(on), known.to(on, self.targets.dtype)[:, None]
        object.__setattr__(self, "_rows", RowSubset(rows, mask))
        object.__setattr__(self, "_known", self.targets.index_select(0, rows))

    def block(self, factors: Factors, name: str) -> Block:
        """For V, return both parts of Y W' and, on labelled rows, of W W'; for W the least squares of `Design`."""
        V, W = (factors[m] for m in self.modes)
        weight = per_column(self.weight, factors, V)[..., :1]
        if name == self.modes[0]:
            G, linear = multiply_transposed(W, weight * W), multiply_transposed(self._known, weight * -W)
            return split(Block((Quad(torch.zeros_like(G) if self.printed else G, self._rows, linear=linear),)))
        root = weight.sqrt()
        rows = Design(root * self._rows.select(V), root * self._known)
        return Block((Quad(torch.ones_like(W[..., :1, :]), rows),), *split_signs(rows.linear(), in_place=True))

    def value(self, factors: Factors) -> Tensor:
        """Sum the residual itself."""
        V, W = (factors[m] for m in self.modes)
        residual = self._rows.select(V) @ W - self._known
        weight = per_column(self.weight, factors, V)[..., :1]
        return (weight * residual.square()).sum((-2, -1), dtype=torch.float64)
