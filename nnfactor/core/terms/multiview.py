"""Several views of the same samples, their weights, and labels: what paper 001 adds to terms and rules.

Jiang, Liu, Li and Lu (2014), "Semi-supervised unified latent factor learning with multi-view data", and Semi-NMF
(Ding, Li and Jordan 2010). View weights are a factor of one row, `(..., 1, P)`, so that they are seen, updated and
taken apart like every other factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..block import Block, Design, Quad, RowSubset, RowSubsetLinear, split, split_signs, weighted
from ..cache import TensorCache
from ..factors import gram
from .base import Factors, Term, WeightLike, per_column
from .fit import Fit

# Terms


@dataclass(frozen=True, eq=False)
class SemiFit(Fit):
    """`||X - V U'||^2` where the data and all factors but one may have any sign.

    As `Fit`; every coefficient is split into its positive and its negative part (paper 001, Eq. 6), so that the
    multiplicative rule keeps a factor nonnegative and `unconstrained` solves for one that need not be.
    """

    def block(self, factors: Factors, name: str) -> Block:
        """Those of `Fit`, split."""
        return split(super().block(factors, name))


@dataclass(frozen=True, eq=False)
class Views(Term):
    """`sum_p pi_p s_p ||X^p - V U^p'||^2`: matrices of the same samples, which share V (paper 001, Eq. 8).

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
        scales = tuple(float(s) for s in self.scales) or (1.0,) * len(self.fits)
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
        """On pi: a push of half the views' distances. Elsewhere: the blocks of the fits, weighted.

        A view of weight 0 lends its own factor the weight 1: the objective does not feel that factor, and only a
        factor that keeps up with V lets the view come back.
        """
        if name == self.weights:
            return Block(linear_plus=self.distances(factors).clamp(min=0) / 2)
        shared, own = self._shares(factors)
        if name == self.fits[0].modes[0]:
            return self._on_shared(factors, name, shared)
        here = [p for p, fit in enumerate(self.fits) if name in fit.modes]
        return weighted([self.fits[p].block(factors, name) for p in here], [own[p] for p in here])

    def _on_shared(self, factors: Factors, name: str, weights: Sequence[Tensor]) -> Block:
        """The pulls of all views in one tensor, each product added to it as it is made.

        But where a view's sign is free, or it has more features than samples: `_cross` asks for that product again.
        """
        blocks, linear_minus = [], None
        for fit, w in zip(self.fits, weights, strict=True):
            if _slim(fit) and not isinstance(fit, SemiFit):
                U = factors[fit.modes[1]]
                linear_minus = fit.data.times(w * U, linear_minus)
                blocks.append(Block(quads=(Quad(gram(U)),)))
            else:
                blocks.append(fit.block(factors, name))
        return weighted(blocks, weights) + Block(linear_minus=linear_minus)

    def _shares(self, factors: Factors) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The weight of every view times its scale, `(..., 1, 1)` each: for the shared factor, and for its own."""
        pi = factors[self.weights]
        return self._cache("shares", (pi,), lambda: self._split_weights(pi))

    def _split_weights(self, pi: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        scales = self._scales_as(pi)
        both = scales * pi, scales * (pi + (pi == 0))
        return both[0].split(1, dim=-1), both[1].split(1, dim=-1)

    def distances(self, factors: Factors) -> Tensor:
        """`s_p ||X^p - V U^p'||^2`, float64 `(..., 1, P)`; nearly free within sweeps (see `_cross`), and remembered."""
        Fs = [factors[name] for name in self.factor_names[:-1]]
        return self._cache("distances", Fs, lambda: self._distances(factors)).unsqueeze(-2)

    def _distances(self, factors: Factors) -> Tensor:
        """`s_p (||X^p||^2 - 2 <X^p, V U^p'> + ||V U^p'||^2)` for all views at once."""
        grams = torch.stack([gram(factors[fit.modes[1]]) for fit in self.fits], dim=-3)
        shared = gram(factors[self.fits[0].modes[0]]).unsqueeze(-3)
        last_first = [_cross(fit, factors) for fit in self.fits[::-1]]  # those that V has just read are in the cache
        cross = torch.stack(last_first[::-1], dim=-1)
        norms = self._cache("norms", (), lambda: torch.stack([fit.data.sqnorm() for fit in self.fits]))
        return ((grams * shared).sum((-2, -1), dtype=torch.float64) - 2 * cross + norms) * self._scales_as(norms)

    def _scales_as(self, like: Tensor) -> Tensor:
        """The scales `(P,)`, made once for every dtype."""
        make = lambda: torch.stack([like.new_full((), s) for s in self.scales])
        return self._cache(("scales", like.dtype), (), make)

    def value(self, factors: Factors) -> Tensor:
        """The weighted sum of the distances."""
        return (factors[self.weights] * self.distances(factors)).sum((-2, -1))

    def direct(self, factors: Factors) -> Tensor:
        """The same number from the residuals themselves."""
        return (factors[self.weights] * self._gathered([fit.direct(factors) for fit in self.fits])).sum((-2, -1))

    def _gathered(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([s * v for s, v in zip(self.scales, values, strict=True)], dim=-1).unsqueeze(-2)


@dataclass(frozen=True, eq=False)
class Labels(Term):
    """`weight ||V_l W - Y||^2` over the labelled rows of V; W (k, C) has any sign (paper 001, Eq. 9).

    Parameters
    ----------
    targets : Tensor (n, C)
        Y, one-hot rows as a rule. Rows of unlabelled samples are ignored.
    labelled : bool array or Tensor (n,)
    modes : (str, str)
        Names of V and W.
    weight : float, Tensor or str
        As for `Laplacian`.
    printed : bool
        Eqs. 22-26 as printed: what V sees lacks `weight V_l W W'` (the paper takes the inverse in W for a constant). It
        is no gradient of anything and makes the iteration diverge; for study only.
    """

    targets: Tensor
    labelled: Tensor | np.ndarray
    modes: tuple[str, str] = ("V", "W")
    weight: WeightLike = 1.0
    printed: bool = False
    _rows: RowSubset = field(init=False, repr=False)  # the labelled ones
    _known: Tensor = field(init=False, repr=False)  # their targets

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
        for name, value in {"_rows": RowSubset(rows, mask), "_known": self.targets.index_select(0, rows)}.items():
            object.__setattr__(self, name, value)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """V and W."""
        return self.modes

    def block(self, factors: Factors, name: str) -> Block:
        """On V: the two parts of Y W' and, on labelled rows, of the Gram W W'. On W: least squares (see `Design`)."""
        V, W = (factors[m] for m in self.modes)
        weight = per_column(self.weight, factors, V)[..., :1]
        if name == self.modes[0]:
            linear = RowSubsetLinear(self._rows, *split_signs(((weight * W) @ self._known.mT).mT, fresh=True))
            quads = () if self.printed else (Quad(weight * (W @ W.mT), self._rows),)
            return split(Block(quads=quads, parts=(linear,)))
        root = weight.sqrt()
        rows: Any = Design(root * self._labelled(V), root * self._known)
        linear_minus, linear_plus = split_signs(rows.A.mT @ rows.b, fresh=True)
        return Block(
            quads=(Quad(torch.ones_like(W[..., :1, :]), rows),), linear_minus=linear_minus, linear_plus=linear_plus
        )

    def value(self, factors: Factors) -> Tensor:
        """From the residual itself."""
        V, W = (factors[m] for m in self.modes)
        residual = self._labelled(V) @ W - self._known
        weight = per_column(self.weight, factors, V)[..., :1]
        return (weight * residual.square()).sum((-2, -1), dtype=torch.float64)

    def _labelled(self, V: Tensor) -> Tensor:
        return self._rows.take(V)


def _slim(fit: Fit) -> bool:
    """Whether a view has fewer features than samples."""
    n, m = fit.data.shape
    return m < n


def _cross(fit: Fit, factors: Factors) -> Tensor:
    """`<X, V U'>` by way of the factor with fewer rows.

    Between two sweeps that is `X'V` as a rule, the product with which the next sweep begins.
    """
    Fs, mode = [factors[m] for m in fit.modes], int(_slim(fit))
    return (fit.data.mttkrp(Fs, mode) * Fs[mode]).sum((-2, -1), dtype=torch.float64)
