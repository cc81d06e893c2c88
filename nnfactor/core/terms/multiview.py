"""Several views of the same samples, their weights, and labels: the terms of SULF (Jiang et al. 2014) and Semi-NMF.

Jiang, Liu, Li and Lu (2014), "Semi-supervised unified latent factor learning with multi-view data"; Ding, Li and Jordan
(2010) for Semi-NMF. View weights are a factor of one row, `(..., 1, P)`: rules update them like every other factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..block import Block, Design, Quad, RowSubset, add_weighted, split, split_signs
from ..cache import TensorCache
from ..factors import gram, multiply_transposed
from .base import Factors, Term, WeightLike, per_column
from .fit import Fit


@dataclass(frozen=True, eq=False)
class SemiFit(Fit):
    """`||X - V U'||^2` where the data and all factors but one may have any sign.

    Every coefficient of `Fit` is split into its positive and its negative part (Jiang et al. 2014, Eq. 6): the
    multiplicative rule keeps a factor nonnegative, and `unconstrained` solves for one that need not be.
    """

    def block(self, factors: Factors, name: str) -> Block:
        """Split the coefficients of `Fit`."""
        return split(super().block(factors, name))


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
    """

    fits: tuple[Fit, ...]
    weights: str = "pi"
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fits", tuple(self.fits))
        scales = tuple(map(float, self.scales)) or (1.0,) * len(self.fits)
        if len(scales) != len(self.fits):
            raise ValueError(f"scales has {len(scales)} numbers, but there are {len(self.fits)} views")
        object.__setattr__(self, "scales", scales)

    @cached_property
    def _cache(self) -> TensorCache:
        """Of what depends on several views: the data of all are among the inputs."""
        return TensorCache(*(X for fit in self.fits for X in fit.data.cache.data))

    @cached_property
    def factor_names(self) -> tuple[str, ...]:
        """The shared factor, the views' own, and the weights."""
        return (*dict.fromkeys(name for fit in self.fits for name in fit.factor_names), self.weights)

    def block(self, factors: Factors, name: str) -> Block:
        """Return half the views' distances as `linear_plus` for pi, elsewhere the weighted blocks of the fits.

        The own factor of a view of weight 0 is updated as if the weight were 1. The objective does not depend on that
        factor, and only a factor that follows V lets the view get weight again.
        """
        if name == self.weights:
            return Block(linear_plus=self.distances(factors).clamp(min=0) / 2)
        shared, own = self._shares(factors)
        if name == self.fits[0].modes[0]:
            return self._on_shared(factors, name, shared)
        here = [p for p, fit in enumerate(self.fits) if name in fit.modes]
        return add_weighted([self.fits[p].block(factors, name) for p in here], [own[p] for p in here])

    def _on_shared(self, factors: Factors, name: str, weights: Sequence[Tensor]) -> Block:
        """Add the products of all views into one tensor, in place: a tensor for each would cost a pass more.

        A view of free sign or with more features than samples keeps its own product, which `_cross` asks for again.
        """
        blocks, linear_minus = [], None
        for fit, w in zip(self.fits, weights, strict=True):
            if _slim(fit) and not isinstance(fit, SemiFit):
                U = factors[fit.modes[1]]
                linear_minus = fit.data.times(w * U, linear_minus)
                blocks.append(Block(quads=(Quad(gram(U)),)))
            else:
                blocks.append(fit.block(factors, name))
        return add_weighted(blocks, weights) + Block(linear_minus=linear_minus)

    def _shares(self, factors: Factors) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Return every view's weight times its scale, `(..., 1, 1)` each: for the shared factor, and for its own."""
        pi = factors[self.weights]
        both = lambda: [(self._scales_as(pi) * w).split(1, dim=-1) for w in (pi, pi + (pi == 0))]
        return self._cache("shares", (pi,), both)

    def distances(self, factors: Factors) -> Tensor:
        """Compute `s_p ||X^p - V U^p'||^2`, float64 `(..., 1, P)`; after a sweep its products are in the caches."""
        Fs = [factors[name] for name in self.factor_names[:-1]]
        return self._cache("distances", Fs, lambda: self._distances(factors)).unsqueeze(-2)

    def _distances(self, factors: Factors) -> Tensor:
        """Compute `s_p (||X^p||^2 - 2 <X^p, V U^p'> + ||V U^p'||^2)` for all views at once."""
        grams = torch.stack([gram(factors[fit.modes[1]]) for fit in self.fits], dim=-3)
        shared = gram(factors[self.fits[0].modes[0]]).unsqueeze(-3)
        last_first = [_cross(fit, factors) for fit in self.fits[::-1]]  # the products of V's update are in the caches
        cross = torch.stack(last_first[::-1], dim=-1)
        norms = self._cache("norms", (), lambda: torch.stack([fit.data.sqnorm() for fit in self.fits]))
        return ((grams * shared).sum((-2, -1), dtype=torch.float64) - 2 * cross + norms) * self._scales_as(norms)

    def _scales_as(self, like: Tensor) -> Tensor:
        """Return the scales `(P,)`, made once for every dtype."""
        make = lambda: torch.stack([like.new_full((), s) for s in self.scales])
        return self._cache(("scales", like.dtype), (), make)

    def value(self, factors: Factors) -> Tensor:
        """Compute the weighted sum of the distances."""
        return (factors[self.weights] * self.distances(factors)).sum((-2, -1))

    def direct(self, factors: Factors) -> Tensor:
        """Compute it from the residuals themselves."""
        distances = [s * fit.direct(factors) for s, fit in zip(self.scales, self.fits, strict=True)]
        return (factors[self.weights] * torch.stack(distances, dim=-1).unsqueeze(-2)).sum((-2, -1))


