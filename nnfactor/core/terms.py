"""The terms a model is a list of.

A term names the factors it `touches`, yields the `block(factors, name)` that one of them sees, and has a
`value(factors)` for every problem of the batch. `factors` maps names to tensors `(..., rows, k)`; it may also hold
numbers that differ between the problems of a batch, `(...)`-shaped, which a term names as its `weight`.
No objective carries a factor 1/2; a block's `up - down` is half the gradient of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from . import divergence
from .block import Block, Quad
from .data import Data
from .intake import as_data
from .links import Links, as_links
from .memo import Memo, remembered
from .ops import gram

Factors = Mapping[str, Tensor]
Weight = float | Tensor | str


class Term(Protocol):
    """What a model is made of."""

    @property
    def touches(self) -> tuple[str, ...]:
        """Names of the factors that the term depends on."""

    def block(self, factors: Factors, name: str) -> Block:
        """The coefficients that factor `name` sees while the others are fixed."""

    def value(self, factors: Factors) -> Tensor:
        """The term's value for every problem, float64 where sums could cancel."""


@dataclass(frozen=True, eq=False)
class Fit:
    """`||X - [[V, U1, ...]]||^2`: squared Frobenius distance to a CP model of any order.

    Parameters
    ----------
    data : Data, array, tensor or scipy sparse matrix
    modes : sequence of str
        Names of the factors in the order of the data's modes, samples first: `("V", "U1")` for a matrix.
    """

    data: Data
    modes: tuple[str, ...]

    def __post_init__(self) -> None:
        _read(self)

    @property
    def touches(self) -> tuple[str, ...]:
        """All modes."""
        return self.modes

    def block(self, factors: Factors, name: str) -> Block:
        """Pull `MTTKRP`, one Gram: the Hadamard product of the other factors' Grams."""
        Fs, at = [factors[m] for m in self.modes], self.modes.index(name)
        grams = [gram(factors[m]) for m in self.modes if m != name]
        return Block(quads=(Quad(reduce(torch.mul, grams)),), pull=self.data.mttkrp(Fs, at))

    def value(self, factors: Factors) -> Tensor:
        """`||X||^2 - 2 <X, Y> + ||Y||^2`, nearly free after a sweep: its products are remembered.

        Exact to rounding of `||X||^2`; `data.residual_sq` sums the residual itself.
        """
        first = factors[self.modes[0]]
        pull = self.data.mttkrp([factors[m] for m in self.modes], 0)
        cross = (pull * first).sum(-2).sum(-1, dtype=torch.float64)
        square = reduce(torch.mul, (gram(factors[m]) for m in self.modes)).sum((-2, -1), dtype=torch.float64)
        return self.data.sqnorm() - 2 * cross + square

    def direct(self, factors: Factors) -> Tensor:
        """The same number summed from the residual itself: dearer, and free of cancellation."""
        return self.data.residual_sq([factors[m] for m in self.modes])


@dataclass(frozen=True, eq=False)
class BetaFit:
    """`sum d_beta(X, [[V, U1, ...]])`; beta = 1 is Kullback-Leibler, 0 Itakura-Saito, 2 the squared Frobenius norm.

    Not quadratic: only the multiplicative rule takes it. Data and modes as for `Fit`; sparse data are matrices.
    Zeros of the model are clamped to 1e-32 (float64) of the data's maximum.

    Raises
    ------
    ValueError
        beta <= 0 and a zero in the data: the divergence is infinite there.
    """

    data: Data
    modes: tuple[str, ...]
    beta: float = 1.0

    def __post_init__(self) -> None:
        _read(self)
        if self.beta <= 0 and self.data.smallest() <= 0:
            raise ValueError(
                f"beta = {self.beta:g} needs data without zeros (the divergence is infinite there); "
                "use beta > 0 or add a small positive number to the data"
            )

    @property
    def touches(self) -> tuple[str, ...]:
        """All modes."""
        return self.modes

    def block(self, factors: Factors, name: str) -> Block:
        """The two ratio products at the current factors, halved (half the gradient); see `divergence.powers`."""
        Fs, at = [factors[m] for m in self.modes], self.modes.index(name)
        pull, push = self.data.ratio_products(Fs, at, self.beta)
        if self.beta != 2:
            pull, push = pull.mul_(0.5), push.mul_(0.5)
        return Block(pull=pull, push=push, quadratic=False, powers=divergence.powers(self.beta))

    def value(self, factors: Factors) -> Tensor:
        """The divergence, summed over all entries in float64."""
        return self.data.divergence([factors[m] for m in self.modes], self.beta)


