"""Accelerated projected gradient."""

import torch
from torch import Tensor

from ..block import Block
from ..factors import as_factor, divide
from .base import bound_curvature, split_gram


def projected_gradient(F: Tensor, block: Block, steps: int = 5) -> Tensor:
    """Take accelerated projected gradient steps (Beck and Teboulle 2009; Guan et al. 2012).

    A step is one over a bound of the curvature by row sums (Gershgorin), entry by entry where there is a graph. A
    problem whose accelerated steps would raise its objective takes the first plain step instead: the rule is monotone.
    """
    G, rest = split_gram(block, F, "projected")
    bound = bound_curvature(G.abs().sum(-2, keepdim=True), rest, F)
    step = divide(torch.ones_like(bound), bound)
    gradient = block.half_gradient(F)
    first = x = (F - step * gradient).clamp_(min=0)
    y, t = x, 1.0
    for _ in range(steps - 1):
        new = (y - step * block.half_gradient(y)).clamp_(min=0)
        t, before = (1 + (1 + 4 * t * t) ** 0.5) / 2, t
        y, x = new + ((before - 1) / t) * (new - x), new
    rise = ((x - F) * (gradient + block.half_gradient(x))).sum((-2, -1), keepdim=True, dtype=torch.float64)
    return as_factor(torch.where(rise <= 0, x, first))
