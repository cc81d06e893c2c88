"""Codes over a few atoms of their own for every sample: interior point steps, then the active set; batched.

The Frisch-Newton method of Portnoy and Koenker (1997) with Mehrotra's corrector, in float64. All problems of a batch
have the same number W of atoms; D is `(n, W, m)`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ..core.factors import divide

INSIDE = 0.995  # share of the step to the boundary: on it the next system would be singular


def relative_gap(values: Tensor, bounds: Tensor) -> Tensor:
    """Compute (value - bound) / value, at least 0; 0 for a value of 0."""
    return divide((values - bounds).clamp(min=0), values)


def value_codes(D: Tensor, x: Tensor, a: Tensor) -> Tensor:
    """Compute ||a||_1 + ||x - D'a||_1 of every problem, (n,)."""
    return a.abs().sum(1) + (x - _combine(D, a)).abs().sum(1)


def _combine(D: Tensor, a: Tensor) -> Tensor:
    return (a.unsqueeze(1) @ D).squeeze(1)


def _against(D: Tensor, y: Tensor) -> Tensor:
    return (D @ y.unsqueeze(-1)).squeeze(-1)


class _Point(NamedTuple):
    """State of the interior point method. (e, a) = p - q; u and v are the room of (y, D y) to 1 and to -1."""

    D: Tensor
    x: Tensor
    y: Tensor
    p: Tensor
    q: Tensor
    u: Tensor
    v: Tensor
    at: Tensor


def solve_interior(D: Tensor, x: Tensor, y: Tensor, a: Tensor, tol: float, max_iter: int = 30) -> tuple[Tensor, Tensor]:
    """Solve for codes on W atoms each, D (n, W, m), from an interior y and any a; codes that are done leave the batch.

    An iteration costs W^2 m operations per sample; reading the gaps once in each is nothing beside that.
    """
    z, s = torch.cat([x - _combine(D, a), a], 1), torch.cat([y, _against(D, y)], 1)
    value = z.abs().sum(1)
    mu = ((value - (x * y).sum(1)).clamp(min=1e-9 * value) / z.shape[1]).unsqueeze(1)
    lift = mu / torch.minimum(1 - s, 1 + s)
    at = torch.arange(len(x), device=D.device)
    state = _Point(D, x, y, z.clamp(min=0) + lift, (-z).clamp(min=0) + lift, 1 - s, 1 + s, at)
    best_a, best_y, best_gap = a.clone(), y.clone(), torch.full_like(value, torch.inf)
    for _ in range(max_iter):
        a = (state.p - state.q)[:, state.x.shape[1] :]
        value = value_codes(state.D, state.x, a)
        gap = relative_gap(value, (state.x * state.y).sum(1))
        at = state.at[better := gap < best_gap[state.at]]  # False for NaN
        best_a[at], best_y[at], best_gap[at] = a[better], state.y[better], gap[better]
        going = gap > tol
        count = int(going.sum())
        if count == 0:
            break
        if 2 * count <= len(going):
            state = _Point(*(part[going] for part in state))
        state = _newton(state)
    return best_a, best_y


