"""What a term may ask of data: the members that every storage kind has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..cache import TensorCache
from ..factors import contract_others, khatri_rao
from .chunks import rows_at_once


class Data(ABC):
    """An array `(n, d_1, ..., d_r)` of real numbers, samples first, however it is stored.

    `factors` are in the order of the modes, `(..., d_mode, k)` each, with any leading batch dimensions; data have none.
    A new kind writes the abstract members; the others follow from them, and it overrides what it can do faster.
    Nothing here reads the host inside a sweep: only members that answer with a `float` do, and they are asked once.

    Parameters
    ----------
    shape : sequence of int
    dtype : torch.dtype
        torch.float32 or torch.float64: of all products.
    device : torch.device
        Where products are made.
    *inputs : Tensor
        Tensors that hold the entries. What is kept of the data is made anew when one of them was written to in place.

    Attributes
    ----------
    shape, dtype, device : as given
    order : int
        Number of modes.
    cut : int
        Modes that index the rows of the matrix `(d_0 .. d_cut-1, d_cut .. d_r)` whose products are `times` and
        `times_transposed`. 1: a row is a sample.
    cache : TensorCache
        What is kept of the data, by terms too; its values depend on the data beside their own inputs.
    """

    cut = 1

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, *inputs: Tensor) -> None:
        self.shape, self.order, self.dtype, self.device = tuple(shape), len(shape), dtype, device
        self.cache = TensorCache(*inputs)

    @abstractmethod
    def entries(self) -> Iterator[Tensor]:
        """Iterate over the stored entries, in pieces of any shape and at least one entry; all others are zero."""

    @abstractmethod
    def samples(self) -> Any:
        """Give the samples for work outside of products, not to be written to.

        A tensor `(n, ...)` on the device, or scipy CSR `(n, c)` on the host whose rows have the distances and the inner
        products of the samples.
        """

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """Multiply the data by a number (a copy of the entries)."""

    @abstractmethod
    def take(self, rows: Tensor) -> Self:
        """Copy the samples of an index `(r,)` on the device, none twice, in its order; `cut` is 1 then."""

    @abstractmethod
    def times(self, F: Tensor, onto: Tensor | None = None) -> Tensor:
        """Multiply the matrix by `F (..., columns, k)`: `(..., rows, k)`, added to `onto` in place if given."""

    @abstractmethod
    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed matrix by `F (..., rows, k)`: `(..., columns, k)`."""

    @abstractmethod
    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum `d_beta(X, [[factors]])` over all entries for every problem: `(...)`, float64.

        beta = 2 is `||X - [[factors]]||^2` (twice the usual) of data and factors of any sign.

        Raises
        ------
        ValueError
            A beta for which the kind would have to visit what it does not store.
        """

    @abstractmethod
    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute the MTTKRPs of `Y^(beta-2) X` and of `Y^(beta-1)`, `Y = [[factors]]`: `(..., d_mode, k)` each.

        The second may be `(..., 1, k)`, the same for every row. Both belong to the caller, but for beta = 2.
        """

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract `X` with all factors but that of `mode`: `(..., d_mode, k)`, to be read only (it may be kept).

        A sweep over all modes costs two products with the matrix at any order: each with the Khatri-Rao product of one
        group of modes, kept while its factors are the very same tensors, then summed inside the other group.
        """
        left, right = list(factors[: self.cut]), list(factors[self.cut :])
        inside = mode < self.cut
        here, there, at = (left, right, mode) if inside else (right, left, mode - self.cut)
        product = self.times if inside else self.times_transposed
        P = self.cache(("product", inside), there, lambda: product(khatri_rao(there)))
        if len(here) == 1:
            return P
        others = [F for b, F in enumerate(here) if b != at]
        return self.cache(("mttkrp", mode), (P, *others), lambda: contract_others(P, here, at))

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """Compute `||X - [[factors]]||^2` for every problem: `(...)`, float64, from the residual itself (kept)."""
        factors = [F.double() for F in factors]
        return self.cache("residual_sq", factors, lambda: self.divergence(factors, 2))

    def sqnorm(self) -> Tensor:
        """Compute `||X||^2`, a float64 scalar (kept)."""
        return self.cache("sqnorm", (), lambda: _sum(self, lambda X: X.double().square().sum()))

    def mean(self) -> Tensor:
        """Average all entries, a float64 scalar (kept)."""
        return self.cache("mean", (), lambda: _sum(self, lambda X: X.sum(dtype=torch.float64)) / prod(self.shape))

    def smallest(self) -> float:
        """Find the smallest entry, stored or not (kept)."""
        return self.cache("smallest", (), lambda: _smallest(self))

    def largest(self) -> float:
        """Find the largest absolute value of an entry (kept)."""
        return self.cache("largest", (), lambda: float(torch.stack([X.abs().max() for X in self.entries()]).max()))

    def filled(self) -> float:
        """Count the share of the entries that are not zero (kept)."""
        return self.cache("filled", (), lambda: int(_sum(self, torch.count_nonzero)) / prod(self.shape))

    @property
    def entries_read(self) -> int:
        """Entries that a product with the data reads; fewer than there are where zeros are not stored (kept)."""
        return self.cache("entries_read", (), lambda: sum(X.numel() for X in self.entries()))

    @property
    def rows_per_problem(self) -> int:
        """Rows of what the products of one problem hold at once, each of k numbers: those of its factors, or more."""
        return sum(self.shape)

    def pieces(self, batches: Sequence[Tensor]) -> Callable[[int], Data]:
        """Make a function of b that gives the samples `batches[b]`, with nothing kept of them.

        Kept products of all batches would outweigh the data. Whether the pieces themselves are kept is the kind's
        choice: this one makes them anew.
        """
        return lambda b: self.take(batches[b])

    def by_samples(self) -> Data:
        """Give the same entries with `cut` 1; a kind with another cut overrides this."""
        return self


def sample_sqnorms(data: Data) -> Tensor:
    """Compute `||x_i||^2` for every sample, `(n,)`, float64."""
    X = data.samples()
    if sp.issparse(X):
        return torch.from_numpy(X.astype(np.float64).power(2).sum(axis=1)).to(data.device)
    rows = X.flatten(1).split(rows_at_once(X[0].numel()))
    return torch.cat([part.double().square().sum(1) for part in rows])


def _sum(data: Data, f: Callable[[Tensor], Tensor]) -> Tensor:
    return reduce(torch.add, map(f, data.entries())).to(data.device)


def _smallest(data: Data) -> float:
    least = float(torch.stack([X.min() for X in data.entries()]).min())
    return least if data.entries_read == prod(data.shape) else min(0.0, least)
