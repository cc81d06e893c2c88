"""What a term is, and the weight that it may have.

A model is a list of terms. `factors` maps names to tensors `(..., rows, k)`; it may also hold numbers that differ
between the problems of a batch, `(...)`-shaped, which a term names by its `Weight`. No objective carries a factor 1/2:
`gradient_plus - gradient_minus` of a block is half the gradient of the value.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import Any

import torch
from torch import Tensor

from ..block import Block
from ..cache import without_autocast

Factors = Mapping[str, Tensor]


class Term(ABC):
    """One summand of a model's objective."""

    modes: tuple[str, ...]

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled, one factor against another, at the same value; a penalty forbids it."""
        return False

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the factors that the term depends on; its `modes` where a term says nothing else."""
        return self.modes

    @abstractmethod
    def block(self, factors: Factors, name: str) -> Block:
        """Return the coefficients of the term in factor `name` while the others are fixed."""

    @abstractmethod
    def value(self, factors: Factors) -> Tensor:
        """Return the value for every problem, float64 where sums could cancel."""

    def direct(self, factors: Factors) -> Tensor:
        """Return the same without cancellation, at any cost: it is read once, of the result. Default: `value`."""
        return self.value(factors)

    def magnitude(self) -> Tensor | float:
        """Return the size of what cancels in `value`, to whose rounding it is correct; 0 where nothing does."""
        return 0.0


@dataclass(frozen=True)
class Weight:
    """The weight of a term as an entry of the state, so that the problems of a batch may differ in it."""

    name: str  # the entry `factors[name]`, one number or `(...)`-shaped, one number per problem
    values: tuple[float, ...] = ()  # for callers that need the numbers before the state exists; no term reads them


WeightLike = float | Tensor | Weight


def check_weight(term: Any) -> None:
    """Refuse a number that is not finite and nonnegative: no rule would be monotone. Tensors are the caller's."""
    weight = term.weight
    if isinstance(weight, str) or not (isinstance(weight, Tensor | Weight) or 0 <= weight < inf):
        named = f"; an entry of the state is Weight({weight!r})" if isinstance(weight, str) else ""
        raise ValueError(f"weight of {type(term).__name__} must be a finite number >= 0, got {weight!r}{named}")


def per_column(weight: WeightLike, factors: Factors, F: Tensor) -> Tensor:
    """Return a weight as `(..., 1, k)` for factor `F`: from a number, a tensor `(...)` or an entry of the state."""
    w = factors[weight.name] if isinstance(weight, Weight) else weight
    if not isinstance(w, Tensor):
        return F.new_full((*F.shape[:-2], 1, F.shape[-1]), w)
    return w.to(F.device, F.dtype)[..., None, None] * torch.ones_like(F[..., :1, :])


def objective(terms: Sequence[Term], factors: Factors) -> Tensor:
    """Compute the value of a model for every problem, float64."""
    total = lambda: reduce(torch.add, (t.value(factors).double() for t in terms))
    return without_autocast(total, tuple(factors.values()))


def block_of(terms: Sequence[Term], factors: Factors, name: str) -> Block:
    """Add the blocks of all terms that depend on factor `name`."""
    add = lambda: reduce(Block.__add__, [t.block(factors, name) for t in terms if name in t.factor_names]).merged()
    return without_autocast(add, tuple(factors.values()))
