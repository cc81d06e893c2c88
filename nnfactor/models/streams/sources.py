"""Batches of a source: by number, where rows can be reached in any order, else as they come."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ...core.data.base import Data
from ...core.data.chunked.reading import read_ahead
from ...core.data.chunked.storage import Chunked
from ...io.table import Table

BATCH = 1024  # rows of a batch where nothing says how many are stored together; scikit-learn's MiniBatchNMF has as many


class Batch(NamedTuple):
    """Samples with their labels and weights."""

    X: Any
    y: Any = None
    weights: Any = None


class Batches(Protocol):
    """What an epoch goes through; `count` is None where it is found out by reading, all in turn."""

    count: int | None

    def read(self, numbers: Sequence[int] | None) -> Iterator[Batch]: ...  # noqa: D102 of these numbers


class Sliced:
    """Batches of rows of what is sliced: a thread reads the next one while one is learned from."""

    def __init__(self, X: Any, y: Any, weights: Any, rows: int) -> None:
        self.given, self.rows, self.n = (X, y, weights), rows, int(X.shape[0])
        self.count: int | None = -(-self.n // rows)
        for name, values in (("y", y), ("weights", weights)):
            if values is not None and _length(values) != self.n:
                raise ValueError(f"{name} has {_length(values)} rows, but X has {self.n}")

    def read(self, numbers: Sequence[int] | None) -> Iterator[Batch]:
        """Read batches by their numbers."""
        return read_ahead(self._batch, list(numbers or ()))

    def _batch(self, number: int) -> Batch:
        rows = slice(number * self.rows, min((number + 1) * self.rows, self.n))
        return Batch(*(take_rows(values, rows) for values in self.given))


class Listed:
    """Batches that are given one by one, in a list."""

    def __init__(self, blocks: Sequence[Any], y: Any, weights: Any) -> None:
        if weights is not None or (y is not None and (len(y) != len(blocks) or not hasattr(y[0], "__len__"))):
            raise ValueError("X is a list of blocks; y must be a list with the labels of each, and weights are None")
        self.blocks, self.y = blocks, y
        self.count: int | None = len(blocks)

    def read(self, numbers: Sequence[int] | None) -> Iterator[Batch]:
        """Give batches by their numbers."""
        return (Batch(values_of(self.blocks[i]), None if self.y is None else self.y[i]) for i in numbers or ())


class Passed:
    """Batches in the order in which they come."""

    count: int | None = None

    def __init__(self, make: Callable[[], Iterable[Any]], y: Any, weights: Any) -> None:
        if weights is not None:
            raise ValueError("weights go with a source that is sliced; X gives its blocks in turn")
        self.make, self.y = make, y

    def read(self, numbers: Sequence[int] | None) -> Iterator[Batch]:
        """Give all batches in turn."""
        first, blocks = 0, self.make()
        if not isinstance(blocks, Iterable):
            raise TypeError(
                f"X is a function that returned {type(blocks).__name__}; it must return what gives blocks in turn, as "
                "read_blocks(path, 1000) does"
            )
        for block in blocks:
            X = values_of(block)
            rows = slice(first, first := first + X.shape[0])
            yield Batch(X, None if self.y is None else take_rows(self.y, rows))


def as_batches(X: Any, y: Any, weights: Any, batch_size: int | None, n_epochs: int) -> Batches:
    """Cut a source into batches of `batch_size` rows, or of as many as are stored together, or as they come.

    Raises
    ------
    ValueError, TypeError
        Data of several processes, an iterator that is asked for several epochs, or what is no source.
    """
    if isinstance(X, Data) and X.sums.held is not None:
        raise ValueError("partial_fit takes a source in one process, and X is Sharded; use fit")
    if isinstance(X, Table):
        X = X.values
    if isinstance(X, list | tuple) and len(X) and all(isinstance(part, str | os.PathLike) for part in X):
        X = Chunked(X, n_rows=batch_size)
    if isinstance(X, list | tuple) and len(X) and all(len(getattr(values_of(part), "shape", ())) > 1 for part in X):
        return Listed(X, y, weights)
    if hasattr(X, "shape") and (isinstance(X, Data) or hasattr(X, "__getitem__")):
        return Sliced(X, y, weights, batch_size or getattr(X, "n_rows", None) or _together(X))
    if callable(X):
        return Passed(X, y, weights)
    if isinstance(X, Iterator) and n_epochs != 1:
        raise ValueError(
            f"X is a {type(X).__name__}, which gives its blocks once, and n_epochs={n_epochs}; hand in a function that "
            "makes it anew for every epoch, such as lambda: read_blocks(path, 1000), or use n_epochs=1"
        )
    if isinstance(X, Iterable) and not isinstance(X, str | bytes | list | tuple):
        return Passed(lambda: X, y, weights)
    raise TypeError(
        f"X is a {type(X).__name__}, and n_epochs={n_epochs} reads a source in batches; it must be Chunked, an array "
        "that is sliced, a list of blocks, or what gives blocks in turn, as read_blocks does"
    )


def values_of(block: Any) -> Any:
    """Return the numbers of a block; of what `read_blocks` gives without its names."""
    return block.values if isinstance(block, Table) else block


def take_rows(values: Any, rows: slice) -> Any:
    """Read a range of rows in the kind that they have; of a memory map a copy."""
    if values is None:
        return None
    if isinstance(values, Data):
        return values.take(torch.arange(rows.start, rows.stop, device=values.device))
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    found = values[rows]
    return np.array(found) if isinstance(found, np.memmap) else found


def _length(values: Any) -> int:
    return int(values.shape[0]) if hasattr(values, "shape") else len(values)


def _together(X: Any) -> int:
    """Count the rows of a batch: as many as a chunk of zarr, h5py or dask has."""
    first = (getattr(X, "chunks", None) or (1,))[0]
    first = max(first, default=1) if isinstance(first, tuple) else first
    return int(first) if isinstance(first, int | np.integer) and first > 1 else BATCH
