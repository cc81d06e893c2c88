"""One factor of a model while the others are fixed, described by coefficients that are all nonnegative.

For a factor `F (..., n, k)` the model is, up to a constant,

    f(F) = sum_q sign_q <F, A_q F G_q> - 2 <linear_minus - linear_plus, F>      A_q, G_q, linear_minus, linear_plus >= 0

where `A_q` acts on rows (a graph, weights, a small matrix, or nothing) and `G_q` on columns (a Gram matrix or weights).
Half its gradient is `gradient_plus(F) - gradient_minus(F)`, and `plus` and `minus` in a name say to which of the two a
part belongs: of `||X - V U'||^2` in V, `X U` is `linear_minus` and `U'U` the only `G_q`, with sign +1. The coefficients
are split, not the gradient: better rules than the multiplicative one need the Gram matrix, the graph and the curvature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import torch
from torch import Tensor

from .cache import cached
from .data.distributed.sample_sums import WHOLE, SampleSums
from .factors import add_to_rows, multiply_columns, outer_weights, select_rows
from .graph.graph import Graph
from .multilinear import as_core, core_factor, kronecker, majorise, multiply_modes


@dataclass(frozen=True, eq=False)
class Design:
    """The rows `A' A` of a quad, known by `A (..., r, n)`, together with `b (..., r, C)` of the linear part `A' b`.

    It acts as the matrix that it stands for. `least_squares` takes A and b themselves: forming A' A would square the
    condition number, which at the weights of Jiang et al. 2014 (beta = 1e8, gamma = 100) leaves no digit.
    """

    A: Tensor
    b: Tensor

    def __matmul__(self, F: Tensor) -> Tensor:
        return self.A.mT @ (self.A @ F)

    def sum(self, dim: int, keepdim: bool = True) -> Tensor:
        """Sum the rows (the matrix is symmetric: or the columns)."""
        return self.A.mT @ self.A.sum(-1, keepdim=True)

    def linear(self) -> Tensor:
        """Compute `A' b`."""
        return self.A.mT @ self.b


@dataclass(frozen=True, eq=False)
class Kronecker:
    """The rows of a core's quad: the Kronecker product of the Grams `(..., r, r)` of all modes but the first.

    It acts as the matrix that it stands for, of `r_1 .. r_N` rows, and is never formed: a factor that keeps a core is
    multiplied mode by mode. The Grams are positive semidefinite, their entries nonnegative.
    """

    grams: tuple[Tensor, ...]

    def __matmul__(self, F: Tensor) -> Tensor:
        core = as_core(F, (F.shape[-1], *(G.shape[-1] for G in self.grams)))
        return core_factor(multiply_modes(core, (None, *self.grams)), 1 + len(self.grams))

    def sum(self, dim: int, keepdim: bool = True) -> Tensor:
        """Sum the rows (the matrix is symmetric: or the columns)."""
        return kronecker([G.sum(-1, keepdim=True) for G in self.grams])

    def majorise(self, G: Tensor) -> Tensor:
        """Find weights of entries `(..., r_1 .. r_N, r_0)` above the quad with the Gram `G (..., r_0, r_0)`."""
        return kronecker([majorise(H).unsqueeze(-1) for H in self.grams]) * majorise(G).unsqueeze(-2)


@dataclass(frozen=True, eq=False)
class RowSubset:
    """A subset of the n rows, of weight 1; the others have weight 0. Only rows of the subset cost time.

    As a mask over all rows it made an iteration of SULF 2 to 9 % longer (one thread of an AMD EPYC, float32).
    """

    index: Tensor  # integers (r,): which rows, each once
    mask: Tensor  # (n, 1): the weights, for rules that need them as such

    def select(self, F: Tensor) -> Tensor:
        """Return these rows of a factor; they are kept for as long as F lives."""
        return cached(F, self._select)

    def _select(self, F: Tensor) -> Tensor:
        return select_rows(F, self.index)


@dataclass(frozen=True, eq=False)
class Quad:
    """A quadratic part of a block: `sign <F, A F G>` with nonnegative coefficients.

    Attributes
    ----------
    column_matrix : Tensor
        G: a symmetric Gram matrix `(..., k, k)` or weights of the columns `(..., 1, k)`. For k = 1 they are the same.
    row_matrix : None, Tensor, Graph, RowSubset, Design or Kronecker
        A: None for the identity, weights of the rows `(n, 1)`, a symmetric matrix `(n, n)`, a Graph for its adjacency S
        `(n, n)`, a RowSubset for 0 and 1 as weights, a Design for its `A' A`, or a Kronecker.
    sign : int
        +1 or -1.
    columns : slice or None
        The columns of F that it acts on; `column_matrix` has their number in place of k. None: all.
    linear : Tensor or None
        `(..., r, k) >= 0`, with a RowSubset only: a linear part that its r rows have alone, `2 sign <linear, F>` over
        these rows. Over all n rows an iteration of SULF took 3 % longer (1797 samples, k = 20, 20 % labelled).
    """

    column_matrix: Tensor
    row_matrix: Tensor | Graph | RowSubset | Design | Kronecker | None = None
    sign: int = 1
    columns: slice | None = None
    linear: Tensor | None = None

    def __call__(self, F: Tensor) -> Tensor:
        """Compute `A F G` on its columns, without sign and linear part, in F's memory order (but for a graph)."""
        F, rows = F if self.columns is None else F[..., self.columns], self._row_operator
        F = multiply_columns(F, self.column_matrix) if self.mixes_columns else F * self.column_matrix
        if rows is None:
            return F
        return rows @ F if self.couples_rows else cast(Tensor, rows) * F

    def entry_weights(self, F: Tensor) -> Tensor | None:
        """Return the weights of the entries of F, in its memory order, if the quad does no more than weigh them."""
        if self.mixes_columns or self.couples_rows:
            return None
        rows = cast("Tensor | None", self._row_operator)
        return self.column_matrix if rows is None else outer_weights(rows, self.column_matrix, F)

    @property
    def mixes_columns(self) -> bool:
        """Whether `column_matrix` is a Gram matrix."""
        return self.column_matrix.shape[-2] > 1

    @property
    def couples_rows(self) -> bool:
        """Whether rows are coupled: by a graph or a matrix, that is by anything but one weight for each."""
        rows = self._row_operator
        return rows is not None and not (isinstance(rows, Tensor) and rows.shape[-1] == 1)

    def row_sums(self, F: Tensor) -> Tensor | float:
        """Compute `A 1`: as a diagonal it majorises both A and -A (Gershgorin)."""
        rows = self._row_operator
        if rows is None:
            return 1.0
        return rows.degree(F) if isinstance(rows, Graph) else rows.sum(-1, keepdim=True)

    def curvature(self, F: Tensor) -> Tensor:
        """Bound `A G` by weights of entries, `(..., n or 1, k)`: a diagonal above the quad and above its negative."""
        if isinstance(self.row_matrix, Kronecker):
            return self.row_matrix.majorise(self.column_matrix)
        columns = self.column_matrix.abs().sum(-2, keepdim=True) if self.mixes_columns else self.column_matrix
        return self.row_sums(F) * columns

    @property
    def _row_operator(self) -> Tensor | Graph | Design | Kronecker | None:
        """What acts on the rows; for a subset, its weights."""
        return self.row_matrix.mask if isinstance(self.row_matrix, RowSubset) else self.row_matrix


