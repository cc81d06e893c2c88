"""What a data file holds: numbers, names and labels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

Names = tuple[str, ...]

BLOCK = 2**20  # numbers that are counted at a time, so that a file larger than memory is never held


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """What a data file holds.

    Attributes
    ----------
    values : array (n_samples, d_1, ..., d_r), scipy sparse matrix, or scipy `coo_array` of more dimensions
        As stored: a `.npy` file is a memory map. Estimators take it as it is.
    names : tuple, one entry for each dimension
        Names of its rows, columns, ...; None where the file has none.
    labels : dict
        Columns about the samples that the file holds beside the data, by name (AnnData's `obs`).
    source : str
        The file, and the part of it.
    dims : tuple of str, or None
        What the dimensions themselves are called (xarray, the head of a long table); None where the file does not say.
    """

    values: Any
    names: tuple[Names | None, ...]
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = ""
    dims: Names | None = None

    def __post_init__(self) -> None:
        for axis, (names, d) in enumerate(zip(self.names, self.values.shape, strict=True)):
            if names is not None and len(names) != d:
                raise ValueError(f"{self.source}: {len(names)} names for dimension {axis}, which has length {d}")
        for name, column in self.labels.items():
            if len(column) != self.values.shape[0]:
                raise ValueError(
                    f"{self.source}: labels {name!r} has {len(column)} entries for {self.values.shape[0]} rows"
                )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to be taken for an array: an estimator would lose the names without a word."""
        raise TypeError(
            f"{self.source or 'a Table'} was read as a Table of values, names and labels; hand in its values"
        )

    def __repr__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """Say what was read: shape, type, share of zeros and of NaN, names, labels.

        All values are read, a block of rows at a time: of a memory map no more than 8 MiB are held at once.
        """
        zeros, holes = self.shares()
        kind = "sparse " if sp.issparse(self.values) else ""
        called = self.dims or [f"dimension {axis}" for axis in range(len(self.names))]
        named = [dim for dim, names in zip(called, self.names, strict=True) if names is not None]
        labels = f", labels {', '.join(map(repr, self.labels))}" if self.labels else ""
        return (
            f"{self.source}: {' x '.join(map(str, self.values.shape))}, {kind}{self.values.dtype}, "
            f"{zeros:.1%} zeros, {holes:.1%} NaN, names of {' and '.join(named) or 'nothing'}{labels}"
        )

    def shares(self) -> tuple[float, float]:
        """Return the share of zeros and that of NaN among all values, those included that are not stored."""
        total = float(np.prod(self.values.shape, dtype=float)) or 1.0
        filled = holes = 0
        for block in _blocks(self.values.data if sp.issparse(self.values) else self.values):
            filled += int(np.count_nonzero(block))
            holes += int(np.isnan(block).sum()) if block.dtype.kind == "f" else 0
        return (total - filled) / total, holes / total


def _blocks(values: Any) -> Iterator[np.ndarray]:
    """Iterate over an array in pieces of about `BLOCK` numbers, along its first dimension, and then along the next."""
    if values.size <= BLOCK:
        yield np.asarray(values)
    elif values.shape[0] == 1:
        yield from _blocks(values[0])
    else:
        width = max(1, BLOCK * values.shape[0] // values.size)
        for first in range(0, values.shape[0], width):
            yield from _blocks(values[first : first + width])
