"""What one factor sees of a model while the others are fixed: coefficients that are all nonnegative.

For a factor `F (..., n, k)` the model is, up to a constant,

    f(F) = sum_q sign_q <F, A_q F G_q> - 2 <pull - push, F>          A_q, G_q, pull, push >= 0

with `A_q` acting on rows (a graph, weights, a small matrix, or nothing) and `G_q` on columns (a Gram matrix or
weights). Half its gradient is `gradient_plus(F) - gradient_minus(F)`. Splitting coefficients instead of
the gradient keeps what the better
rules need: the Gram matrix, the graph, the curvature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import torch
from torch import Tensor

from .cache import cached
from .factors import multiply_columns, row_major
from .graph.graph import Graph


@dataclass(frozen=True, eq=False)
class Design:
    """The rows of a quad, `A' A`, known by `A (..., r, n)`; with the `b (..., r, C)` of the pull `A' b` beside it.

    It acts as the matrix that it stands for. `least_squares` takes A and b themselves: forming A' A would square the
    condition number, which at paper 001's weights (beta = 1e8 against gamma = 100) leaves no digit.
    """

    A: Tensor
    b: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """That of `A' A`."""
        return (*self.A.shape[:-2], self.A.shape[-1], self.A.shape[-1])

    def __matmul__(self, F: Tensor) -> Tensor:
        return self.A.mT @ (self.A @ F)

    def sum(self, dim: int, keepdim: bool = True) -> Tensor:
        """Row sums (the matrix is symmetric: of either dimension)."""
        return self.A.mT @ self.A.sum(-1, keepdim=True)


def split(block: Block) -> Block:
    """The same function from coefficients of any sign: each becomes two that are nonnegative."""
    quads = []
    for q in block.quads:
        plus, minus = split_signs(q.cols)
        quads += [replace(q, cols=plus), replace(q, cols=minus, sign=-q.sign)]
    net = block.net_linear()
    linear_minus, linear_plus = (None, None) if net is None else split_signs(net, fresh=net is not block.linear_minus)
    return replace(block, quads=tuple(quads), linear_minus=linear_minus, linear_plus=linear_plus)


def weighted(blocks: Sequence[Block], weights: Sequence[Tensor]) -> Block:
    """The blocks' functions, each times its weight `(..., 1, 1) >= 0`, summed; quads of one kind become one."""
    kinds: dict[tuple[int, int, str], list[tuple[Quad, Tensor]]] = {}
    for b, w in zip(blocks, weights, strict=True):
        for q in b.quads:
            kinds.setdefault((id(q.rows), q.sign, str((q.span, q.mixes_columns))), []).append((q, w))
    quads = [replace(pairs[0][0], cols=_sum_of([(q.cols, w) for q, w in pairs])) for pairs in kinds.values()]
    linear = [
        _weighted_sum([b.linear_minus for b in blocks], weights),
        _weighted_sum([b.linear_plus for b in blocks], weights),
    ]
    return Block(quads=tuple(quads), linear_minus=linear[0], linear_plus=linear[1])


def _weighted_sum(parts: Sequence[Tensor | None], weights: Sequence[Tensor]) -> Tensor | None:
    """Of the parts that are there."""
    there = [(z, w) for z, w in zip(parts, weights, strict=True) if z is not None]
    return _sum_of(there) if there else None


