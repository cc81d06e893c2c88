"""The part of a source that one of several processes reads."""

from typing import Any

import numpy as np

from ..chunked.sources import Selected, as_source


class Part(Selected):
    """Rows of a source in a row: with `size` parts all of the rows, evenly, as `numpy.array_split` cuts them."""

    def __init__(self, source: Any, rank: int, size: int) -> None:
        whole = as_source(source)
        n = whole.shape[0]
        if n < size:
            raise ValueError(f"source has {n} rows, fewer than the {size} processes; start fewer")
        self.first = rank * (n // size) + min(rank, n % size)
        super().__init__(whole, np.arange(self.first, self.first + n // size + (rank < n % size)))
        self.together = whole.together

    def read(self, rows: slice) -> Any:
        """Read a range of rows, from the source at once."""
        return self.source.read(slice(self.first + rows.start, self.first + min(rows.stop, self.shape[0])))
