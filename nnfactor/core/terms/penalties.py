"""Penalties of one factor: entries, squares, row lengths."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..block import Block, Quad
from .base import Factors, Term, WeightLike, check_weight, per_column


@dataclass(frozen=True, eq=False)
class Penalty(Term):
    """`weight` times the sum of nonnegative sizes, of the entries or of the rows of factor `on`."""

    on: str
    weight: WeightLike = 1.0
    splits_samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight(self)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The one factor."""
        return (self.on,)

    @abstractmethod
    def sizes(self, F: Tensor) -> Tensor:
        """Compute the summands, `(..., n, k or 1)`."""

    def value(self, factors: Factors) -> Tensor:
        """Sum the sizes."""
        F = factors[self.on]
        return (per_column(self.weight, factors, F)[..., :1] * self.sizes(F)).sum((-2, -1), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class L1(Penalty):
    """`weight sum |f|` over the entries of a nonnegative factor: sparsity."""

    def block(self, factors: Factors, name: str) -> Block:
        """Return half the weight as `linear_plus`."""
        return Block(linear_plus=per_column(self.weight, factors, factors[name]) / 2, powers=(1.0, 1.0))

    def sizes(self, F: Tensor) -> Tensor:
        """Return the entries: a nonnegative f is |f|."""
        return F


@dataclass(frozen=True, eq=False)
class L2(Penalty):
    """`weight ||F||^2`: ridge."""

    def block(self, factors: Factors, name: str) -> Block:
        """Return the weight as one quad, the diagonal of a Gram."""
        return Block(quads=(Quad(per_column(self.weight, factors, factors[name])),))

    def sizes(self, F: Tensor) -> Tensor:
        """Compute the squares."""
        return F.square()


@dataclass(frozen=True, eq=False)
class L21(Penalty):
    """`weight sum_i sqrt(||f_i||^2 + eps)` over the rows of a factor: whole rows go to zero.

    Not quadratic, but majorised at the current factor by row weights `1 / (2 sqrt(||f_i||^2 + eps))`, so that every
    rule takes it and none raises the objective (Jiang et al. 2014).
    """

    eps: float = 1e-10

    def block(self, factors: Factors, name: str) -> Block:
        """Return row weights at the current factor."""
        F = factors[name]
        return Block(quads=(Quad(per_column(self.weight, factors, F), 0.5 / self.sizes(F)),))

    def sizes(self, F: Tensor) -> Tensor:
        """Compute the smoothed row lengths."""
        return (F.square().sum(-1, keepdim=True) + self.eps).sqrt()


@dataclass(frozen=True, eq=False)
class Orthogonal(Penalty):
    """`weight sum_{i != j} u_i' u_j` over the columns of a nonnegative factor: components that share few entries."""

    def block(self, factors: Factors, name: str) -> Block:
        """Return a quad that multiplies a row with the sum of its other columns."""
        k = factors[name].shape[-1]
        others = 1 - torch.eye(k, dtype=factors[name].dtype, device=factors[name].device)
        return Block(quads=(Quad(others * per_column(self.weight, factors, factors[name])[..., :1]),) if k > 1 else ())

    def sizes(self, F: Tensor) -> Tensor:
        """Compute what each row adds, `(sum_j f_j)^2 - sum_j f_j^2`."""
        return F.sum(-1, keepdim=True).square() - F.square().sum(-1, keepdim=True)
