"""Least squares over the simplex: coefficients >= 0 of a given sum, as of abundances."""

from itertools import repeat

import torch
from torch import Tensor

from ..linalg import solve_spd

CHUNK = 1 << 21  # entries of the masked systems held at once
RIDGE = 1e-12  # of the largest diagonal entry: makes the answer unique where bases are dependent


def simplex_coefficients(G: Tensor, B: Tensor, total: float = 1.0) -> Tensor:
    """Solve `min x' G x - 2 b' x` over x >= 0 with `sum x = total`, for every row b of B, exactly: `(n, k)`, float64.

    `G` is `(k, k)`, or `(n, k, k)` one for each row. The active set method of Lawson and Hanson (1974), with a
    multiplier for the sum (fully constrained least squares, Heinz and Chang 2001), many rows at once.
    """
    G, B = G.double(), B.double()
    step = max(1, CHUNK // B.shape[1] ** 2)
    grams = G.split(step) if G.dim() == 3 else repeat(G)
    return torch.cat([_solve(g, b, total) for g, b in zip(grams, B.split(step), strict=False)])


def _solve(G: Tensor, B: Tensor, total: float) -> Tensor:
    """Solve for some rows."""
    n, k = B.shape
    size = G.diagonal(dim1=-2, dim2=-1).amax(-1)
    ridge = RIDGE * torch.where(size > 0, size, 1)  # bases that are zero: equal coefficients
    G = G + ridge[..., None, None] * torch.eye(k, dtype=G.dtype, device=G.device)
    own = G.dim() == 3
    diagonal = G.diagonal(dim1=-2, dim2=-1)
    first = (total * diagonal - 2 * B).argmin(-1, keepdim=True)  # the best vertex
    X = torch.zeros_like(B).scatter_(1, first, total)
    passive = X > 0
    tol = 1e-11 * (B.abs().amax(1) + total * size).clamp(min=torch.finfo(B.dtype).tiny)
    todo = torch.arange(n, device=B.device)
    for _ in range(20 * k + 20):
        P, b, g, x = passive[todo], B[todo], G[todo] if own else G, X[todo]
        masked = torch.where(P.unsqueeze(-1) & P.unsqueeze(-2), g, 0) + torch.diag_embed((~P).double())
        solved = solve_spd(masked, torch.stack((torch.where(P, b, 0), P.double()), -1))
        multiplier = (solved[..., 0].sum(-1) - total) / solved[..., 1].sum(-1)
        z = torch.where(P, solved[..., 0] - multiplier[:, None] * solved[..., 1], 0)
        below = P & (z < 0)
        inside = ~below.any(1)
        share = torch.where(below, x / (x - z).clamp(min=torch.finfo(B.dtype).tiny), torch.inf).amin(1).clamp(max=1)
        x = torch.where(inside[:, None], z, (x + share[:, None] * (z - x)).clamp(min=0))
        gains = b - (x.unsqueeze(-2) @ g).squeeze(-2) - multiplier[:, None]
        best, entering = torch.where(P, -torch.inf, gains).max(1)
        better = inside & (best > tol[todo])
        leaves = below & (x <= 1e-14 * total) & ~inside[:, None]
        P = (P & ~leaves).scatter(1, entering[:, None], (P.gather(1, entering[:, None]) | better[:, None]))
        passive[todo], X[todo] = P, torch.where(P | inside[:, None], x, 0)
        todo = todo[better | ~inside]
        if not len(todo):
            break
    return X * (total / X.sum(1, keepdim=True))
