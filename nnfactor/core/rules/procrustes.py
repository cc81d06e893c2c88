"""The rule of projections."""

from torch import Tensor

from ..block import Block
from ..slices import Slices


def procrustes(F: Tensor, block: Block, slices: Slices) -> Tensor:
    """Minimise a linear block over orthonormal columns in every slice (Kiers, ten Berge and Bro 1999)."""
    linear = block.net_linear()
    return F if linear is None else slices.polar(linear, F)
