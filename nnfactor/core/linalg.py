"""Linear algebra that several parts need: simplex, pseudo-inverse, definite systems, conjugate gradients.

Everything works on batches of problems `(..., k, k)` and keeps dtype and device. Batched LU is avoided on purpose: it
is broken on the CPU with several threads.
"""

from collections.abc import Callable

import torch
from torch import Tensor

LIFTS = 4  # attempts to raise a diagonal, each 100 times higher

REFINEMENTS = 4  # after them the raised diagonal is felt only where an eigenvalue is as small as the raise


def project_simplex(points: Tensor) -> Tensor:
    """Return the point of the simplex (entries >= 0, sum 1) that is nearest to every row, `(..., n)`.

    Entries keep their order. An entry may be -inf, which is far from the simplex: it becomes 0.
    """
    high = points.sort(-1, descending=True).values
    excess = high.cumsum(-1) - 1
    count = torch.arange(1, points.shape[-1] + 1, device=points.device, dtype=points.dtype)
    positive = (high * count > excess).sum(-1, keepdim=True).clamp(min=1)
    level = excess.gather(-1, positive - 1) / positive
    return (points - level).clamp(min=0)


def invert_spectrum(values: Tensor, vectors: Tensor, cut: float) -> Tensor:
    """Return `E diag(1 / values) E'` of an eigendecomposition `(..., k)`, E `(..., k, k)`.

    Values that are at most `cut` of the largest in size are left out.
    """
    keep = values.abs() > cut * values.abs().amax(-1, keepdim=True)
    inverse = torch.where(keep, 1 / torch.where(keep, values, 1), 0)
    return (vectors * inverse.unsqueeze(-2)) @ vectors.mT


def pseudo_inverse(G: Tensor) -> Tensor:
    """Return the Moore-Penrose inverse of symmetric positive semidefinite matrices `(..., k, k)`.

    Eigenvalues below k eps of the largest are rounding and count as 0, negative ones too.
    """

    def inverse(G: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(G)
        return invert_spectrum(values.clamp(min=0), vectors, G.shape[-1] * torch.finfo(G.dtype).eps)

    return where_finite(G, inverse)


def where_finite(M: Tensor, decompose: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `decompose(M)`, and NaN for the problems whose M is not finite: eigh and svd would raise for all."""
    finite = torch.isfinite(M).all(-1, keepdim=True).all(-2, keepdim=True)
    return torch.where(finite, decompose(torch.where(finite, M, 0)), torch.nan)


def solve_spd(A: Tensor, B: Tensor) -> Tensor:
    """Return `A^-1 B` for symmetric positive semidefinite `A (..., k, k)` and `B (..., k, c)`.

    Where Cholesky breaks down, the diagonal of those systems alone is raised (by 1e-11 of its largest entry in float64,
    then by more), and refinement with the same factor removes the effect where the system determines the answer:
    that tends to the solution of minimum norm (iterated Tikhonov regularisation).
    """
    L, info = torch.linalg.cholesky_ex(A)
    broken = (info > 0)[..., None, None]
    if not bool(broken.any()):
        return torch.cholesky_solve(B, L)
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    size = diagonal.abs().amax(-1)[..., None] * (torch.finfo(A.dtype).eps ** 0.625 / 10)
    lift = torch.zeros_like(size)
    for power in range(LIFTS):
        lift = torch.where((info > 0).unsqueeze(-1), size * 100**power, lift)
        L, info = torch.linalg.cholesky_ex(A + torch.diag_embed(lift.expand_as(diagonal)))
        if not bool((info > 0).any()):
            break
    first = X = torch.cholesky_solve(B, L)
    for _ in range(REFINEMENTS):
        X = X + torch.cholesky_solve(B - A @ X, L)
    return torch.where(broken, X, first)


def conjugate_gradients(
    product: Callable[[Tensor], Tensor],
    x: Tensor,
    residual: Tensor,
    steps: int,
    enough: Tensor | None = None,
    every: int = 5,
) -> tuple[Tensor, bool]:
    """Improve solutions of `product(x) = b`, every column by itself; return them and whether all columns settled.

    A column whose residual or curvature has vanished takes steps of length 0. The curvature of a singular system can
    round to less than 0: it counts as vanished too.

    Parameters
    ----------
    product : callable
        A symmetric positive semidefinite matrix times columns `(n, c)`; it returns a new tensor.
    x, residual : Tensor (n, c)
        The start, which is overwritten, and `b - product(x)`.
    steps, enough : int; Tensor (c,), optional
        Steps at most, and squared norms of the residuals at which to stop, which the host reads in every `every`-th
        step. Without them all steps are taken, and nothing counts as settled.
    """
    squares = lambda z: z.square().sum(0)  # two passes, and four times as fast as a norm over rows
    p = r = residual
    pp = rr = squares(r)  # squared lengths: that of p by recursion, because p was orthogonal to r
    floor = torch.finfo(x.dtype).eps
    for i in range(steps):
        if enough is not None and i % every == 0 and bool((rr <= enough).all()):
            return x, True
        Ap = product(p)
        curvature = (p * Ap).sum(0)
        a = _ratio(rr, torch.where(curvature > floor * pp, curvature, 0))
        x.addcmul_(a, p)
        if i == steps - 1:
            break
        r = torch.addcmul(r, a, Ap, value=-1)
        before, rr = rr, squares(r)
        b = _ratio(rr, before)
        p, pp = torch.addcmul(r, b, p), torch.addcmul(rr, b * b, pp)
    return x, False


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """Return `a / b` for `b >= 0`, and 0 where `b` is 0."""
    return torch.where(b > 0, a / torch.where(b > 0, b, 1), 0)
