"""The multiplicative rule."""

from torch import Tensor

from ..block import Block
from ..factors import match_order, safe_ratio


def multiplicative(F: Tensor, block: Block, power: float | None = None) -> Tensor:
    """Multiply F with `(gradient_minus / gradient_plus) ** power`; 0/0 counts as 1, zeros stay zeros.

    `power=None` takes the block's own exponent, for which the rule is proved never to raise the objective
    (Lee and Seung 2001, Fevotte and Idier 2011, Yang and Oja 2011).

    For V of `Fit` and `Laplacian` it is Wang et al. 2009a, Eq. 28: `V *= (M + S V C) / (V G + D V C)`. M is the product
    of the data with the bases (the paper's A_(n) Z_v), G the Hadamard product of their Grams (Z_v' Z_v), L = D - S the
    Laplacian, C the diagonal matrix of its weights for the columns. For a basis it is Eq. 15: see `Laplacian`.
    """
    power = block.power if power is None else power
    F = match_order(F, block.linear_minus)
    plus_is_new = any(q.sign > 0 for q in block.quads)  # then gradient_plus is a new tensor: it may be overwritten
    ratio = safe_ratio(block.gradient_minus(F), block.gradient_plus(F), in_place=plus_is_new)
    return (ratio if power == 1 else ratio.pow_(power)).mul_(F)
