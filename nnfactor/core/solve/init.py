"""Starts of a factorization: random or from singular vectors, for one problem or a batch of restarts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ..data.base import Data
from ..data.distributed.sample_sums import SampleSums
from ..factors import as_factor, divide, draw_factor, stack_problems


class Matrix(Protocol):
    """A matrix known by products and its mean, which sets the height of a start: `Dense` or `Sparse` data, or views."""

    order: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    sums: SampleSums

    def mean(self) -> Tensor: ...  # noqa: D102
    def times(self, F: Tensor) -> Tensor: ...  # noqa: D102
    def times_transposed(self, F: Tensor) -> Tensor: ...  # noqa: D102


def random(data: Data, n_components: int, seed: int) -> list[Tensor]:
    """Draw |normal| factors whose reconstruction has the data's mean; on the CPU in float64, the same for all devices.

    A mode of length one starts at ones: the start is that of the data without it. Data of zeros start at zero, their
    minimum.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    long = [d > 1 for d in data.shape] if max(data.shape) > 1 else [True] * data.order
    scale = (data.mean() / n_components).pow(1.0 / sum(long))
    draw = lambda d: draw_factor(d, n_components, generator, data.device) * scale
    one = scale.new_ones(1, n_components)
    V, *others = [(draw(d) if own else one).to(data.dtype) for d, own in zip(data.shape, long, strict=True)]
    return [V if data.sums.held is None else data.sums.own(V), *others]


def nndsvda(data: Matrix, n_components: int, seed: int) -> list[Tensor]:
    """Start from the nonnegative double SVD (Boutsidis and Gallopoulos 2008), its zeros filled.

    Zeros are filled because multiplicative rules keep them. The fill `sqrt(mean / k)`, the mean of a random start,
    scales as the factors do; with the data's mean itself, which other packages use, the data's unit would matter.

    Raises
    ------
    ValueError
        More components than samples or features, or data of order above 2.
    """
    if data.order != 2 or n_components > min(data.shape):
        raise ValueError(
            f"init='nndsvda' needs a matrix and n_components <= min(n_samples, n_features) = {min(data.shape[:2])}, "
            f"got n_components={n_components} for data of shape {data.shape}; use init='random'"
        )
    left, values, right = truncated_svd(data, n_components, seed)
    fill = (data.mean() / n_components).sqrt()
    noise = torch.finfo(data.dtype).eps
    split = data.sums.held is not None
    norms = data.sums.column_norms if split else partial(torch.linalg.vector_norm, dim=-2, keepdim=True)
    V, U = _dominant(left, right, values, norms)
    top = data.sums.largest(float(V.amax())) if split else V.amax()
    V, U = torch.where(noise * top < V, V, fill), torch.where(noise * U.amax() < U, U, fill)
    return [as_factor(V.to(data.dtype)), as_factor(U.to(data.dtype))]


def truncated_svd(
    data: Matrix, rank: int, seed: int, oversampling: int = 10, powers: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute leading singular triplets by randomised subspace iteration (Halko, Martinsson and Tropp 2011).

    It needs only products with the data, so that dense and sparse data on any device give the same; the small problems
    are solved in float64. Returns `(n, r)`, `(r,)`, `(m, r)`.
    """
    size = min(rank + oversampling, *data.shape)
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = torch.randn(data.shape[1], size, generator=generator, dtype=torch.float64, device="cpu")
    Q = drawn.to(data.device, data.dtype)
    for i, product in enumerate((data.times, *powers * (data.times_transposed, data.times))):
        Y = product(Q).double()
        whole = i % 2 or data.sums.held is None
        Q = (torch.linalg.qr(Y)[0] if whole else data.sums.orthonormal(Y)).to(data.dtype)
    B = data.times_transposed(Q).double()
    right, values, small = torch.linalg.svd(B, full_matrices=False)
    left = Q.double() @ small.mT
    return left[:, :rank], values[:rank], right[:, :rank]


def stack(starts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the starts of several problems as one batch, `(B, rows, k)` for each factor."""
    return [stack_problems(Fs) for Fs in zip(*starts, strict=True)]


def _dominant(
    left: Tensor, right: Tensor, values: Tensor, left_norms: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Take the larger of the positive and the negative part of every singular pair, balanced between both sides."""
    signs = []
    for sign in (1, -1):
        u, v = (sign * left).clamp(min=0), (sign * right).clamp(min=0)
        nu, nv = left_norms(u).squeeze(-2), v.norm(dim=0)
        signs.append((divide(u, nu), divide(v, nv), nu * nv))
    (up, vp, np_), (un, vn, nn) = signs
    positive = np_ >= nn
    scale = (values * torch.where(positive, np_, nn)).sqrt()
    return scale * torch.where(positive, up, un), scale * torch.where(positive, vp, vn)