@dataclass(frozen=True, eq=False)
class Block:
    """The coefficients of a model in one factor. The block of a sum of terms is the sum of their blocks.

    Attributes
    ----------
    quads : tuple of Quad
    linear_minus, linear_plus : Tensor or None
        `(..., n, k)` or what broadcasts to it: the linear part, `-2 <linear_minus - linear_plus, F>`. None: zero.
    quadratic : bool
        False where the linear part holds at the current `F` only (beta-divergences).
    row_grams : Tensor or None
        A Gram matrix for each row, stored as `(..., k, k, n)`: another quadratic part, `sum_i f_i' G_i f_i`.
    powers : (float, float)
        The lowest and the highest power of an entry of F in the majoriser that the multiplicative rule minimises (0 is
        the logarithm): its safe exponent is one over their difference (Yang and Oja 2011).
    sums : SampleSums
        What a rule asks for sums over the rows of F, which other processes may hold too.
    """

    quads: tuple[Quad, ...] = ()
    linear_minus: Tensor | None = None
    linear_plus: Tensor | None = None
    quadratic: bool = True
    powers: tuple[float, float] = (1.0, 2.0)
    row_grams: Tensor | None = None
    sums: SampleSums = WHOLE

    def __add__(self, other: Block) -> Block:
        return Block(
            self.quads + other.quads,
            _plus(self.linear_minus, other.linear_minus),
            _plus(self.linear_plus, other.linear_plus),
            self.quadratic and other.quadratic,
            (min(self.powers[0], other.powers[0]), max(self.powers[1], other.powers[1])),
            _plus(self.row_grams, other.row_grams),
            other.sums if self.sums.alone else self.sums,
        )

    @property
    def power(self) -> float:
        """The exponent for which the multiplicative rule is proved never to raise the objective."""
        low, high = self.powers
        return 1.0 if high <= low else 1.0 / (high - low)

    def net_linear(self) -> Tensor | None:
        """Compute `linear_minus - linear_plus`; the answer may be `linear_minus` itself."""
        if self.linear_plus is None:
            return self.linear_minus
        return -self.linear_plus if self.linear_minus is None else self.linear_minus - self.linear_plus

    def merged(self) -> Block:
        """Return the same block with one quad for all that share rows, sign and columns."""
        groups: dict[tuple[int, int, int, str], list[Quad]] = {}
        for q in self.quads:
            groups.setdefault((id(q.row_matrix), id(q.linear), q.sign, str(q.columns)), []).append(q)
        if len(groups) == len(self.quads):
            return self
        merged = (replace(g[0], column_matrix=_merge([q.column_matrix for q in g])) for g in groups.values())
        return replace(self, quads=tuple(merged))

    def without(self, quads: Sequence[Quad]) -> Block:
        """Return the block without some of its quads."""
        return replace(self, quads=tuple(q for q in self.quads if all(q is not other for other in quads)))

    def gradient_plus(self, F: Tensor) -> Tensor:
        """Compute the positive part of half the gradient: `linear_plus`, the positive quads and the Grams of rows."""
        if self.row_grams is None:
            return _total([q for q in self.quads if q.sign > 0], self.linear_plus, F)
        own = (self.row_grams * F.mT.unsqueeze(-3)).sum(-2).mT
        return _total([q for q in self.quads if q.sign > 0], _plus(own, self.linear_plus), F)

    def gradient_minus(self, F: Tensor) -> Tensor:
        """Compute the negative part of half the gradient: `linear_minus` and the negative quads."""
        return _total([q for q in self.quads if q.sign < 0], self.linear_minus, F)

    def half_gradient(self, F: Tensor) -> Tensor:
        """Compute `gradient_plus(F) - gradient_minus(F)`."""
        return self.gradient_plus(F) - self.gradient_minus(F)


