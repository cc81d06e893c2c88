"""Blocks of rows of a source, converted and placed: how many rows they have, and how they are read."""

import warnings
from collections.abc import Iterator
from itertools import cycle
from math import prod

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ...free_memory import free_bytes
from ...precision import denormals
from ..as_data import to_csr
from ..base import Data, slices, summarize_entries
from ..dense import Dense
from ..sparse import Sparse
from .reading import Buffer, Buffers, convert_into, read_ahead
from .sources import Source

SHARES = 3  # of `max_bytes`: a block in use, one that is read ahead, and samples that are taken or not converted yet

LARGEST = 1 << 28  # bytes of a block where nothing limits it: larger ones read and multiply no faster

RESERVE, RESERVED = 1 << 29, 0.1  # bytes, or share, of free memory that is left alone, whichever is more

PIECE = 1 << 24  # bytes that are read at once, before they are converted


class Blocks:
    """Blocks of rows, in the dtype and on the device of the products, times a power of two.

    Parameters
    ----------
    source : Source
    dtype, device : of the products
    max_bytes, n_rows : int, optional
        As for `Chunked`.
    n_stored : int
        Entries that the source stores.
    """

    def __init__(
        self,
        source: Source,
        dtype: torch.dtype,
        device: torch.device,
        max_bytes: int | None,
        n_rows: int | None,
        n_stored: int,
    ) -> None:
        self.source, self.dtype, self.device, self.max_bytes = source, dtype, device, max_bytes
        self.shape, self.columns, self.factor = source.shape, prod(source.shape[1:]), 1.0
        # of sparse data, on the average: as read, converted, and transposed
        each = 3 * (dtype.itemsize + 8) if source.is_sparse else dtype.itemsize
        self.row_bytes = max(1.0, each * n_stored / self.shape[0])
        self.n_rows = min(n_rows or self._rows_within(), self.shape[0])
        self.buffers = Buffers(self.n_rows, self.columns, dtype, device)

    def limit(self) -> float:
        """Bytes that may be held at once."""
        if self.max_bytes is not None:
            return self.max_bytes
        free = free_bytes(torch.device("cpu"))
        return max(free - max(RESERVE, RESERVED * free), free / 8)

    def _rows_within(self) -> int:
        """Count the rows of a block that keeps within the limit, in whole chunks of the source."""
        limit = self.limit() // SHARES
        rows = int((limit if self.max_bytes is not None else min(limit, LARGEST)) // self.row_bytes)
        if rows < 1:
            raise ValueError(
                f"max_bytes={self.max_bytes} is too little for {SHARES} blocks of one row of {self.row_bytes:.0f} "
                f"bytes; use {SHARES * int(self.row_bytes + 1)} or more"
            )
        together = min(self.source.together, self.shape[0])
        if rows < together:
            warnings.warn(
                f"the source stores {together} rows together, of which max_bytes allows {rows} in a block: every pass "
                f"reads them {-(-together // rows)} times. Use max_bytes={int(SHARES * together * self.row_bytes)} or "
                "more, or write the source in chunks of fewer rows",
                UserWarning,
                stacklevel=4,
            )
        return rows - rows % together if rows >= together else rows

    def read(self, backwards: bool = False, dtype: torch.dtype | None = None) -> Iterator[tuple[slice, Data]]:
        """Read the blocks in turn, one ahead of the one in use; `dtype`: another one, of unusual data."""
        n_rows, dtype, buffers = self.n_rows, dtype or self.dtype, self.buffers
        if dtype != self.dtype:  # half the rows of twice the size
            n_rows = max(1, n_rows // 2)
            buffers = Buffers(n_rows, self.columns, dtype, self.device)
        ranges = list(slices(self.shape[0], n_rows))
        ranges = ranges[::-1] if backwards else ranges
        if self.source.is_sparse:
            for rows, X in zip(ranges, read_ahead(self._read_sparse, ranges), strict=True):
                yield rows, Sparse(X, self.device, dtype, lazy=True)
            return
        with buffers.lend(min(2, len(ranges))) as lent:
            jobs = list(zip(ranges, cycle(lent), strict=False))
            for rows, buffer in zip(ranges, read_ahead(self._fill, jobs), strict=True):
                X = buffer.placed(rows.stop - rows.start, self.device, buffers.stream)
                yield rows, Dense(X.view(-1, *self.shape[1:]), cut=1)

    def _fill(self, job: tuple[slice, Buffer]) -> Buffer:
        """Read rows into a buffer, by the thread that reads: numpy only, for the modes of torch are a thread's own."""
        rows, buffer = job
        out, together = buffer.writable(), self.source.together
        step = max(1, PIECE // (self.columns * self.source.dtype.itemsize))
        step = max(step - step % together, together)
        for part in slices(rows.stop - rows.start, step):
            here = slice(rows.start + part.start, rows.start + part.stop)
            convert_into(out[part], self.source.read(here).reshape(-1, self.columns), self.factor)
            self.source.release()
        return buffer

    def _read_sparse(self, rows: slice) -> sp.csr_array:
        return self._scaled_csr(self.source.read(rows))

    def _scaled_csr(self, found: sp.csr_array) -> sp.csr_array:
        X = to_csr(found, "source")
        if self.factor == 1:
            return X
        with denormals(True):
            return X * self.factor

    def copy_rows(self, index: np.ndarray) -> Data:
        """Copy samples into memory."""
        found = self.source.read_rows(index)
        self.source.release()
        if self.source.is_sparse:
            return Sparse(self._scaled_csr(found), self.device, self.dtype)
        host = torch.empty(len(index), self.columns, dtype=self.dtype, device="cpu")
        convert_into(host.numpy(), found.reshape(-1, self.columns), self.factor)
        return Dense(host.view(-1, *self.shape[1:]).to(self.device), cut=1)


def summarize(blocks: Blocks, read_in: torch.dtype) -> tuple[Tensor, Tensor]:
    """Find smallest, largest, sum, count of non-zeros and sum of squares, `(5,)` float64, and the largest as read.

    In one pass; data that come in `read_in` and leave the range of the work are read once more, in that precision.
    NaN and infinity are refused.
    """
    facts = as_read = _facts_in(blocks, blocks.dtype)
    if read_in != blocks.dtype and not (torch.isfinite(facts[:2]).all() and facts[:2].any()):
        as_read = _facts_in(blocks, read_in)
    if not torch.isfinite(as_read[:2]).all():
        _complain(blocks, read_in)
    return facts.to(blocks.device), as_read[:2].abs().amax()


def _facts_in(blocks: Blocks, dtype: torch.dtype) -> Tensor:
    square = lambda X: X.double().square().sum()[None]
    each = [
        torch.stack([torch.cat([summarize_entries(X), square(X)]) for X in block.entries()]).cpu()
        for _, block in blocks.read(dtype=dtype)
    ]
    low, high, *sums = torch.cat(each).unbind(1)
    return torch.stack([low.min(), high.max(), *(part.sum() for part in sums)])


def _complain(blocks: Blocks, read_in: torch.dtype) -> None:
    """Refuse NaN and infinity, by name and place."""
    for rows, block in blocks.read(dtype=read_in):
        X = block.samples()
        X = torch.from_numpy(X.toarray()) if sp.issparse(X) else X
        bad = (~torch.isfinite(X)).nonzero()
        if len(bad):
            at = (int(bad[0][0]) + rows.start, *map(int, bad[0][1:]))
            what = "NaN" if X[tuple(bad[0].tolist())].isnan() else "infinity"
            raise ValueError(
                f"Input X contains {what}: the first at {at}; fill or drop such entries, for data in blocks have no "
                "missing ones"
            )
