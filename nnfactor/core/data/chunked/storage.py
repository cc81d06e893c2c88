"""Data that are read in blocks of rows in every pass: they need not fit into memory."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ...arrays import float_type
from ..base import Data, slices
from ..dense import floor_of
from .blocks import Blocks, summarize
from .hidden import WeightedBlocks
from .parts import Changed, Turned
from .products import InBlocks
from .sources import Selected, Source, as_source


class Chunked(InBlocks):
    """Data larger than memory: blocks of rows are read anew for every product, one ahead of the one in use.

    Every model takes them that needs sums and products only. What needs all samples at once (graphs and kernels made of
    X, classifiers) reads the whole where it fits, and refuses it otherwise. A sweep of a matrix reads the data twice,
    `fit` once more for its checks and once for the loss. The source must not change meanwhile: nobody notices.

    Parameters
    ----------
    source : array-like that is sliced, or list
        Samples first: a memory map, an array of zarr, h5py or dask, `X` of a backed AnnData, a scipy matrix: anything
        with `shape` whose slices are blocks of rows, dense or sparse. Or a list of such parts and of `.npy` files (or
        sparse `.npz`), one behind the other. Samples may be tensors.
    max_bytes : int, optional
        Limit for all buffers together; factors and their temporaries come on top. Default: blocks of 256 MiB, or less
        where memory is short (512 MiB or a tenth of what is free stays free).
    n_rows : int, optional
        Rows of a block. Default: as many as the limit allows, in whole chunks of the source.
    dtype : "float32", "float64" or torch dtype, optional
        Of the products; blocks are converted as they are read. Default: float32 for floats up to 32 bits, else float64.
    device : torch device, optional
        Of the products. Default: the CPU. On a GPU blocks go through page-locked memory, beside products.

    Raises
    ------
    ValueError
        A limit too low for one row; a source of one dimension, empty, or not of real numbers. In `fit`: NaN or infinite
        entries, with the place of the first.
    TypeError
        A source without `shape` or slices.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NMF, Chunked
    >>> X = np.random.default_rng(0).integers(0, 255, (100, 20), dtype=np.uint8)
    >>> data = Chunked(X, n_rows=32, dtype="float32")
    >>> data.shape, data.dtype, data.n_rows
    ((100, 20), torch.float32, 32)
    >>> NMF(3, random_state=0).fit(data).embedding_.shape
    (100, 3)
    """

    def __init__(
        self,
        source: Any,
        max_bytes: int | None = None,
        *,
        n_rows: int | None = None,
        dtype: Any = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.source: Source = as_source(source)
        own = torch.float32 if float_type(self.source.dtype) is np.float32 else torch.float64
        inputs = (source,) if isinstance(source, Tensor) else ()
        super().__init__(self.source.shape, _read_dtype(dtype) or own, torch.device(device or "cpu"), *inputs)
        self.read_in, self.max_bytes, self.asked = own, _whole("max_bytes", max_bytes), _whole("n_rows", n_rows)
        self.rows_per_problem = self.shape[0] + prod(self.shape[1:])
        if self.source.is_sparse:
            self.entries_read = _count(self.source)
        self._blocks = Blocks(self.source, self.dtype, self.device, self.max_bytes, self.asked, self.entries_read)
        self.n_rows, self.together = self._blocks.n_rows, self.source.together

    def blocks(self, backwards: bool = False) -> Iterator[tuple[slice, Data]]:
        """Read the blocks in turn: their rows, and data that are valid until the next block is asked for.

        What a block clamps a reconstruction to is that of all data, once they are inspected.
        """
        floor, known = self.floor, self.cache.known("facts", ())
        if floor is None and known is not None:
            floor = floor_of(known[0][:2].abs().amax().to(self.dtype))
        for rows, block in self._blocks.read(backwards):
            block.floor = floor
            yield rows, block

    def _inspect(self) -> tuple[Tensor, Tensor]:
        """Find what `summarize` does (kept)."""
        facts, largest = self.cache("facts", (), lambda: summarize(self._blocks, self.read_in))
        self.cache("summary", (), lambda: facts[:4])
        return facts, largest

    def smallest(self) -> float:
        """Find the smallest entry, stored or not."""
        self._inspect()
        return super().smallest()

    def largest(self) -> float:
        """Find the largest absolute value of an entry as it was read, and refuse NaN and infinity."""
        return float(self._inspect()[1])

    def mean(self) -> Tensor:
        """Average all entries, a float64 scalar."""
        return self._inspect()[0][2] / prod(self.shape)

    def sqnorm(self) -> Tensor:
        """Compute `||X||^2`, a float64 scalar."""
        return self._inspect()[0][4]

    def samples(self) -> Any:
        """Read all samples, where they fit.

        Raises
        ------
        ValueError
            They are larger than `max_bytes`, or than what is free.
        """
        need, limit = self.shape[0] * self._blocks.row_bytes, self._blocks.limit()
        if need > limit:
            allowed = "max_bytes allows" if self.max_bytes is not None else "there are"
            raise ValueError(
                f"X is Chunked of shape {self.shape}, and graphs, kernels and classifiers made of X need all samples "
                f"at once: {need / 2**20:.0f} MiB, {allowed} {limit / 2**20:.0f}. Hand in a graph or a kernel that was "
                "made before (graph=..., neighbors=..., kernel='precomputed'), use NMF, NTF or SemiNMF, or raise "
                "max_bytes"
            )
        return self._blocks.copy_rows(np.arange(self.shape[0])).samples()

    def scaled(self, factor: float) -> Self:
        """Multiply blocks by a power of two as they are read: no copy of the data."""
        return self._like(self.source, self._blocks.factor * factor)

    def placed(self, device: torch.device | None, dtype: torch.dtype | None) -> Self:
        """Give the same data for products on another device or in another dtype."""
        device, dtype = device or self.device, dtype or self.dtype
        if dtype == self.dtype and device == self.device:
            return self
        other = type(self)(self.source, self.max_bytes, n_rows=self.asked, dtype=dtype, device=device)
        other._blocks.factor = self._blocks.factor
        return other

    def take(self, rows: Tensor) -> Any:
        """Copy some samples; more than a block of them stay where they are, and are read in blocks."""
        index = rows.cpu().numpy()
        inside = len(index) <= self.n_rows
        return self._blocks.copy_rows(index) if inside else self._like(Selected(self.source, index))

    def part(self, at: np.ndarray, mode: int) -> Self:
        """Give some rows (mode 0) or columns of a matrix (1), which stay where they are."""
        return self._like(Changed(self.source, at) if mode else Selected(self.source, at))

    def scaled_by(self, by: Sequence[np.ndarray]) -> Self:
        """Multiply rows and columns of a matrix by numbers, as they are read."""
        return self._like(Changed(self.source, by=by))

    def turned(self) -> Data:
        """Give the transposed matrix."""
        return Turned(self)

    def _like(self, source: Source, factor: float | None = None) -> Self:
        rows = None if self.n_rows > source.shape[0] else self.n_rows
        other = type(self)(source, self.max_bytes, n_rows=rows, dtype=self.dtype, device=self.device)
        other._blocks.factor = factor or self._blocks.factor
        if source.shape[1:] == self.shape[1:]:
            other._blocks.buffers = self._blocks.buffers
        return other

    def _with_factors(self, factors: Sequence[Tensor], beta: float) -> Iterator[tuple[Data, list[Tensor]]]:
        """Give each block with its rows of V."""
        if beta != 2:
            self._inspect()
        return super()._with_factors(factors, beta)

    def hidden(self, missing: str | None, weights: Any, zeros_are_free: bool) -> Data:
        """Return the same data with missing entries or weights, which a pass looks for; these if there are none."""
        if missing == "unstored" and not self.is_sparse:
            raise ValueError(
                "missing='unstored' is for sparse X, but X is dense; use missing='nan' and NaN, or weights"
            )
        if weights is not None:
            if tuple(weights.shape) != self.shape:
                raise ValueError(f"weights has shape {tuple(weights.shape)}; it must be that of X, {self.shape}")
            values = weights.source if isinstance(weights, Chunked) else weights
            weights = type(self)(values, n_rows=self.n_rows, dtype=self.dtype, device=self.device)
        found = WeightedBlocks(self, weights, missing, zeros_are_free)
        return found if found.facts.hides else self

    @property
    def is_sparse(self) -> bool:
        """Whether blocks are sparse."""
        return self.source.is_sparse

    def __getstate__(self) -> dict[str, Any]:
        """Say what makes these data others than those of another source; for digests."""
        return {"shape": self.shape, "dtype": self.dtype, "facts": self._inspect()[0], "factor": self._blocks.factor}

    def __reduce__(self) -> Any:
        return _restore, (self.source, self.max_bytes, self.asked, self.dtype, str(self.device), self._blocks.factor)


def _restore(source: Source, max_bytes: int, n_rows: int, dtype: torch.dtype, device: str, factor: float) -> Chunked:
    data = Chunked(source, max_bytes, n_rows=n_rows, dtype=dtype, device=device)
    data._blocks.factor = factor
    return data


def _read_dtype(dtype: Any) -> torch.dtype | None:
    known = {"float32": torch.float32, "float64": torch.float64}
    name = str(dtype).removeprefix("torch.") if isinstance(dtype, str | torch.dtype) else np.dtype(dtype).name
    if dtype is not None and name not in known:
        raise ValueError(f"dtype={dtype!r} is not supported; use 'float32' or 'float64'")
    return known[name] if dtype is not None else None


def _whole(name: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
        raise ValueError(f"{name} must be None or a whole number >= 1, got {value!r}")
    return None if value is None else int(value)


def _count(source: Source) -> int:
    """Count the stored entries of a sparse source; those of one that does not say it are read."""
    if source.n_stored is not None:
        return source.n_stored
    return sum(source.read(rows).nnz for rows in slices(source.shape[0], max(source.together, 1000)))
