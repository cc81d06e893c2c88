"""Coefficients of samples on fixed bases: nonnegative least squares, unconstrained, and other divergences."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import repeat
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..block import Block, Quad
from ..cache import tiny
from ..data.base import Data, slices
from ..data.weighted import Weighted
from ..factors import (
    as_factor,
    clone_factor,
    divide,
    gram,
    khatri_rao,
    multiply_transposed,
    select_rows,
    write_rows,
)
from ..linalg import pseudo_inverse, solve_spd
from ..rules.hals import hals
from ..rules.multiplicative import multiplicative
from ..terms.base import Term, add_blocks
from ..terms.beta import BetaFit

CHUNK = 1 << 23  # entries of the masked systems held at once
TIE = 1e-10  # raises a unit diagonal: residuals grow by as little, and rounding moves coefficients by 1e-6
STRETCH, LONGER = 10, 1.9  # multiplicative steps between two looks at the rows, and how far they go
HESSIANS = 1 << 19  # numbers whose products are the Hessians of some rows, held at once
NEWTON, PIVOTS, HALVINGS = 50, 10, 40  # steps at most, active sets in each, and halvings of it
NEAR = 0.01  # relative change of the model in a step, below which the next changes are far smaller
LIFT = 1e-3  # zeros of a start become this share of one that knows the sum of a row only: else they would stay


def nnls(G: Tensor, B: Tensor, max_rounds: int = 100) -> Tensor:
    """`min x' G x - 2 b' x` over x >= 0 for every row b of B: nonnegative least squares from its normal equations.

    `G (k, k)` is the Gram matrix of the bases, or `(n, k, k)` one for each row, `B (n, k)` the data against them; the
    answer is `(n, k)`, float64. A zero basis column gets coefficient 0. Block principal pivoting (Kim and Park 2011),
    all rows at once, started from coordinate descent; a row that does not settle (nearly dependent bases) is solved by
    `scipy.optimize.nnls`. Where the minimisers are many (dependent bases), it is nearly the shortest of them, whatever
    the other rows are.
    """
    G, B = G.double(), B.double()
    d = G.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    dead = d == 0
    unit = divide(divide(G, d.unsqueeze(-1).expand_as(G)), d.unsqueeze(-2).expand_as(G))
    B = torch.where(dead, 0, B / torch.where(dead, 1, d))
    G, B = _break_ties(unit + torch.diag_embed(dead.double()), B)
    step = max(1, CHUNK // max(1, G.shape[-1] ** 2))
    grams = G.split(step) if G.dim() == 3 else repeat(G)
    scaled = torch.cat([_pivot(g, rows, max_rounds) for g, rows in zip(grams, B.split(step), strict=False)])
    return torch.where(dead, 0, scaled / torch.where(dead, 1, d))


def _break_ties(G: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Make the answer unique where G, of unit diagonal, is singular to rounding; else nothing changes.

    Rounding of B across the range of G would decide among the minimisers: it is taken out, and the diagonal is raised.
    """
    if not bool(torch.isfinite(G).all()):
        return G, B
    k = G.shape[-1]
    values, vectors = torch.linalg.eigh(G)
    within = values > k * torch.finfo(G.dtype).eps * values[..., -1:]
    singular = ~within.all(-1)
    if not bool(singular.any()):
        return G, B
    span = vectors * within.unsqueeze(-2)
    projected = (
        multiply_transposed(B @ span, span) if G.dim() == 2 else _multiply_rows(_multiply_rows(B, span), span.mT)
    )
    raised = G + TIE * singular[..., None, None] * torch.eye(k, dtype=G.dtype, device=G.device)
    return raised, torch.where(singular[..., None], projected, B)


def _multiply_rows(B: Tensor, G: Tensor) -> Tensor:
    """Multiply rows `(n, k)` by a matrix `(k, r)`, or each by its own of `(n, k, r)`."""
    return B @ G if G.dim() == 2 else (B.unsqueeze(-2) @ G).squeeze(-2)


