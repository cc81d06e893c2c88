"""Fit in the feature space of a polynomial kernel (Buciu, Nikolaidis and Pitas 2008)."""

from dataclasses import dataclass

from torch import Tensor

from ..block import Block, Quad
from ..data.base import sample_sqnorms
from ..factors import gram, multiply_columns
from .base import Factors
from .fit import DataTerm


@dataclass(frozen=True, eq=False)
class PolynomialFit(DataTerm):
    """`sum_i ||phi(x_i) - sum_k v_ik phi(w_k)||^2` with `phi(x)'phi(y) = (x'y)^degree`: polynomial NMF.

    Nothing is formed in feature space: with `K_xw = (XW)^d` and `K_ww = (W'W)^d` the value is
    `sum_i (x_i'x_i)^d - 2 <V, K_xw> + <V'V, K_ww>`.

    Parameters
    ----------
    data, modes : as for `Fit`, a matrix (n, m); factors V (n, k) and W (m, k)
    degree : int
        d >= 1; 1 is the squared Frobenius distance.
    """

    degree: int = 2

    def block(self, factors: Factors, name: str) -> Block:
        """Return the coefficients in V, or in W at the current factors.

        V has the linear part `K_xw` and the Gram `K_ww`; W, with `K' = d (.)^(d-1)`, has `X'(K'_xw * V)` as
        `linear_minus` and `W (K'_ww * V'V)` as `linear_plus`.

        In W the value is a polynomial of order 2d whose negative part is convex in `x'w`, so that its tangent
        minorises it: powers 1 to 2d, exponent 1 / (2d - 1).
        """
        V, W = (factors[m] for m in self.modes)
        if name == self.modes[0]:
            return Block(quads=(Quad(gram(W).pow(self.degree)),), linear_minus=self._products(W).pow(self.degree))
        inner = self._slope(self._products(W)) * V
        linear_minus = self.data.mttkrp([inner, W], 1)
        linear_plus = multiply_columns(W, self._slope(gram(W)) * gram(V))
        return Block((), linear_minus, linear_plus, quadratic=False, powers=(1.0, 2.0 * self.degree))

    def value(self, factors: Factors) -> Tensor:
        """Compute the three sums; correct to rounding of `sum_i (x_i'x_i)^d`."""
        V, W = (factors[m] for m in self.modes)
        cross = (V.double() * self._products(W).double().pow(self.degree)).sum((-2, -1))
        square = (gram(V.double()) * gram(W.double()).pow(self.degree)).sum((-2, -1))
        return (self.magnitude() - 2 * cross + square).clamp(min=0)

    def magnitude(self) -> Tensor:
        """Return `sum_i (x_i'x_i)^d`."""
        return self.data.cache(("poly", self.degree), (), lambda: sample_sqnorms(self.data).pow(self.degree).sum())

    def _products(self, W: Tensor) -> Tensor:
        """Compute `XW` in the data's precision; it is kept while W is the same."""
        W = W.to(self.data.dtype)
        return self.data.mttkrp([W, W], 0)

    def _slope(self, z: Tensor) -> Tensor:
        """Compute `d z^(d-1)`."""
        return self.degree * z.pow(self.degree - 1)


@dataclass(frozen=True, eq=False)
class PrintedPolynomialFit(PolynomialFit):
    """The same value with the W rule as Zhang and Liu (2009, Eq. 4) print it: for study.

    `W *= (X' K'_xw) / (W diag(colsum V) K'_ww)`: the numerator lacks V, and the objective rises in many steps.
    """

    def block(self, factors: Factors, name: str) -> Block:
        """Return, for W, not half a gradient of the value but what the printed rule divides."""
        V, W = (factors[m] for m in self.modes)
        if name == self.modes[0]:
            return super().block(factors, name)
        slope = self._slope(self._products(W))
        linear_plus = multiply_columns(W * V.sum(-2, keepdim=True), self._slope(gram(W)))  # W diag(colsum V) K'_ww
        return Block(linear_minus=self.data.mttkrp([slope, W], 1), linear_plus=linear_plus, quadratic=False)
