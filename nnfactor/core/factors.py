"""Batched tensor algebra for CP models, equal to TensorLy's where TensorLy has the same function.

A factor is `(..., rows, k)`; leading dimensions are a batch of independent problems. Factors are best stored
component-major, `(..., k, rows)` in memory and seen through `.mT`, and everything here keeps that order. Only a single
problem's factors of sparse data are better row-major: a sparse product takes and gives rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import torch
from torch import Tensor

from .cache import cached, tiny


def unfold(X: Tensor, mode: int, order: int | None = None) -> Tensor:
    """Mode-`mode` unfolding `(..., d_mode, product of the other d)`, the other modes in their order.

    `order` is the number of trailing dimensions that belong to the tensor (default: all of them); the dimensions
    before are a batch. TensorLy's `unfold` for one tensor.

    >>> unfold(torch.arange(6).reshape(1, 2, 3), 2).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    order = X.dim() if order is None else order
    batch = X.shape[: X.dim() - order]
    return X.movedim(len(batch) + mode, len(batch)).reshape(*batch, X.shape[len(batch) + mode], -1)


def fold(M: Tensor, mode: int, shape: Sequence[int]) -> Tensor:
    """The inverse of `unfold`: `(..., d_mode, rest)` back to `(..., *shape)`."""
    batch = M.shape[:-2]
    others = [d for b, d in enumerate(shape) if b != mode]
    return M.reshape(*batch, shape[mode], *others).movedim(len(batch), len(batch) + mode)


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Column-wise Kronecker product `(..., product of rows, k)`; the first factor's index runs slowest."""
    return reduce(lambda a, b: (a.mT.unsqueeze(-1) * b.mT.unsqueeze(-2)).flatten(-2).mT, factors)


def mttkrp(X: Tensor, factors: Sequence[Tensor], mode: int) -> Tensor:
    """Unfolded tensor times Khatri-Rao of all factors but one: `(..., d_mode, k)`.

    `X` is one tensor of `len(factors)` dimensions, or a batch of them with the factors' batch dimensions in front.
    This is the plain form for any caller; the solvers use the two-group form of `core.data.Dense`.
    """
    others = [F for b, F in enumerate(factors) if b != mode]
    return unfold(X, mode, len(factors)) @ khatri_rao(others) if others else X.unsqueeze(-1)


