"""The squared Frobenius distance to a Tucker model."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..block import Block, Kronecker, Quad
from ..factors import gram
from ..multilinear import as_core, core_gram, core_linear, core_product, multiply_modes
from .base import Factors
from .fit import DataTerm


@dataclass(frozen=True, eq=False)
class TuckerFit(DataTerm):
    """`||X - core x_0 V x_1 U1 x_2 ...||^2`: every mode has a rank of its own, and the core is one more factor.

    The factor of a mode has a Gram matrix as in `Fit`, that of the core and the other factors. The core is kept as a
    factor `(..., r_1 .. r_N, r_0)` (`core.multilinear`): it has the Gram matrix of V for its columns and, for its rows,
    the Kronecker product of those of the other modes, which is applied mode by mode (`Kronecker`).

    Parameters
    ----------
    data : Data, array, tensor or scipy sparse matrix
    modes : sequence of str
        Names of the factors in the order of the data's modes, samples first.
    core : str
        Name of the factor that keeps the core.
    """

    core: str = "core"

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The factors of the modes, and the core."""
        return (*self.modes, self.core)

    def check(self, factors: Factors) -> None:
        """Refuse factors of other lengths or ranks, precision or device."""
        r, *others = (factors[name].shape[-1] for name in self.modes)
        rows = dict(zip(self.modes, self.data.shape, strict=True)) | {self.core: prod(others)}
        for name in self.factor_names:
            F = factors[name]
            if F.shape[-2] != rows[name] or (name == self.core and F.shape[-1] != r):
                raise ValueError(
                    f"factors[{name!r}] has shape {tuple(F.shape)}; TuckerFit of data of shape {self.data.shape} and "
                    f"ranks {(r, *others)} needs {rows[name]} rows there, and keeps a core as core.flatten(1).T"
                )
            self.check_kind(name, F)

    def block(self, factors: Factors, name: str) -> Block:
        """Return the data contracted with everything else as linear part, and one quad."""
        Fs, core = self._split(factors)
        grams = [gram(F) for F in Fs]
        if name == self.core:
            return Block((Quad(grams[0], Kronecker(tuple(grams[1:]))),), self._core_linear(Fs))
        mode = self.modes.index(name)
        T = self.data.multilinear(Fs, mode)
        return Block((Quad(core_gram(core, grams, mode)),), core_product(core, T, mode, len(Fs)))

    def value(self, factors: Factors) -> Tensor:
        """Compute the distance from products that are kept."""
        Fs, core = self._split(factors)
        cross = (self._core_linear(Fs) * factors[self.core]).sum(-2).sum(-1, dtype=torch.float64)
        square = (multiply_modes(core, [gram(F) for F in Fs]) * core).flatten(-len(Fs)).sum(-1, dtype=torch.float64)
        return (self.data.sqnorm() - 2 * cross + square).clamp(min=0)

    def direct(self, factors: Factors) -> Tensor:
        """Sum the residual itself."""
        return self.data.tucker_residual_sq(*self._split(factors))

    def magnitude(self) -> Tensor:
        """Return `||X||^2`."""
        return self.data.sqnorm()

    def _split(self, factors: Factors) -> tuple[list[Tensor], Tensor]:
        Fs = [factors[name] for name in self.modes]
        return Fs, as_core(factors[self.core], [F.shape[-1] for F in Fs])

    def _core_linear(self, factors: Sequence[Tensor]) -> Tensor:
        """Contract the data with all factors, from what the last update of V has left."""
        T, V = self.data.multilinear(factors, 0), factors[0]
        return self.data.cache("core", (T, V), lambda: core_linear(T, V))
