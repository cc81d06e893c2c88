"""Beta-divergences of data to a CP model."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch import Tensor

from .. import divergence
from ..block import Block
from .base import Factors
from .fit import DataTerm


@dataclass(frozen=True, eq=False)
class BetaFit(DataTerm):
    """`sum d_beta(X, [[V, U1, ...]])`; beta = 1 is Kullback-Leibler, 0 Itakura-Saito, 2 the squared Frobenius norm.

    Not quadratic: only the multiplicative rule takes it. Data and modes as for `Fit`; sparse data are matrices.
    Zeros of the model are clamped to 1e-32 (float64) of the data's maximum.

    Raises
    ------
    ValueError
        beta <= 0 and a zero in the data: the divergence is infinite there.
    """

    beta: float = 1.0

    stacks_data: ClassVar[bool] = True
    splits_samples: ClassVar[bool] = True

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled: the model is the same product."""
        return True

    @property
    def value_reads_data(self) -> bool:
        """Whether a value costs a pass over the data: every entry has a loss of its own."""
        return True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta <= 0 and self.data.smallest() <= 0:
            raise ValueError(
                f"beta = {self.beta:g} needs data without zeros, and without numbers below the smallest normal one of "
                f"{self.data.dtype} (the divergence is infinite there); use beta > 0 or add a small positive number"
            )

    def block(self, factors: Factors, name: str) -> Block:
        """Return the two ratio products at the current factors, halved (half the gradient); see `divergence.powers`."""
        Fs, mode = [factors[m] for m in self.modes], self.modes.index(name)
        linear_minus, linear_plus = self.data.ratio_products(Fs, mode, self.beta)
        if self.beta != 2:
            linear_minus, linear_plus = linear_minus.mul_(0.5), linear_plus.mul_(0.5)
        return Block((), linear_minus, linear_plus, quadratic=False, powers=divergence.powers(self.beta))

    def value(self, factors: Factors) -> Tensor:
        """Sum the divergence over all entries, in float64."""
        return self.data.divergence([factors[m] for m in self.modes], self.beta)

    def direct(self, factors: Factors) -> Tensor:
        """Sum it from float64 factors: where model and data are nearly equal, logarithms of their ratio cancel."""
        return self.value({m: factors[m].double() for m in self.modes})

    def magnitude(self) -> Tensor:
        """Return the number of entries times the mean to the power beta: the sum of the data for Kullback-Leibler."""
        return self.data.mean().pow(self.beta) * prod(self.data.shape)
