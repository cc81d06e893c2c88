"""Data from whatever users hold, dense or sparse: checked, cast and placed on a device, or refused with a reason."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .. import gpu
from ..arrays import as_numbers, float_type, refuse_other_than_real, share_memory
from .base import Data, power_of_two
from .dense import Dense
from .sparse import Sparse
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
    X : Data, array, tensor, scipy sparse matrix or sparse tensor (COO), samples first
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
        A sparse format of order 3 and more other than COO.

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
    return _place(_read(X, device, dtype, name, signed), 1.0, device, dtype)


def as_scaled_data(
    X: Any,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    *,
    signed: bool = False,
    fastest: bool = False,
) -> tuple[Data, Data, float]:
    """Read data as `as_data` does, and divide them by a power of two so that squares stay within the working range.

    The division comes before the cast. Returns the data, the same undivided, and the divisor: 1 for usual data. With
    `fastest`, the first is dense where that is faster than a sparse matrix: on a GPU (`core.gpu`). Of
    `Data` only those that are read in blocks go to another device or dtype.
    """
    if isinstance(X, Data):
        data = X if X.in_memory else cast(Any, X).placed(device, dtype)
        if not data.in_memory and data.read_in != data.dtype:
            _refuse_cast(data.largest(), data.dtype, "X")
        device = dtype = None
    else:
        data = _read(X, device, dtype, "X", signed)
    reach = 30 if (dtype or data.dtype) == torch.float32 else 300
    scale = power_of_two(data.largest(), reach, lowest=-120 if data.read_in == torch.float32 else -1000)
    if scale == 1 and dtype in (None, data.dtype) and (device is None or torch.device(device) == data.device):
        return (_fastest(data) if fastest and isinstance(data, Sparse) else data), data, scale
    divided = _place(data, 1 / scale, device, dtype)
    unscaled = divided if scale == 1 else _place(data, 1.0, device, None)
    return (_fastest(divided) if fastest and isinstance(divided, Sparse) else divided), unscaled, scale


def _read(X: Any, device: torch.device | str | None, dtype: torch.dtype | None, name: str, signed: bool) -> Data:
    """Read data: dense ones where they are and in their own precision, others as asked for."""
    if is_sparse(X):
        if isinstance(X, Tensor) and device is None:
            device = X.device
        read = _read_sparse_tensor if len(X.shape) > 2 else _read_sparse
        data = read(X, torch.device(device or "cpu"), dtype, name, signed)
    else:
        X = as_tensor(X, name)
        if X.dim() < 2 or 0 in X.shape:
            hint = "at least two dimensions, samples first" if X.dim() < 2 else "no empty dimension"
            raise ValueError(f"{name} has shape {tuple(X.shape)}; it must have {hint}")
        if not _is_fine(X, signed):
            raise ValueError(_complaint(X, name))
        data = Dense(X)
    if dtype is not None:
        _refuse_cast(data.largest(), dtype, name)
    return data


def _fastest(data: Sparse) -> Data:
    """Make a sparse matrix dense where its products are faster then and it fits."""
    stored, size, free = data.entries_read, data.dtype.itemsize, gpu.free_bytes(data.device)
    full = gpu.stores_dense(data.device.type, data.shape, stored, size, free)
    return Dense(data.rows.matrix.to_dense()) if full else data


def _refuse_cast(largest: float, dtype: torch.dtype, name: str) -> None:
    """Refuse data that a cast would turn into infinities or zeros."""
    cast = float(torch.tensor(largest, dtype=dtype, device="cpu"))
    if np.isinf(cast) or cast == 0 < largest:
        raise ValueError(
            f"{name} has entries up to {largest:.3g}, which {str(dtype).removeprefix('torch.')} cannot hold; divide "
            f"{name} by {power_of_two(largest):.3g}, or use dtype float64"
        )


def _place(data: Data, factor: float, device: torch.device | str | None, dtype: torch.dtype | None) -> Data:
    """Multiply dense data in their own precision, then cast and move them; others were cast when they were read."""
    if not isinstance(data, Dense):
        return data if factor == 1 else data.scaled(factor)
    X = (data.X if factor == 1 else data.scaled(factor, dtype).X).to(device=device, dtype=dtype)
    return data if X is data.X else Dense(X, data.cut)


def as_tensor(X: Any, name: str = "X") -> Tensor:
    """Make a float32 or float64 tensor of anything array-like, without a copy where that is possible."""
    if not isinstance(X, Tensor):
        usual = type(X) is np.ndarray and X.dtype in (np.float32, np.float64) and X.flags.carray
        X = torch.from_numpy(X) if usual else share_memory(as_numbers(X, name))
    if X.is_complex():
        raise ValueError(f"{name} has dtype {X.dtype}; it must hold real numbers (complex is not supported)")
    if X.dtype in (torch.float16, torch.bfloat16):
        return X.detach().float()
    return X.detach() if X.dtype in (torch.float32, torch.float64) else X.detach().double()


def _read_sparse(X: Any, device: torch.device, dtype: torch.dtype | None, name: str, signed: bool) -> Data:
    S = read_csr(X, name)
    values = torch.from_numpy(S.data)
    if len(values) and not _is_fine(values, signed):
        raise ValueError(_complaint(values, name, np.repeat(np.arange(S.shape[0]), np.diff(S.indptr)), S.indices))
    return Sparse(S, device, dtype or values.dtype)


def _read_sparse_tensor(X: Any, device: torch.device, dtype: torch.dtype | None, name: str, signed: bool) -> Data:
    if 0 in X.shape:
        raise ValueError(f"{name} has shape {tuple(X.shape)}; it must have no empty dimension")
    coords, values = coordinates(X, name)
    if len(values) and not _is_fine(torch.from_numpy(values), signed):
        coords, values = sum_repeated(coords, values)  # what is negative may be one of several in a place
        if not _is_fine(torch.from_numpy(values), signed):
            raise ValueError(_complaint(torch.from_numpy(values), name, *coords))
    return SparseTensor(coords, values, X.shape, device, dtype or torch.from_numpy(values).dtype)


def _is_fine(values: Tensor, signed: bool) -> bool:
    low, high = (float(v) for v in torch.aminmax(values))
    return bool(np.isfinite(low) and np.isfinite(high) and (signed or low >= 0))


def sum_repeated(coords: list[np.ndarray], values: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
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
        ("NaN", X.isnan(), "fill or drop them first, or hide them: missing='nan' in NMF, NTF, NGE, N2S2L and GraphNMF"),
        ("infinity", X.isinf(), "fill or drop them first"),
        ("Negative values", X < 0, "shift or clip them, or use SemiNMF, which takes negative data"),
    ):
        count = int(bad.sum())
        if count:
            at = tuple(int(i) for i in bad.nonzero()[0])
            at = tuple(int(c[at[0]]) for c in coords) if coords else at
            found = f"{what} in data passed to {name}" if what.startswith("Neg") else f"Input {name} contains {what}"
            return f"{found}: {count} of {X.numel()} entries, the first at {at}; {advice}"
    return f"{name} cannot be read"


def is_sparse(X: Any) -> bool:
    """Tell whether something is a sparse matrix or a sparse tensor, of any library."""
    return sp.issparse(X) or (isinstance(X, Tensor) and X.layout != torch.strided) or _is_pydata(X)


def is_sparse_tensor(X: Any) -> bool:
    """Tell whether something is sparse and of order 3 or more."""
    return is_sparse(X) and len(X.shape) > 2


def as_scipy(X: Any, name: str = "X") -> Any:
    """Turn a sparse matrix of torch or PyData into one of scipy; return anything else as it is.

    Entries that repeat stay apart, and are floats: they are summed by what reads them, where 8 bits cannot overflow.
    """
    if isinstance(X, Tensor) and X.layout in (torch.sparse_csr, torch.sparse_csc):
        rows = X.layout == torch.sparse_csr
        kind, at = (sp.csr_array, X.col_indices()) if rows else (sp.csc_array, X.row_indices())
        ends = X.crow_indices() if rows else X.ccol_indices()
        return kind(
            (as_tensor(X.values(), name).cpu().numpy(), at.cpu().numpy(), ends.cpu().numpy()), shape=tuple(X.shape)
        )
    if isinstance(X, Tensor) and X.layout not in (torch.strided, torch.sparse_coo):
        raise TypeError(f"torch layout {X.layout} is not supported; use sparse_coo, sparse_csr or sparse_csc")
    if (isinstance(X, Tensor) and X.layout == torch.sparse_coo) or (_is_pydata(X) and len(X.shape) == 2):
        coords, values = coordinates(X, name)
        return sp.coo_array((values, tuple(coords)), shape=tuple(X.shape))
    return X


def read_csr(X: Any, name: str = "X", dtype: Any = None) -> sp.csr_array:
    """Read a sparse matrix of any library as canonical CSR: sorted, no entry twice.

    Parameters
    ----------
    X : sparse matrix of scipy (any format), torch or PyData
    name : str
        What error messages call it.
    dtype : numpy dtype, optional
        Default: float32 and shorter floats as float32, all other numbers as float64.

    Returns
    -------
    CSR; it shares the memory of a CSR that is canonical and of that dtype already.

    Raises
    ------
    ValueError
        Other than two dimensions, an empty dimension, complex or text entries, or indices that lead out of the matrix.
    """
    X = as_scipy(X, name)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name} has shape {X.shape}; a sparse {name} must be two-dimensional and not empty")
    return to_csr(X, name, dtype)


def to_csr(X: Any, name: str = "X", dtype: Any = None) -> sp.csr_array:
    """Convert a scipy matrix of any format and shape as `read_csr` does."""
    if X.dtype.kind != "f":
        refuse_other_than_real(X.dtype, name)
    if X.format not in ("csr", "csc", "bsr", "coo"):
        X = X.tocsr()
    _check_indices(X, name)
    S = sp.csr_array(X.astype(dtype or float_type(X.dtype), copy=False))  # repeated entries are summed after the cast
    if not S.has_canonical_format:
        S = S.copy()
        S.sum_duplicates()
    return S


def _check_indices(X: Any, name: str) -> None:
    """Refuse indices that lead out of a matrix: compiled code trusts them, and scipy checks some of them only."""
    if X.format == "coo":
        return _check_coordinates(X.coords, X.shape, name)
    n, m = (d // b for d, b in zip(X.shape, getattr(X, "blocksize", (1, 1)), strict=True))
    major, minor = (m, n) if X.format == "csc" else (n, m)
    ends, stored = X.indptr, min(len(X.indices), len(X.data))
    if len(ends) != major + 1 or ends[0] != 0 or ends[-1] > stored or (ends[1:] < ends[:-1]).any():
        raise ValueError(
            f"{name} has an invalid index pointer; it must rise from 0 to at most the {stored} stored entries in "
            f"{major} steps"
        )
    return _check_coordinates([X.indices[: ends[-1]]], (minor,), name)


def _check_coordinates(coords: Sequence[np.ndarray], shape: Sequence[int], name: str) -> None:
    for index, d in zip(coords, shape, strict=True):
        bad = [int(i) for i in (index.min(), index.max()) if not 0 <= i < d] if len(index) else []
        if bad:
            raise ValueError(f"{name} has an entry with index {bad[0]} in a dimension of {d}; indices are 0 to {d - 1}")


def precision(dtype: Any) -> float:
    """Find the relative spacing of the numbers of a dtype, of numpy or torch; of whole numbers that of float64."""
    if isinstance(dtype, torch.dtype):
        return torch.finfo(dtype if dtype.is_floating_point else torch.float64).eps
    return float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)


def coordinates(X: Any, name: str = "X") -> tuple[list[np.ndarray], np.ndarray]:
    """Read the indices, one array per mode, and the values, as floats, of a sparse array of any order.

    Entries may repeat.

    Raises
    ------
    TypeError
        A layout other than coordinates.
    ValueError
        Entries that are not real numbers (dense dimensions), a fill value other than 0, or indices outside.
    """
    if isinstance(X, Tensor):
        if X.layout != torch.sparse_coo:
            raise TypeError(f"{name}: torch layout {X.layout} is not supported for order {X.dim()}; use sparse_coo")
        if X.dense_dim():
            raise ValueError(f"{name} has {X.dense_dim()} dense dimensions; every entry must be a number of its own")
        X = X.detach()
        coords, values = list(X._indices().cpu().numpy()), X._values()
    else:
        if getattr(X, "format", "coo") != "coo":
            order = len(X.shape)
            raise TypeError(f"{name}: sparse format {X.format!r} is not supported for order {order}; use X.tocoo()")
        if getattr(X, "fill_value", 0) != 0:
            raise ValueError(f"{name} has fill_value {X.fill_value}; entries that are not stored must be 0")
        coords, values = list(X.coords), np.asarray(X.data)
    _check_coordinates(coords, X.shape, name)
    return coords, as_tensor(values, name).cpu().numpy()


def _is_pydata(X: Any) -> bool:
    return isinstance(getattr(X, "coords", None), np.ndarray) and hasattr(X, "fill_value")
