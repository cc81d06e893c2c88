"""A dense matrix seen through a few of its directions: products with it cost little, and differ a little."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from ..cache import TensorCache
from ..factors import multiply_batch
from .base import Data
from .dense import Dense, DenseProducts

OVERSAMPLING = 20  # directions beyond the rank
WORTH = 10  # times fewer operations than a product with the matrix, at least
CAPTURED = 0.5  # of the energy of the matrix, at least


class Sketch(DenseProducts):
    """`Q Q' X` for a matrix X: `times` and `times_transposed` are its products, everything else is of X itself.

    Q are orthonormal columns whose span holds nearly all that X does to few columns: those of `X W` for random W, after
    one more pass over X and X' (Halko, Martinsson and Tropp 2011). Objectives are those of the sketch but for a
    constant, the energy that it leaves out.

    Parameters
    ----------
    data : Dense
    columns : int
        Directions.
    seed : int
        Of W.
    """

    def __init__(self, data: Dense, columns: int, seed: int) -> None:
        super().__init__(data.shape, data.dtype, data.device, data.X)
        self.data, self.cut = data, data.cut
        found = data.cache(("sketch", columns, seed), (), lambda: _find_directions(data, columns, seed))
        self.left, self.right = found  # (n, c), (c, m)

    def times(self, F: Tensor) -> Tensor:
        """Compute `Q (Q' X) F`."""
        return _multiply(self.left, _multiply(self.right, F))

    def times_transposed(self, F: Tensor) -> Tensor:
        """Compute `(Q' X)' Q' F`."""
        return _multiply(self.right.mT, _multiply(self.left.mT, F))

    def entries(self) -> Iterator[Tensor]:
        """Iterate over those of X."""
        return self.data.entries()

    def samples(self) -> Tensor:
        """Give X."""
        return self.data.samples()

    def scaled(self, factor: float) -> "Sketch":
        """Sketch the scaled matrix by the same directions."""
        new = copy(self)
        new.data, new.right, new.cache = self.data.scaled(factor), self.right * factor, TensorCache()
        return new

    def take(self, rows: Tensor) -> Dense:  # type: ignore[override]
        """Copy some samples of X: they have no sketch."""
        return self.data.take(rows)

    def rows_of_matrix(self, rows: slice) -> Tensor:
        """Give some rows of X."""
        return self.data.rows_of_matrix(rows)

    def _floor(self) -> Any:
        return self.data._floor()

    def captured(self) -> float:
        """Compute the share of the energy of X that the sketch holds."""
        total = float(self.sqnorm())
        return float(self.right.double().square().sum()) / total if total else 1.0

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """Compute the distance from products: the residual itself would cost more than the whole run."""
        return self.distance_sq([F.to(self.dtype) for F in factors])


def sketch_of(data: Data, rank: int, seed: int) -> Sketch | None:
    """Sketch a matrix for factors of a rank; None where that saves too little or holds too little of it."""
    if not isinstance(data, Dense) or isinstance(data, Sketch) or data.order != 2:
        return None
    (n, m), columns = data.shape, rank + OVERSAMPLING
    if n * m < WORTH * (n + m) * columns:
        return None
    sketch = Sketch(data, columns, seed)
    return sketch if sketch.captured() >= CAPTURED else None


def _find_directions(data: Dense, columns: int, seed: int) -> tuple[Tensor, Tensor]:
    """Compute Q and `Q' X`; they are kept with the data, for batches that run in parts."""
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = torch.randn(data.shape[1], columns, generator=generator, dtype=torch.float64, device="cpu")
    Q = drawn.to(data.device, data.dtype)
    for product in (data.times, data.times_transposed, data.times):
        Q = torch.linalg.qr(product(Q).double())[0].to(data.dtype)
    return Q.contiguous(), data.times_transposed(Q).mT.contiguous()


def _multiply(A: Tensor, F: Tensor) -> Tensor:
    return (F.mT @ A.mT).mT if F.dim() == 2 else multiply_batch(A, F)