def _sum_of(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """`sum w z`, in one pass for each part."""
    (first, w), *others = pairs
    total = w * first
    for z, w in others:
        total.addcmul_(z, w)
    return total


def split_signs(Z: Tensor, fresh: bool = False) -> tuple[Tensor, Tensor]:
    """Positive and negative part; the latter takes the place of a fresh Z."""
    plus = Z.clamp(min=0)
    return plus, torch.sub(plus, Z, out=Z) if fresh else plus - Z


@dataclass(frozen=True, eq=False)
class RowSubset:
    """Some of n rows: the weights 1 for them and 0 for the others, so that a quad costs what they do.

    Attributes
    ----------
    index : integer Tensor (r,)
        Which rows, each once.
    mask : Tensor (n, 1)
        The weights, for whoever needs them as such.
    """

    index: Tensor
    mask: Tensor

    def take(self, F: Tensor) -> Tensor:
        """Those rows of a factor, in its memory order; remembered for as long as F lives."""
        return cached(F, self._take)

    def _take(self, F: Tensor) -> Tensor:
        return F.index_select(-2, self.index) if row_major(F) else F.mT.index_select(-1, self.index).mT

    def add(self, total: Tensor, values: Tensor, alpha: int = 1) -> None:
        """Add `values (..., r, k)` to those rows of `total`, in place."""
        values = values.expand(*total.shape[:-2], *values.shape[-2:])
        if row_major(total):
            total.index_add_(-2, self.index, values, alpha=alpha)
        else:
            total.mT.index_add_(-1, self.index, values.mT, alpha=alpha)


@dataclass(frozen=True, eq=False)
class Quad:
    """`sign <F, rows F cols>` with nonnegative coefficients.

    Attributes
    ----------
    cols : Tensor
        A symmetric Gram matrix `(..., k, k)` or weights of the columns `(..., 1, k)`. For k = 1 they are the same.
    rows : None, Tensor, Links or Some
        Nothing, weights of the rows `(n, 1)`, a symmetric matrix `(n, n)`, the adjacency of a graph, or some rows.
    sign : int
        +1 or -1.
    span : slice or None
        The only columns of F that it acts on; `cols` is as wide. None: all.
    """

    cols: Tensor
    rows: Tensor | Graph | RowSubset | None = None
    sign: int = 1
    span: slice | None = None

    def __call__(self, F: Tensor) -> Tensor:
        """`rows F cols` on its columns, without the sign; F's memory order is kept, but for a graph."""
        F = F if self.span is None else F[..., self.span]
        return self.on_rows(multiply_columns(F, self.cols) if self.mixes_columns else F * self.cols)

    def on_rows(self, F: Tensor) -> Tensor:
        """`rows F`."""
        rows = self._rows
        if rows is None:
            return F
        return rows @ F if self.couples_rows else cast(Tensor, rows) * F

    def entry_weights(self, F: Tensor) -> Tensor | None:
        """What the entries of F are multiplied with, in its memory order, if that is all that the quad does."""
        if self.mixes_columns or self.couples_rows:
            return None
        rows = cast("Tensor | None", self._rows)
        if rows is None:
            return self.cols
        return rows * self.cols if row_major(F) else (self.cols.mT * rows.mT).mT

    @property
    def partial(self) -> bool:
        """Whether it acts on some columns or some rows only."""
        return self.span is not None or isinstance(self.rows, RowSubset)

    @property
    def mixes_columns(self) -> bool:
        """Whether `cols` is a Gram matrix."""
        return self.cols.shape[-2] > 1

    @property
    def couples_rows(self) -> bool:
        """Whether rows are coupled: a graph, a matrix, or whatever else is not one weight for each."""
        rows = self._rows
        return rows is not None and not (isinstance(rows, Tensor) and rows.shape[-1] == 1)

    def row_sums(self, F: Tensor) -> Tensor | float:
        """`rows 1`: what majorises both `rows` and `-rows` as a diagonal (Gershgorin)."""
        rows = self._rows
        if rows is None:
            return 1.0
        return rows.degree(F) if isinstance(rows, Graph) else rows.sum(-1, keepdim=True)

    @property
    def _rows(self) -> Tensor | Graph | None:
        """What acts on the rows; of some rows, their weights."""
        return self.rows.mask if isinstance(self.rows, RowSubset) else self.rows


@dataclass(frozen=True, eq=False)
class RowSubsetLinear:
    """The linear part that some rows have beside everybody's, `-2 <linear_minus - linear_plus, F on those rows>`.

    Attributes
    ----------
    rows : Some
    pull, push : Tensor (..., r, k)
    """

    rows: RowSubset
    linear_minus: Tensor
    linear_plus: Tensor


@dataclass(frozen=True, eq=False)
class Block:
    """The coefficients of a model in one factor. Blocks add.

    Attributes
    ----------
    quads : tuple of Quad
    pull, push : Tensor or None
        `(..., n, k)` or what broadcasts to it: the linear part, `-2 <linear_minus - linear_plus, F>`.
    quadratic : bool
        False where pull and push hold at the current `F` only (beta-divergences).
    powers : (float, float)
        The lowest and the highest power of an entry of F in the majoriser that the multiplicative rule minimises (0 is
        the logarithm): its safe exponent is one over their difference (Yang and Oja 2011).
    parts : tuple of Part
        What only some rows are pulled and pushed by.
    """

    quads: tuple[Quad, ...] = ()
    linear_minus: Tensor | None = None
    linear_plus: Tensor | None = None
    quadratic: bool = True
    powers: tuple[float, float] = (1.0, 2.0)
    parts: tuple[RowSubsetLinear, ...] = ()

    def __add__(self, other: Block) -> Block:
        return Block(
            self.quads + other.quads,
            _plus(self.linear_minus, other.linear_minus),
            _plus(self.linear_plus, other.linear_plus),
            self.quadratic and other.quadratic,
            (min(self.powers[0], other.powers[0]), max(self.powers[1], other.powers[1])),
            self.parts + other.parts,
        )

    @property
    def power(self) -> float:
        """The exponent for which the multiplicative rule is proved never to raise the objective."""
        low, high = self.powers
        return 1.0 if high <= low else 1.0 / (high - low)

    def net_linear(self) -> Tensor | None:
        """Return `linear_minus - linear_plus`; it may be `linear_minus` itself."""
        if self.linear_plus is None:
            return self.linear_minus
        return -self.linear_plus if self.linear_minus is None else self.linear_minus - self.linear_plus

    def merged(self) -> Block:
        """The same block with one quad for all that share rows, sign and columns."""
        groups: dict[tuple[int, int, int | None, int | None], list[Quad]] = {}
        for q in self.quads:
            start, stop = (None, None) if q.span is None else (q.span.start, q.span.stop)
            groups.setdefault((id(q.rows), q.sign, start, stop), []).append(q)
        if len(groups) == len(self.quads):
            return self
        one = (g[0] if len(g) == 1 else replace(g[0], cols=_merge([q.cols for q in g])) for g in groups.values())
        return replace(self, quads=tuple(one))

    def without(self, quads: Sequence[Quad]) -> Block:
        """The block without some of its quads."""
        return replace(self, quads=tuple(q for q in self.quads if all(q is not other for other in quads)))

    def gradient_plus(self, F: Tensor) -> Tensor:
        """The part of half the gradient that drives entries down: push and the positive quads."""
        return _total(
            [q for q in self.quads if q.sign > 0], self.linear_plus, F, [(p.rows, p.linear_plus) for p in self.parts]
        )

    def gradient_minus(self, F: Tensor) -> Tensor:
        """The part of half the gradient that drives entries up: pull and the negative quads."""
        return _total(
            [q for q in self.quads if q.sign < 0], self.linear_minus, F, [(p.rows, p.linear_minus) for p in self.parts]
        )

    def half_gradient(self, F: Tensor) -> Tensor:
        """`gradient_plus(F) - gradient_minus(F)`."""
        return self.gradient_plus(F) - self.gradient_minus(F)


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def accumulate(total: Tensor, quads: Sequence[Quad], F: Tensor, alpha: int = 1) -> Tensor:
    """Add what quads are worth at F to a tensor of all columns, in place."""
    for q in quads:
        columns = q.span or slice(None)
        if isinstance(q.rows, RowSubset):
            here = q.rows.take(F if q.span is None else F[..., columns])
            q.rows.add(total[..., columns], multiply_columns(here, q.cols) if q.mixes_columns else here * q.cols, alpha)
        elif isinstance(q.rows, Graph) and not q.mixes_columns:
            total[..., columns].addcmul_(q.rows.times(F, q.span), q.cols, value=alpha)
        elif (weights := q.entry_weights(F)) is not None:
            total[..., columns].addcmul_(F[..., columns], weights, value=alpha)
        else:
            total[..., columns].add_(q(F), alpha=alpha)
    return total


def _total(quads: list[Quad], linear: Tensor | None, F: Tensor, parts: Sequence[tuple[RowSubset, Tensor]]) -> Tensor:
    """The sum of quads, a linear part and those of some rows; a new tensor only where there is something to add."""
    whole = [q for q in quads if q.mixes_columns and not q.partial]
    rest = [q for q in quads if q not in whole]
    terms = [q(F) for q in whole] + ([] if linear is None else [linear])
    total = reduce(_onto if whole else torch.add, terms) if terms else torch.zeros_like(F)
    if not rest and not parts:
        return total
    if total is linear or total.shape != F.shape:  # it may be shared: not to be written to
        weights = rest[0].entry_weights(F) if rest and not rest[0].partial else None
        if weights is None:
            total = total.expand_as(F).clone()
        else:
            total, rest = torch.addcmul(total, F, weights), rest[1:]
    accumulate(total, rest, F)
    for rows, values in parts:
        rows.add(total, values)
    return total


def _onto(total: Tensor, part: Tensor) -> Tensor:
    """Their sum, in place of the first where it has room for it: a new tensor costs several additions."""
    return total.add_(part) if part.shape == total.shape else total + part


def _merge(cols: list[Tensor]) -> Tensor:
    """One Gram matrix or one row of weights from several; weights go onto the diagonal."""
    grams = [c for c in cols if c.shape[-2] > 1]
    weights = [c for c in cols if c.shape[-2] == 1]
    if not grams:
        return reduce(torch.add, weights)
    total = reduce(torch.add, grams)
    if weights:
        total = total.clone() if total is grams[0] else total
        total.diagonal(dim1=-2, dim2=-1).add_(reduce(torch.add, weights).squeeze(-2))
    return total