@dataclass(frozen=True, eq=False)
class Labels(Term):
    """`weight ||V_l W - Y||^2` over the labelled rows of V; W (k, C) has any sign (Jiang et al. 2014, Eq. 9).

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
    _masked: Tensor = field(init=False, repr=False)  # the targets (n, C), zero in rows of unlabelled samples

    def __post_init__(self) -> None:
        if self.targets.dim() != 2 or self.labelled.shape != self.targets.shape[:1]:
            raise ValueError(
                f"targets must be (n, C) and labelled (n,), got {tuple(self.targets.shape)} and "
                f"{tuple(self.labelled.shape)}"
            )
        on = self.targets.device
        known = self.labelled if isinstance(self.labelled, Tensor) else torch.from_numpy(self.labelled)
        rows = known.nonzero()[:, 0] if known is self.labelled else torch.from_numpy(np.flatnonzero(self.labelled))
        rows, mask = rows.to(on), known.to(on, self.targets.dtype)[:, None]
        object.__setattr__(self, "_rows", RowSubset(rows, mask))
        object.__setattr__(self, "_known", self.targets.index_select(0, rows))
        object.__setattr__(self, "_masked", torch.where(mask > 0, self.targets, 0))

    def block(self, factors: Factors, name: str) -> Block:
        """Return, for V, the two parts of Y W' and on labelled rows of W W'; for W least squares (see `Design`)."""
        V, W = (factors[m] for m in self.modes)
        weight = per_column(self.weight, factors, V)[..., :1]
        if name == self.modes[0]:
            linear = split_signs(multiply_transposed(self._masked, weight * W), in_place=True)
            quads = () if self.printed else (Quad(weight * multiply_transposed(W, W), self._rows),)
            return split(Block(quads)) + Block((), *linear)
        root = weight.sqrt()
        rows = Design(root * self._rows.select(V), root * self._known)
        return Block((Quad(torch.ones_like(W[..., :1, :]), rows),), *split_signs(rows.linear(), in_place=True))

    def value(self, factors: Factors) -> Tensor:
        """Sum the residual itself."""
        V, W = (factors[m] for m in self.modes)
        residual = self._rows.select(V) @ W - self._known
        weight = per_column(self.weight, factors, V)[..., :1]
        return (weight * residual.square()).sum((-2, -1), dtype=torch.float64)


def _slim(fit: Fit) -> bool:
    """Tell whether a view has fewer features than samples."""
    return fit.data.shape[1] < fit.data.shape[0]


def _cross(fit: Fit, factors: Factors) -> Tensor:
    """Compute `<X, V U'>` from the product with the fewer rows.

    Between two sweeps that is `X'V` for most data, and the next sweep begins with the same product.
    """
    Fs, mode = [factors[m] for m in fit.modes], int(_slim(fit))
    return (fit.data.mttkrp(Fs, mode) * Fs[mode]).sum((-2, -1), dtype=torch.float64)
