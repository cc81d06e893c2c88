"""PARAFAC2: slices of different lengths with a shared factor and one that evolves (Harshman 1972, Kiers et al. 1999).

The slices are rows of one matrix X `(N, J)`. Factors: weights A `(I, k)` of the slices, the shared C `(J, k)`, the
blueprint B `(k, k)` and projections P `(N, k)`, orthonormal in every slice: `B_i = P_i B` have one Gram matrix.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..block import Block, Quad, split, split_signs
from ..data.base import Data
from ..factors import as_factor, gram, multiply_transposed
from ..slices import Slices, contract_core, evolve, outer_rows, project, shared_linear, times_gram, times_shared
from .base import Factors, Term, WeightLike, check_weight, per_column


@dataclass(frozen=True, eq=False)
class Parafac2Fit(Term):
    """`sum_i ||X_i - P_i B diag(a_i) C'||^2` with orthonormal P_i: the direct fit of Kiers, ten Berge and Bro (1999).

    Every block is that of the CP model of the projected slices `P_i' X_i`, but for P: of that the value is linear, for
    `||P_i B diag(a_i) C'||` does not depend on it. A sweep costs two products with the data.
    """

    data: Data
    slices: Slices
    modes: tuple[str, ...] = ("A", "C", "B", "P")
    _pieces: list[Data] = field(init=False, repr=False)  # sparse slices by themselves

    def __post_init__(self) -> None:
        dense = isinstance(self.data.samples(), Tensor)
        rows = torch.arange(self.data.shape[0], device=self.data.device).split(list(self.slices.lengths))
        object.__setattr__(self, "_pieces", [] if dense else [self.data.take(some) for some in rows])

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled: the model is the same product."""
        return True

    def block(self, factors: Factors, name: str) -> Block:
        """Return the coefficients of `Fit` of the projected slices."""
        A, C, B, P = (factors[m] for m in self.modes)
        if name == self.modes[3]:
            weighted = as_factor(self._times(C) * self.slices.weights(A))
            return split(Block(linear_minus=multiply_transposed(weighted, B)))
        if name == self.modes[2]:
            return split(Block((Quad(gram(A) * gram(C)),), contract_core(self._core(P, C), A, slices=True)))
        if name == self.modes[1]:
            return split(Block((Quad(gram(A) * gram(B)),), shared_linear(self._projected(P), A, B)))
        return split(Block((Quad(gram(B) * gram(C)),), contract_core(self._core(P, C), B, slices=False)))

    def value(self, factors: Factors) -> Tensor:
        """Compute the distance from products that are kept."""
        A, C, B, P = (factors[m] for m in self.modes)
        cross = (contract_core(self._core(P, C), B, slices=False) * A).sum(-2).sum(-1, dtype=torch.float64)
        square = (gram(A) * gram(B) * gram(C)).sum((-2, -1), dtype=torch.float64)
        return (self.data.sqnorm() - 2 * cross + square).clamp(min=0)

    def direct(self, factors: Factors) -> Tensor:
        """Sum the residual itself."""
        A, C, B, P = (factors[m] for m in self.modes)
        return self.data.residual_sq([as_factor(evolve(P, B) * self.slices.weights(A)), C])

    def magnitude(self) -> Tensor:
        """Return `||X||^2`."""
        return self.data.sqnorm()

    def _times(self, C: Tensor) -> Tensor:
        return self.data.cache("times", (C,), lambda: self.data.times(C))

    def _projected(self, P: Tensor) -> Tensor:
        if self._pieces:
            return self.data.cache("projected", (P,), lambda: self.slices.project_pieces(P, self._pieces))
        return self.data.cache("projected", (P,), lambda: self.slices.project(P, self.data.samples()))

    def _core(self, P: Tensor, C: Tensor) -> Tensor:
        """Multiply the projected slices by C: what A and B are solved from."""
        Y = self._projected(P)
        return self.data.cache("core", (Y, C), lambda: times_shared(Y, C))


