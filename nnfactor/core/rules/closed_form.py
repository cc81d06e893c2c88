"""Minimisers in closed form: unconstrained least squares, coefficients of labels, view weights on the simplex."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..block import Block, Design, Quad
from ..factors import as_factor, multiply_columns
from ..linalg import project_simplex, pseudo_inverse, where_finite


def unconstrained(F: Tensor, block: Block) -> Tensor:
    """Minimise over factors of any sign: `(linear_minus - linear_plus) G^+`, G the net Gram (Jiang et al. 2014, Eq. 4).

    In float64. Directions of G below k eps of the largest count as empty. Where leaving them out would raise the
    objective (a component that is tiny, not absent), F keeps its part in them: the rule is monotone.
    """
    if not block.quadratic or any(q.row_matrix is not None for q in block.quads):
        raise ValueError(
            "unconstrained solves for a factor with Gram matrices and column weights only; use 'multiplicative'"
        )
    G, net = _net_gram(block, F), block.net_linear()
    B = torch.zeros_like(F, dtype=torch.float64) if net is None else net.double()
    P = pseudo_inverse(G)
    new = multiply_columns(B.expand_as(F), P)
    gradient = multiply_columns(F.double(), G) - B
    step = new - F
    rise = (step * (2 * gradient + multiply_columns(step, G))).sum((-2, -1), keepdim=True)
    return as_factor(torch.where(rise > 0, F - multiply_columns(gradient, P), new).to(F.dtype))


def least_squares(F: Tensor, block: Block) -> Tensor:
    """Minimise `||A F - b||^2 + sum_i d_i ||f_i||^2`, any sign: `Labels` on W, with L21 or L2 on its rows.

    It is W of Jiang et al. 2014, Eqs. 13-15, with A = sqrt(beta) V_l, b = sqrt(beta) Y and d the diagonal of gamma E.

    By one orthogonal triangularisation of [A b; sqrt(d) 0] in float64, never by normal equations. With penalties on the
    rows the minimiser is unique; sqrt(d) is at least the rounding of A, so that it is always finite. Without penalties
    it is the one of minimum norm.
    """
    designs = [q.row_matrix for q in block.quads if isinstance(q.row_matrix, Design)]
    ridges = [q for q in block.quads if not isinstance(q.row_matrix, Design)]
    if not designs or any(q.couples_rows or q.mixes_columns for q in ridges):
        raise ValueError(
            "least_squares solves for the coefficients of Labels, with L2 or L21 on them; use 'unconstrained'"
        )
    n = F.shape[-2]
    R = torch.linalg.qr(_stack_designs(F, designs, ridges), mode="r").R
    if ridges:
        solved = torch.linalg.solve_triangular(R[..., :n, :n], R[..., :n, n:], upper=True)
    else:
        solved = where_finite(R, lambda R: torch.linalg.pinv(R[..., :n]) @ R[..., n:])
    return as_factor(solved.to(F.dtype))


def _stack_designs(F: Tensor, designs: Sequence[Any], ridges: Sequence[Quad]) -> Tensor:
    """Form [A b; sqrt(d) 0], `(..., r (+ n), n + C)`, in float64."""
    parts = [torch.cat((d.A.double(), d.b.double()), -1) for d in designs]
    if ridges:
        eps, least = torch.finfo(torch.float64).eps, torch.finfo(torch.float64).tiny
        size = reduce(torch.maximum, (torch.linalg.matrix_norm(d.A, keepdim=True) for d in designs))
        weights = reduce(torch.add, (q.column_matrix[..., :1].double() * q.row_sums(F) for q in ridges))
        root = torch.maximum(weights.sqrt(), size.double() * eps).clamp(min=least).expand_as(F[..., :1])
        parts.append(pad(torch.diag_embed(root.squeeze(-1)), (0, F.shape[-1])))
    return torch.cat(parts, -2)


def simplex(F: Tensor, block: Block) -> Tensor:
    """Minimise `lam ||f||^2 + <c, f>` over nonnegative rows f of sum 1 (Jiang et al. 2014, Eq. 28).

    It is the Euclidean projection of `-c / (2 lam)`; lam is the weight of an `L2` on F. With lam = 0 everything goes to
    the smallest c, the first of equals.
    """
    if any(q.mixes_columns or q.couples_rows for q in block.quads):
        raise ValueError("simplex takes one weight for all columns (an L2 term) and linear parts")
    net = block.net_linear()
    c = torch.zeros_like(F, dtype=torch.float64) if net is None else (-2 * net.double()).expand_as(F)
    parts = [2 * q.sign * q.row_sums(F) * q.column_matrix[..., :1].double() for q in block.quads]
    two_lam = reduce(torch.add, parts) if parts else c.new_zeros(1, 1)  # (..., rows or 1, 1)
    lowest, first = c.min(-1, keepdim=True)
    shifted = (lowest - c) / torch.where(two_lam > 0, two_lam, 1)  # at most 0; -inf by overflow is allowed
    f = torch.where(two_lam > 0, project_simplex(shifted), torch.zeros_like(c).scatter_(-1, first, 1))
    return as_factor((f / f.sum(-1, keepdim=True)).to(F.dtype))


def _net_gram(block: Block, F: Tensor) -> Tensor:
    """Add Gram matrices, and weights on the diagonal, with their signs: float64 `(..., k, k)`."""
    k = F.shape[-1]
    total = F.new_zeros(k, k, dtype=torch.float64)
    for q in block.quads:
        G = q.column_matrix.double()
        total = total + q.sign * (G if G.shape[-2] == k else torch.diag_embed(G.squeeze(-2)))
    return total
