"""Where blocks of rows come from: anything that is sliced, several of them in a row, and some rows of one."""

import mmap
import os
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ...arrays import refuse_other_than_real
from ..as_data import as_scipy

TOGETHER = 1 << 16  # bytes of a row range that cost about as much to read as to find


class Source(Protocol):
    """Rows of numbers, dense or sparse, read by slices.

    `dtype` is that of numpy, `together` the rows that are stored, and are best read, together; `n_stored` the stored
    entries of a sparse source, where they are known without reading it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    is_sparse: bool
    together: int
    n_stored: int | None

    def read(self, rows: slice) -> Any: ...  # noqa: D102 an array, which may be a view, or a sparse matrix
    def read_rows(self, rows: np.ndarray) -> Any: ...  # noqa: D102 a copy, in the order of an index
    def release(self) -> None: ...  # noqa: D102 what the operating system holds of the rows that were read


class Sliced:
    """One object that has `shape` and gives rows for a slice: an array of numpy, zarr, h5py, dask, AnnData, scipy."""

    def __init__(self, values: Any, name: str = "source") -> None:
        if not hasattr(values, "shape") or not hasattr(values, "__getitem__"):
            raise TypeError(
                f"{name} is a {type(values).__name__}; it must have a shape and give blocks of rows for slices, as a "
                "memory map, a zarr array, a dataset of h5py or a dask array do, or be a list of such parts"
            )
        if isinstance(values, Tensor) and values.layout != torch.strided:
            values = as_scipy(values, name)
        self.values = values.tocsr() if sp.issparse(values) and values.format != "csr" else values
        self.shape = tuple(int(d) for d in values.shape)
        if len(self.shape) < 2 or 0 in self.shape:
            hint = "at least two dimensions, samples first" if len(self.shape) < 2 else "no empty dimension"
            raise ValueError(f"{name} has shape {self.shape}; it must have {hint}")
        first = self.read(slice(0, 1))
        self.is_sparse = sp.issparse(first)
        if first.shape[1:] != self.shape[1:]:
            raise ValueError(f"{name} has shape {self.shape}, but its first row {first.shape}; rows must come first")
        self.dtype = np.dtype(first.dtype)
        refuse_other_than_real(self.dtype, name)
        self.n_stored = _count_stored(values) if self.is_sparse else prod(self.shape)
        self.together = _rows_together(values)

    def read(self, rows: slice) -> Any:
        """Read a range of rows."""
        return _as_rows(self.values[rows])

    def read_rows(self, rows: np.ndarray) -> Any:
        """Copy rows: from memory at once, from elsewhere range by range."""
        if isinstance(self.values, np.ndarray | Tensor) or sp.issparse(self.values):
            return _as_rows(self.values[torch.from_numpy(rows) if isinstance(self.values, Tensor) else rows])
        return read_in_ranges(self, rows)

    def release(self) -> None:
        """Give pages of a memory map back; the system's cache of the file stays, and so do changes."""
        mapped = getattr(self.values, "_mmap", None)
        if isinstance(mapped, mmap.mmap) and self.values.mode in ("r", "r+") and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


class Joined:
    """Several sources, the rows of one behind those of the other."""

    def __init__(self, parts: Sequence[Source]) -> None:
        first = parts[0]
        for i, part in enumerate(parts):
            if part.shape[1:] != first.shape[1:] or part.is_sparse != first.is_sparse:
                kinds = [f"{'sparse' if p.is_sparse else 'dense'} {p.shape}" for p in (first, part)]
                raise ValueError(f"source[{i}] is {kinds[1]}, but source[0] {kinds[0]}; parts differ in rows only")
        self.parts, self.is_sparse = parts, first.is_sparse
        self.ends = np.cumsum([0, *(part.shape[0] for part in parts)])
        self.shape = (int(self.ends[-1]), *first.shape[1:])
        self.dtype = np.result_type(*(part.dtype for part in parts))
        counts = [part.n_stored for part in parts]
        self.n_stored = None if None in counts else sum(count for count in counts if count is not None)
        self.together = max(part.together for part in parts)

    def read(self, rows: slice) -> Any:
        """Read a range of rows, which may begin in one part and end in another."""
        found = [part.read(here) for part, here in self._parts_of(rows)]
        return _stack(found, self.is_sparse)

    def _parts_of(self, rows: slice) -> Iterator[tuple[Source, slice]]:
        for part, start in zip(self.parts, self.ends.tolist(), strict=False):
            a, b = max(rows.start - start, 0), min(rows.stop - start, part.shape[0])
            if a < b:
                yield part, slice(a, b)

    def read_rows(self, rows: np.ndarray) -> Any:
        """Copy rows, part by part."""
        owner = np.searchsorted(self.ends, rows, side="right") - 1
        order = np.argsort(owner, kind="stable")
        found = [self.parts[i].read_rows(rows[owner == i] - self.ends[i]) for i in np.unique(owner)]
        return _stack(found, self.is_sparse)[np.argsort(order)]

    def release(self) -> None:
        """Release every part."""
        for part in self.parts:
            part.release()


