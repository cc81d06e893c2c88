"""Sparse input of torch, scipy or PyData: read into coordinates or canonical CSR, or refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

FORMATS = ("csr", "csc", "coo")


def is_sparse(X: Any) -> bool:
    """Tell whether something is a sparse matrix or a sparse tensor, of any library."""
    return sp.issparse(X) or (isinstance(X, Tensor) and X.layout != torch.strided) or _is_pydata(X)


def is_sparse_tensor(X: Any) -> bool:
    """Tell whether something is sparse and of order 3 or more."""
    return is_sparse(X) and len(X.shape) > 2


def as_scipy(X: Any) -> Any:
    """Turn a sparse matrix of torch or PyData into one of scipy; return anything else as it is."""
    if isinstance(X, Tensor) and X.layout != torch.strided:
        return from_torch_sparse(X)
    if not (_is_pydata(X) and len(X.shape) == 2):
        return X
    coords, values = coordinates(X)
    return sp.coo_array((values, tuple(coords)), shape=X.shape)


def read_csr(X: Any, name: str = "X", dtype: Any = None) -> sp.csr_array:
    """Read a sparse matrix of any library as canonical CSR: sorted, no entry twice.

    Parameters
    ----------
    X : sparse matrix of scipy, torch or PyData
    name : str
        What error messages call it.
    dtype : numpy dtype, optional
        Default: float32 and shorter floats as float32, all other numbers as float64.

    Returns
    -------
    CSR; it shares the memory of a CSR that is canonical and of that dtype already.

    Raises
    ------
    TypeError
        A format other than CSR, CSC and COO.
    ValueError
        Other than two dimensions, an empty dimension, or complex or text entries.
    """
    X = as_scipy(X)
    refuse_other_formats(X, name)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name} has shape {X.shape}; a sparse {name} must be two-dimensional and not empty")
    refuse_other_than_real(X.dtype, name)
    S = sp.csr_array(X, dtype=dtype or float_type(X.dtype))
    if not S.has_canonical_format:
        S = S.copy()
        S.sum_duplicates()
    return S


def refuse_other_formats(X: Any, name: str) -> None:
    """Raise a TypeError if a scipy matrix is neither CSR nor CSC nor COO."""
    if X.format not in FORMATS:
        raise TypeError(f"{name}: sparse format {X.format!r} is not supported; use X.tocsr(), X.tocsc() or X.tocoo()")


def refuse_other_than_real(dtype: np.dtype, name: str) -> None:
    """Raise a ValueError if a dtype is not one of real numbers."""
    if dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {dtype}; it must hold real numbers (complex and text are not supported)")


def float_type(dtype: np.dtype) -> type:
    """Choose the precision that data of a dtype are read in."""
    return np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64


def from_torch_sparse(X: Tensor) -> sp.csr_array:
    """Copy a torch sparse matrix (COO, CSR or CSC) to a scipy CSR on the host."""
    if X.layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        raise TypeError(f"torch layout {X.layout} is not supported; use sparse_coo, sparse_csr or sparse_csc")
    coords, values = coordinates(X if X.layout == torch.sparse_coo else X.detach().cpu().to_sparse_coo())
    return sp.csr_array((values, tuple(coords)), shape=tuple(X.shape))


def coordinates(X: Any, name: str = "X") -> tuple[list[np.ndarray], np.ndarray]:
    """Read the indices, one array per mode, and the values of a sparse array of any order.

    Entries may repeat, except those of torch.

    Raises
    ------
    TypeError
        A layout other than coordinates.
    ValueError
        Entries that are not numbers (dense dimensions), or a fill value other than 0.
    """
    if isinstance(X, Tensor):
        if X.layout != torch.sparse_coo:
            raise TypeError(f"{name}: torch layout {X.layout} is not supported for order {X.dim()}; use sparse_coo")
        if X.dense_dim():
            raise ValueError(f"{name} has {X.dense_dim()} dense dimensions; every entry must be a number of its own")
        X = X.detach().coalesce().cpu()
        return list(X.indices().numpy()), X.values().numpy()
    if getattr(X, "format", "coo") != "coo":
        raise TypeError(f"{name}: sparse format {X.format!r} is not supported for order {len(X.shape)}; use X.tocoo()")
    if getattr(X, "fill_value", 0) != 0:
        raise ValueError(f"{name} has fill_value {X.fill_value}; entries that are not stored must be 0")
    return list(X.coords), np.asarray(X.data)


def _is_pydata(X: Any) -> bool:
    return isinstance(getattr(X, "coords", None), np.ndarray) and hasattr(X, "fill_value")