@dataclass(frozen=True, eq=False)
class EvolvingFit(Term):
    """`sum_i ||X_i - E_i diag(a_i) C'||^2`: every slice has a factor E_i of its own, rows of E `(N, k)`.

    Without another term the slices share C only; `Evolving` ties the E_i to each other.
    """

    data: Data
    slices: Slices
    modes: tuple[str, ...] = ("A", "C", "E")

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled: the model is the same product."""
        return True

    def block(self, factors: Factors, name: str) -> Block:
        """Return a Gram matrix for every row of E, for every slice of A, and one for C."""
        A, C, E = (factors[m] for m in self.modes)
        W = self.slices.weights(A)
        if name == "C":
            weighted = as_factor(E * W)
            return Block((Quad(gram(weighted)),), self.data.times_transposed(weighted))
        Z = self._times(C)
        if name == "E":
            return Block((), as_factor(Z * W), row_grams=times_gram(outer_rows(W), C))
        return Block((), self.slices.sum(E * Z), row_grams=times_gram(self.slices.grams(E), C))

    def value(self, factors: Factors) -> Tensor:
        """Compute the distance from products that are kept."""
        A, C, E = (factors[m] for m in self.modes)
        weighted = as_factor(E * self.slices.weights(A))
        cross = (weighted * self._times(C)).sum(-2).sum(-1, dtype=torch.float64)
        square = (gram(weighted) * gram(C)).sum((-2, -1), dtype=torch.float64)
        return (self.data.sqnorm() - 2 * cross + square).clamp(min=0)

    def direct(self, factors: Factors) -> Tensor:
        """Sum the residual itself."""
        A, C, E = (factors[m] for m in self.modes)
        return self.data.residual_sq([as_factor(E * self.slices.weights(A)), C])

    def magnitude(self) -> Tensor:
        """Return `||X||^2`."""
        return self.data.sqnorm()

    def _times(self, C: Tensor) -> Tensor:
        return self.data.cache("times", (C,), lambda: self.data.times(C))


@dataclass(frozen=True, eq=False)
class Evolving(Term):
    """`weight sum_j ||a_j||^2 ||c_j||^2 ||e_j - (P B)_j||^2`: flexible coupling (Cohen and Bro 2018), free of scale.

    It draws the factors E_i of slices to a form `P_i B` of PARAFAC2; the lengths of the other factors keep a component
    from escaping the weight as it grows or shrinks.
    """

    weight: WeightLike = 1.0
    modes: tuple[str, ...] = ("A", "C", "E", "B", "P")

    def __post_init__(self) -> None:
        check_weight(self)

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled, E and B together: the value is the same."""
        return True

    def block(self, factors: Factors, name: str) -> Block:
        """Return weights of columns, and what E and P B are to each other."""
        E, B, P = (factors[m] for m in self.modes[2:])
        mine, own = per_column(self.weight, factors, E), factors[name]
        squares = {n: _square_columns(factors[m]) for n, m in zip(("A", "C"), self.modes, strict=False)}
        if name in squares:
            other = squares["C" if name == "A" else "A"]
            return Block((Quad(mine.to(own.dtype) * other * _square_columns(E - evolve(P, B))),))
        w = mine * squares["A"] * squares["C"]
        if name == "E":
            return Block((Quad(w),), *split_signs(as_factor(w * evolve(P, B))))
        if name == "B":
            slices = _square_columns(P).mean(-1, keepdim=True)  # P'P is their number times the identity
            return Block((Quad(w * slices),), *split_signs(w * project(P, E)))
        return Block((), *split_signs(multiply_transposed(as_factor(E * w), B)))

    def value(self, factors: Factors) -> Tensor:
        """Sum the weighted squares."""
        A, C, E, B, P = (factors[m] for m in self.modes)
        w = per_column(self.weight, factors, E) * _square_columns(A) * _square_columns(C)
        return (w * _square_columns(E - evolve(P, B))).sum((-2, -1), dtype=torch.float64)


def _square_columns(F: Tensor) -> Tensor:
    return F.square().sum(-2, keepdim=True)
