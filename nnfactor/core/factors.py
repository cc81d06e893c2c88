"""Algebra of factors, and the only file that knows how a factor is stored.

A factor is `(..., rows, k)`; leading dimensions are a batch of independent problems. It is stored component-major,
`(..., k, rows)` in memory and seen through `.mT`: a component is contiguous, and a batch of B problems is one matrix of
B k rows. Functions here keep that order; terms, rules and models call them and never transpose a factor themselves.

A single problem with sparse data is the exception: its factors stay row-major, because a sparse product reads and
writes rows. Component-major ones made an iteration 9 to 54 % longer (one thread of an AMD EPYC, 0.1 to 5 % nonzeros).

`unfold`, `fold`, `khatri_rao`, `mttkrp` and `reconstruct` equal TensorLy's functions of these names.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import torch
from torch import Tensor

from .cache import cached, tiny


def unfold(X: Tensor, mode: int, order: int | None = None) -> Tensor:
    """Unfold a tensor along a mode: `(..., d_mode, product of the other d)`, the other modes in their order.

    The last `order` dimensions belong to the tensor (default: all of them); those before are a batch.

    >>> unfold(torch.arange(6).reshape(1, 2, 3), 2).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    order = X.dim() if order is None else order
    batch = X.shape[: X.dim() - order]
    return X.movedim(len(batch) + mode, len(batch)).reshape(*batch, X.shape[len(batch) + mode], -1)


def fold(M: Tensor, mode: int, shape: Sequence[int]) -> Tensor:
    """Undo `unfold`: `(..., d_mode, rest)` back to `(..., *shape)`."""
    batch = M.shape[:-2]
    others = [d for b, d in enumerate(shape) if b != mode]
    return M.reshape(*batch, shape[mode], *others).movedim(len(batch), len(batch) + mode)


def khatri_rao(factors: Sequence[Tensor]) -> Tensor:
    """Form the column-wise Kronecker product `(..., product of rows, k)`; the first factor's index runs slowest."""
    return reduce(lambda a, b: (a.mT.unsqueeze(-1) * b.mT.unsqueeze(-2)).flatten(-2).mT, factors)


def mttkrp(X: Tensor, factors: Sequence[Tensor], mode: int) -> Tensor:
    """Multiply an unfolded tensor with the Khatri-Rao product of all factors but one: `(..., d_mode, k)`.

    `X` has `len(factors)` dimensions behind those of a batch. The solvers use the two-group form of `core.data`.
    """
    others = [F for b, F in enumerate(factors) if b != mode]
    return unfold(X, mode, len(factors)) @ khatri_rao(others) if others else X.unsqueeze(-1)


