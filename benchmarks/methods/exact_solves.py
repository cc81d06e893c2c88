"""Rules for V that nobody should use and every comparison needs: the M-matrix systems solved by dense algebra.

Both solve what `nnfactor.core.m_matrix` solves iteratively, `(diag(up / v_j) - links_j) x_j = pull_j` for every column
j, in its symmetric form with unit diagonal: with s = sqrt(v / up) and x = s w, `(1 - s S s) w = s b`. Zero
entries of V stay zero and need no case; a column whose `up` vanishes stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce

import torch
from torch import Tensor

from nnfactor.core import Block, Graph, Quad, multiplicative
from nnfactor.core.factors import as_factor, divide

Graphs = list[tuple[Tensor, Tensor]]  # adjacencies (n, n) and their weights of the columns (k,)


def inverses(F: Tensor, block: Block) -> Tensor:
    """Every column's system by an explicit inverse, one column after the other: M-matrix NGE as in 2008."""
    return _m_matrix(F, block, _by_inverse)


def cholesky(F: Tensor, block: Block) -> Tensor:
    """All columns' systems as one batch of Cholesky factorisations.

    Raises
    ------
    FloatingPointError
        A system is not positive definite in this precision.
    """
    return _m_matrix(F, block, _by_cholesky)


def _m_matrix(F: Tensor, block: Block, solve: Callable[[Tensor, Graphs, Tensor], Tensor]) -> Tensor:
    coupled = [q for q in block.quads if q.sign < 0 and isinstance(q.row_matrix, Graph) and not q.mixes_columns]
    if not coupled:
        return multiplicative(F, block)
    up = block.gradient_plus(F)
    linear_minus = block.without(coupled).gradient_minus(F)
    s = divide(F, up).sqrt()
    graphs = [(dense(q.row_matrix, F.device, F.dtype), _of_every_column(q, F)) for q in coupled]
    w = solve(s.mT, graphs, (s * linear_minus).mT)
    x = (s * w.mT).clamp_(min=0)
    return as_factor(torch.where(up > 0, x, F))


@lru_cache(maxsize=16)
def dense(links: Graph, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Make the adjacency of a graph a dense matrix, and keep it."""
    return torch.from_numpy(links.toarray()).to(device, dtype)


def _of_every_column(q: Quad, F: Tensor) -> Tensor:
    """Spread the weights of a graph to `(k,)`, 0 in columns that it does not act on."""
    columns = q.columns
    weights = F.new_zeros(F.shape[-1])
    weights[slice(None) if columns is None else columns] = q.column_matrix.squeeze(0)
    return weights


def _by_inverse(s: Tensor, graphs: Graphs, b: Tensor) -> Tensor:
    """`s` and `b` hold one row per column of V."""
    one = torch.eye(s.shape[1], dtype=s.dtype, device=s.device)
    columns = []
    for j in range(len(s)):
        links = reduce(torch.add, (c[j] * S for S, c in graphs))
        columns.append(torch.linalg.inv(one - s[j][:, None] * links * s[j]) @ b[j])
    return torch.stack(columns)


def _by_cholesky(s: Tensor, graphs: Graphs, b: Tensor) -> Tensor:
    """Solve all systems as one batch by Cholesky, because batched LU is unreliable on CPU with several threads."""
    systems = reduce(torch.add, (c[:, None, None] * S for S, c in graphs))
    systems = systems.mul_(s.unsqueeze(-1)).mul_(s.unsqueeze(-2)).neg_()
    systems.diagonal(dim1=-2, dim2=-1).add_(1 + torch.finfo(s.dtype).eps)
    factors, info = torch.linalg.cholesky_ex(systems)
    if bool(info.any()):
        raise FloatingPointError(f"{int((info > 0).sum())} of {len(s)} systems are not positive definite in {s.dtype}")
    return torch.cholesky_solve(b.unsqueeze(-1), factors).squeeze(-1)