def _newton(S: _Point) -> _Point:
    """Take one predictor-corrector step; systems that break down stay where they are."""
    D, x, m = S.D, S.x, S.x.shape[1]
    z = S.p - S.q
    off = (x - _combine(D, z[:, m:])) - z[:, :m]  # rounding of e, taken back in every step
    theta = S.p / S.u + S.q / S.v
    te, ta = theta[:, :m], theta[:, m:]
    R = D * te.rsqrt().unsqueeze(1)
    unit = (R.square().sum(2) + 1 / ta).rsqrt()
    R *= unit.unsqueeze(2)
    G = R @ R.mT
    G.diagonal(dim1=-2, dim2=-1).fill_(1)
    L, info = torch.linalg.cholesky_ex(G)

    def direction(cp: Tensor | float, cq: Tensor | float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h = cp / S.u - S.p - cq / S.v + S.q
        he, ha = off - h[:, :m], h[:, m:]
        rhs = unit * (ha / ta + _against(D, he / te))
        da = unit * torch.cholesky_solve(rhs.unsqueeze(-1), L).squeeze(-1)
        dy = (he - _combine(D, da)) / te
        ds = torch.cat([dy, _against(D, dy)], 1)
        return dy, ds, cp / S.u - S.p + S.p / S.u * ds, cq / S.v - S.q - S.q / S.v * ds

    _, ds, dp, dq = direction(0.0, 0.0)
    dual, primal = _reach(S.u, -ds, S.v, ds), _reach(S.p, dp, S.q, dq)
    mu = (S.p * S.u + S.q * S.v).mean(1, keepdim=True) / 2
    ahead = (S.p + primal * dp) * (S.u - dual * ds) + (S.q + primal * dq) * (S.v + dual * ds)
    centre = (ahead.mean(1, keepdim=True) / 2 / mu) ** 3 * mu
    dy, ds, dp, dq = direction(centre + dp * ds, centre - dq * ds)
    dual, primal = _reach(S.u, -ds, S.v, ds, INSIDE), _reach(S.p, dp, S.q, dq, INSIDE)
    sound = (info == 0).unsqueeze(1) & torch.isfinite(dual * primal * dy.sum(1, keepdim=True))
    move = lambda old, step, d: torch.where(sound, old + step * d, old)
    p, q, u, v = move(S.p, primal, dp), move(S.q, primal, dq), move(S.u, dual, -ds), move(S.v, dual, ds)
    return _Point(D, x, move(S.y, dual, dy), p, q, u, v, S.at)


def _reach(s: Tensor, ds: Tensor, t: Tensor, dt: Tensor, part: float = 1.0) -> Tensor:
    """Find the longest step <= 1, (n, 1), that keeps s and t positive, shortened to `part` of it."""
    room = lambda x, dx: torch.where(dx < 0, -x / dx, torch.inf).amin(1, keepdim=True)
    return (part * torch.minimum(room(s, ds), room(t, dt))).clamp(max=1)


def solve_active_set(D: Tensor, x: Tensor, a: Tensor, y: Tensor, reach: float) -> tuple[Tensor, Tensor, Tensor]:
    """Restrict `a` to the atoms in use; find the corner (a, y) nearby: e = 0 if y is unsaturated, D y = sign(a) in use.

    Smallest corrections in the sense of least squares, by iterated Tikhonov steps: one Cholesky factor serves both,
    and dependent atoms need no case.
    """
    unit = reach * x.abs().mean(1, keepdim=True)
    e, c = x - _combine(D, a), _against(D, y)
    atoms = a.abs() > unit * (1 - c.abs())
    features = e.abs() < unit * (1 - y.abs())
    M = D * atoms.unsqueeze(-1) * features.unsqueeze(1)
    G = M @ M.mT
    scale = G.diagonal(dim1=-2, dim2=-1).amax(1)
    G.diagonal(dim1=-2, dim2=-1).add_(torch.where(scale > 0, 1e-13 * scale, 1).unsqueeze(1))
    G.diagonal(dim1=-2, dim2=-1).add_((~atoms).to(G.dtype))
    L, info = torch.linalg.cholesky_ex(G)
    solve = lambda r: torch.cholesky_solve(r.unsqueeze(-1), L).squeeze(-1)
    a, sign = a * atoms, a.sign() * atoms
    cut = a
    saturated = torch.where(features, y, torch.where(e == 0, y, e.sign()))
    for _ in range(8):
        a = a + solve(_against(M, x - _combine(D, a)))
        saturated = saturated + _combine(M, solve((sign - _against(D, saturated)) * atoms))
    sound = (info == 0).unsqueeze(1) & torch.isfinite(a.sum(1, keepdim=True) + saturated.sum(1, keepdim=True))
    return cut, torch.where(sound, a, 0), torch.where(sound, saturated, 0)
