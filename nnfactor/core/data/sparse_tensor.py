"""Sparse tensors of any order behind the verbs of `data`: work on what is stored only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .. import divergence as div
from ..cache import TensorCache, tiny
from ..factors import cached_flat, gram
from .csr import CSR, row_of_each
from .stored_entries import each_problem, inside_divergence, inside_residual

CHUNK = 1 << 20  # numbers in a block of products held at once, unless the data themselves are larger

FEWEST = 4  # columns that a sparse product takes at least: fewer cost nearly as much

DIRECT = 1 << 32  # entries of a tensor up to which a nearly exact fit has its residual summed entry by entry


class Group:
    """Some modes seen as one: the combinations of their indices that occur, in order, and how they sum to one mode.

    A single mode is itself: all its indices, nothing to gather and nothing to sum.
    """

    def __init__(self, modes: Sequence[int], coords: Sequence[np.ndarray], shape: Sequence[int]) -> None:
        self.modes = tuple(modes)
        self.table: list[Any] | None = None  # arrays, then tensors on the device
        if len(self.modes) == 1:
            self.of_entry, self.size = coords[self.modes[0]], shape[self.modes[0]]
            return
        codes = _codes([coords[m] for m in self.modes], [shape[m] for m in self.modes])
        _, first, self.of_entry = np.unique(codes, return_index=True, return_inverse=True)
        self.size, self.table = len(first), [coords[m][first] for m in self.modes]

    def to(self, device: torch.device, dtype: torch.dtype, shape: Sequence[int]) -> Group:
        """Place the tables on a device, and the sums over them as sparse matrices of ones; entries are let go."""
        del self.of_entry
        self.sums: dict[int, CSR] = {}
        if self.table is None:
            return self
        ones = torch.ones(self.size, device=device, dtype=dtype)
        for m, column in zip(self.modes, self.table, strict=True):
            pattern = sp.csr_array((np.ones(self.size, np.int8), (column, np.arange(self.size))), (shape[m], self.size))
            self.sums[m] = CSR.from_scipy(pattern, device, dtype).with_values(ones)
        self.table = [torch.from_numpy(_narrow(column)).to(device) for column in self.table]
        return self

    def rows(self, factors: Sequence[Any], skip: int | None = None) -> Tensor:
        """Products of the rows of its factors (all but one) at the combinations that occur, `(size, c)`."""
        if self.table is None:
            return factors[self.modes[0]]
        parts = [(factors[m], at) for m, at in zip(self.modes, self.table, strict=True) if m != skip]
        return reduce(torch.mul, (F.index_select(0, at) for F, at in parts))


class SparseTensor:
    """A sparse tensor of order 3 or more, seen as one sparse matrix between two groups of modes.

    Rows and columns are the combinations of indices that occur, so that the matrix is never larger than its entries.
    As for `Dense`, a sweep costs two products with it at any order: each with the products of the factors' rows in one
    group, kept while its factors are the very same tensors, then summed inside the other group. The groups are
    neighbours in the order of the updates, chosen so that few combinations are expected. What is kept is never larger
    than the data; where combinations are nearly as many as entries, products are made a few columns at a time, for
    every mode afresh.

    Measured against one compressed unfolding per mode: 1.3 to 40 times as fast wherever two entries share a
    combination, within 10 % where hardly any do; against entry-wise gathers and `index_add`, 2 to 90 times.
    """

    def __init__(
        self,
        coords: Sequence[np.ndarray],
        values: np.ndarray,
        shape: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.shape, self.order, self.device, self.dtype = tuple(shape), len(shape), device, dtype
        groups = [Group(modes, coords, shape) for modes in _two_groups(shape, len(values))]
        left, right = (g.of_entry for g in groups)
        X = sp.csr_array((values, (left, right)), shape=(groups[0].size, groups[1].size))
        self.rows = CSR.from_scipy(X, device, dtype)
        self.columns = CSR.from_scipy(X.T.tocsr(), device, dtype)
        self.groups = [g.to(device, dtype, shape) for g in groups]
        self.cache = TensorCache()

    def mean(self) -> Tensor:
        """Mean over all entries, the zeros counted."""
        return self.rows.values.sum(dtype=torch.float64) / prod(self.shape)

    def smallest(self) -> float:
        """The smallest entry, stored or not."""
        values = self.rows.values
        return float(values.min()) if len(values) == prod(self.shape) else 0.0

    def largest(self) -> float:
        """The largest absolute value of an entry (kept)."""
        values = self.rows.values
        return self.cache("largest", (), lambda: float(values.abs().max()) if len(values) else 0.0)

    def filled(self) -> float:
        """The share of the entries that are not zero (kept)."""
        return self.cache("filled", (), lambda: int(self.rows.values.count_nonzero()) / prod(self.shape))

    def scaled(self, factor: float) -> SparseTensor:
        """The data times a number: a copy of the values, the pattern is shared."""
        other = object.__new__(SparseTensor)
        vars(other).update(vars(self), cache=TensorCache())
        other.rows, other.columns = (X.with_values(X.values * factor) for X in (self.rows, self.columns))
        return other

    def sqnorm(self) -> Tensor:
        """`||X||^2`, a float64 scalar (kept)."""
        return self.cache("sqnorm", (), lambda: self.rows.values.double().square().sum())

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """`X` against all factors but one, `(..., d_mode, k)`. The answer may be shared: never write into it."""
        others = [F for b, F in enumerate(factors) if b != mode]
        return self.cache(("mttkrp", mode), others, lambda: self._mttkrp(factors, mode))

    def _mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        side, like = self._side(mode), factors[mode]
        flat = [None if b == mode else cached_flat(F) for b, F in enumerate(factors)]
        total = like.shape[:-2].numel() * like.shape[-1]
        if total <= self._width():
            there = [factors[m] for m in self.groups[1 - side].modes]
            P = self.cache(("wide", side), there, lambda: self._wide(flat, side))
            out = self._summed(P, flat, mode)
        else:
            out = self._by_columns(flat, mode, total)
        return out.mT.contiguous().view(*like.shape[:-2], like.shape[-1], -1).mT

    def _by_columns(self, flat: Sequence[Tensor | None], mode: int, total: int) -> Tensor:
        some = next(F for F in flat if F is not None)
        out = some.new_empty(self.shape[mode], total)
        for part in _slices(total, self._width()):
            few = [None if F is None else F[:, part].contiguous() for F in flat]
            out[:, part] = self._summed(self._wide(few, self._side(mode)), few, mode)
        return out

    def _wide(self, flat: Sequence[Tensor | None], side: int, X: CSR | None = None) -> Tensor:
        """The matrix times the products of the rows of the group on its other side."""
        return (X or self._seen_from(side)).product(self.groups[1 - side].rows(flat))

    def _summed(self, P: Tensor, flat: Sequence[Tensor | None], mode: int) -> Tensor:
        """One row per combination of a group, summed against the other factors of the group."""
        group = self.groups[self._side(mode)]
        return P if group.table is None else group.sums[mode].product(P * group.rows(flat, skip=mode))

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """`||X - [[factors]]||^2`, float64: on the pattern the residual, off it the Grams less what the pattern holds.

        Where that difference would cancel (a nearly exact fit), it is summed entry by entry instead, in a tensor of up
        to 2^32 entries; in a larger one it stays exact to rounding of `||X||^2`.
        """
        factors = [F.double() for F in factors]
        return each_problem(self._residual_sq, factors)

    def _residual_sq(self, *factors: Tensor) -> Tensor:
        total = reduce(torch.mul, (gram(F) for F in factors)).sum()
        total = total + inside_residual(self.rows.values.double(), self._sampled(factors, 0))
        if prod(self.shape) > DIRECT or not bool(total < 1e-12 * self.sqnorm()):
            return total.clamp(min=0)
        return self._residual_by_blocks(factors)

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum of `d_beta(X, [[factors]])`, float64, for beta = 1 and 2: there the zeros cost no work.

        Raises
        ------
        ValueError
            Another beta, for which every zero would have to be visited.
        """
        if beta == 2:
            return self.residual_sq(factors)
        _check(beta)
        inside = each_problem(lambda *Fs: self._divergence_inside(Fs, beta), factors)
        outside = reduce(torch.mul, (F.sum(-2, dtype=torch.float64) for F in factors)).sum(-1)
        return (inside + outside).clamp(min=0)

    def _divergence_inside(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        y = self._sampled(factors, 0)
        return inside_divergence(self.rows.values.to(y.dtype), y, beta, self.floor())

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """As for `Dense`, with beta = 1 or 2: the pull through the pattern, the push by column sums or Grams."""
        others = [F for b, F in enumerate(factors) if b != mode]
        if beta == 2:
            G = reduce(torch.mul, map(gram, others))
            return self.mttkrp(factors, mode), (G @ factors[mode].mT).mT
        _check(beta)
        linear_minus = each_problem(lambda *Fs: self._pull(Fs, mode, beta), factors)
        return linear_minus, reduce(torch.mul, (F.sum(-2, keepdim=True) for F in others))

    def _pull(self, factors: Sequence[Tensor], mode: int, beta: float) -> Tensor:
        """MTTKRP of the ratios at the pattern, for one problem; they are made in the order that this mode needs."""
        side = self._side(mode)
        X, y = self._seen_from(side), self._sampled(factors, side)
        X = X.with_values(div.ratios(X.values.to(y.dtype), y.clamp_(min=self.floor()), beta)[0])
        parts = []
        for part in _slices(factors[0].shape[-1], self._width()):
            few = [F[:, part].contiguous() for F in factors]
            parts.append(self._summed(self._wide(few, side, X), few, mode).mT)
        return torch.cat(parts).mT if len(parts) > 1 else parts[0].contiguous().mT

    def floor(self) -> float:
        """As for `Dense`."""
        return max(self.largest() * torch.finfo(self.dtype).eps ** 2, tiny(self.dtype))

    def samples(self) -> sp.csr_array:
        """One row per sample on the host, its columns the combinations of the other indices that occur.

        Distances and products between samples are those of the flattened samples: columns without entries are left out.
        """
        coords = [c.cpu().numpy() for c in self._coordinates()]
        rest = Group(range(1, self.order), coords, self.shape)
        values = self.rows.values.cpu().numpy()
        return sp.csr_array((values, (coords[0], rest.of_entry)), shape=(self.shape[0], rest.size))

    def _side(self, mode: int) -> int:
        return 0 if mode in self.groups[0].modes else 1

    def _seen_from(self, side: int) -> CSR:
        return self.columns if side else self.rows

    def _width(self) -> int:
        """How many columns of products are made at once."""
        most = max(CHUNK, 4 * len(self.rows.values))
        return max(FEWEST, most // max(1, *(g.size for g in self.groups)))

    def _sampled(self, factors: Sequence[Tensor], side: int) -> Tensor:
        """The reconstruction at the stored entries `(nnz,)`, a few components at a time, in the order of one side."""
        X = self._seen_from(side)
        total: Any = None
        for part in _slices(factors[0].shape[-1], self._width()):
            few = [F[:, part].contiguous() for F in factors]
            y = X.sampled(self.groups[side].rows(few), self.groups[1 - side].rows(few))
            total = y if total is None else total + y
        return total

    def _coordinates(self) -> list[Tensor]:
        """The index of every stored entry in every mode, in the order of `rows`."""
        found: dict[int, Tensor] = {}
        for group, at in zip(self.groups, (row_of_each(self.rows.crow), self.rows.col.long()), strict=True):
            tables: list[Any] = [None] if group.table is None else group.table
            found |= {m: at if t is None else t.long()[at] for m, t in zip(group.modes, tables, strict=True)}
        return [found[m] for m in range(self.order)]

    def _residual_by_blocks(self, factors: Sequence[Tensor]) -> Tensor:
        """The residual in blocks of the whole tensor: some combinations of the first modes, all of the last."""
        cut = next(c for c in range(1, self.order) if c == self.order - 1 or prod(self.shape[c:]) <= CHUNK // 8)
        right = self._products(factors, range(cut, self.order), slice(0, prod(self.shape[cut:])))
        zero = torch.zeros_like(self.rows.col, dtype=torch.int64)
        flat = reduce(lambda a, b: a * b[0] + b[1], zip(self.shape, self._coordinates(), strict=True), zero)
        flat, order = torch.sort(flat)
        values, total = self.rows.values.double()[order], right.new_zeros(())
        for block in _slices(prod(self.shape[:cut]), max(1, CHUNK // len(right))):
            Y = (self._products(factors, range(cut), block) @ right.mT).flatten()
            ends = torch.tensor([block.start, block.stop], device=self.device) * len(right)
            a, b = torch.searchsorted(flat, ends).tolist()
            Y[flat[a:b] - ends[0]] -= values[a:b]
            total = total + Y.square_().sum()
        return total

    def _products(self, factors: Sequence[Tensor], modes: Sequence[int], block: slice) -> Tensor:
        """Rows of the Khatri-Rao product of some factors."""
        at = torch.arange(block.start, block.stop, device=self.device)
        sizes = [self.shape[m] for m in modes]
        steps = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        parts = (factors[m][at // step % d] for m, step, d in zip(modes, steps, sizes, strict=True))
        return reduce(torch.mul, parts)


def _two_groups(shape: Sequence[int], entries: int) -> tuple[list[int], list[int]]:
    """The modes in two arcs of the circle in which they are updated, by the gathers to expect of random entries."""
    n = len(shape)
    ring = [*range(1, n), 0]
    arcs = [(ring[a:b], ring[b:] + ring[:a]) for a, b in combinations(range(n), 2)]

    def gathers(modes: Sequence[int]) -> float:
        size = float(prod(shape[m] for m in modes))
        return 0.0 if len(modes) == 1 else -len(modes) * size * np.expm1(-entries / size)

    return min(arcs, key=lambda pair: sum(map(gathers, pair)))


def _codes(coords: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """One number per combination of indices, in lexicographic order, whatever the product of the dimensions is."""
    codes, size = coords[0].astype(np.int64), int(shape[0])
    for column, d in zip(coords[1:], shape[1:], strict=True):
        if size * d >= 2**62:
            codes = np.unique(codes, return_inverse=True)[1]
            size = int(codes.max()) + 1
        codes, size = codes * d + column, size * d
    return codes


def _narrow(index: np.ndarray) -> np.ndarray:
    """32-bit where it fits."""
    return index.astype(np.int32 if index.max() < 2**31 else np.int64)


def _slices(total: int, step: int) -> Iterator[slice]:
    return (slice(a, min(a + step, total)) for a in range(0, total, step))


def _check(beta: float) -> None:
    if beta != 1:
        raise ValueError(
            f"beta = {beta:g} is not supported for sparse tensors, because every zero would have to be visited; use "
            "'frobenius', 'kullback-leibler', or a dense X (X.to_dense())"
        )
