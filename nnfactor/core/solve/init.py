"""Where a factorization starts: random, by singular vectors, or given; for one problem or a batch of restarts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..data.base import Data
from ..factors import as_factor, divide


class Matrix(Protocol):
    """What singular vectors are computed from: products and a mean. `Dense` and `Sparse` data are, and views together.

    `mean` is what the fill of a start is measured by.
    """

    @property
    def order(self) -> int:
        """2."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its products."""

    @property
    def device(self) -> torch.device:
        """Where it is worked on."""

    def mean(self) -> Tensor:
        """The mean entry, float64."""

    def times(self, F: Tensor) -> Tensor:
        """`X @ F`."""

    def times_transposed(self, F: Tensor) -> Tensor:
        """`X.T @ F`."""


def random(data: Data, n_components: int, seed: int) -> list[Tensor]:
    """|normal| factors whose reconstruction has the data's mean; drawn on the CPU in float64, alike everywhere.

    A mode of length one starts at ones: the start is that of the data without it. A zero data set starts at zero,
    where it belongs.
    """
    generator = torch.Generator().manual_seed(seed)
    long = [d > 1 for d in data.shape] if max(data.shape) > 1 else [True] * data.order
    scale = (data.mean() / n_components).pow(1.0 / sum(long))
    drawn = lambda d: torch.randn(n_components, d, generator=generator, dtype=torch.float64).abs_().to(data.device)
    one = scale.new_ones(n_components, 1)
    starts = [drawn(d) * scale if own else one for d, own in zip(data.shape, long, strict=True)]
    return [F.to(data.dtype).mT for F in starts]


def nndsvda(data: Matrix, n_components: int, seed: int) -> list[Tensor]:
    """Nonnegative double SVD (Boutsidis and Gallopoulos 2008), its zeros filled with the mean of a random start.

    The fill `sqrt(mean / k)` scales like the factors do (the data's mean itself, which other packages use, does
    not: multiplying the data by a constant would change the start). Zeros are filled because they are absorbing for
    multiplicative rules.

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
    pair = _dominant(left, right, values)
    return [as_factor(torch.where(noise * F.amax() < F, F, fill).to(data.dtype)) for F in pair]


def truncated_svd(
    data: Matrix, rank: int, seed: int, oversampling: int = 10, powers: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """Leading singular triplets of a matrix by randomised subspace iteration (Halko, Martinsson and Tropp 2011).

    Needs only products with the data, so that dense and sparse data on any device are alike; float64 inside the small
    problems. Returns `(n, r)`, `(r,)`, `(m, r)`.
    """
    size = min(rank + oversampling, *data.shape)
    generator = torch.Generator().manual_seed(seed)
    probe = torch.randn(data.shape[1], size, generator=generator, dtype=torch.float64)
    Q = _range(data.times(probe.to(data.device, data.dtype)))
    for _ in range(powers):
        Q = _range(data.times(_range(data.times_transposed(Q))))
    B = data.times_transposed(Q).double()
    right, values, small = torch.linalg.svd(B, full_matrices=False)
    left = Q.double() @ small.mT
    return left[:, :rank], values[:rank], right[:, :rank]


def stack(starts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Starts of several problems as one batch `(B, rows, k)`, component-major."""
    return [torch.stack([F.mT for F in Fs]).mT for Fs in zip(*starts, strict=True)]


def _range(M: Tensor) -> Tensor:
    """An orthonormal basis of the columns, in M's dtype."""
    return torch.linalg.qr(M.double())[0].to(M.dtype)


def _dominant(left: Tensor, right: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of the positive and the negative part of every singular pair, balanced between both sides."""
    signs = []
    for sign in (1, -1):
        u, v = (sign * left).clamp(min=0), (sign * right).clamp(min=0)
        nu, nv = u.norm(dim=0), v.norm(dim=0)
        signs.append((divide(u, nu), divide(v, nv), nu * nv))
    (up, vp, np_), (un, vn, nn) = signs
    positive = np_ >= nn
    scale = (values * torch.where(positive, np_, nn)).sqrt()
    return scale * torch.where(positive, up, un), scale * torch.where(positive, vp, vn)
