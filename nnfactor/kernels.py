"""Kernels between samples: Gaussian, polynomial, linear, precomputed, or your own; values are float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .core.arguments import positive, whole
from .core.data.as_data import as_scipy, as_tensor, is_sparse, to_csr
from .core.data.base import power_of_two
from .core.graph.distances import find_centre, gaussian, median_length, squared_distances, store_like
from .core.graph.neighbors import inner_products, row_squares

NAMED = ("rbf", "poly", "linear", "precomputed")
ROUNDING = 1e-30  # of two squared norms: samples that are nearer differ by rounding only
REACH = 30  # square roots of kernels within 2^-30 .. 2^30 are left as they are: their squares fit float32
Function = Callable[[Any, Any], Any]


def rbf(X: Any, Y: Any = None, *, sigma: str | float = "median") -> Tensor:
    """Compute the Gaussian kernel `exp(-||x - y||^2 / (2 sigma^2))`, `(len(X), len(Y))`.

    Parameters
    ----------
    X, Y : array, tensor or scipy sparse matrix (n, m)
        Any sign. Y defaults to X.
    sigma : "median" or a number > 0
        In the units of X. "median": `median_distance(X)`, which follows their scale.

    Examples
    --------
    >>> from nnfactor.kernels import rbf
    >>> rbf([[0.0], [2.0]], sigma=2.0).numpy().round(4).tolist()
    [[1.0, 0.6065], [0.6065, 1.0]]
    """
    kernel = fix_kernel("rbf", X, sigma=sigma)
    return kernel.gram()[0] if Y is None else kernel.rows(Y).mT


def polynomial(X: Any, Y: Any = None, *, degree: int = 2) -> Tensor:
    """Compute the polynomial kernel `(x'y)^degree` of samples as for `rbf`; degree 1 is the linear kernel.

    Examples
    --------
    >>> from nnfactor.kernels import polynomial
    >>> polynomial([[3.0, 0.0], [1.0, 1.0]], [[1.0, 2.0]]).tolist()
    [[9.0], [9.0]]
    """
    kernel = fix_kernel("poly", X, degree=degree)
    K = kernel.gram()[0] if Y is None else kernel.rows(Y).mT
    return K * kernel.root_unit * kernel.root_unit


def median_distance(X: Any) -> float:
    """Compute the median Euclidean distance between two samples; if that is 0, of those that differ; if none do, 1.

    >>> from nnfactor.kernels import median_distance
    >>> median_distance([[0.0], [1.0], [5.0]])
    4.0
    """
    return fix_kernel("rbf", X).sigma


def root(K: Tensor, eps: float, name: str = "K") -> tuple[Tensor, Tensor, Tensor]:
    """Compute the symmetric square root of a kernel matrix `(n, n)`, its eigenvalues and its eigenvectors.

    Eigenvalues below `n eps` of the largest are rounding, and count as 0. ValueError if one is below `-sqrt(eps)` times
    the largest: K is then not positive semidefinite.
    """
    values, E = torch.linalg.eigh(K)
    low, high = float(values[0]), float(values.abs().max())
    if low < -math.sqrt(eps) * high:
        raise ValueError(
            f"{name} is not positive semidefinite: its smallest eigenvalue is {low:g}, its largest {high:g}; use "
            "another kernel or add a multiple of the identity"
        )
    values = torch.where(values > len(K) * eps * high, values, 0)
    S = (E * values.sqrt()) @ E.mT
    return (S + S.mT) / 2, values, E


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel fixed on the n samples that a model is fitted to, made by `fix_kernel`: later ones meet the same.

    Attributes
    ----------
    X : Tensor, scipy CSR, or what a callable takes
        The samples; with "precomputed" their kernel matrix.
    sigma : float
        Width of "rbf" in the units of X.
    unit, centre : float, Tensor or None
        Samples are divided by `unit`; for "rbf" the `centre` is subtracted then.
    root_unit : float
        A power of two: values are those of the kernel over its square. 1 unless data are so large or small that
        squares would leave the floating-point range.
    """

    name: str | Function
    X: Any
    n: int
    sigma: float = 1.0
    degree: int = 1
    unit: float = 1.0
    centre: Tensor | None = None
    root_unit: float = 1.0

    def gram(self) -> tuple[Tensor, float]:
        """Return the kernel matrix `(n, n)` of the samples, symmetric, and the precision that it was given in.

        ValueError if one that is precomputed or a callable's is not square, finite and symmetric.
        """
        K, eps = self._values(self.X)
        if callable(self.name) or self.name == "precomputed":
            _check_gram(K, self.n, eps)
        K = K / 2 + K.mT / 2
        return (K.fill_diagonal_(1) if self.name == "rbf" else K), eps

    def rows(self, X: Any) -> Tensor:
        """Compute `k(x, x_i)` of other samples `(len(X), n)`. With "precomputed" X holds just that.

        ValueError if they are not against every sample that the kernel was fixed on, or not finite.
        """
        K, _ = self._values(X)
        if K.dim() != 2 or K.shape[1] != self.n:
            raise ValueError(
                f"kernel values have shape {tuple(K.shape)}; they must be (n_samples, {self.n}), against every sample "
                "that the model was fitted to"
            )
        _check_finite(K)
        return K

    def on(self, device: torch.device) -> "Kernel":
        """Return the same kernel with its samples on another device."""
        move = lambda Z: Z.to(device) if isinstance(Z, Tensor) else Z
        return replace(self, X=move(self.X), centre=move(self.centre))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self.on(torch.device("cpu")))  # loads without a GPU

    def _values(self, X: Any) -> tuple[Tensor, float]:
        if callable(self.name) or self.name == "precomputed":
            K = self.name(X, self.X) if callable(self.name) else X
            if is_sparse(K):
                K = K.to_dense() if isinstance(K, Tensor) else as_scipy(K).toarray()
            K = as_tensor(K, "kernel")
            return K.double() / self.root_unit / self.root_unit, torch.finfo(K.dtype).eps
        X = store_like(_read_samples(X), self.X)
        if X.shape[1] != self.X.shape[1]:
            raise ValueError(f"X has {X.shape[1]} features, but the kernel was fixed on {self.X.shape[1]}")
        if self.name == "rbf":
            squared = squared_distances(X / self.unit, self.X / self.unit, self.centre)
            K = gaussian(squared, math.sqrt(2) * (self.sigma / self.unit))
        else:
            K = inner_products(X / self.unit, self.X.T / self.unit).pow_(self.degree)
        return K, torch.finfo(torch.float64).eps


