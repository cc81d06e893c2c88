"""Base of the closed-form linear projections, and the scatter matrices that they are made of.

Scatter matrices of dense data are sums of squares of differences (from class means, or along links), never differences
of large sums: they stay positive semidefinite, and exact when classes are far apart. All of it runs in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core.arrays import Array
from ...core.data.csr import CSR
from ..shared.inputs import Inputs, PickledOnCPU, as_float64, as_given, read, run_environment
from ..shared.scikit_learn import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

CHUNK = 1 << 21  # float64 numbers of a piece of rows held at once (16 MB)

SPARSE_RANK = 1e-12  # a Gram matrix squares: directions of sparse data with less of the variance than this are rounding


class Projection(PickledOnCPU, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the linear projections, for data of any sign."""

    components_: Array
    eigenvalues_: Array
    mean_: Array
    n_components_: int
    fit_info_: dict[str, Any]

    def transform(self, X: Any) -> Array:
        """Compute `(X - mean_) components_.T`, `(n_samples, n_components_)`, in the kind and dtype of `X`."""
        check_is_fitted(self)
        inputs = read(self, X, reset=False, signed=True)
        device, X = inputs.data.device, inputs.points()
        W, mean = as_float64(self.components_, device).mT, as_float64(self.mean_, device) / inputs.scale
        with torch.no_grad():
            if sp.issparse(X):
                Z = torch.from_numpy(X @ W.cpu().numpy()).to(device) - mean @ W
            else:  # centred first, in pieces
                Z = torch.cat([(rows.double() - mean) @ W for rows in X.split(max(1, CHUNK // X.shape[1]))])
        return as_given(Z * inputs.scale, inputs)

    def _publish(self, inputs: Inputs, W: Tensor, mean: Tensor) -> None:
        """Set the fitted attributes from directions `W (m, d)` and the mean in the unit of the inputs."""
        self.components_, self.mean_ = as_given(W.mT, inputs), as_given(mean * inputs.scale, inputs)
        self.n_components_ = int(W.shape[1])
        self.fit_info_ = run_environment(inputs.data)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Centred samples `Y (n, r)`, float64, and their scatter matrices `(r, r)`."""

    Y: Tensor

    def within(self, codes: np.ndarray, weights: np.ndarray) -> Tensor:
        """Compute `sum_c weights_c sum_{i in c} (y_i - m_c)(y_i - m_c)'`; code -1 is of no class."""
        inside = np.flatnonzero(codes >= 0)
        if not len(inside):
            return self.Y.new_zeros(self.Y.shape[1], self.Y.shape[1])
        at = torch.from_numpy(codes[inside]).to(self.Y.device)
        Z = self.Y[torch.from_numpy(inside).to(at.device)] - self.means(codes)[at]
        return (Z * torch.from_numpy(weights).to(Z)[at, None]).mT @ Z

    def means(self, codes: np.ndarray) -> Tensor:
        """Average the samples of every class, `(C, r)`."""
        return CSR.from_scipy(_build_averaging(codes), self.Y.device, self.Y.dtype).product(self.Y)

    def along(self, i: np.ndarray, j: np.ndarray, weights: np.ndarray) -> Tensor:
        """Compute `sum_e weights_e (y_i - y_j)(y_i - y_j)'` over links, in pieces."""
        total = self.Y.new_zeros(self.Y.shape[1], self.Y.shape[1])
        there = lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(self.Y.device)
        step = max(1, CHUNK // max(1, self.Y.shape[1]))
        for a in range(0, len(weights), step):
            p = slice(a, a + step)
            D = self.Y[there(i[p]).long()] - self.Y[there(j[p]).long()]
            total += (D * there(weights[p])[:, None]).mT @ D
        return total


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse samples with no more features than samples: the same three sums, through sparse products on the host."""

    X: sp.csr_array  # not centred: scatter matrices stay the same
    mean: np.ndarray
    turn: Tensor | None = None  # (m, r), to other coordinates

    def within(self, codes: np.ndarray, weights: np.ndarray) -> Tensor:
        """As for `DenseRows`."""
        inside = codes >= 0
        X, w = self.X[inside], weights[codes[inside]]
        means, sizes = _build_averaging(codes) @ self.X, np.bincount(codes[inside], minlength=len(weights))
        return self._turn(X.T @ X.multiply(w[:, None]) - means.T @ means.multiply((weights * sizes)[:, None]))

    def means(self, codes: np.ndarray) -> Tensor:
        """As for `DenseRows`."""
        means = torch.from_numpy((_build_averaging(codes) @ self.X).toarray() - self.mean)
        return means if self.turn is None else means @ self.turn

    def along(self, i: np.ndarray, j: np.ndarray, weights: np.ndarray) -> Tensor:
        """As for `DenseRows`."""
        D = self.X[i] - self.X[j]
        return self._turn(D.T @ D.multiply(weights[:, None]))

    def _turn(self, S: sp.csr_array) -> Tensor:
        F = torch.from_numpy(S.toarray())
        return F if self.turn is None else self.turn.mT @ F @ self.turn


@dataclass(frozen=True, eq=False)
class Space:
    """Centred samples in an orthonormal basis of a space that holds them all, and the way back to the features."""

    rows: DenseRows | SparseRows
    mean: Tensor
    lift: Callable[[Tensor], Tensor]  # coordinates (r, d) of directions to features (m, d)

    @classmethod
    def of(cls, X: Tensor | sp.csr_array, pad: int = 0) -> "Space":
        """Take the features if there are no more of them than samples, else the row space and `pad` directions more."""
        n, m = X.shape
        if not isinstance(X, Tensor):
            centre = np.asarray(X.mean(axis=0)).ravel()
            if m > n:
                return cls._wide_sparse(X, centre, pad)
            return cls(SparseRows(X, centre), torch.from_numpy(centre), lambda W: W)
        X = X.double()
        mean = X.mean(0)
        Y = X - mean
        if m <= n:
            return cls(DenseRows(Y), mean, lambda W: W)
        Q, R = torch.linalg.qr(torch.cat([Y.mT, Y.new_zeros(m, min(pad, m - n))], dim=1))
        return cls(DenseRows(R[:, :n].mT.contiguous()), mean, lambda W: Q @ W)

    @classmethod
    def _wide_sparse(cls, X: sp.csr_array, mean: np.ndarray, pad: int) -> "Space":
        """Build it from the Gram matrix of the samples: the basis `Xc' P` is applied, never held."""
        inner = (X @ X.T).toarray()
        cross = X @ mean
        values, U = torch.linalg.eigh(torch.from_numpy(inner - cross[:, None] - cross + mean @ mean))
        noise = len(inner) * np.finfo(float).eps * np.abs(inner).max()
        keep = values > max(SPARSE_RANK * float(values[-1]), noise)
        s, U = values[keep].sqrt(), U[:, keep]
        P, m = U / s, torch.from_numpy(mean)
        sums, pad = P.sum(0), min(pad, len(mean) - len(s))
        basis = lambda W: torch.from_numpy(X.T @ (P @ W).numpy()) - m[:, None] * (sums @ W)
        seeded = torch.Generator("cpu").manual_seed(0)
        outside = torch.randn(len(mean), pad, dtype=torch.float64, generator=seeded, device="cpu")
        inside = P.mT @ torch.from_numpy(X @ outside.numpy()) - sums[:, None] * (m @ outside)
        outside = torch.linalg.qr(outside - basis(inside))[0]
        Y = torch.cat([U * s, U.new_zeros(len(U), pad)], dim=1)
        return cls(DenseRows(Y), m, lambda W: basis(W[: len(s)]) + outside @ W[len(s) :])


def fix_signs(W: Tensor) -> Tensor:
    """Turn columns so that their largest entry is positive; of entries equal to 1e-6 the first decides."""
    size = W.abs()
    first = (size >= size.amax(0) * (1 - 1e-6)).to(torch.uint8).argmax(0, keepdim=True)
    return torch.where(W.gather(0, first) < 0, -W, W)


def _build_averaging(codes: np.ndarray) -> sp.csr_array:
    """Build the matrix `(C, n)` that turns samples into class means."""
    inside = np.flatnonzero(codes >= 0)
    sizes = np.bincount(codes[inside])
    return sp.csr_array((1 / sizes[codes[inside]], (codes[inside], inside)), shape=(len(sizes), len(codes)))
