"""The multiplicative rule."""

from __future__ import annotations

from torch import Tensor

from ..block import Block
from ..factors import safe_ratio
from .base import stored_as_linear


def multiplicative(F: Tensor, block: Block, power: float | None = None) -> Tensor:
    """`F * (down / up) ** power`; 0/0 counts as 1, zeros stay zeros.

    `power=None` takes the block's own exponent, for which the rule is proved never to raise the objective
    (Lee and Seung 2001, Fevotte and Idier 2011, Yang and Oja 2011).
    """
    power = block.power if power is None else power
    F = stored_as_linear(F, block)
    ratio = safe_ratio(block.gradient_minus(F), block.gradient_plus(F), fresh=any(q.sign > 0 for q in block.quads))
    return (ratio if power == 1 else ratio.pow_(power)).mul_(F)
