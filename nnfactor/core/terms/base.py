"""What a term is, and the weight that it may have.

A model is a list of terms. `factors` maps names to tensors `(..., rows, k)`; it may also hold numbers that differ
between the problems of a batch, `(...)`-shaped, which a term names by its `Weight`. No objective carries a factor 1/2:
`gradient_plus - gradient_minus` of a block is half the gradient of the value.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from math import inf
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..block import Block
from ..cache import without_autocast
from ..data.base import Data
from ..data.distributed.sample_sums import WHOLE, SampleSums

Factors = Mapping[str, Tensor]


class Term(ABC):
    """One summand of a model's objective.

    Its methods compute in the mode that torch is in: under autocast call `objective`, `block_of` or `run` instead.
    """

    modes: tuple[str, ...]
    splits_samples: ClassVar[bool] = False  # whether processes may share the samples: no row depends on another

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # a dataclass replaces one that is inherited

    def __repr__(self) -> str:
        shown: list[str] = [f.name for f in fields(self) if f.repr] if is_dataclass(self) else []
        return f"{type(self).__name__}({', '.join(f'{name}={describe(getattr(self, name))}' for name in shown)})"

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled, one factor against another, at the same value; a penalty forbids it."""
        return False

    @property
    def value_reads_data(self) -> bool:
        """Whether a value costs a pass over the data, where that of others comes from products that a sweep leaves."""
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

    def select_problems(self, keep: Tensor) -> "Term":
        """Return the term of some problems of a batch, an index `(B,)`; itself where all problems have the same."""
        return self

    def overrelaxed(self) -> "Term":
        """Return the term for sweeps that check the objective: longer steps, after which it may rise. Default: itself.

        Only for rules that take a linear part of any sign, and a model that has no other term.
        """
        return self

    def of_own_rows(self) -> "Term":
        """Return the term of the samples of this process, where processes share them: the values of all add up.

        Default: itself, for terms whose `splits_samples` is true, whose value is a sum over the rows of factors.
        """
        return self

    def check(self, factors: Factors) -> None:  # noqa: B027
        """Refuse factors whose sizes, precision or device the term cannot take; a `run` asks once."""

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
    """Compute the value of a model for every problem: `(...)`, float64.

    In the precision of the factors, under autocast too; terms and factors that do not fit together are refused.
    """
    check_model(terms, factors)
    return without_autocast(lambda: add_values(terms, factors), tuple(factors.values()))


def block_of(terms: Sequence[Term], factors: Factors, name: str) -> Block:
    """Add the blocks of all terms that depend on factor `name`; checks and precision as for `objective`."""
    check_model(terms, factors)
    if not any(name in t.factor_names for t in terms):
        raise ValueError(f"name={name!r}: no term depends on it; there are {_list_names(terms)}")
    return without_autocast(lambda: add_blocks(terms, factors, name), tuple(factors.values()))


def add_values(terms: Sequence[Term], factors: Factors) -> Tensor:
    """Compute `objective` without its checks, in a sweep."""
    sample, sums = samples_of(terms)
    if sample is None:
        value = reduce(torch.add, (t.value(factors).double() for t in terms))
        return value if sums.alone else sums.decide(value)
    own = [t.of_own_rows() if sample in t.factor_names else None for t in terms]
    share = reduce(torch.add, (t.value(factors).double() for t in own if t is not None))
    others = (t.value(factors).double() for t, part in zip(terms, own, strict=True) if part is None)
    return reduce(torch.add, others, sums.add(share))


def add_direct_values(terms: Sequence[Term], factors: Factors) -> Tensor:
    """Compute the value of a model without cancellation, at the cost of `direct`."""
    sample, sums = samples_of(terms)
    own = lambda t: sample in t.factor_names and t.of_own_rows() is t  # data add their residuals themselves
    return reduce(
        torch.add, (sums.add(t.direct(factors).double()) if own(t) else t.direct(factors).double() for t in terms)
    )


def add_blocks(terms: Sequence[Term], factors: Factors, name: str) -> Block:
    """Compute `block_of` without its checks, in a sweep."""
    return reduce(Block.__add__, [t.block(factors, name) for t in terms if name in t.factor_names]).merged()


def check_model(terms: Sequence[Term], factors: Factors) -> None:
    """Refuse terms and factors that do not fit together, by name."""
    if isinstance(terms, Term) or not isinstance(terms, Sequence):
        raise TypeError(f"terms must be a list of terms, got {type(terms).__name__}; use [term]")
    for i, term in enumerate(terms):
        if not isinstance(term, Term):
            raise TypeError(f"terms[{i}] is a {type(term).__name__}; it must be of a subclass of nnfactor.core.Term")
    if not terms:
        raise ValueError("terms is empty; a model has at least one, such as Fit(X, ('V', 'U1'))")
    if not isinstance(factors, Mapping):
        raise TypeError(f"factors must be a dict of tensors by name, got {type(factors).__name__}")
    for name, F in factors.items():
        if not isinstance(F, Tensor):
            raise TypeError(f"factors[{name!r}] is a {type(F).__name__}; it must be a tensor: use torch.as_tensor")
    for term in terms:
        weight = getattr(term, "weight", None)
        for name in (*term.factor_names, *([weight.name] if isinstance(weight, Weight) else [])):
            if name not in factors:
                what = f"{type(term).__name__} depends on {name!r}"
                raise ValueError(f"{what}, which is not in factors; they have {', '.join(map(repr, factors))}")
    some = {name: factors[name] for name in _list_names(terms)}
    for name, F in some.items():
        if F.dim() < 2 or F.dtype not in (torch.float32, torch.float64) or F.layout != torch.strided:
            raise ValueError(
                f"factors[{name!r}] is {describe(F)}{'' if F.layout == torch.strided else ', sparse'}; a factor is a "
                "dense tensor (rows, k), or (B, rows, k) for a batch of B problems, float32 or float64"
            )
    _refuse_mixture("precision", {name: F.dtype for name, F in some.items()}, "convert them to that of the data")
    _refuse_mixture("device", {name: F.device for name, F in some.items()}, "move them to that of the data")
    for term in terms:
        term.check(factors)


def samples_of(terms: Sequence[Term]) -> tuple[str | None, SampleSums]:
    """Return the name of the factor whose rows are split over processes (None: of none), and the sums of samples."""
    for term in terms:
        data = getattr(term, "data", None)
        if isinstance(data, Data) and not data.sums.alone:
            return (None if data.sums.held is None else term.modes[0]), data.sums
    return None, WHOLE


def select_problems(terms: Sequence[Term], keep: Tensor) -> Sequence[Term]:
    """Return the terms of some problems of a batch; the very list where all problems have the same."""
    selected = [term.select_problems(keep) for term in terms]
    return terms if all(a is b for a, b in zip(selected, terms, strict=True)) else selected


def describe(value: Any) -> str:
    """Return kind and shape of a tensor, an array or data, anything else as `repr` does."""
    if isinstance(value, Data):
        return f"{type(value).__name__} {value.shape}"
    if isinstance(value, Tensor | np.ndarray):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return repr(value)


def _list_names(terms: Sequence[Term]) -> list[str]:
    return list(dict.fromkeys(name for term in terms for name in term.factor_names))


def _refuse_mixture(what: str, found: Mapping[str, Any], remedy: str) -> None:
    """Refuse factors that differ in what all must share."""
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {str(value).removeprefix('torch.')}" for name, value in found.items())
        raise ValueError(f"factors differ in {what}: {listed}; {remedy}")
