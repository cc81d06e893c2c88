"""What sparse matrices and sparse tensors share: sums over stored entries, one problem after the other."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import reduce
from math import prod
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .. import divergence as div
from ..cache import TensorCache, tiny
from ..factors import gram, gram_of_others, multiply_column_sums
from .base import Data, add_product, slices, sum64, sum_of
from .csr import CSR, narrow_csr

Piece = tuple[Tensor, Tensor]  # stored entries and the reconstruction there, (c,) each


class StoredEntries(Data):
    """Data whose zeros are not stored; work is on the stored entries alone.

    Sums over all entries are those of an array of zeros, known from Grams or column sums, plus what the stored entries
    change. `rows` and `columns` are a matrix X of the stored entries and its transpose on the device. The master copy
    of X stays on the host, in the precision that it was read in; on the CPU `rows` share its memory if dtypes agree.
    """

    lazy = False  # whether the transpose is made when it is asked for
    make_transpose: Any = staticmethod(CSR.transpose_of)
    direct_up_to = float("inf")  # entries up to which the residual of a nearly exact fit is summed over all of them

    def __init__(self, X: sp.csr_array, shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(shape, dtype, device)
        self.entries_read, self.read_in = X.nnz, torch.from_numpy(X.data[:0]).dtype
        self._place(narrow_csr(X))

    def _place(self, X: sp.csr_array) -> None:
        self._host, self.rows = X, CSR.from_scipy(X, self.device, self.dtype)
        self._transpose = None if self.lazy else self.make_transpose(X, self.device, self.dtype)

    @property
    def columns(self) -> Any:
        """The transpose of `rows`."""
        if self._transpose is None:
            self._transpose = self.make_transpose(self._host, self.device, self.dtype)
        return self._transpose

    def largest(self) -> float:
        """Find the largest absolute value of an entry as it was read: in `dtype` it may be infinite (kept)."""
        return self.cache("largest", (), lambda: float(np.abs(self._host.data).max(initial=0)))

    def scaled(self, factor: float) -> Self:
        """Multiply the data, as they were read, by a number (a copy)."""
        other = self.forgetful()
        other._place(self._host * factor)
        return other

    @abstractmethod
    def coordinates(self) -> list[Tensor]:
        """List the index of every stored entry in every mode, `(nnz,)` each, in the order of `rows`."""

    @abstractmethod
    def at_entries(self, factors: Sequence[Tensor]) -> Iterator[Piece]:
        """Iterate over stored entries and the reconstruction there, of one problem, in pieces."""

    @abstractmethod
    def ratio_product(self, factors: Sequence[Tensor], mode: int, beta: float) -> Tensor:
        """Compute the MTTKRP of `Y^(beta-2) X` for one problem, `(d_mode, k)`."""

    def reconstruction(self, factors: Sequence[Tensor], beta: float) -> Iterator[tuple[slice, Tensor]]:
        """Compute the whole reconstruction in blocks of rows, for a `beta` in which every zero counts by itself.

        A kind that has too many zeros to visit raises a ValueError: it does not override this.
        """
        raise ValueError(
            f"beta = {beta:g} is not supported for sparse tensors, because every zero would have to be visited; use "
            "'frobenius', 'kullback-leibler', or a dense X (X.to_dense())"
        )

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the stored entries, in the order of `rows`; one zero where none is stored."""
        values = self.rows.values
        return iter((values if len(values) else values.new_zeros(1)).split(self.chunk))

    def pieces(self, batches: Sequence[Tensor]) -> Callable[[int], Data]:
        """Cut the pieces out once and keep them: that is done on the host and takes longer than a product."""
        kept = [self.take(rows) for rows in batches]
        return lambda b: kept[b].forgetful()

    def forgetful(self) -> Self:
        """Copy the object, sharing the arrays, with nothing kept of them."""
        same = copy(self)
        same.cache = TensorCache()
        return same

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum `d_beta(X, [[factors]])` over all entries, float64; the zeros enter by what they cost."""
        if beta == 2:
            return each_problem(self._residual_sq, [F.double() for F in factors])
        floor = self._floor()
        loss = lambda *Fs: sum_of(inside_divergence(x.to(y.dtype), y, beta, floor) for x, y in self.at_entries(Fs))
        inside = each_problem(loss, factors)
        if beta <= 0:  # a zero costs infinitely much: there is none
            return inside.clamp(min=0)
        if beta == 1:
            outside = reduce(torch.mul, (F.sum(-2, dtype=torch.float64) for F in factors)).sum(-1)
        else:
            blocks = (Y.clamp(min=floor) for _, Y in self.reconstruction(factors, beta))
            outside = sum_of(sum64(div.loss(torch.zeros_like(Y), Y, beta), Y.dim() - 2) for Y in blocks)
        return (inside + outside).clamp(min=0)

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute the first through the stored entries only, the second by Grams or by column sums."""
        if beta == 2:
            return self.mttkrp(factors, mode), (gram_of_others(factors, mode) @ factors[mode].mT).mT
        plus = multiply_column_sums(factors, mode) if beta == 1 else self._power_product(factors, mode, beta)
        return each_problem(lambda *Fs: self.ratio_product(Fs, mode, beta), factors), plus

    def _power_product(self, factors: Sequence[Tensor], mode: int, beta: float) -> Tensor:
        """Multiply `Y^(beta-1)` by the other factor of a matrix."""
        blocks, floor, total = self.reconstruction(factors, beta), self._floor(), None
        V, U = factors
        for rows, Y in blocks:
            total = add_product(total, Y.clamp_(min=floor).pow_(beta - 1), rows, V, U, inside=mode == 0)
        return cast(Tensor, total)

    def _residual_sq(self, *factors: Tensor) -> Tensor:
        """Compute `||X - [[factors]]||^2` of one problem as `||X||^2 - 2 <X, Y> + ||Y||^2`, all in float64.

        Where that would cancel (a nearly exact fit), it is summed entry by entry instead.
        """
        square = reduce(torch.mul, map(gram, factors)).sum(dtype=torch.float64)
        total = self.sqnorm() - 2 * self._inner_product(factors) + square
        if prod(self.shape) > self.direct_up_to or not bool(total < 1e-12 * self.sqnorm()):
            return total.clamp(min=0)
        return self._residual_by_blocks(factors)

    def _inner_product(self, factors: Sequence[Tensor]) -> Tensor:
        """Sum `X * [[factors]]` over the stored entries, float64."""
        return sum_of((x.to(y.dtype) * y).sum(dtype=torch.float64) for x, y in self.at_entries(factors))

    def _residual_by_blocks(self, factors: Sequence[Tensor]) -> Tensor:
        """Sum the residual in blocks of the whole array: some combinations of the first modes, all of the last."""
        cut = next(c for c in range(1, self.order) if c == self.order - 1 or prod(self.shape[c:]) <= self.chunk // 2)
        right = self._products(factors, range(cut, self.order), slice(0, prod(self.shape[cut:])))
        zero = torch.zeros_like(self.rows.col, dtype=torch.int64)
        flat = reduce(lambda a, b: a * b[0] + b[1], zip(self.shape, self.coordinates(), strict=True), zero)
        flat, order = torch.sort(flat)
        values, total = self.rows.values.to(right.dtype)[order], right.new_zeros((), dtype=torch.float64)
        for block in slices(prod(self.shape[:cut]), max(1, 4 * self.chunk // len(right))):
            Y = (self._products(factors, range(cut), block) @ right.mT).flatten()
            ends = torch.tensor([block.start, block.stop], device=self.device) * len(right)
            a, b = torch.searchsorted(flat, ends).tolist()
            Y[flat[a:b] - ends[0]] -= values[a:b]
            total = total + sum64(Y.square_())
        return total

    def _products(self, factors: Sequence[Tensor], modes: Sequence[int], block: slice) -> Tensor:
        """Multiply some factors (Khatri-Rao), a block of rows of the product."""
        at = torch.arange(block.start, block.stop, device=self.device)
        sizes = [self.shape[m] for m in modes]
        steps = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        parts = (factors[m][at // step % d] for m, step, d in zip(modes, steps, sizes, strict=True))
        return reduce(torch.mul, parts)

    def _floor(self) -> float:
        """Compute what a reconstruction is clamped to before it divides: far below the precision of the data."""
        if self.floor is not None:
            return float(self.floor)
        return max(self.largest() * torch.finfo(self.dtype).eps ** 2, tiny(self.dtype))


def clamp_divisor(data: StoredEntries, y: Tensor, beta: float) -> Tensor:
    """Clamp a reconstruction, in place, before it divides; where it is a factor alone (beta = 3) it stays.

    Weights are counted by a reconstruction of ones, which a floor for large entries would raise.
    """
    return y if beta == 3 else y.clamp_(min=data._floor())


def each_problem(f: Callable[..., Tensor], factors: Sequence[Tensor]) -> Tensor:
    """Call `f(*factors)` for one problem after the other: what has the size of the pattern exists once at a time."""
    batch = np.broadcast_shapes(*(F.shape[:-2] for F in factors))  # torch's own imports a second's worth of modules
    if not batch:
        return f(*factors)
    flat = [F.expand(*batch, *F.shape[-2:]).flatten(0, -3) for F in factors]
    done = [f(*Fs) for Fs in zip(*flat, strict=True)]
    if done[0].dim() == 0:
        return torch.stack(done).view(batch)
    return torch.stack([F.mT for F in done]).unflatten(0, batch).mT  # component-major stays so


def inside_divergence(x: Tensor, y: Tensor, beta: float, floor: float) -> Tensor:
    """Sum what the stored entries add to the divergence of a zero from `y`, float64."""
    y = y.clamp(min=floor)
    if beta == 1:
        ratio = (x / y).clamp(min=tiny(y.dtype))  # `xlogy` takes twice as long
        return (x * ratio.log() - x).sum(dtype=torch.float64)
    if beta <= 0:
        return div.loss(x, y, beta).sum(dtype=torch.float64)
    return (div.loss(x, y, beta) - div.loss(torch.zeros_like(y), y, beta)).sum(dtype=torch.float64)
