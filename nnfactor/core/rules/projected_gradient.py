"""Accelerated projected gradient."""

import torch
from torch import Tensor

from ..block import Block
from ..factors import as_factor, divide
from .base import bound_curvature, split_gram
from .constraints import Box, Within

POSITIVE = Box()


def projected_gradient(F: Tensor, block: Block, steps: int = 5, within: Within = POSITIVE) -> Tensor:
    """Take accelerated projected gradient steps (Beck and Teboulle 2009; Guan et al. 2012).

    A step is one over a bound of the curvature by row sums (Gershgorin), entry by entry where there is a graph; of a
    core it is the product of bounds by the largest eigenvalues of the modes. A
    problem whose accelerated steps would raise its objective takes the first plain step instead: the rule is monotone.
    `within` is the convex set that F lies in: bounds, fixed entries, rows that sum to one.
    """
    G, rest = split_gram(block, F, "projected", both=True)
    bound = bound_curvature(G.abs().sum(-2, keepdim=True), rest, F)
    if within.couples is not None:
        peak = block.sums.peak if within.couples == -2 and bound.shape[-2] > 1 else lambda most: most
        bound = peak(bound.amax(within.couples, keepdim=True))
    step = divide(torch.ones_like(bound), bound)
    gradient = block.half_gradient(F)
    first = x = within(F - step * gradient)
    y, t = x, 1.0
    for _ in range(steps - 1):
        new = within(y - step * block.half_gradient(y))
        t, before = (1 + (1 + 4 * t * t) ** 0.5) / 2, t
        y, x = new + ((before - 1) / t) * (new - x), new
    rise = ((x - F) * (gradient + block.half_gradient(x))).sum((-2, -1), keepdim=True, dtype=torch.float64)
    rise = block.sums.add(rise)
    return as_factor(torch.where(rise <= 0, x, first))