def normal_equations(data: Data, bases: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Give `(G, B)` of the least squares of samples on bases, float64, for pieces of the samples in their order.

    `B (r, k)` is the data against the bases, G their Gram `(k, k)`; of weighted data `(r, k, k)`, one for each sample.
    """
    wide, k = [F.double() for F in bases], bases[0].shape[-1]
    like = bases[0].new_empty(data.shape[0], k, dtype=data.dtype)
    B = data.mttkrp([like, *(F.to(data.dtype) for F in bases)], 0).double()
    if not data.weighted:
        yield reduce(torch.mul, map(gram, wide)), B
        return
    Z = khatri_rao(wide)
    for rows in slices(len(B), max(1, CHUNK // k**2)):
        yield cast(Weighted, data).row_grams(Z, rows), B[rows]


def weighted_coefficients(data: Data, bases: Sequence[Tensor], method: str, ridge: float = 0.0) -> Tensor:
    """Compute the sample factor of weighted data by least squares, exactly, float64: every sample has its own Gram."""
    whole = reduce(torch.mul, (gram(F.double()) for F in bases))
    return torch.cat([_solve(G, B, method, ridge, whole) for G, B in normal_equations(data, bases)])


def _solve(G: Tensor, B: Tensor, method: str, ridge: float, whole: Tensor) -> Tensor:
    """Solve one system for each row; `ridge` is relative to the spectrum of the Gram of all features."""
    if method == "nnls":
        return nnls(G, B)
    if method == "pinv":
        return pseudo_inverse_coefficients(G, B)
    lengths = whole.diagonal().clamp(min=0).sqrt()
    lengths = torch.where(lengths > 0, lengths, 1)
    unit = lambda A: A / lengths[:, None] / lengths
    raised = unit(G) + ridge**2 * torch.linalg.eigvalsh(unit(whole))[-1] * torch.eye(
        len(whole), dtype=G.dtype, device=G.device
    )
    return _multiply_rows(B / lengths, torch.linalg.pinv(raised, hermitian=True)) / lengths


def pseudo_inverse_coefficients(G: Tensor, B: Tensor) -> Tensor:
    """`B G^+`: least-squares coefficients without a sign constraint, float64 (the papers' "as in Li et al.").

    `G (k, k)`, or `(n, k, k)`: one for each row of B.
    """
    if G.dim() == 3:
        return _multiply_rows(B.double(), torch.linalg.pinv(G.double(), hermitian=True))
    return B.double() @ pseudo_inverse(G.double())


def coefficients_from(G: Tensor, B: Tensor, method: str) -> Tensor:
    """Solve normal equations by `transform_method`: "nnls", or of any sign."""
    return (nnls if method == "nnls" else pseudo_inverse_coefficients)(G, B)


def normal_block(G: Tensor, B: Tensor) -> Block:
    """Describe `x' G x - 2 b' x` for every row b of B, with one `G (k, k)` or `(n, k, k)`, as a block of the rows."""
    if G.dim() == 3:
        return Block(linear_minus=B, row_grams=G.movedim(0, -1))
    return Block(quads=(Quad(G),), linear_minus=B)


def _pivot(G: Tensor, B: Tensor, max_rounds: int) -> Tensor:
    """Block principal pivoting for one chunk of rows; G has unit diagonal."""
    own = G.dim() == 3  # a Gram for each row
    X = hals(torch.zeros_like(B), normal_block(G, B), sweeps=20)
    start, passive = X.clone(), X > 0
    tol = 1e-12 * B.abs().amax(1, keepdim=True).clamp(min=torch.finfo(B.dtype).tiny)
    todo = torch.arange(len(B), device=B.device)
    fewest, patience = torch.full_like(todo, G.shape[-1] + 1), torch.full_like(todo, 3)
    for _ in range(max_rounds):
        P, b, g = passive[todo], B[todo], G[todo] if own else G
        pairs = P.unsqueeze(-1) & P.unsqueeze(-2)
        masked = torch.where(pairs, g, 0) + torch.diag_embed((~P).double())
        x = solve_spd(masked, torch.where(P, b, 0).unsqueeze(-1)).squeeze(-1)
        wrong = torch.where(P, x < -tol[todo], _multiply_rows(x, g) - b < -tol[todo])
        count = wrong.sum(1)
        X[todo] = x.clamp(min=0)
        better = count < fewest[todo]
        patience[todo] = torch.where(better, 3, patience[todo] - 1)
        fewest[todo] = torch.where(better, count, fewest[todo])
        last = wrong & (wrong.flip(1).cumsum(1).flip(1) == 1)  # Murty's rule: the largest index alone
        passive[todo] = P ^ torch.where((patience[todo] >= 0).unsqueeze(1), wrong, last)
        todo = todo[count > 0]
        if not len(todo):
            return X
    if own:
        X[todo] = torch.cat([_one_by_one(G[i], B[i : i + 1], start[i : i + 1]) for i in todo.tolist()])
    else:
        X[todo] = _one_by_one(G, B[todo], start[todo])
    return X


def _one_by_one(G: Tensor, B: Tensor, start: Tensor) -> Tensor:
    """Lawson and Hanson's active set on the host, for the few rows that pivoting does not settle."""
    from scipy.optimize import nnls as lawson_hanson

    values, vectors = np.linalg.eigh(G.cpu().numpy())
    root = np.sqrt(np.maximum(values, 1e-14 * values.max()))
    A, targets = (vectors * root).T, (B.cpu().numpy() @ vectors) / root
    solved = start.clone()
    for i, target in enumerate(targets):
        try:
            solved[i] = torch.from_numpy(lawson_hanson(A, target)[0]).to(B)
        except RuntimeError:  # no convergence: coordinate descent's answer stands
            solved[i] = hals(start[i : i + 1], normal_block(G, B[i : i + 1]), sweeps=1000)[0]
    return solved


def _of_block(block: Data, bases: Sequence[Tensor], start: Tensor | None, given: tuple[Any, ...]) -> Tensor:
    beta, tol, max_iter, penalties, within = given
    return divergence_coefficients(block, bases, beta, start, tol, max_iter, penalties, within)


def divergence_coefficients(
    data: Data,
    bases: Sequence[Tensor],
    beta: float,
    start: Tensor | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
    penalties: Sequence[Term] = (),
    within: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """`min sum d_beta(X, [[V, U1, ...]])` over V >= 0: convex for 1 <= beta <= 2.

    Plus `penalties` of the factor `"mode 0"`, and `within` bounds of its entries. Kullback-Leibler of dense samples
    with neither is solved by Newton's method, in float64; all else, and rows which that leaves, by the multiplicative
    rule, whose majoriser is a sum over entries, so that its minimiser, clipped, is the one within bounds.

    Without a `start` (n, k) all coefficients of a row begin equal. A row settles when a Newton step, or `STRETCH`
    multiplicative ones, change none of its coefficients by more than `tol` times the largest; it stays as it is, and
    leaves when half of them have: its coefficients do not depend on the batch. `max_iter` are the steps in all. A
    coefficient that becomes NaN or infinite raises a FloatingPointError. Data in blocks are read once.
    """
    if not data.in_memory:
        blocks, given = cast(Any, data).blocks(), (beta, tol, max_iter, penalties, within)
        return torch.cat([_of_block(block, bases, None if start is None else start[at], given) for at, block in blocks])
    ones = torch.ones(data.shape[0], bases[0].shape[1], dtype=data.dtype, device=data.device)
    scale = data.mttkrp([ones, *(torch.ones_like(F) for F in bases)], 0)
    heights = torch.stack([F.sum(0) for F in bases]).prod(0).sum()
    F = scale / torch.where(heights > 0, heights, 1)
    F = F if start is None else torch.maximum(start, LIFT * F)
    V = clone_factor(as_factor(F if within is None else within(F)))
    rows = torch.arange(len(V), device=data.device)  # those that have not settled
    if beta == 1 and not penalties and within is None and not data.weighted:
        rows = _newton_coefficients(data, bases, V, tol, max_iter)
        data = data if len(rows) == len(V) else data.take(rows)
    if len(rows):
        descend = partial(_descend, beta=beta, tol=tol, max_iter=max_iter, penalties=penalties, within=within)
        descend(data, list(map(as_factor, bases)), V, rows)
    bad = int((~V.isfinite()).any(1).sum())
    if bad:
        raise FloatingPointError(f"coefficients of {bad} of {len(V)} samples became NaN or infinite; rescale X")
    return V


def _descend(
    data: Data,
    bases: Sequence[Tensor],
    V: Tensor,
    rows: Tensor,
    beta: float,
    tol: float,
    max_iter: int,
    penalties: Sequence[Term],
    within: Callable[[Tensor], Tensor] | None,
) -> None:
    """Improve some rows of V, those of the data, by the multiplicative rule, in place."""
    modes = tuple(f"mode {b}" for b in range(data.order))
    fit, fixed = BetaFit(data, modes, beta), dict(zip(modes[1:], bases, strict=True))
    F, at = select_rows(V, rows), torch.arange(len(rows), device=data.device)  # where those that go on are in F
    for done in range(0, max_iter, STRETCH):
        before = F
        for _ in range(min(STRETCH, max_iter - done)):
            F = multiplicative(F, add_blocks([fit, *penalties], {modes[0]: F, **fixed}, modes[0]), step=LONGER)
            F = F if within is None else within(F)
        write_rows(V, rows, select_rows(F, at))
        going = ((F - before).abs() > tol * F.amax(1, keepdim=True)).any(1)[at]
        rows, at = rows[going], at[going]
        if not len(rows):
            break
        if 2 * len(rows) <= len(F):  # all the copies together are one of X
            data, F, at = data.take(at), select_rows(F, at), torch.arange(len(rows), device=data.device)
            fit = BetaFit(data, modes, beta)


def _newton_coefficients(data: Data, bases: Sequence[Tensor], V: Tensor, tol: float, max_iter: int) -> Tensor:
    """Improve the sample factor V by Newton's method, in place; return the rows that have not settled."""
    X, Z = data.samples(), khatri_rao([F.double() for F in bases])
    everything, used = torch.arange(len(V), device=V.device), (Z > 0).any(1)
    Z, every = Z[used], bool(used.all())  # the others cost what they cost
    if not isinstance(X, Tensor) or len(Z) < Z.shape[1]:  # too few features to determine coefficients
        return everything
    floor, left = data.largest() * torch.finfo(V.dtype).eps ** 2, []
    for some in slices(len(V), max(1, HESSIANS // max(1, Z.numel()))):
        rows = X[some].flatten(1)
        rows = (rows if every else rows[:, used]).double()
        F, settled = _newton(rows, Z, V[some].double(), tol, min(NEWTON, max_iter), max(floor, tiny(V.dtype)))
        write_rows(V, everything[some], F.to(V.dtype))
        left.append(everything[some][~settled])
    return torch.cat(left)


def _newton(X: Tensor, Z: Tensor, F: Tensor, tol: float, max_iter: int, floor: float) -> tuple[Tensor, Tensor]:
    """Minimise `sum y - x log y`, `y = F Z'`, for every row of F, and tell which rows have settled.

    The Hessian in a row, `Z' diag(x / y^2) Z`, has k^2 numbers, for which float32 is enough: it decides how many steps
    there are, not where they end. A step that is not lower is halved.
    """
    s, done = Z.sum(0), torch.zeros(len(F), dtype=torch.bool, device=F.device)
    narrow = Z.float()
    for _ in range(max_iter):
        Y = (F @ Z.mT).clamp_(min=floor)
        R = X / Y
        plus = R @ Z
        G = ((narrow.mT * (R / Y).float().unsqueeze(1)) @ narrow).double()
        D = _newton_direction(G, s - plus, F)
        t, largest = _step_lengths(X, Y, D @ Z.mT)
        new = (F + t * D).clamp_(min=0)
        finite = new.isfinite().all(1)  # NaN settles nothing
        new = torch.where((finite & ~done).unsqueeze(1), new, F)
        near = (new - F).abs() <= tol * new.amax(1, keepdim=True)
        done = done | (near.all(1) & finite & ((t == 1) & (largest < NEAR)).squeeze(1))
        F = new
        if bool(done.all()):
            break
    return F, done


def _newton_direction(G: Tensor, g: Tensor, F: Tensor) -> Tensor:
    """Minimise `g' d + d' G d / 2` over `d >= -F` for every row.

    Entries that would become negative are moved to zero, and the others once more. Where bases are nearly dependent
    that may go uphill: such rows are solved exactly, and where rounding decides, every entry goes by itself.
    """
    zero, largest = (F <= 0) & (g >= 0), G.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    size = torch.where(largest > 0, largest, 1)  # of the diagonal where an entry stays: what G has, whatever the unit
    D = -F
    for _ in range(PIVOTS):
        free = ~zero
        right = torch.where(free, _multiply_rows(torch.where(zero, F, 0), G) - g, 0)
        masked = torch.where(free.unsqueeze(-1) & free.unsqueeze(-2), G, 0) + torch.diag_embed(size * zero)
        D = torch.where(free, solve_spd(masked, right.unsqueeze(-1)).squeeze(-1), -F)
        low = free & (F + D < 0)
        if not bool(low.any()):
            break
        zero = zero | low
    D = torch.where(F + D < 0, -F, D)
    uphill = _climbs(G, g, D)
    if bool(uphill.any()):
        D[uphill] = nnls(G[uphill], _multiply_rows(F[uphill], G[uphill]) - g[uphill]) - F[uphill]
        uphill = _climbs(G, g, D)
        alone = torch.maximum(divide(-g, torch.diagonal(G, dim1=-2, dim2=-1)), -F)
        D = torch.where(uphill.unsqueeze(1), alone, D)
    return D


def _climbs(G: Tensor, g: Tensor, D: Tensor) -> Tensor:
    """Tell in which rows a step falls by less than a tenth of what its curvature lets expect."""
    return (g * D).sum(1) > -0.1 * (_multiply_rows(D, G) * D).sum(1)


def _step_lengths(X: Tensor, Y: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """Halve steps until `sum y - x log y` has fallen, `(r, 1)`, and give the largest relative change of a y in each.

    No y shrinks below a tenth: near 0 it would double in every further step. Where none changes by more than a third,
    two derivatives tell that the step lowers the divergence, and logarithms are not needed.
    """
    relative, total = change / Y, change.sum(1, keepdim=True)
    relative = torch.where(X > 0, relative, 0)
    least, largest = relative.amin(1, keepdim=True), relative.abs().amax(1, keepdim=True)
    t = (0.9 / (-least).clamp(min=0.9)).clamp(max=1)
    weighted = X * relative
    slope = total - weighted.sum(1, keepdim=True)
    curvature = (weighted * relative).sum(1, keepdim=True)
    if bool(((slope + 0.7 * curvature <= 0) & (largest < 0.3)).all()):
        return t, largest
    noise = torch.finfo(Y.dtype).eps * weighted.abs().sum(1, keepdim=True)
    for _ in range(HALVINGS):
        fall = t * total - (X * torch.log1p(t * relative)).sum(1, keepdim=True)
        rises = ~(fall <= 1e-4 * t * slope + noise)
        if not bool(rises.any()):
            break
        t = torch.where(rises, t / 2, t)
    return t, largest
