"""The terms a model is a list of.

A term names the factors it `factor_names`, yields the `block(factors, name)` that one of them sees, and has a
`value(factors)` for every problem of the batch. `factors` maps names to tensors `(..., rows, k)`; it may also hold
numbers that differ between the problems of a batch, `(...)`-shaped, which a term names as its `weight`.
No objective carries a factor 1/2; a block's `up - down` is half the gradient of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor

from ..block import Block

Factors = Mapping[str, Tensor]

Weight = float | Tensor | str


class Term(Protocol):
    """What a model is made of."""

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the factors that the term depends on."""

    def block(self, factors: Factors, name: str) -> Block:
        """The coefficients that factor `name` sees while the others are fixed."""

    def value(self, factors: Factors) -> Tensor:
        """The term's value for every problem, float64 where sums could cancel."""


def _check_weight(term: Any) -> None:
    """A number must be finite and nonnegative, or the rules are not monotone; tensors and names are the caller's."""
    if not isinstance(term.weight, Tensor | str) and not 0 <= term.weight < float("inf"):
        raise ValueError(f"weight of {type(term).__name__} must be a finite number >= 0, got {term.weight!r}")


def per_column(weight: Weight, factors: Factors, F: Tensor) -> Tensor:
    """A weight as `(..., 1, k)` for factor `F`: from a number, a tensor `(...)`, or the name of a state entry."""
    w = factors[weight] if isinstance(weight, str) else weight
    if not isinstance(w, Tensor):
        return F.new_full((*F.shape[:-2], 1, F.shape[-1]), w)
    return w.to(F.device, F.dtype)[..., None, None] * torch.ones_like(F[..., :1, :])


def objective(terms: Sequence[Term], factors: Factors) -> Tensor:
    """The value of a model for every problem, float64."""
    return reduce(torch.add, (t.value(factors).double() for t in terms))


def block_of(terms: Sequence[Term], factors: Factors, name: str) -> Block:
    """What factor `name` sees of a model."""
    return reduce(Block.__add__, [t.block(factors, name) for t in terms if name in t.factor_names]).merged()
