"""A transpose in blocks of its columns, so that the rows that a product gathers stay near the processor."""

from collections.abc import Iterator
from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from .base import slices
from .csr import CSR

FEW = 16384  # samples up to which one block is as fast
SAMPLES = 1024  # of a block, at least: their rows, with some hundred columns of all restarts, stay in a cache
ENTRIES = 16  # that a row of a block has on the average, at least: for fewer, row pointers and sums take as long


@dataclass(frozen=True, eq=False)
class TransposeBlocks:
    """The transpose of a sparse matrix `(n, m)`, as one matrix `(m, samples)` for each block of its samples.

    A product with a whole transpose fetches a row of its right side for every stored entry, from anywhere: of 100 000
    samples this takes four to ten times as long as block by block. All blocks together have every entry once. On a GPU
    there is one block.
    """

    blocks: list[tuple[slice, CSR]]

    @classmethod
    def of(cls, X: sp.csr_array, device: torch.device, dtype: torch.dtype) -> "TransposeBlocks":
        """Transpose a canonical scipy CSR block by block."""
        n, m = X.shape
        step = n if n <= FEW or device.type != "cpu" else max(SAMPLES, int(ENTRIES * n * m / max(1, X.nnz)))
        ends = X.indptr
        blocks = []
        for rows in slices(n, max(1, step)) if n else [slice(0, 0)]:
            entries = slice(int(ends[rows.start]), int(ends[rows.stop]))
            starts = (ends[rows.start : rows.stop + 1] - ends[rows.start]).astype(X.indices.dtype, copy=False)
            turned = sp.csc_array((X.data[entries], X.indices[entries], starts), shape=(m, rows.stop - rows.start))
            blocks.append((rows, CSR.from_scipy(turned.tocsr(), device, dtype)))
        return cls(blocks)

    def __iter__(self) -> Iterator[tuple[slice, CSR]]:
        return iter(self.blocks)

    def product(self, rows: Tensor) -> Tensor:
        """Compute `matrix @ rows`, row-major."""
        total = rows.new_zeros(self.blocks[0][1].shape[0], rows.shape[1])
        for block, X in self.blocks:
            total = X.add_product(rows[block], total)
        return total