def fix_kernel(kernel: str | Function, X: Any, *, sigma: str | float = "median", degree: int = 2) -> Kernel:
    """Fix a kernel on the samples X.

    Parameters
    ----------
    kernel : "rbf", "poly", "linear", "precomputed" or callable
        A callable gets two sets of samples, in the kind of X, and returns the matrix of their values `(n, n')`, dense
        or sparse; among the same samples it must be symmetric and positive semidefinite. "precomputed": X is that
        matrix.
    X : array, tensor or scipy sparse matrix (n, m)
        Sparse samples stay sparse, and are not centred.
    sigma, degree : as in `rbf` and `polynomial`

    Raises
    ------
    ValueError
        Unknown kernel, sigma or degree; samples that are not two-dimensional and finite.

    Examples
    --------
    >>> from nnfactor.kernels import fix_kernel
    >>> kernel = fix_kernel("rbf", [[0.0], [3.0]])
    >>> kernel.sigma, kernel.rows([[3.0]]).numpy().round(4).tolist()
    (3.0, [[0.6065, 1.0]])
    """
    check_kernel(kernel, sigma, degree)
    if callable(kernel):
        return Kernel(kernel, X, X.shape[0])
    points = _read_samples(X)
    n = points.shape[0]
    if kernel == "precomputed":
        return Kernel(kernel, X, n, root_unit=power_of_two(math.sqrt(_peak(points)), REACH))
    if kernel == "rbf":
        unit = power_of_two(_peak(points), 0)
        centre = find_centre(points / unit)
        width = (_median(points / unit, centre) * unit or 1.0) if isinstance(sigma, str) else float(sigma)
        return Kernel(kernel, points, n, sigma=width, unit=unit, centre=centre)
    degree = 1 if kernel == "linear" else int(degree)
    peak = _peak(points)
    longest = peak and peak * float(row_squares(points / peak).max()) ** 0.5
    unit = power_of_two(longest, REACH / degree)
    if math.isinf(longest) or abs(math.log2(unit)) * degree > 1000:
        raise ValueError(f"X has entries up to {peak:g}: too large or small for degree={degree}; rescale X")
    return Kernel(kernel, points, n, degree=degree, unit=unit, root_unit=unit**degree)


