"""Reading data from whatever users hold: checked, cast and placed on a device, once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .csr import coordinates, from_torch_sparse
from .dense import Dense
from .sparse import Sparse
from .sparse_tensor import SparseTensor

Samples = Dense | Sparse  # a sample is a row: products with matrices, and some of the rows

Data = Samples | SparseTensor


def as_data(
    X: Any,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    *,
    name: str = "X",
    signed: bool = False,
) -> Data:
    """Read data from anything array-like and decide its device and dtype, once.

    Parameters
    ----------
    X : array, tensor, scipy sparse matrix (CSR, CSC, COO) or sparse tensor (COO), samples first
        At least two dimensions, none empty. float32 and float64 stay; half precision becomes float32, integers and
        bool become float64. A sparse input stays sparse; of order 3 and more it is a torch `sparse_coo` tensor, a
        scipy `coo_array` or a `sparse.COO` of PyData. Repeated entries are summed.
    device : torch device, optional
        Default: where `X` is.
    dtype : torch dtype, optional
        torch.float32 or torch.float64. Default: from `X`.
    name : str
        What error messages call the argument.
    signed : bool
        Whether negative entries are allowed. Default: refused.

    Raises
    ------
    ValueError
        NaN, infinite or (unless `signed`) negative entries, with how many and where the first is; fewer than two
        dimensions, an empty dimension; complex or text data.
    TypeError
        A sparse format other than CSR, CSC and COO; of order 3 and more other than COO.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor.core import as_data
    >>> data = as_data(np.ones((4, 3, 2), dtype=np.float32))
    >>> data.shape, data.order, data.dtype, float(data.sqnorm())
    ((4, 3, 2), 3, torch.float32, 24.0)
    """
    if isinstance(X, Dense | Sparse | SparseTensor):
        return X
    if is_sparse_tensor(X):
        return _read_sparse_tensor(X, device, dtype, name, signed)
    if is_sparse(X):
        return _read_sparse(X, device, dtype, name, signed)
    X = as_tensor(X, name)
    if X.dim() < 2 or 0 in X.shape:
        hint = "at least two dimensions, samples first" if X.dim() < 2 else "no empty dimension"
        raise ValueError(f"{name} has shape {tuple(X.shape)}; it must have {hint}")
    low, high = (float(v) for v in torch.aminmax(X))
    if not (np.isfinite(low) and np.isfinite(high) and (signed or low >= 0)):
        raise ValueError(_complaint(X, name))
    X = X.to(device=device, dtype=dtype)
    return Dense(X)


def as_tensor(X: Any, name: str = "X") -> Tensor:
    """A float32 or float64 tensor from anything array-like, without a copy where that is possible."""
    if not isinstance(X, Tensor):
        X = np.asarray(X)
        if X.dtype.kind not in "fiub":
            raise ValueError(
                f"{name} has dtype {X.dtype}; it must hold real numbers (complex and text are not supported)"
            )
        X = X.astype(_float_type(X.dtype), copy=False)  # native byte order, float32 or float64
        if any(s < 0 for s in X.strides):
            X = X.copy()
        with warnings.catch_warnings():  # read-only memory is fine: X is never written to
            warnings.filterwarnings("ignore", message="The given NumPy array is not writ", category=UserWarning)
            X = torch.from_numpy(X)
    if X.is_complex():
        raise ValueError(f"{name} has dtype {X.dtype}; it must hold real numbers (complex is not supported)")
    if X.dtype in (torch.float16, torch.bfloat16):
        return X.detach().float()
    return X.detach() if X.dtype in (torch.float32, torch.float64) else X.detach().double()


def _float_type(dtype: np.dtype) -> type:
    return np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64


def _read_sparse(X: Any, device: Any, dtype: torch.dtype | None, name: str, signed: bool) -> Sparse:
    if isinstance(X, Tensor):
        device = X.device if device is None else device
        X = from_torch_sparse(X)
    X = matrix_of(X)
    if X.format not in ("csr", "csc", "coo"):
        raise TypeError(f"{name}: sparse format {X.format!r} is not supported; use X.tocsr(), X.tocsc() or X.tocoo()")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name} has shape {X.shape}; a sparse {name} must be two-dimensional and not empty")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {X.dtype}; it must hold real numbers (complex and text are not supported)")
    kind = _float_type(X.dtype)
    S = sp.csr_array(X, dtype=kind, copy=not (X.format == "csr" and X.dtype == kind))
    if not S.has_canonical_format:
        S = S.copy()
        S.sum_duplicates()
    values = torch.from_numpy(np.ascontiguousarray(S.data))
    if len(values) and not (bool(torch.isfinite(values).all()) and (signed or float(values.min()) >= 0)):
        raise ValueError(_complaint(values, name, np.repeat(np.arange(S.shape[0]), np.diff(S.indptr)), S.indices))
    dtype = dtype or (torch.float32 if kind is np.float32 else torch.float64)
    return Sparse(S, torch.device(device or "cpu"), dtype)


def is_sparse(X: Any) -> bool:
    """Whether something is a sparse matrix or a sparse tensor, of any library."""
    return sp.issparse(X) or (isinstance(X, Tensor) and X.layout != torch.strided) or _is_pydata(X)


def is_sparse_tensor(X: Any) -> bool:
    """Whether something is sparse and of order 3 or more."""
    return is_sparse(X) and len(X.shape) > 2


def matrix_of(X: Any) -> Any:
    """A matrix of PyData as one of scipy; anything else as it is."""
    if not (_is_pydata(X) and len(X.shape) == 2):
        return X
    coords, values = coordinates(X)
    return sp.coo_array((values, tuple(coords)), shape=X.shape)


def _is_pydata(X: Any) -> bool:
    return isinstance(getattr(X, "coords", None), np.ndarray) and hasattr(X, "fill_value")


def _read_sparse_tensor(X: Any, device: Any, dtype: torch.dtype | None, name: str, signed: bool) -> SparseTensor:
    if 0 in X.shape:
        raise ValueError(f"{name} has shape {tuple(X.shape)}; it must have no empty dimension")
    if isinstance(X, Tensor) and device is None:
        device = X.device
    coords, values = coordinates(X, name)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {values.dtype}; it must hold real numbers (complex is not supported)")
    values = values.astype(_float_type(values.dtype), copy=False)
    dtype = dtype or (torch.float32 if values.dtype == np.float32 else torch.float64)
    if not len(values):  # one stored zero, so that no array is empty
        coords, values = [np.zeros(1, np.int64) for _ in X.shape], np.zeros(1, values.dtype)
    fine = lambda v: np.isfinite(v).all() and (signed or v.min() >= 0)
    if not fine(values):
        coords, values = _summed(coords, values)  # what is negative may be one of several in a place
        if not fine(values):
            raise ValueError(_complaint(torch.from_numpy(values), name, *coords))
    return SparseTensor(coords, values, X.shape, torch.device(device or "cpu"), dtype)


def _summed(coords: list[np.ndarray], values: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Repeated entries as one."""
    where, at = np.unique(np.stack(coords), axis=1, return_inverse=True)
    total = np.zeros(where.shape[1], values.dtype)
    np.add.at(total, at.ravel(), values)
    return list(where), total


def _complaint(X: Tensor, name: str, *coords: Sequence[int] | np.ndarray) -> str:
    """What is wrong with the entries of `X`: what kind, how many, where the first one is, what would work.

    `coords` are those of the entries, one array per mode, where `X` holds the stored entries of something sparse.
    """
    for what, bad, advice in (
        ("NaN", X.isnan(), "fill or drop them first"),
        ("infinity", X.isinf(), "fill or drop them first"),
        ("Negative values", X < 0, "shift or clip them, or use a model that takes negative data"),
    ):
        count = int(bad.sum())
        if count:
            at = tuple(int(i) for i in bad.nonzero()[0])
            at = tuple(int(c[at[0]]) for c in coords) if coords else at
            found = f"{what} in data passed to {name}" if what.startswith("Neg") else f"Input {name} contains {what}"
            return f"{found}: {count} of {X.numel()} entries, the first at {at}; {advice}"
    return f"{name} cannot be read"