def split(block: Block) -> Block:
    """Write a function with coefficients of any sign as a block: each becomes two that are nonnegative."""
    quads = []
    for q in block.quads:
        linear = (None, None) if q.linear is None else split_signs(q.linear)
        parts = zip(split_signs(q.column_matrix), (q.sign, -q.sign), linear, strict=True)
        quads += [Quad(G, q.row_matrix, sign, q.columns, z) for G, sign, z in parts]
    net = block.net_linear()
    minus, plus = (None, None) if net is None else split_signs(net, in_place=net is not block.linear_minus)
    return replace(block, quads=tuple(quads), linear_minus=minus, linear_plus=plus)


def split_signs(Z: Tensor, in_place: bool = False) -> tuple[Tensor, Tensor]:
    """Return the positive and the negative part of Z, the latter written over Z if that is allowed."""
    positive = Z.clamp(min=0)
    return positive, torch.sub(positive, Z, out=Z) if in_place else positive - Z


def add_in_place(blocks: Sequence[Block]) -> Block:
    """Add blocks into the linear part of the first: new tensors as large as a factor cost more than the sum."""
    minus = [b.linear_minus for b in blocks if b.linear_minus is not None]
    plus = [b.linear_plus for b in blocks if b.linear_plus is not None]
    add = lambda parts: reduce(Tensor.add_, parts) if parts else None
    return Block(tuple(q for b in blocks for q in b.quads), add(minus), add(plus))


def accumulate(total: Tensor, quads: Sequence[Quad], F: Tensor, alpha: int = 1) -> Tensor:
    """Add `alpha` times the quads at F to a tensor of all columns, in place; each in one pass where possible."""
    for q in quads:
        columns = q.columns or slice(None)
        if isinstance(q.row_matrix, RowSubset):
            selected = q.row_matrix.select(F if q.columns is None else F[..., columns])
            values = multiply_columns(selected, q.column_matrix) if q.mixes_columns else selected * q.column_matrix
            values = values if q.linear is None else values + q.linear
            add_to_rows(total[..., columns], q.row_matrix.index, values, alpha)
        elif isinstance(q.row_matrix, Graph) and not q.mixes_columns:
            total[..., columns].addcmul_(q.row_matrix.times(F, q.columns), q.column_matrix, value=alpha)
        elif (weights := q.entry_weights(F)) is not None:
            total[..., columns].addcmul_(F[..., columns], weights, value=alpha)
        else:
            total[..., columns].add_(q(F), alpha=alpha)
    return total


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _total(quads: list[Quad], linear: Tensor | None, F: Tensor) -> Tensor:
    """Add quads and a linear part; a new tensor is made only where there is something to add."""
    partial = [q for q in quads if q.columns is not None or isinstance(q.row_matrix, RowSubset)]
    whole = [q for q in quads if q.mixes_columns and q not in partial]
    rest = [q for q in quads if q not in whole]
    summands = [q(F) for q in whole] + ([] if linear is None else [linear])
    total = reduce(_onto if whole else torch.add, summands) if summands else torch.zeros_like(F)
    if not rest:
        return total
    if total is linear or total.shape != F.shape:  # it may be shared: not to be written to
        weights = None if rest[0] in partial else rest[0].entry_weights(F)
        if weights is None:
            total = total.expand_as(F).clone()
        else:
            total, rest = torch.addcmul(total, F, weights), rest[1:]
    return accumulate(total, rest, F)


def _onto(total: Tensor, summand: Tensor) -> Tensor:
    """Add in place where `total` has the shape of the sum: a new tensor costs several additions."""
    return total.add_(summand) if summand.shape == total.shape else total + summand


def _merge(matrices: list[Tensor]) -> Tensor:
    """Add Gram matrices and weights of columns to one Gram matrix or one row of weights."""
    grams = [c for c in matrices if c.shape[-2] > 1]
    weights = [c for c in matrices if c.shape[-2] == 1]
    if not grams or not weights:
        return reduce(torch.add, matrices)
    total = grams[0].clone() if len(grams) == 1 else reduce(torch.add, grams)
    total.diagonal(dim1=-2, dim2=-1).add_(reduce(torch.add, weights).squeeze(-2))
    return total