@dataclass(frozen=True, eq=False)
class Graph:
    """`weight sum_j c_j prod_b ||u^b_j||^2 v_j' L v_j` over factor `on`, `L` the Laplacian of `links`.

    Parameters
    ----------
    links : Links, scipy sparse matrix or array (n, n)
    on : str
        The factor whose rows are the nodes.
    gauge : sequence of str
        Factors whose column norms enter, which makes the penalty blind to rescaling columns between `on` and them
        (papers 000 and 002, Eq. 9). Empty: the plain `tr(V' L V)`.
    weight : float, Tensor or str
        A number, one number per problem, or the name of an entry of the state that holds them.
    columns : array (k,) or None
        Weights >= 0 of the columns; a boolean mask says which ones the graph acts on. Default: all. Columns outside
        the first and the last nonzero weight cost nothing.
    split : {"exact", "paper"}
        What a gauge factor sees. `v_j' L v_j >= 0` is one number ("exact"); the papers' Eqs. 25 and 15 split it into
        `v_j' D v_j` and `v_j' S v_j` ("paper"), which is correct and much slower at large weights.

    Examples
    --------
    >>> import torch
    >>> from nnfactor.core import Graph
    >>> V = torch.tensor([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0]])
    >>> chain = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> float(Graph(chain, "V", weight=10.0).value({"V": V}))                 # 10 (1^2 + 2^2); equal rows cost nothing
    50.0
    >>> float(Graph(chain, "V", weight=10.0, columns=[False, True]).value({"V": V}))
    0.0
    """

    links: Links
    on: str
    gauge: tuple[str, ...] = ()
    weight: Weight = 1.0
    columns: Any = None
    split: str = "exact"
    memo: Memo = field(default_factory=Memo, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", as_links(self.links))
        object.__setattr__(self, "gauge", tuple(self.gauge))
        _check_weight(self)
        if self.split not in ("exact", "paper"):
            raise ValueError(f"split must be 'exact' or 'paper', got {self.split!r}")
        if self.columns is not None:
            weights = np.asarray(self.columns.cpu() if isinstance(self.columns, Tensor) else self.columns, dtype=float)
            if weights.ndim != 1 or not (np.isfinite(weights).all() and (weights >= 0).all()):
                raise ValueError("columns must be a mask or finite weights >= 0, one per column")
            object.__setattr__(self, "columns", weights)

    @property
    def touches(self) -> tuple[str, ...]:
        """The factor and its gauge."""
        return (self.on, *self.gauge)

    @cached_property
    def span(self) -> slice | None:
        """The columns that the graph acts on, None for all; empty if there are none."""
        if self.columns is None:
            return None
        some = np.flatnonzero(self.columns)
        return slice(int(some[0]), int(some[-1]) + 1) if len(some) else slice(0, 0)

    def block(self, factors: Factors, name: str) -> Block:
        """On `on`: `+ D` and `- S` with one weight per column. On a gauge factor: weights of its columns."""
        V, span = factors[self.on], self.span
        if span == slice(0, 0):
            return Block()
        c = self._scale(factors, skip=name)
        if name == self.on:
            return Block(quads=(Quad(c, self.links.degree(V), 1, span), Quad(c, self.links, -1, span)))
        if self.split == "exact":
            return Block(quads=(Quad(self._all(c * self.links.energy(V, span), V)),))
        own, neighbours = self.links.energy_parts(V, span)
        return Block(quads=(Quad(self._all(c * own, V)), Quad(self._all(c * neighbours, V), sign=-1)))

    def value(self, factors: Factors) -> Tensor:
        """Summed edge by edge, never as a difference."""
        energy = self.links.energy(factors[self.on], self.span)
        return (self._scale(factors) * energy).sum((-2, -1), dtype=torch.float64)

    def _scale(self, factors: Factors, skip: str | None = None) -> Tensor:
        """Weights of its columns `(..., 1, span)`: weight, columns, and the squared norms of the gauge but `skip`'s."""
        V, span = factors[self.on], self.span or slice(None)
        weight: Weight = 1.0 if isinstance(self.weight, Tensor | str) else self.weight
        key = (float(weight), V.device, V.dtype, V.shape[-1])
        c = self.memo(key, (), lambda: self._columns(V, float(weight)))
        if weight is not self.weight:
            c = c * per_column(self.weight, factors, V)[..., span]
        return reduce(torch.mul, [square_norms(factors[b])[..., span] for b in self.gauge if b != skip], c)

    def _columns(self, V: Tensor, weight: float) -> Tensor:
        """Weight times column weights, `(1, span)`."""
        ones = np.ones(V.shape[-1]) if self.columns is None else self.columns[self.span]
        return torch.from_numpy(weight * ones).to(V.device, V.dtype).unsqueeze(0)

    def _all(self, c: Tensor, V: Tensor) -> Tensor:
        """Weights of all columns from those of the span: zero elsewhere."""
        span = self.span
        return c if span is None else torch.constant_pad_nd(c, (span.start, V.shape[-1] - span.stop))


@dataclass(frozen=True, eq=False)
class L1:
    """`weight sum |f|` over the entries of a nonnegative factor: sparsity."""

    on: str
    weight: Weight = 1.0

    def __post_init__(self) -> None:
        _check_weight(self)

    @property
    def touches(self) -> tuple[str, ...]:
        """The one factor."""
        return (self.on,)

    def block(self, factors: Factors, name: str) -> Block:
        """A push of half the weight."""
        return Block(push=per_column(self.weight, factors, factors[name]) / 2, powers=(1.0, 1.0))

    def value(self, factors: Factors) -> Tensor:
        """On the nonnegative orthant |f| = f."""
        F = factors[self.on]
        return (per_column(self.weight, factors, F) * F).sum((-2, -1), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class L2:
    """`weight ||F||^2`: ridge."""

    on: str
    weight: Weight = 1.0

    def __post_init__(self) -> None:
        _check_weight(self)

    @property
    def touches(self) -> tuple[str, ...]:
        """The one factor."""
        return (self.on,)

    def block(self, factors: Factors, name: str) -> Block:
        """The weight on the Gram's diagonal."""
        return Block(quads=(Quad(per_column(self.weight, factors, factors[name])),))

    def value(self, factors: Factors) -> Tensor:
        """`weight ||F||^2`."""
        F = factors[self.on]
        return (per_column(self.weight, factors, F) * F.square()).sum((-2, -1), dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class L21:
    """`weight sum_i sqrt(||f_i||^2 + eps)` over the rows of a factor: whole rows go to zero (paper 001).

    Not quadratic, but majorised at the current factor by row weights `1 / (2 sqrt(||f_i||^2 + eps))`, so that every
    rule takes it and none raises the objective.
    """

    on: str
    weight: Weight = 1.0
    eps: float = 1e-10

    def __post_init__(self) -> None:
        _check_weight(self)

    @property
    def touches(self) -> tuple[str, ...]:
        """The one factor."""
        return (self.on,)

    def block(self, factors: Factors, name: str) -> Block:
        """Row weights at the current factor."""
        F = factors[name]
        return Block(quads=(Quad(per_column(self.weight, factors, F), 0.5 / self._lengths(F)),))

    def value(self, factors: Factors) -> Tensor:
        """Sum of the smoothed row lengths."""
        F = factors[self.on]
        weight = per_column(self.weight, factors, F)[..., :1]
        return (weight * self._lengths(F)).sum((-2, -1), dtype=torch.float64)

    def _lengths(self, F: Tensor) -> Tensor:
        return (F.square().sum(-1, keepdim=True) + self.eps).sqrt()


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


def square_norms(F: Tensor) -> Tensor:
    """Squared lengths of the columns, `(..., 1, k)`: the diagonal of the Gram that the fit needs anyway."""
    return remembered(F, _square_norms)


def _square_norms(F: Tensor) -> Tensor:
    return gram(F).diagonal(dim1=-2, dim2=-1).unsqueeze(-2)


def objective(terms: Sequence[Term], factors: Factors) -> Tensor:
    """The value of a model for every problem, float64."""
    return reduce(torch.add, (t.value(factors).double() for t in terms))


def see(terms: Sequence[Term], factors: Factors, name: str) -> Block:
    """What factor `name` sees of a model."""
    return reduce(Block.__add__, [t.block(factors, name) for t in terms if name in t.touches]).merged()


def _read(term: Any) -> None:
    """Data from whatever was given; as many modes as it has dimensions."""
    data, modes = as_data(term.data, name="data"), tuple(term.modes)
    if len(modes) != data.order or len(set(modes)) != len(modes):
        raise ValueError(f"modes must be {data.order} different names for data of shape {data.shape}, got {modes}")
    object.__setattr__(term, "data", data)
    object.__setattr__(term, "modes", modes)
