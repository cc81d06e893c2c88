"""Algebra of Tucker models: a core and one factor for each mode, always multiplied mode by mode.

A core `(..., r_0, ..., r_N)` is kept as a factor `(..., r_1 .. r_N, r_0)`: stored component-major it is the core itself
in memory, and rules take it as they take every other factor. No Kronecker product of factors or of Gram matrices is
formed.
"""

from collections.abc import Sequence
from functools import reduce
from math import prod

import torch
from torch import Tensor

from .factors import column_norms

SWEEPS = 3  # of the power iteration behind a bound; any number gives one, more a tighter one


def as_core(F: Tensor, ranks: Sequence[int]) -> Tensor:
    """View the factor that keeps a core `(..., r_1 .. r_N, r_0)` as the core `(..., r_0, ..., r_N)`."""
    return F.mT.unflatten(-1, tuple(ranks[1:]))


def core_factor(core: Tensor, order: int) -> Tensor:
    """Keep a core of so many modes as a factor; a view where the core is contiguous."""
    return core.flatten(core.dim() - order + 1).mT


def multiply_mode(T: Tensor, F: Tensor, mode: int, order: int) -> Tensor:
    """Contract a mode of `T (..., a_0, ..., a_order-1)` with the rows of `F (..., a_mode, c)`, in its place.

    Other modes are never moved: those before are a batch of matrix products, those behind are their columns.
    """
    first = T.dim() - order
    before, after = T.shape[first : first + mode], T.shape[first + mode + 1 :]
    batch = T.shape[:first]
    if not len(after):
        rows = T.reshape(*batch, prod(before), T.shape[-1])
        return (rows @ F).reshape(*F.shape[:-2], *before, F.shape[-1])
    folded = T.reshape(*batch, prod(before), T.shape[first + mode], prod(after))
    product = F.mT.unsqueeze(-3) @ folded
    return product.reshape(*product.shape[:-3], *before, F.shape[-1], *after)


def multiply_modes(T: Tensor, matrices: Sequence[Tensor | None]) -> Tensor:
    """Contract all modes of `T (..., a_0, ..., a_N)` that have a matrix `(..., a, c)`."""
    order = len(matrices)
    for mode, F in enumerate(matrices):
        T = T if F is None else multiply_mode(T, F, mode, order)
    return T


def reconstruct_tucker(factors: Sequence[Tensor], core: Tensor) -> Tensor:
    """Form the tensor `(..., d_0, ..., d_N)` of a core `(..., r_0, ..., r_N)` and factors `(..., d, r)`.

    >>> V, U = torch.tensor([[1.], [2.]]), torch.tensor([[3.], [4.]])
    >>> reconstruct_tucker([V, U], torch.tensor([[10.]])).tolist()
    [[30.0, 40.0], [60.0, 80.0]]
    """
    return multiply_modes(core, [F.mT for F in factors])


def kronecker(factors: Sequence[Tensor]) -> Tensor:
    """Form the Kronecker product `(..., all rows, all columns)`; the first factor's indices run slowest."""
    pair = lambda a, b: (a[..., :, None, :, None] * b[..., None, :, None, :]).flatten(-4, -3).flatten(-2)
    return reduce(pair, factors)


def contract_ends(P: Tensor, factors: Sequence[Tensor], mode: int, last: bool) -> Tensor:
    """Contract `P (..., R, d_0 .. d_m)` with all factors of its group but that of `mode`, from both ends.

    Returns `(..., ranks of the others, d_mode)`: those of the group before R, or behind it where the group is `last`.
    """
    P = P.unflatten(-1, tuple(F.shape[-2] for F in factors))
    order = len(factors) + 1
    for b, F in enumerate(factors):
        P = P if b == mode else multiply_mode(P, F, b + 1, order)
    first = P.dim() - order
    P = P.movedim(first + 1 + mode, -1)
    P = P if last else P.movedim(first, -2)
    return P.flatten(first, -2)


def core_product(core: Tensor, T: Tensor, mode: int, order: int) -> Tensor:
    """Compute the linear part of the factor of a mode, `(..., d_mode, r_mode)`.

    `T (..., ranks of the others, d_mode)` are the data contracted with all other factors.
    """
    return (_unfolded(core, mode, order) @ T).mT


