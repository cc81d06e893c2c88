"""The M-matrix rule: the systems of the graphs are solved, everything else is majorised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import cast

import torch
from torch import Tensor

from ..block import Block, Quad
from ..cache import tiny
from ..factors import cached_flat, flatten_batch, unflatten_batch
from ..graph.graph import Graph
from ..linalg import conjugate_gradients
from .base import require_quadratic, stored_as_linear
from .multiplicative import multiplicative


def m_matrix(
    F: Tensor, block: Block, cg: int = 4, sweeps: int = 1, tol: float | None = None, max_cg: int = 10_000
) -> Tensor:
    """Graph links exact, everything else majorised by `diag(up / F)` (Yang et al. 2008; paper 002's rival).

    For every column the minimiser of the majoriser solves `(diag(up / F) - links) x = linear_minus`, an M-matrix. With
    s = sqrt(F / gradient_plus) and x = s w it becomes `(1 - s S s) w = s linear_minus`: unit diagonal, and zero entries
    need no case.
    All columns of all problems are solved at once, warm-started at F.

    Parameters
    ----------
    cg : int
        Conjugate gradient steps. On the ORL faces 3, 4, 5 and 8 needed 43, 41, 40 and 40 iterations to a common
        objective (alpha = 100): more are not worth it. Then negative entries are clamped, which never raises the
        majoriser.
    sweeps : int
        Jacobi sweeps after that. At least one after CG: it keeps clamped entries alive. **`cg=0, sweeps=1` is exactly
        `multiplicative`**: the two rivals are one function with a number.
    tol : float, optional
        For reference solutions: CG to this relative residual in every column instead of `cg` steps (reads the host).
    """
    require_quadratic(block, "m_matrix")
    coupled = [q for q in block.quads if q.sign < 0 and isinstance(q.rows, Graph) and not q.mixes_columns]
    if not coupled:
        return multiplicative(F, block)
    F = stored_as_linear(F, block)
    up, x = flatten_batch(block.gradient_plus(F)), cached_flat(F)
    linear_minus = flatten_batch(block.without(coupled).gradient_minus(F).expand_as(F))
    links = _links_on_rows(coupled, F)
    t = x / (up + tiny(x.dtype))
    y = _solve_links(x, up, t.sqrt(), linear_minus, links, cg, tol, max_cg) if cg or tol is not None else x
    for _ in range(sweeps):
        y = t * (linear_minus + links(y))
    return unflatten_batch(torch.where(up > 0, y, x), F)


def _links_on_rows(coupled: Sequence[Quad], F: Tensor) -> Callable[[Tensor], Tensor]:
    """`sum_q links_q z cols_q` for row-major z `(n, B k)`."""
    (*batch, n, k), b = F.shape, prod(F.shape[:-2])
    parts = [
        (cast(Graph, q.rows), q.span or slice(0, k), q.cols.expand(*batch, 1, q.cols.shape[-1]).reshape(b, -1))
        for q in coupled
    ]
    parts.sort(key=lambda part: part[1].start)
    ends = [span.stop for _, span, _ in parts]
    tiled = [span.start for _, span, _ in parts] == [0, *ends[:-1]] and ends[-1] == k

    def apply(z: Tensor) -> Tensor:
        if tiled and b == 1:  # every column belongs to one graph: each writes where its columns are
            total = torch.empty_like(z)
            for links, span, c in parts:
                links.product(z[:, span], out=total[:, span]).mul_(c)
            return total
        z = z.view(n, b, k)
        total = torch.zeros_like(z)
        for links, span, c in parts:
            product = links.product(z[..., span].flatten(1)).view(n, b, span.stop - span.start)
            total[..., span].addcmul_(product, c)
        return total.view(n, b * k)

    return apply


def _solve_links(
    x: Tensor, up: Tensor, s: Tensor, linear_minus: Tensor, links: Callable, cg: int, tol: float | None, max_cg: int
) -> Tensor:
    """CG on `(1 - s links s) w = s linear_minus` from w = x / s, every column by itself; returns `s w` clamped at 0."""
    w = (x * up).sqrt_()
    target = s * linear_minus
    residual = torch.addcmul(target, s, links(x)).sub_(w)
    product = lambda p: torch.addcmul(p, s, links(s * p), value=-1)
    enough = None if tol is None else tol**2 * target.square().sum(0)
    w, _ = conjugate_gradients(product, w, residual, cg if tol is None else max_cg, enough)
    return w.mul_(s).clamp_(min=0)
