"""Sets that a factor must lie in, as the projections on them: rules take them beside the block."""

from dataclasses import dataclass
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

    def __call__(self, F: Tensor) -> Tensor:
        """Return the nearest factor within the bounds, a new tensor."""
        return torch.minimum(torch.maximum(F, _like(self.lower, F)), _like(self.upper, F))

    def fixed(self) -> bool:
        """Tell whether every entry is fixed."""
        return isinstance(self.lower, Tensor) and isinstance(self.upper, Tensor) and torch.equal(self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Simplex:
    """Rows of nonnegative entries that sum to one: abundances, shares."""

    couples: ClassVar[int | None] = -1  # the entries of a row, which share a step

    def __call__(self, F: Tensor) -> Tensor:
        """Return the nearest such factor, in float64 and then exact to rounding."""
        nearest = project_simplex(F.double())
        return as_factor((nearest / nearest.sum(-1, keepdim=True)).to(F.dtype))


@dataclass(frozen=True, eq=False)
class UnitColumns:
    """Nonnegative columns of length one at most: then a penalty on another factor cannot vanish as that one shrinks."""

    couples: ClassVar[int | None] = -2  # the entries of a column

    def __call__(self, F: Tensor) -> Tensor:
        """Return the nearest such factor."""
        F = F.clamp(min=0)
        return F / column_norms(F).clamp(min=1)


Within = Box | Simplex | UnitColumns


def stay_within(within: Within, F: Tensor, block: Block) -> Tensor:
    """Project a factor, as a rule to follow one whose entries have majorisers of their own."""
    return within(F)


def _like(bound: Any, F: Tensor) -> Tensor:
    return bound if isinstance(bound, Tensor) else torch.as_tensor(bound, dtype=F.dtype, device=F.device)
