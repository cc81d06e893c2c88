"""Penalties of one factor: entries, squares, row lengths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..block import Block, Quad
from .base import Factors, Term, WeightLike, check_weight, per_column


@dataclass(frozen=True, eq=False)
class L1(Term):
    """`weight sum |f|` over the entries of a nonnegative factor: sparsity."""

    on: str
    weight: WeightLike = 1.0

    def __post_init__(self) -> None:
        check_weight(self)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The one factor."""
        return (self.on,)

    def block(self, factors: Factors, name: str) -> Block:
        """Return half the weight as `linear_plus`."""
        return Block(linear_plus=per_column(self.weight, factors, factors[name]) / 2, powers=(1.0, 1.0))

    def value(self, factors: Factors) -> Tensor:
        """Sum the entries: a nonnegative f is |f|."""
        F = factors[self.on]
        return (per_column(self.weight, factors, F) * F).sum((-2, -1), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class L2(Term):
    """`weight ||F||^2`: ridge."""

    on: str
    weight: WeightLike = 1.0

    def __post_init__(self) -> None:
        check_weight(self)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The one factor."""
        return (self.on,)

    def block(self, factors: Factors, name: str) -> Block:
        """Return the weight as one quad, the diagonal of a Gram."""
        return Block(quads=(Quad(per_column(self.weight, factors, factors[name])),))

    def value(self, factors: Factors) -> Tensor:
        """Compute `weight ||F||^2`."""
        F = factors[self.on]
        return (per_column(self.weight, factors, F) * F.square()).sum((-2, -1), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class L21(Term):
    """`weight sum_i sqrt(||f_i||^2 + eps)` over the rows of a factor: whole rows go to zero.

    Not quadratic, but majorised at the current factor by row weights `1 / (2 sqrt(||f_i||^2 + eps))`, so that every
    rule takes it and none raises the objective (Jiang et al. 2014).
    """

    on: str
    weight: WeightLike = 1.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        check_weight(self)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The one factor."""
        return (self.on,)

    def block(self, factors: Factors, name: str) -> Block:
        """Return row weights at the current factor."""
        F = factors[name]
        return Block(quads=(Quad(per_column(self.weight, factors, F), 0.5 / self._lengths(F)),))

    def value(self, factors: Factors) -> Tensor:
        """Sum the smoothed row lengths."""
        F = factors[self.on]
        weight = per_column(self.weight, factors, F)[..., :1]
        return (weight * self._lengths(F)).sum((-2, -1), dtype=torch.float64)

    def _lengths(self, F: Tensor) -> Tensor:
        return (F.square().sum(-1, keepdim=True) + self.eps).sqrt()