def reconstruct(factors: Sequence[Tensor], weights: Tensor | None = None) -> Tensor:
    """Form the tensor `(..., d_1, ..., d_r)` that CP factors stand for; `weights` is `(..., k)` or absent.

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
    """Find where to cut a list of dimensions in two so that the larger product is as small as possible."""
    return min(range(1, len(shape)), key=lambda s: max(prod(shape[:s]), prod(shape[s:])))


def gram(F: Tensor) -> Tensor:
    """Compute `F'F`, `(..., k, k)`; it is kept for as long as F lives, because several terms ask for it."""
    return cached(F, _gram)


def _gram(F: Tensor) -> Tensor:
    *batch, n, k = F.shape
    if batch or not F.is_cpu or n * k * k <= 2**24 or F.requires_grad:
        return F.mT @ F
    G, width = F.new_empty(k, k), 64  # panels without the products above the diagonal: for large k up to a third faster
    for start in range(0, k, width):
        stop = start + width
        torch.mm(F.mT[start:], F[:, start:stop], out=G[start:, start:stop])
        if stop < k:
            G[start:stop, stop:].copy_(G[stop:, start:stop].mT)
    return G


def gram_of_others(factors: Sequence[Tensor], mode: int) -> Tensor:
    """Multiply the Grams of all factors but one, `(..., k, k)`: the Gram of a CP model in the factor of `mode`."""
    return reduce(torch.mul, [gram(F) for b, F in enumerate(factors) if b != mode])


def square_norms(F: Tensor) -> Tensor:
    """Compute squared lengths of the columns, `(..., 1, k)`: the diagonal of the Gram that the fit needs anyway."""
    return cached(F, _square_norms)


def _square_norms(F: Tensor) -> Tensor:
    return gram(F).diagonal(dim1=-2, dim2=-1).unsqueeze(-2)


def column_norms(F: Tensor) -> Tensor:
    """Compute the Euclidean norm of every column, `(..., 1, k)`, without overflow or underflow of the squares."""
    peak = torch.maximum(F.amax(-2, keepdim=True), -F.amin(-2, keepdim=True))
    return peak * torch.linalg.vector_norm(_over(F, peak), dim=-2, keepdim=True)


def divide(a: Tensor, b: Tensor) -> Tensor:
    """Divide by `b >= 0`; the quotient is 0 where `b` is 0."""
    return torch.where(b > 0, _over(a, b), 0)


def column_sums(F: Tensor) -> Tensor:
    """Sum the absolute values of every column, `(..., 1, k)`."""
    return torch.linalg.vector_norm(F, 1, dim=-2, keepdim=True)


def normalize_columns(
    factors: Sequence[Tensor], norms_of: Callable[[Tensor], Tensor] = column_norms, dead: float = 1.0
) -> list[Tensor]:
    """Bring columns of all factors but the first to norm one and multiply the first with their norms.

    The model is unchanged. A zero column stays zero, and its component's column of the first factor is taken `dead`
    times: as it is, or 0, which is what `transform` gives for it.
    """
    norms = [norms_of(F) for F in factors[1:]]
    total = reduce(torch.mul, norms)
    return [factors[0] * torch.where(total > 0, total, dead), *map(_over, factors[1:], norms)]


def sort_components(factors: Sequence[Tensor], first_norms: Callable[[Tensor], Tensor] = column_norms) -> list[Tensor]:
    """Sort components by falling energy, the product of their columns' lengths; equal ones keep their order.

    `first_norms` measures the columns of the first factor, of whose rows others may hold some.
    """
    first, *others = factors
    sizes = reduce(torch.mul, [norms.double() for norms in (first_norms(first), *map(column_norms, others))])
    order = sizes.argsort(dim=-1, descending=True, stable=True)
    return [as_factor(F.take_along_dim(order, -1)) for F in factors]


def _over(a: Tensor, b: Tensor) -> Tensor:
    """Divide by `b >= 0`; the quotient is `a` where `b` is 0. One pass, where b has one number for a column."""
    return a / torch.where(b > 0, b, 1)


def as_factor(F: Tensor) -> Tensor:
    """Return the matrix `(..., rows, k)` in the order in which factors are stored; F itself if it has that order."""
    return F.mT.contiguous().mT


def clone_factor(F: Tensor) -> Tensor:
    """Return a copy in the order in which factors are stored: a tensor of its own that may be written to."""
    return F.mT.clone(memory_format=torch.contiguous_format).mT


def zero_factor(rows: int, like: Tensor) -> Tensor:
    """Return a factor of zeros `(..., rows, k)` with the batch, columns, dtype and device of another one."""
    return like.new_zeros(*like.shape[:-2], like.shape[-1], rows).mT


def draw_factor(rows: int, k: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw a float64 factor of |normal| numbers, component by component; on the CPU: the same for all devices."""
    return torch.randn(k, rows, generator=generator, dtype=torch.float64, device=generator.device).abs_().to(device).mT


def select_rows(F: Tensor, index: Tensor) -> Tensor:
    """Return some rows of a factor, `(..., r, k)`."""
    return F.index_select(-2, index) if is_row_major(F) else F.mT.index_select(-1, index).mT


def write_rows(F: Tensor, index: Tensor, values: Tensor) -> None:
    """Overwrite some rows of a component-major factor with `values (..., r, k)`, in place."""
    F.mT.index_copy_(-1, index, values.mT)


def add_to_rows(F: Tensor, index: Tensor, values: Tensor, alpha: int = 1) -> None:
    """Add `alpha` times `values (..., r, k)` to some rows of a factor, in place; rows named twice get both."""
    values = values.expand(*F.shape[:-2], *values.shape[-2:])
    if is_row_major(F):
        F.index_add_(-2, index, values, alpha=alpha)
    else:
        F.mT.index_add_(-1, index, values.mT, alpha=alpha)


