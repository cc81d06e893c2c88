"""The M-matrix rule: the systems of the graphs are solved, everything else is majorised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import cast

import torch
from torch import Tensor

from ..block import Block, Quad
from ..cache import tiny
from ..factors import cached_flat, flatten_batch, match_order, unflatten_batch
from ..graph.graph import Graph
from ..linalg import conjugate_gradients
from .base import require_quadratic
from .multiplicative import multiplicative


def m_matrix(
    F: Tensor, block: Block, cg: int = 4, sweeps: int = 1, tol: float | None = None, max_cg: int = 10_000
) -> Tensor:
    """Solve the systems of the graphs and majorise everything else by `diag(gradient_plus / F)` (Yang et al. 2008).

    For every column the minimiser of the majoriser solves `(diag(gradient_plus / F) - S) x = linear_minus`, S the
    weighted graphs: an M-matrix. With s = sqrt(F / gradient_plus) and x = s w it becomes
    `(1 - s S s) w = s linear_minus`: the diagonal is one, and zero entries are no special case. All columns of all
    problems are solved at once, from F on.

    Parameters
    ----------
    cg : int
        Conjugate gradient steps. Then negative entries are clamped, which never raises the majoriser. On the ORL faces
        (alpha = 100) 3, 4, 5 and 8 steps needed 43, 41, 40 and 40 iterations to a common objective.
    sweeps : int
        Jacobi sweeps after that; at least one after CG, or clamped entries would stay zero. `cg=0, sweeps=1` is the
        rule `multiplicative`.
    tol, max_cg : float, int, optional
        For reference solutions: CG to this relative residual in every column, in `max_cg` steps at most (reads the
        host), instead of `cg` steps.
    """
    require_quadratic(block, "m_matrix")
    coupled = [q for q in block.quads if q.sign < 0 and isinstance(q.row_matrix, Graph) and not q.mixes_columns]
    if not coupled:
        return multiplicative(F, block)
    F = match_order(F, block.linear_minus)
    plus, x = flatten_batch(block.gradient_plus(F)), cached_flat(F)
    linear_minus = flatten_batch(block.without(coupled).gradient_minus(F).expand_as(F))
    graphs = _combine_graphs(coupled, F)
    t = x / (plus + tiny(x.dtype))
    y = _solve_graphs(x, plus, t.sqrt(), linear_minus, graphs, cg, tol, max_cg) if cg or tol is not None else x
    for _ in range(sweeps):
        y = t * (linear_minus + graphs(y))
    return unflatten_batch(torch.where(plus > 0, y, x), F)


def _combine_graphs(coupled: Sequence[Quad], F: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function `sum_q S_q z cols_q` of row-major z `(n, B k)`, S_q the graph of quad q."""
    (*batch, n, k), b = F.shape, prod(F.shape[:-2])
    parts = [
        (
            cast(Graph, q.row_matrix),
            q.columns or slice(0, k),
            q.column_matrix.expand(*batch, 1, q.column_matrix.shape[-1]).reshape(b, -1),
        )
        for q in coupled
    ]
    parts.sort(key=lambda part: part[1].start)
    ends = [columns.stop for _, columns, _ in parts]
    tiled = [columns.start for _, columns, _ in parts] == [0, *ends[:-1]] and ends[-1] == k

    def apply(z: Tensor) -> Tensor:
        if tiled and b == 1:  # every column belongs to one graph: each writes where its columns are
            total = torch.empty_like(z)
            for graph, columns, c in parts:
                graph.product(z[:, columns], out=total[:, columns]).mul_(c)
            return total
        z = z.view(n, b, k)
        total = torch.zeros_like(z)
        for graph, columns, c in parts:
            product = graph.product(z[..., columns].flatten(1)).view(n, b, columns.stop - columns.start)
            total[..., columns].addcmul_(product, c)
        return total.view(n, b * k)

    return apply


def _solve_graphs(
    x: Tensor, plus: Tensor, s: Tensor, linear_minus: Tensor, graphs: Callable, cg: int, tol: float | None, max_cg: int
) -> Tensor:
    """Solve `(1 - s S s) w = s linear_minus` by CG from w = x / s, column by column; return `s w` clamped at 0."""
    w = (x * plus).sqrt_()
    target = s * linear_minus
    residual = torch.addcmul(target, s, graphs(x)).sub_(w)
    product = lambda p: torch.addcmul(p, s, graphs(s * p), value=-1)
    enough = None if tol is None else tol**2 * target.square().sum(0)
    w, _ = conjugate_gradients(product, w, residual, cg if tol is None else max_cg, enough)
    return w.mul_(s).clamp_(min=0)
