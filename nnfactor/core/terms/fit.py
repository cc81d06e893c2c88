"""Terms of data and a CP model; the squared Frobenius distance."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from torch import Tensor

from ..block import Block, Quad
from ..data.as_data import as_data
from ..data.base import Data
from ..data.distributed.sample_sums import WHOLE
from ..data.sketch import sketch_of
from ..data.weighted import Weighted, mean_curvature
from .base import Factors, Term, WeightLike, check_weight, describe, per_column


@dataclass(frozen=True, eq=False)
class DataTerm(Term):
    """A term of data and one factor for each of their modes.

    Parameters
    ----------
    data : Data, array, tensor or scipy sparse matrix
    modes : sequence of str
        Names of the factors in the order of the data's modes, samples first: `("V", "U1")` for a matrix.
    """

    data: Data | Any  # Data once it is read
    modes: tuple[str, ...]

    stacks_data: ClassVar[bool] = False  # whether the problems of a batch may differ in data: then `data` is `Stacked`

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled: the model is the same product."""
        return True

    def __post_init__(self) -> None:
        data = self.data if isinstance(self.data, Data) else as_data(self.data, name="data")
        modes = tuple(self.modes)
        if len(modes) != data.order or len(set(modes)) != len(modes):
            hint = ""
            if len(modes) == data.order - 1:
                hint = (
                    "; problems of a batch share their data and differ in their factors: data have no batch dimension"
                )
            raise ValueError(
                f"modes must be {data.order} different names for data of shape {data.shape}, got {modes}{hint}"
            )
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "modes", modes)

    def check(self, factors: Factors) -> None:
        """Refuse factors of other lengths, numbers of columns, precision or device."""
        what, X = type(self).__name__, self.data
        for mode, name in enumerate(self.modes):
            F, columns = factors[name], factors[self.modes[0]].shape[-1]
            if F.shape[-2] != self.rows(mode) or F.shape[-1] != columns:
                raise ValueError(
                    f"factors[{name!r}] has shape {tuple(F.shape)}; {what} of data of shape {X.shape} needs "
                    f"{self.rows(mode)} rows in mode {mode}, and {columns} columns as in {self.modes[0]!r}"
                )
            self.check_kind(name, F)

    def check_kind(self, name: str, F: Tensor) -> None:
        """Refuse a factor of another precision or device than the data."""
        X = self.data
        if F.dtype != X.dtype or F.device.type != X.device.type:
            raise ValueError(
                f"factors[{name!r}] is {describe(F)} on {F.device}, but the data of {type(self).__name__} are "
                f"{str(X.dtype).removeprefix('torch.')} on {X.device}; convert one of them, the data by as_data"
            )

    def select_problems(self, keep: Tensor) -> "DataTerm":
        """Return the term of the data of some problems."""
        data = self.data.select_problems(keep)
        return self if data is self.data else replace(self, data=data)

    def of_own_rows(self) -> "DataTerm":
        """Return the term of the samples of this process."""
        return self if self.data.sums.held is None else replace(self, data=cast(Any, self.data).local)

    def rows(self, mode: int) -> int:
        """Return the number of rows of the factor of a mode."""
        held = None if mode else self.data.sums.held
        return self.data.shape[mode] if held is None else held


