"""The multiplicative rule."""

import torch
from torch import Tensor

from ..block import Block
from ..factors import match_order, safe_ratio


def multiplicative(F: Tensor, block: Block, power: float | None = None, step: float = 1.0) -> Tensor:
    """Multiply F with `(gradient_minus / gradient_plus) ** power`; 0/0 counts as 1, zeros stay zeros.

    `power=None` takes the block's own exponent, for which the rule is proved never to raise the objective
    (Lee and Seung 2001, Fevotte and Idier 2011, Yang and Oja 2011).

    `step` in [1, 2) goes so many times as far in a Kullback-Leibler block, and elsewhere counts as 1. There an entry f
    has the majoriser `g - f r log(g)` times a number, with r the ratio; its minimiser is `g = f r`, and it is no higher
    than at f for g from f to `f (2 r - 1)` if r > 1, and from `f r^2` to f if not. `max(f + step (f r - f),
    (step - 1) f r)` lies there for every r: the objective never rises, at about `1 / step` of the iterations.

    For V of `Fit` and `Laplacian` it is Wang et al. 2009a, Eq. 28: `V *= (M + S V C) / (V G + D V C)`. M is the product
    of the data with the bases (the paper's A_(n) Z_v), G the Hadamard product of their Grams (Z_v' Z_v), L = D - S the
    Laplacian, C the diagonal matrix of its weights for the columns. For a basis it is Eq. 15: see `Laplacian`.
    """
    power = block.power if power is None else power
    F = match_order(F, block.linear_minus)
    plus_is_new = any(q.sign > 0 for q in block.quads)  # then gradient_plus is a new tensor: it may be overwritten
    ratio = safe_ratio(block.gradient_minus(F), block.gradient_plus(F), in_place=plus_is_new)
    least = (ratio if power == 1 else ratio.pow_(power)).mul_(F)
    if step == 1 or power != 1 or block.powers != (0.0, 1.0):
        return least
    longer = torch.lerp(F, least, step)
    return torch.maximum(longer, least.mul_(step - 1), out=longer)
