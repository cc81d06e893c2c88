"""Data from whatever users hold: checked, cast and placed on a device, once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .base import Data
from .dense import Dense
from .sparse import Sparse
from .sparse_input import coordinates, float_type, is_sparse, is_sparse_tensor, read_csr, refuse_other_than_real
from .sparse_tensor import SparseTensor


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
    X : Data, array, tensor, scipy sparse matrix (CSR, CSC, COO) or sparse tensor (COO), samples first
        `Data` of any storage kind come back as they are. At least two dimensions, none empty. float32 and float64 stay;
        half precision becomes float32, integers and bool float64. A sparse input stays sparse; of order 3 and more it
        is a torch `sparse_coo` tensor, a scipy `coo_array` or a `sparse.COO` of PyData. Repeated entries are summed.
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
    if isinstance(X, Data):
        return X
    if is_sparse_tensor(X):
        return _read_sparse_tensor(X, device, dtype, name, signed)
    if is_sparse(X):
        return _read_sparse(X, device, dtype, name, signed)
    X = as_tensor(X, name)
    if X.dim() < 2 or 0 in X.shape:
        hint = "at least two dimensions, samples first" if X.dim() < 2 else "no empty dimension"
        raise ValueError(f"{name} has shape {tuple(X.shape)}; it must have {hint}")
    if not _is_fine(X, signed):
        raise ValueError(_complaint(X, name))
    return Dense(X.to(device=device, dtype=dtype))


def as_tensor(X: Any, name: str = "X") -> Tensor:
    """Make a float32 or float64 tensor of anything array-like, without a copy where that is possible."""
    if not isinstance(X, Tensor):
        X = np.asarray(X)
        refuse_other_than_real(X.dtype, name)
        X = X.astype(float_type(X.dtype), copy=False)  # native byte order, float32 or float64
        if any(s < 0 for s in X.strides):  # torch has no negative strides
            X = X.copy()
        with warnings.catch_warnings():  # read-only memory is fine: X is never written to
            warnings.filterwarnings("ignore", message="The given NumPy array is not writ", category=UserWarning)
            X = torch.from_numpy(X)
    if X.is_complex():
        raise ValueError(f"{name} has dtype {X.dtype}; it must hold real numbers (complex is not supported)")
    if X.dtype in (torch.float16, torch.bfloat16):
        return X.detach().float()
    return X.detach() if X.dtype in (torch.float32, torch.float64) else X.detach().double()


def _read_sparse(X: Any, device: Any, dtype: torch.dtype | None, name: str, signed: bool) -> Sparse:
    if isinstance(X, Tensor) and device is None:
        device = X.device
    S = read_csr(X, name)
    values = as_tensor(S.data)
    if len(values) and not _is_fine(values, signed):
        raise ValueError(_complaint(values, name, np.repeat(np.arange(S.shape[0]), np.diff(S.indptr)), S.indices))
    return Sparse(S, torch.device(device or "cpu"), dtype or values.dtype)


def _read_sparse_tensor(X: Any, device: Any, dtype: torch.dtype | None, name: str, signed: bool) -> SparseTensor:
    if 0 in X.shape:
        raise ValueError(f"{name} has shape {tuple(X.shape)}; it must have no empty dimension")
    if isinstance(X, Tensor) and device is None:
        device = X.device
    coords, values = coordinates(X, name)
    refuse_other_than_real(values.dtype, name)
    values = values.astype(float_type(values.dtype), copy=False)
    if len(values) and not _is_fine(as_tensor(values), signed):
        coords, values = _sum_repeated(coords, values)  # what is negative may be one of several in a place
        if not _is_fine(as_tensor(values), signed):
            raise ValueError(_complaint(as_tensor(values), name, *coords))
    read = torch.float32 if values.dtype == np.float32 else torch.float64
    return SparseTensor(coords, values, X.shape, torch.device(device or "cpu"), dtype or read)


def _is_fine(values: Tensor, signed: bool) -> bool:
    low, high = (float(v) for v in torch.aminmax(values))
    return bool(np.isfinite(low) and np.isfinite(high) and (signed or low >= 0))


def _sum_repeated(coords: list[np.ndarray], values: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Sum entries of one place."""
    where, at = np.unique(np.stack(coords), axis=1, return_inverse=True)
    total = np.zeros(where.shape[1], values.dtype)
    np.add.at(total, at.ravel(), values)
    return list(where), total


def _complaint(X: Tensor, name: str, *coords: Sequence[int] | np.ndarray) -> str:
    """Say what is wrong with the entries of `X`: what kind, how many, where the first one is, what would work.

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
