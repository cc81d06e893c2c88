"""Least squares over the simplex: coefficients >= 0 of a given sum, as of abundances."""

from itertools import repeat

import torch
from torch import Tensor

from ..linalg import solve_spd
from ..rules.hals import hals
from .nnls import normal_block

CHUNK = 1 << 21  # entries of the masked systems held at once
RIDGE = 1e-12  # of the largest diagonal entry: makes the answer unique where bases are dependent
ROUNDS = 30  # of exchanges of whole sets; most rows settle in three
PATIENCE = 3  # exchanges in a row that leave as many entries wrong


def simplex_coefficients(G: Tensor, B: Tensor, total: float = 1.0) -> Tensor:
    """Solve `min x' G x - 2 b' x` over x >= 0 with `sum x = total`, for every row b of B, exactly: `(n, k)`, float64.

    `G` is `(k, k)`, or `(n, k, k)` one for each row. Block principal pivoting (Kim and Park 2011) with a multiplier for
    the sum (fully constrained least squares, Heinz and Chang 2001), many rows at once; rows that do not settle are
    solved by the active set method of Lawson and Hanson (1974).
    """
    G, B = G.double(), B.double()
    step = max(1, CHUNK // B.shape[1] ** 2)
    grams = G.split(step) if G.dim() == 3 else repeat(G)
    return torch.cat([_solve(g, b, total) for g, b in zip(grams, B.split(step), strict=False)])


def _solve(G: Tensor, B: Tensor, total: float) -> Tensor:
    """Solve for some rows."""
    size = G.diagonal(dim1=-2, dim2=-1).amax(-1)
    ridge = RIDGE * torch.where(size > 0, size, 1)  # bases that are zero: equal coefficients
    G = G + ridge[..., None, None] * torch.eye(B.shape[1], dtype=G.dtype, device=G.device)
    tol = 1e-11 * (B.abs().amax(1) + total * size).clamp(min=torch.finfo(B.dtype).tiny)
    X, todo = _exchange(G, B, total, tol)
    if len(todo):
        X[todo] = _active_set(G[todo] if G.dim() == 3 else G, B[todo], total, tol[todo])
    return X * (total / X.sum(1, keepdim=True))


def _exchange(G: Tensor, B: Tensor, total: float, tol: Tensor) -> tuple[Tensor, Tensor]:
    """Exchange all entries with a wrong sign at once; return the answers, and the rows that did not settle."""
    own = G.dim() == 3
    X = _descend(G, B, total)
    passive = X > 0
    todo = torch.arange(len(B), device=B.device)
    fewest, patience = torch.full_like(todo, B.shape[1] + 1), torch.full_like(todo, PATIENCE)
    for _ in range(ROUNDS):
        P, b, g = passive[todo], B[todo], G[todo] if own else G
        z, gains = _solve_passive(g, b, P, total)
        wrong = torch.where(P, z < -1e-12 * total, gains > tol[todo, None])
        count = wrong.sum(1)
        X[todo] = z.clamp(min=0)
        better = count < fewest[todo]
        patience[todo] = torch.where(better, PATIENCE, patience[todo] - 1)
        fewest[todo] = torch.where(better, count, fewest[todo])
        P = P ^ wrong
        alone = torch.nn.functional.one_hot(gains.argmax(1), B.shape[1]).bool()  # one must hold the sum
        passive[todo] = torch.where(P.any(1, keepdim=True), P, alone)
        todo = todo[(count > 0) & (patience[todo] > 0)]
        if not len(todo):
            break
    return X, (fewest > 0).nonzero()[:, 0]


def _descend(G: Tensor, B: Tensor, total: float, sweeps: int = 10) -> Tensor:
    """Descend along the coordinates with a penalty on the sum: nearly the right entries are zero then."""
    k = B.shape[1]
    weight = G.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return hals(torch.full_like(B, total / k), normal_block(G + weight, B + total * weight.squeeze(-1)), sweeps)


def _solve_passive(G: Tensor, B: Tensor, P: Tensor, total: float) -> tuple[Tensor, Tensor]:
    """Solve with the entries in P alone, of the right sum; return that, and the gain of half a unit of every entry."""
    masked = torch.where(P.unsqueeze(-1) & P.unsqueeze(-2), G, 0) + torch.diag_embed((~P).double())
    solved = solve_spd(masked, torch.stack((torch.where(P, B, 0), P.double()), -1))
    multiplier = (solved[..., 0].sum(-1) - total) / solved[..., 1].sum(-1)
    z = torch.where(P, solved[..., 0] - multiplier[:, None] * solved[..., 1], 0)
    return z, B - (z.unsqueeze(-2) @ G).squeeze(-2) - multiplier[:, None]


def _active_set(G: Tensor, B: Tensor, total: float, tol: Tensor) -> Tensor:
    """Solve by the method of Lawson and Hanson, an entry at a time, from the best vertex."""
    n, k = B.shape
    own = G.dim() == 3
    diagonal = G.diagonal(dim1=-2, dim2=-1)
    first = (total * diagonal - 2 * B).argmin(-1, keepdim=True)
    X = torch.zeros_like(B).scatter_(1, first, total)
    passive = X > 0
    todo = torch.arange(n, device=B.device)
    for _ in range(20 * k + 20):
        P, b, g, x = passive[todo], B[todo], G[todo] if own else G, X[todo]
        z, gains = _solve_passive(g, b, P, total)
        below = P & (z < 0)
        inside = ~below.any(1)
        share = torch.where(below, x / (x - z).clamp(min=torch.finfo(B.dtype).tiny), torch.inf).amin(1).clamp(max=1)
        x = torch.where(inside[:, None], z, (x + share[:, None] * (z - x)).clamp(min=0))
        best, entering = torch.where(P, -torch.inf, gains).max(1)
        better = inside & (best > tol[todo])
        leaves = below & (x <= 1e-14 * total) & ~inside[:, None]
        P = (P & ~leaves).scatter(1, entering[:, None], (P.gather(1, entering[:, None]) | better[:, None]))
        passive[todo], X[todo] = P, torch.where(P | inside[:, None], x, 0)
        todo = todo[better | ~inside]
        if not len(todo):
            break
    return X