class Selected:
    """Some rows of a source, by an index."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        self.source, self.rows, self.is_sparse, self.dtype = source, rows, source.is_sparse, source.dtype
        self.shape, self.together, self.n_stored = (len(rows), *source.shape[1:]), 1, None
        if source.n_stored is not None:  # an estimate where the source is sparse
            self.n_stored = max(1, source.n_stored * len(rows) // source.shape[0])

    def read(self, rows: slice) -> Any:
        """Read rows of the index."""
        return self.source.read_rows(self.rows[rows])

    def read_rows(self, rows: np.ndarray) -> Any:
        """Copy rows of the index."""
        return self.source.read_rows(self.rows[rows])

    def release(self) -> None:
        """Release the source."""
        self.source.release()


def as_source(values: Any) -> Source:
    """Make a source of what is sliced, of files of numpy or scipy, or of a list of these, one behind the other."""
    if isinstance(values, Sliced | Joined | Selected) or (hasattr(values, "read_rows") and hasattr(values, "together")):
        return values
    if isinstance(values, list | tuple):
        if not values:
            raise ValueError("source is an empty list; it must have one part at least, all with the same columns")
        return Joined([_as_part(part, f"source[{i}]") for i, part in enumerate(values)])
    return _as_part(values, "source")


def _as_part(values: Any, name: str) -> Source:
    if not isinstance(values, str | os.PathLike):
        return Sliced(values, name)
    path = Path(values)
    if path.suffix == ".npy":
        return Sliced(np.load(path, mmap_mode="r", allow_pickle=False), str(path))
    if path.suffix == ".npz":
        return Sliced(sp.load_npz(path), str(path))
    raise ValueError(f"{name}={str(path)!r} is no .npy or sparse .npz file; nnfactor.io.open_data opens other kinds")


def read_in_ranges(source: Source, rows: np.ndarray) -> Any:
    """Copy rows of a source that gives slices only: rows that are stored together are read together."""
    order = np.argsort(rows, kind="stable")
    ahead = rows[order]
    row_bytes = prod(source.shape[1:]) * source.dtype.itemsize
    places = ahead // max(source.together, TOGETHER // max(1, row_bytes), 1)
    found = []
    for some in np.split(ahead, np.flatnonzero(np.diff(places)) + 1):
        found.append(source.read(slice(int(some[0]), int(some[-1]) + 1))[some - some[0]])
    return _stack(found, source.is_sparse)[np.argsort(order)]


def _as_rows(found: Any) -> Any:
    """Turn a block into an array of numpy, on the host; what is sparse stays so."""
    if isinstance(found, Tensor):
        found = found.detach().cpu()
        return found.float().numpy() if found.dtype == torch.bfloat16 else found.numpy()
    if np.ma.is_masked(found):
        raise ValueError(
            "source gives masked entries, and data in blocks have no missing ones; fill them, drop their rows, or hand "
            "the array itself to a model with missing entries"
        )
    return found if sp.issparse(found) else np.asarray(found)


def _stack(found: list[Any], is_sparse: bool) -> Any:
    if len(found) == 1:
        return found[0]
    return sp.vstack(found, format="csr") if is_sparse else np.concatenate(found)


def _count_stored(values: Any) -> int | None:
    """Ask a sparse source how many entries it stores: scipy, or the group of a file that AnnData wrote."""
    known = getattr(values, "nnz", None)
    if known is None and hasattr(values, "group"):
        known = values.group["indptr"][-1]
    return None if known is None else int(known)


def _rows_together(values: Any) -> int:
    """Ask how many rows a chunk of zarr, h5py or dask has; 1 where nobody says."""
    chunks = getattr(values, "chunks", None)
    first = chunks[0] if isinstance(chunks, tuple) and chunks else 1
    first = max(first, default=1) if isinstance(first, tuple) else first
    return int(first) if isinstance(first, int | np.integer) and first > 0 else 1