def concatenate(factors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join factors: their problems `(B, rows, k)` (dim = 0) or their rows (-2)."""
    return torch.cat([F.mT for F in factors], dim=-1 if dim == -2 else dim).mT


def stack_problems(factors: Sequence[Tensor]) -> Tensor:
    """Return factors `(rows, k)` of several problems as a batch `(B, rows, k)`."""
    return torch.stack([F.mT for F in factors]).mT


def pad_columns(F: Tensor, missing: int) -> Tensor:
    """Append zero columns to a factor."""
    return torch.cat([F.mT, F.new_zeros(*F.shape[:-2], missing, F.shape[-2])], dim=-2).mT


def choose(first: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Take each problem's factor from `new` where `first (...)` is true, else from `old`.

    Whole problems are copied: on the CPU several times faster than `torch.where`. There the answers are at hand: what
    is the same for all needs no copy, and of a copy only the other problems are written again.
    """
    if first.numel() == 1 and at_hand(first):
        return new if first else old
    *batch, n, k = new.shape
    if at_hand(first):
        others = first.logical_not().reshape(-1).nonzero().squeeze(-1)
        if len(others) in (0, first.numel()):
            return old if len(others) else new
        copy, flat = clone_factor(new), (-1, k * n)
        copy.mT.view(flat).index_copy_(0, others, old.mT.reshape(flat).index_select(0, others))
        return copy
    pair = torch.cat([old.mT.reshape(-1, k * n), new.mT.reshape(-1, k * n)])
    size = first.numel()
    index = first.reshape(-1) * size + torch.arange(size, device=first.device)
    return pair.index_select(0, index).view(*batch, k, n).mT


def at_hand(answers: Tensor) -> bool:
    """Tell whether answers can be read without waiting for a device."""
    return type(answers) is Tensor and answers.is_cpu


def components(F: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return `(..., n, k)`, scaled, as `(B, k, n)`, of a single problem as `(k, n)`; a view where that is possible."""
    return flatten_problems((F if scale is None else F * scale).mT)


def flatten_problems(M: Tensor) -> Tensor:
    """Return matrices `(..., a, b)` as `(B, a, b)`, a single one as `(a, b)`; a view where that is possible."""
    M = M if M.dim() == 2 else M.reshape(-1, *M.shape[-2:])
    return M[0] if M.dim() == 3 and len(M) == 1 else M


def match_order(F: Tensor, other: Tensor | None) -> Tensor:
    """Return the factor in the memory order of another one of the same shape; F itself if it has that order."""
    if other is None or other.shape != F.shape or is_row_major(F) == is_row_major(other):
        return F  # the very tensor: products with it are kept
    return as_factor(F) if is_row_major(F) else cached_flat(F)


def is_row_major(F: Tensor) -> bool:
    """Tell whether a factor is that of a single problem and stored row by row."""
    return F.dim() == 2 and F.shape[1] > 1 and F.stride(1) == 1


def multiply_columns(F: Tensor, G: Tensor) -> Tensor:
    """Compute `F G` for a symmetric `G (..., k, k)`, in the memory order of F."""
    return F @ G if is_row_major(F) else (G @ F.mT).mT


def multiply_transposed(A: Tensor, B: Tensor) -> Tensor:
    """Compute `A B'` for `A (..., n, c)` and `B (..., k, c)`: a factor `(..., n, k)`."""
    return (B @ A.mT).mT


def outer_weights(rows: Tensor, columns: Tensor, like: Tensor) -> Tensor:
    """Multiply weights of rows `(..., n, 1)` and of columns `(..., 1, k)`, in the memory order of a factor."""
    return rows * columns if is_row_major(like) else (columns.mT * rows.mT).mT


def multiply_batch(X: Tensor, F: Tensor) -> Tensor:
    """Compute `X @ F` for one matrix `X` and every problem of a batch, as one product of `B k` rows."""
    *batch, rows, k = F.shape
    return (F.mT.reshape(-1, rows) @ X.mT).view(*batch, k, -1).mT


def safe_ratio(a: Tensor, b: Tensor, in_place: bool = False) -> Tensor:
    """Divide with 0/0 = 1 and no infinity, without a comparison (on the CPU one costs several divisions).

    With `in_place` the quotient is written over `b`: a new tensor costs more than the division.
    """
    ratio = torch.div(a, b, out=b) if in_place else a / b
    return ratio.nan_to_num_(nan=1.0, posinf=1 / tiny(ratio.dtype))


def contract_others(P: Tensor, factors: Sequence[Tensor], mode: int) -> Tensor:
    """Sum `(..., d0 d1 .., k)` against all factors of its group but that of `mode`, from both ends."""
    P = P.mT
    for F in factors[:mode]:
        P = (F.mT.unsqueeze(-2) @ P.unflatten(-1, (F.shape[-2], -1))).squeeze(-2)
    for F in reversed(factors[mode + 1 :]):
        P = (P.unflatten(-1, (-1, F.shape[-2])) @ F.mT.unsqueeze(-1)).squeeze(-1)
    return P.mT


def multiply_column_sums(factors: Sequence[Tensor], mode: int) -> Tensor:
    """Multiply the column sums of all factors but one, `(..., 1, k)`: `linear_plus` of beta = 1, equal for all rows."""
    return reduce(torch.mul, (F.sum(-2, keepdim=True) for b, F in enumerate(factors) if b != mode))


def flatten_batch(F: Tensor) -> Tensor:
    """Return a factor `(..., n, k)` as one row-major matrix `(n, B k)`: a graph acts on all columns alike."""
    return F.movedim(-2, 0).reshape(F.shape[-2], -1).contiguous()


def cached_flat(F: Tensor, columns: slice | None = None) -> Tensor:
    """Return `flatten_batch` of all columns or some; the copy is kept while F lives, for several graphs need it."""
    rows = cached(F, flatten_batch)
    if columns is None:
        return rows
    return rows[:, columns] if F.dim() == 2 else rows.view(F.shape[-2], -1, F.shape[-1])[..., columns].flatten(1)


def unflatten_batch(rows: Tensor, like: Tensor) -> Tensor:
    """Undo `flatten_batch`: `(n, B k)` to the shape and the memory order of `like`."""
    return rows if is_row_major(like) else rows.mT.contiguous().view(*like.shape[:-2], like.shape[-1], -1).mT
