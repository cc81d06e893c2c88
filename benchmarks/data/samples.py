"""What a data set is: labelled samples in one or several views. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled samples.

    Attributes
    ----------
    name, title : str
    views : tuple of arrays (n, ...) or scipy CSR arrays (n, m)
        One for most sets. Images are (n, height, width) in [0, 1].
    y : (n,)
        Classes 0, 1, ...
    view_names : tuple of str
    corrupt : (n,) bool or None
        Samples that are known to be broken.
    """

    name: str
    title: str
    views: tuple[Any, ...]
    y: Labels
    view_names: tuple[str, ...] = ()
    corrupt: NDArray[np.bool_] | None = None

    @property
    def X(self) -> Any:
        """The first view."""
        return self.views[0]

    @property
    def flat(self) -> Any:
        """The first view as (n, features)."""
        return self.X.reshape(len(self.y), -1) if self.X.ndim > 2 else self.X

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(np.unique(self.y))

    def rows(self, index: Any) -> Dataset:
        """Take some of the samples."""
        views = tuple(view[index] for view in self.views)
        corrupt = None if self.corrupt is None else self.corrupt[index]
        return Dataset(self.name, self.title, views, self.y[index], self.view_names, corrupt)

    def sound(self) -> Dataset:
        """Without the samples that are known to be broken."""
        return self if self.corrupt is None else self.rows(np.flatnonzero(~self.corrupt))


def codes(y: Any) -> Labels:
    """Convert labels to 0, 1, ... in sorted order."""
    return np.unique(y, return_inverse=True)[1].astype(np.int64).ravel()