def check_kernel(kernel: Any, sigma: Any, degree: Any) -> None:
    """Refuse an unknown kernel or a bad parameter of it (ValueError)."""
    if not callable(kernel) and not (isinstance(kernel, str) and kernel in NAMED):
        raise ValueError(f"kernel={kernel!r} is not known; use {', '.join(map(repr, NAMED))} or a callable k(X, Y)")
    if not (isinstance(sigma, str) and sigma == "median"):
        positive("sigma", sigma, also="'median' or ")
    whole("degree", degree)


def _read_samples(X: Any) -> Any:
    """Read samples as a float64 tensor or canonical scipy CSR; two-dimensional and finite."""
    if is_sparse(X):
        X = to_csr(as_scipy(X), dtype=np.float64)  # any format of scipy
        values = torch.from_numpy(X.data)
    else:
        X = values = as_tensor(X).double()
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X has shape {tuple(X.shape)}; it must be (n_samples, n_features), not empty")
    _check_finite(values, "X")
    return X


def _median(X: Any, centre: Tensor | None) -> float:
    """Compute `median_distance` of samples in their unit; 0 if all coincide."""
    all_pairs, size = squared_distances(X, X, centre), row_squares(X)
    all_pairs[all_pairs < ROUNDING * (size[:, None] + size)] = 0
    squared = all_pairs[torch.ones_like(all_pairs, dtype=torch.bool).triu(1)].cpu().numpy()
    middle = float(np.median(np.sqrt(squared))) if len(squared) else 0.0
    return middle or (median_length(squared) if squared.any() else 0.0)


def _peak(X: Any) -> float:
    """Find the largest absolute value of an entry."""
    return float(np.abs(X.data).max(initial=0)) if sp.issparse(X) else float(X.abs().max())


def _check_finite(values: Tensor, name: str = "kernel") -> None:
    """Refuse NaN and infinity."""
    bad = int((~values.isfinite()).sum())
    if bad:
        raise ValueError(f"{name}: {bad} of {values.numel()} values are NaN or infinite")


def _check_gram(K: Tensor, n: int, eps: float) -> None:
    """Refuse what is not square, finite and symmetric up to the square root of its precision."""
    if tuple(K.shape) != (n, n):
        raise ValueError(f"kernel: the matrix among {n} samples has shape {tuple(K.shape)}; it must be ({n}, {n})")
    _check_finite(K)
    skew = (K - K.mT).abs()
    if float(skew.max()) > math.sqrt(eps) * float(K.abs().max()):
        i, j = divmod(int(skew.argmax()), n)
        raise ValueError(
            f"kernel: not symmetric, entry ({i}, {j}) is {float(K[i, j]):g} and ({j}, {i}) is {float(K[j, i]):g}; "
            "k(x, y) = k(y, x) is needed; (K + K.T) / 2 may be what you mean"
        )
