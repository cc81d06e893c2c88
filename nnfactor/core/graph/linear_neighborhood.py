"""Weights that reconstruct samples from their nearest neighbours: linear neighbourhoods (Wang and Zhang 2008)."""

import scipy.sparse as sp
import torch
from torch import Tensor

from ..linalg import solve_spd
from .neighbors import BUDGET, Pairs, Points

TIE = 1e-10  # of the mean squared distance: makes weights unique where several reconstruct a sample equally well

ROUNDING = 1e-14  # of the mean squared distance: a multiplier that is smaller has no sign


def reconstruction_weights(points: Points, pairs: Pairs) -> sp.csr_array:
    """Return W `(n, n)`: row i minimises `||x_i - sum_j w_ij x_j||^2` over its p near samples, w >= 0 with the sum 1.

    `pairs` lists p others for every sample. Of weights that reconstruct equally well (more neighbours than dimensions,
    duplicates) those of nearly the least length are taken. The only sample has no weight.
    """
    i, j, _ = pairs
    n, p = points.n, len(i) // points.n
    if p == 0:
        return sp.csr_array((n, n))
    here, near = (torch.from_numpy(side).to(points.device).view(n, p) for side in (i, j))
    step = max(1, BUDGET // (p * max(p, points.X.shape[1])))
    grams = (points.local_grams(a, b) for a, b in zip(here[:, 0].split(step), near.split(step), strict=True))
    weights = torch.cat([_nearest_combination(G) for G in grams]).cpu().numpy()
    return sp.csr_array((weights.ravel(), (i, j)), shape=(n, n))


def _nearest_combination(G: Tensor) -> Tensor:
    """Return `min w' G w` over w >= 0 with the sum 1, for every matrix of G `(c, p, p)`, by Wolfe's active set.

    Each round finds the best point of the plane through the chosen corners. Where it lies outside, the way there ends
    at the border and a corner leaves; else the corner with the most negative multiplier comes in, or the row is done.
    """
    size = G.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
    eye = torch.eye(G.shape[1], dtype=G.dtype, device=G.device)
    G = torch.where(size > 0, G / torch.where(size > 0, size, 1), eye) + TIE * eye
    nearest = G.diagonal(dim1=1, dim2=2).argmin(1)
    w = torch.nn.functional.one_hot(nearest, G.shape[1]).to(G)
    chosen, todo = w > 0, torch.arange(len(G), device=G.device)
    for _ in range(50 * G.shape[1]):  # one in and one out at a time: far more than any row needs
        if not len(todo):
            break
        P, now, part = chosen[todo], w[todo], G[todo]
        z = solve_spd(torch.where(P[:, :, None] & P[:, None, :], part, eye), P.to(G).unsqueeze(-1)).squeeze(-1) * P
        target = z / z.sum(1, keepdim=True)
        beyond = P & (target <= 0)
        share = torch.where(beyond, now / torch.where(beyond, now - target, 1), 1).amin(1, keepdim=True)
        moved = (now + share * (target - now)).clamp(min=0)
        outside = beyond.any(1, keepdim=True)
        left = outside & P & (moved <= ROUNDING)
        slope = (part @ moved.unsqueeze(-1)).squeeze(-1)
        gain = (moved * slope).sum(1, keepdim=True) - slope
        best = torch.where(P, -torch.inf, gain).max(1, keepdim=True)
        enters = ~outside & (best.values > ROUNDING)
        w[todo] = torch.where(left, 0, moved)
        chosen[todo] = (P & ~left) | torch.zeros_like(P).scatter(1, best.indices, enters)
        todo = todo[(outside | enters).squeeze(1)]
    return w / w.sum(1, keepdim=True)