class Fit(DataTerm):
    """`||X - [[V, U1, ...]]||^2`: squared Frobenius distance to a CP model of any order (`DataTerm`)."""

    stacks_data: ClassVar[bool] = True
    splits_samples: ClassVar[bool] = True

    def block(self, factors: Factors, name: str, weight: Tensor | None = None) -> Block:
        """Return the MTTKRP as linear part, and one Gram: the Hadamard product of the other factors' Grams.

        Of weighted data it is the block of a majoriser that touches at these factors. Times `weight (..., 1, 1) >= 0`
        if there is one; then the linear part is a new tensor. For samples of a matrix it multiplies the other factor,
        which is smaller than the product.
        """
        data, Fs, mode = self.data, [factors[m] for m in self.modes], self.modes.index(name)
        first = weight if data.order == 2 and mode == 0 and not data.weighted else None
        linear = data.completed(Fs, mode) if first is None else data.times(first * Fs[1])  # may bring the Gram along
        G = data.sums.gram_of_others(Fs, mode)
        G, sums = G if data.peak == 1 else G * data.peak, WHOLE if mode else data.sums
        if weight is None:
            return Block(quads=(Quad(G),), linear_minus=linear, sums=sums)
        return Block(quads=(Quad(weight * G),), linear_minus=weight * linear if first is None else linear, sums=sums)

    def overrelaxed(self) -> "Fit":
        """Return the same term, of weighted data with blocks that have about the curvature of the objective."""
        return OverrelaxedFit(self.data, self.modes) if type(self) is Fit and self.data.relaxes else self

    def value(self, factors: Factors) -> Tensor:
        """Compute the distance from products that are kept, or summed anew where entries have weights."""
        return self.value_from(factors, 0)

    def value_from(self, factors: Factors, mode: int) -> Tensor:
        """Compute the same from the MTTKRP of a mode, e.g. the one with which the next sweep begins."""
        return self.data.distance_sq([factors[m] for m in self.modes], mode)

    def direct(self, factors: Factors) -> Tensor:
        """Sum the residual itself: this needs all entries of the model, and nothing cancels."""
        return self.data.residual_sq([factors[m] for m in self.modes])

    def magnitude(self) -> Tensor:
        """Return `||X||^2`."""
        return self.data.sqnorm()


def sketch_term(term: Term, rank: int, seed: int) -> Term:
    """Return a term of a sketch of the data, where that saves time; else the term itself."""
    data = sketch_of(term.data, rank, seed) if type(term) is Fit else None
    return term if data is None else Fit(data, cast(Fit, term).modes)


class OverrelaxedFit(Fit):
    """`sum w (x - y)^2` whose blocks touch it, but do not majorise it: their curvature is that of a mean entry.

    The majoriser of `Fit`, in which hidden entries count like others, makes steps that are short by the share of those
    that count (successive overrelaxation; Salakhutdinov and Roweis 2003 for such bounds).
    """

    def block(self, factors: Factors, name: str, weight: Tensor | None = None) -> Block:
        """Return the linear part, of any sign, and the Gram times `mean_curvature` of the data."""
        data, Fs, mode = cast(Weighted, self.data), [factors[m] for m in self.modes], self.modes.index(name)
        curvature = mean_curvature(data)
        linear = data.completed(Fs, mode, curvature)  # may bring the Gram along
        G = data.sums.gram_of_others(Fs, mode) * curvature
        if weight is not None:
            G, linear = weight * G, weight * linear
        return Block(quads=(Quad(G),), linear_minus=linear, sums=WHOLE if mode else data.sums)


@dataclass(frozen=True, eq=False)
class WeightedFit(Fit):
    """`weight ||X - [[V, U1, ...]]||^2`: one of several tensors that share factors, each with a weight."""

    stacks_data: ClassVar[bool] = False  # weights of data sets differ, and so does what counts as rounding
    weight: WeightLike = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weight(self)

    def block(self, factors: Factors, name: str, weight: Tensor | None = None) -> Block:
        """Return the weighted block of `Fit`."""
        own = per_column(self.weight, factors, factors[name])[..., :1]
        return super().block(factors, name, own if weight is None else own * weight)

    def value_from(self, factors: Factors, mode: int) -> Tensor:
        """Weigh the distance."""
        return self._of(factors) * super().value_from(factors, mode)

    def direct(self, factors: Factors) -> Tensor:
        """Weigh the sum of the residual itself."""
        return self._of(factors) * super().direct(factors)

    def magnitude(self) -> Tensor:
        """Return `weight ||X||^2`; with weights that differ between problems, `||X||^2`."""
        size = super().magnitude()
        return size * self.weight if isinstance(self.weight, int | float) else size

    def _of(self, factors: Factors) -> Tensor:
        return per_column(self.weight, factors, factors[self.modes[0]])[..., 0, 0].double()
