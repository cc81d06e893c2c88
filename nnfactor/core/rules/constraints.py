"""Sets that a factor must lie in, as the projections on them: rules take them beside the block."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..block import Block
from ..factors import as_factor, column_norms
from ..linalg import project_simplex


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds of entries, `lower <= f <= upper`: numbers, or tensors of the shape of the factor; equal ones fix it."""

    lower: Any = 0.0
    upper: Any = torch.inf
    couples: ClassVar[int | None] = None  # no entries: every one may have a step of its own

    @property
    def identity(self) -> Hashable:
        """Equal for equal sets: their problems may run as one batch."""
        return type(self), *map(_content, (self.lower, self.upper))

    def __call__(self, F: Tensor) -> Tensor:
        """Return the nearest factor within the bounds, a new tensor."""
        if isinstance(self.lower, Tensor) or isinstance(self.upper, Tensor):
            F = F.clamp(min=self.lower) if isinstance(self.lower, Tensor) else F.clamp(min=float(self.lower))
            return F.clamp(max=self.upper) if isinstance(self.upper, Tensor) else F.clamp(max=float(self.upper))
        return F.clamp(self.lower, None if self.upper == torch.inf else self.upper)

    def fixed(self) -> bool:
        """Tell whether every entry is fixed."""
        return isinstance(self.lower, Tensor) and isinstance(self.upper, Tensor) and torch.equal(self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Simplex:
    """Rows of nonnegative entries that sum to one: abundances, shares."""

    couples: ClassVar[int | None] = -1  # the entries of a row, which share a step
    identity: ClassVar[Hashable] = "simplex"

    def __call__(self, F: Tensor) -> Tensor:
        """Return the nearest such factor, in float64 and then exact to rounding."""
        nearest = project_simplex(F.double())
        return as_factor((nearest / nearest.sum(-1, keepdim=True)).to(F.dtype))


@dataclass(frozen=True, eq=False)
class UnitColumns:
    """Nonnegative columns of length one at most: then a penalty on another factor cannot vanish as that one shrinks."""

    norms: Callable[[Tensor], Tensor] = column_norms  # of the columns, over the rows of all processes
    couples: ClassVar[int | None] = -2  # the entries of a column
    identity: ClassVar[Hashable] = "unit columns"

    def __call__(self, F: Tensor) -> Tensor:
        """Return the nearest such factor."""
        F = F.clamp(min=0)
        return F / self.norms(F).clamp(min=1)


Within = Box | Simplex | UnitColumns


def stay_within(within: Within, F: Tensor, block: Block) -> Tensor:
    """Project a factor, as a rule to follow one whose entries have majorisers of their own."""
    return within(F)


def _content(bound: Any) -> Hashable:
    """Return what is equal for equal bounds: of a tensor a digest of its entries."""
    if not isinstance(bound, Tensor):
        return float(bound)
    return tuple(bound.shape), bound.dtype, blake2b(bound.cpu().numpy().tobytes()).digest()