def core_linear(T: Tensor, V: Tensor) -> Tensor:
    """Compute the linear part of the core, kept as a factor, from the `T` of the first mode."""
    return (V.mT @ T.mT).mT


def _unfolded(core: Tensor, mode: int, order: int) -> Tensor:
    first = core.dim() - order
    return core.movedim(first + mode, first).flatten(first + 1)


def core_gram(core: Tensor, grams: Sequence[Tensor], mode: int) -> Tensor:
    """Compute the Gram matrix `(..., r_mode, r_mode)` that the factor of a mode has in a Tucker model."""
    order = len(grams)
    left = multiply_modes(core, [None if b == mode else G for b, G in enumerate(grams)])
    return _unfolded(left, mode, order) @ _unfolded(core, mode, order).mT


def majorise(G: Tensor) -> Tensor:
    """Find a diagonal `(..., k)`, nearly the least, above a positive semidefinite `G (..., k, k) >= 0`.

    For every s > 0 `G <= diag(G s / s)` (Collatz and Wielandt). With s the Perron vector of G at unit diagonal, over
    the root of that diagonal, it is the diagonal of G times one number, the largest eigenvalue of G at unit diagonal.
    """
    diagonal = G.diagonal(dim1=-2, dim2=-1)
    root = torch.where(diagonal > 0, diagonal, 1).sqrt()
    unit = G / root.unsqueeze(-1) / root.unsqueeze(-2)
    s = torch.ones_like(root)
    for _ in range(SWEEPS):
        s = (unit @ s.unsqueeze(-1)).squeeze(-1)
        s = s / s.amax(-1, keepdim=True).clamp(min=torch.finfo(s.dtype).tiny)
        s = s.clamp(min=torch.finfo(s.dtype).eps)  # above zero: then it bounds whatever it is
    return (unit @ s.unsqueeze(-1)).squeeze(-1) / s * root.square()


def bound_lengths(factors: Sequence[Tensor], core: Tensor, apart: float) -> tuple[list[Tensor], Tensor]:
    """Bring the lengths of all columns into `1/apart .. apart` at the cost of the core: the same model.

    With `apart` 1 all columns have length one. Columns of zeros stay, and so does what the core has for them.
    """
    lengths = [column_norms(F) for F in factors]
    times = [torch.where(n > 0, n.clamp(1 / apart, apart) / n, 1) for n in lengths]
    order = len(factors)
    for mode, c in enumerate(times):
        core = core / c.reshape(*c.shape[:-2], *(-1 if b == mode else 1 for b in range(order)))
    return [F * c for F, c in zip(factors, times, strict=True)], core


def sort_modes(factors: Sequence[Tensor], core: Tensor) -> tuple[list[Tensor], Tensor]:
    """Sort the components of every mode by falling length of their slices of the core; equal ones keep their order."""
    order, found = len(factors), []
    first = core.dim() - order
    for mode, F in enumerate(factors):
        others = tuple(first + b for b in range(order) if b != mode)
        sizes = torch.linalg.vector_norm(core.double(), dim=others)
        place = sizes.argsort(dim=-1, descending=True, stable=True)
        found.append(F.take_along_dim(place.unsqueeze(-2), -1))
        at = place.reshape(*place.shape[:-1], *(-1 if b == mode else 1 for b in range(order)))
        core = core.take_along_dim(at, first + mode)
    return found, core


def as_cp(factors: Sequence[Tensor], core: Tensor) -> list[Tensor]:
    """Write a Tucker model as a CP model of `r_1 .. r_N` components, for what knows only those."""
    ranks = [F.shape[-1] for F in factors[1:]]
    V = multiply_mode(core, factors[0].mT, 0, len(factors)).flatten(-len(ranks))
    found = [V.mT.contiguous().mT]
    for b, F in enumerate(factors[1:]):
        before, after = prod(ranks[:b]), prod(ranks[b + 1 :])
        wide = F.mT.unsqueeze(-2).unsqueeze(-4)  # (..., 1, r, 1, d)
        found.append(wide.expand(*F.shape[:-2], before, F.shape[-1], after, F.shape[-2]).flatten(-4, -2).mT)
    return found
