"""What a Tucker model asks of data: contractions with factors whose columns each go by themselves."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..multilinear import as_cp, contract_ends, kronecker


class TuckerProducts:
    """Members of `Data` for Tucker models, from those that every kind has."""

    def multilinear(self: Any, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract `X` with all factors `(..., d, r)` but that of `mode`, columns of each by themselves (Tucker).

        Returns `(..., ranks of the others, d_mode)`, kept. As for `mttkrp` a sweep costs two products with the data,
        one with each group of modes, kept while its factors are the very same tensors.
        """
        left, right = list(factors[: self.cut]), list(factors[self.cut :])
        inside = mode < self.cut
        here, there, at = (left, right, mode) if inside else (right, left, mode - self.cut)
        P = self.cache(("group", inside), there, lambda: self.group_product(there, inside))
        others = [F for b, F in enumerate(here) if b != at]
        return self.cache(("multilinear", mode), (P, *others), lambda: contract_ends(P, here, at, last=not inside))

    def group_product(self: Any, factors: Sequence[Tensor], last: bool) -> Tensor:
        """Contract the `last` or the first group of modes with its factors: `(..., ranks, rows of the other group)`."""
        return (self.times if last else self.times_transposed)(kronecker(factors)).mT

    def tucker_residual_sq(self: Any, factors: Sequence[Tensor], core: Tensor) -> Tensor:
        """Compute `||X - Y||^2` for the Tucker model of a core `(..., r_0, ..., r_N)`: `(...)`, float64 (kept)."""
        wide, C = [F.double() for F in factors], core.double()
        return self.cache("tucker", (*wide, C), lambda: self.divergence(as_cp(wide, C), 2))
