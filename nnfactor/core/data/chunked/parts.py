"""Parts of data in blocks: some columns, slices times numbers, and the transposed matrix; nothing is copied."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..base import Data
from .sources import Source


class Changed:
    """A source whose blocks have some columns only, or numbers by which rows and columns are multiplied."""

    def __init__(self, source: Source, columns: np.ndarray | None = None, by: Sequence[np.ndarray] = ()) -> None:
        self.source, self.columns, self.by, self.is_sparse = source, columns, by, source.is_sparse
        n, m = source.shape
        self.shape: tuple[int, ...] = (n, m if columns is None else len(columns))
        self.dtype = np.promote_types(source.dtype, np.float32) if by else source.dtype
        self.together = source.together
        known = source.n_stored
        self.n_stored = None if known is None else max(1, known * self.shape[1] // m)

    def read(self, rows: slice) -> Any:
        """Read a range of rows."""
        return self._change(self.source.read(rows), np.arange(self.shape[0])[rows])

    def read_rows(self, rows: np.ndarray) -> Any:
        """Copy rows."""
        return self._change(self.source.read_rows(rows), rows)

    def _change(self, found: Any, rows: np.ndarray) -> Any:
        found = found if self.columns is None else found[:, self.columns]
        if not self.by:
            return found
        left, right = (numbers.astype(self.dtype) for numbers in self.by)
        found = found.astype(self.dtype)
        if self.is_sparse:
            return sp.csr_array(sp.diags_array(left[rows]) @ found @ sp.diags_array(right))
        return found * left[rows, None] * right

    def release(self) -> None:
        """Release the source."""
        self.source.release()


class Turned(Data):
    """The transposed matrix of data in blocks: products change places."""

    in_memory = False

    def __init__(self, data: Any) -> None:
        super().__init__(data.shape[::-1], data.dtype, data.device, *data.cache.data)
        self.data, self.read_in, self.entries_read = data, data.read_in, data.entries_read

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the stored entries."""
        return self.data.entries()

    def samples(self) -> Any:
        """Refuse: the samples are the columns of data in blocks of rows."""
        raise ValueError("the columns of data in blocks of rows are not held as samples")

    def scaled(self, factor: float) -> Self:
        """Multiply the data by a number."""
        return type(self)(self.data.scaled(factor))

    def placed(self, device: torch.device | None, dtype: torch.dtype | None) -> Self:
        """Give the same data for products on another device or in another dtype."""
        return type(self)(self.data.placed(device, dtype))

    def take(self, rows: Tensor) -> Self:
        """Take some columns."""
        return type(self)(self.data.part(rows.cpu().numpy(), 1))

    def smallest(self) -> float:
        """Find the smallest entry."""
        return self.data.smallest()

    def largest(self) -> float:
        """Find the largest absolute value of an entry."""
        return self.data.largest()

    def times(self, F: Tensor) -> Tensor:
        """Multiply the transposed matrix by `F`."""
        return self.data.times_transposed(F)

    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the matrix by `F`."""
        return self.data.times(F)

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Sum the divergences of the blocks."""
        return self.data.divergence(factors[::-1], beta)

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute those of the other mode of the matrix."""
        return self.data.ratio_products(factors[::-1], 1 - mode, beta)
