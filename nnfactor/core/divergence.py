"""Beta-divergences entry by entry (Fevotte and Idier 2011): the loss, and the two ratios its gradient is made of."""

import numpy as np
import torch
from torch import Tensor


def loss(x: Tensor, y: Tensor, beta: float) -> Tensor:
    """`d_beta(x, y)` for `y > 0`; `0 log 0 = 0`; beta = 2 is `(x - y)^2`, twice the usual, as "frobenius"."""
    if beta == 2:
        return (x - y).square()
    if beta == 1:
        ratio, least = x / y, torch.finfo(y.dtype).tiny  # `xlogy` takes twice as long as a floor and a logarithm
        if ratio.requires_grad:
            return x * ratio.clamp(min=least).log() - x + y
        return _log_in_place(ratio.clamp_(min=least)).mul_(x).sub_(x).add_(y)  # new tensors cost more than sums
    if beta == 0:
        return x / y - (x / y).log() - 1
    return (x.pow(beta) + (beta - 1) * y.pow(beta) - beta * x * y.pow(beta - 1)) / (beta * (beta - 1))


def _log_in_place(Z: Tensor) -> Tensor:
    """Compute logarithms over their arguments: on few threads numpy's take a third of the time of torch's."""
    if type(Z) is Tensor and Z.is_cpu and torch.get_num_threads() < 4:
        np.log(Z.numpy(), out=Z.numpy())
        return Z
    return Z.log_()


def ratios(x: Tensor, y: Tensor, beta: float) -> tuple[Tensor, Tensor | None]:
    """`x y^(beta-2)` and `y^(beta-1)` for `y > 0` (0 as well if beta = 3); for beta = 1 the second, 1, is left out.

    `y` belongs to this function: the first may be written over it, where a new tensor costs more than the division.
    """
    if beta == 2:
        return x.expand_as(y), y
    if beta == 1:
        return torch.div(x, y, out=None if y.requires_grad else y), None
    if beta == 0:
        inverse = y.reciprocal()
        return x * inverse * inverse, inverse
    if beta == 3:  # a product, also for y = 0
        return x * y, y.square()
    linear_plus = y.pow(beta - 1)
    return x * (linear_plus / y), linear_plus


def powers(beta: float) -> tuple[float, float]:
    """Lowest and highest power of a factor in the majoriser of `d_beta`; 0 stands for the logarithm.

    The multiplicative rule minimises it in closed form with exponent 1 / (highest - lowest) (Yang and Oja 2011), which
    is 1 / (2 - beta) below 1, 1 in [1, 2], 1 / (beta - 1) above 2 (Fevotte and Idier 2011).
    """
    return min(beta - 1, 1.0), max(beta, 1.0)