def reconstruct(factors: Sequence[Tensor], weights: Tensor | None = None) -> Tensor:
    """The tensor `(..., d_1, ..., d_r)` that CP factors stand for; `weights` is `(..., k)` or absent.

    >>> a, b = torch.tensor([[1.], [2.]]), torch.tensor([[3.], [4.]])
    >>> reconstruct([a, b]).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    first = factors[0] if weights is None else factors[0] * weights.unsqueeze(-2)
    if len(factors) == 1:
        return first.sum(-1)
    cut = even_split([F.shape[-2] for F in factors])
    left, right = khatri_rao([first, *factors[1:cut]]), khatri_rao(factors[cut:])
    return (left @ right.mT).reshape(*first.shape[:-2], *(F.shape[-2] for F in factors))


def even_split(shape: Sequence[int]) -> int:
    """Where to cut a list of dimensions in two so that the larger product is as small as possible."""
    return min(range(1, len(shape)), key=lambda s: max(prod(shape[:s]), prod(shape[s:])))


def gram(F: Tensor) -> Tensor:
    """`F'F`, `(..., k, k)`; remembered for as long as F lives, because every term that needs it asks again."""
    return cached(F, _gram)


def _gram(F: Tensor) -> Tensor:
    *batch, n, k = F.shape
    worth = F.is_cpu and not batch and n * k * k > 2**24 and not F.requires_grad
    return _gram_by_panels(F.mT) if worth else F.mT @ F


def _gram_by_panels(A: Tensor, width: int = 64) -> Tensor:
    """`A A'` without the products above the diagonal: up to a third of the time less for large k."""
    k = A.shape[0]
    G = A.new_empty(k, k)
    for start in range(0, k, width):
        stop = start + width
        torch.mm(A[start:], A[start:stop].mT, out=G[start:, start:stop])
        if stop < k:
            G[start:stop, stop:].copy_(G[stop:, start:stop].mT)
    return G


def column_norms(F: Tensor) -> Tensor:
    """Euclidean norm of every column, `(..., 1, k)`, safe from overflow and underflow of the squares."""
    peak = torch.maximum(F.amax(-2, keepdim=True), -F.amin(-2, keepdim=True))
    return peak * torch.linalg.vector_norm(_over(F, peak), dim=-2, keepdim=True)


def divide(a: Tensor, b: Tensor) -> Tensor:
    """`a / b` for `b >= 0`, and 0 where `b` is 0."""
    return torch.where(b > 0, _over(a, b), 0)


def normalize_columns(factors: Sequence[Tensor]) -> list[Tensor]:
    """Columns of all factors but the first at length one, their norms moved into the first; the product is unchanged.

    A zero column stays zero; a component with one keeps the first factor's column as it is.
    """
    norms = [column_norms(F) for F in factors[1:]]
    total = reduce(torch.mul, norms)
    return [factors[0] * torch.where(total > 0, total, 1), *map(_over, factors[1:], norms)]


def _over(a: Tensor, b: Tensor) -> Tensor:
    """`a / b` for `b >= 0`, and `a` where `b` is 0: one pass where b has a number for a column."""
    return a / torch.where(b > 0, b, 1)


def as_factor(F: Tensor) -> Tensor:
    """The same factor, stored `(..., k, rows)` contiguous and seen through `.mT`."""
    return F.mT.contiguous().mT


def row_major(F: Tensor) -> bool:
    """Whether a factor is that of a single problem and stored row by row."""
    return F.dim() == 2 and F.shape[1] > 1 and F.stride(1) == 1


def multiply_columns(F: Tensor, G: Tensor) -> Tensor:
    """`F G` for a symmetric `G (..., k, k)`, in the memory order of F."""
    return F @ G if row_major(F) else (G @ F.mT).mT


def multiply_batch(X: Tensor, F: Tensor, onto: Tensor | None = None) -> Tensor:
    """`X @ F` for one matrix `X` and every problem of a batch, as one product of `B k` rows, component-major.

    Added to `onto`, component-major, in place if that is given: a new tensor costs more than the addition.
    """
    *batch, rows, k = F.shape
    flat = F.mT.reshape(-1, rows)
    if onto is None:
        return (flat @ X.mT).view(*batch, k, -1).mT
    onto.mT.view(len(flat), -1).addmm_(flat, X.mT)
    return onto


def safe_ratio(down: Tensor, up: Tensor, fresh: bool = False) -> Tensor:
    """`down / up` with 0/0 = 1 and no infinity, without a comparison (those cost several divisions on CPU).

    `fresh` says that `up` belongs to the caller and may be written to: a new tensor costs more than the division.
    """
    ratio = torch.div(down, up, out=up) if fresh else down / up
    return ratio.nan_to_num_(nan=1.0, posinf=1 / tiny(ratio.dtype))


def contract_others(P: Tensor, factors: Sequence[Tensor], at: int) -> Tensor:
    """`(..., d0 d1 .., k)` summed against all factors of its group but the one at `at`, from both ends."""
    P = P.mT
    for F in factors[:at]:
        P = (F.mT.unsqueeze(-2) @ P.unflatten(-1, (F.shape[-2], -1))).squeeze(-2)
    for F in reversed(factors[at + 1 :]):
        P = (P.unflatten(-1, (-1, F.shape[-2])) @ F.mT.unsqueeze(-1)).squeeze(-1)
    return P.mT


def multiply_column_sums(factors: Sequence[Tensor], mode: int) -> Tensor:
    """The push of beta = 1: `(..., 1, k)`, the same for every row."""
    return reduce(torch.mul, (F.sum(-2, keepdim=True) for b, F in enumerate(factors) if b != mode))


def flatten_batch(F: Tensor) -> Tensor:
    """A factor `(..., n, k)` as one row-major matrix `(n, B k)`: every column of every problem is alike to a graph."""
    return F.movedim(-2, 0).reshape(F.shape[-2], -1).contiguous()


def cached_flat(F: Tensor, span: slice | None = None) -> Tensor:
    """`to_rows` of all columns or some; the turned copy is kept for as long as F lives: several graphs ask for it."""
    rows = cached(F, flatten_batch)
    if span is None:
        return rows
    return rows[:, span] if F.dim() == 2 else rows.view(F.shape[-2], -1, F.shape[-1])[..., span].flatten(1)


def unflatten_batch(rows: Tensor, like: Tensor) -> Tensor:
    """Back from `to_rows`: `(n, B k)` to the shape of `like`; component-major, or in rows where `like` is."""
    return rows if row_major(like) else rows.mT.contiguous().view(*like.shape[:-2], like.shape[-1], -1).mT


def square_norms(F: Tensor) -> Tensor:
    """Squared lengths of the columns, `(..., 1, k)`: the diagonal of the Gram that the fit needs anyway."""
    return cached(F, _square_norms)


def _square_norms(F: Tensor) -> Tensor:
    return gram(F).diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
