"""Parts of data as users hand them in: blocks of two modes, and entries that are hidden."""

from collections.abc import Mapping, Sequence
from math import frexp
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..core.arrays import as_array
from ..core.data.as_data import as_scipy, as_tensor, coordinates, is_sparse, to_csr
from ..core.data.base import Data
from ..core.data.hidden import make_sparse
from ..core.labels import to_host


def as_indexable(X: Any, sample_shape: Any = None) -> Any:
    """Read data as numpy (masks are kept), torch, or scipy CSR, whose parts can be taken; samples in their shape."""
    if isinstance(X, Data) and not X.in_memory and hasattr(X, "part"):
        return X
    if isinstance(X, Data):
        raise TypeError(f"X is {type(X).__name__}, of which no blocks can be taken; hand in the array it was made of")
    if is_sparse(X):
        if len(X.shape) > 2:
            return X if isinstance(X, Tensor) else make_sparse(*_stored(X), X.shape)
        if sample_shape is not None:
            raise ValueError("sample_shape folds flattened rows, which are sparse here; hand in the folded array")
        return to_csr(as_scipy(X))
    X = X if isinstance(X, Tensor | np.ma.MaskedArray) else as_array(X)
    return X if sample_shape is None or len(X.shape) > 2 else X.reshape(len(X), *sample_shape)


def divide(X: Any, scale: float) -> Any:
    """Divide data by a power of two, twice by about its root: one over it may leave the range. 1: the very data."""
    if scale == 1:
        return X
    if isinstance(X, Data):
        return X.scaled(1 / scale)
    digits = frexp(scale)[1] - 1
    return X * 2.0 ** -(digits // 2) * 2.0 ** -(digits - digits // 2)


def take(X: Any, at: np.ndarray, mode: int) -> Any:
    """Copy the slices `at` of a mode; of data in blocks name them."""
    if isinstance(X, Data):
        return cast(Any, X).part(at, mode)
    if isinstance(X, Tensor):
        index = torch.from_numpy(at).to(X.device)
        return (X.coalesce() if X.layout == torch.sparse_coo else X).index_select(mode, index)
    if is_sparse(X):
        return X[at] if mode == 0 else sp.csr_array(X[:, at])
    return X[(slice(None),) * mode + (at,)]


def swap(X: Any) -> Any:
    """Exchange the first two modes: a view, or CSR."""
    if isinstance(X, Data):
        return cast(Any, X).turned()
    if isinstance(X, Tensor):
        return X.transpose(0, 1)
    return sp.csr_array(X.T) if is_sparse(X) else X.swapaxes(0, 1)


def scale_rows(F: Any, by: np.ndarray) -> Any:
    """Multiply every row of a factor by a number, in its own precision."""
    if isinstance(F, Tensor):
        return F * torch.from_numpy(by).to(F)[:, None]
    return F * by.astype(F.dtype)[:, None]


def scale_fixed(fixed: Mapping[str, Any] | None, by: Sequence[np.ndarray]) -> Mapping[str, Any] | None:
    """Multiply the rows of known entries, by factor, as those of the factors of scaled data."""
    numbers = dict(zip(("V", *(f"U{b}" for b in range(1, len(by)))), by, strict=True))
    return fixed and {name: scale_rows(as_tensor(F, "fixed"), numbers[name]) for name, F in fixed.items()}


def scale_modes(X: Any, by: Sequence[np.ndarray]) -> Any:
    """Multiply every slice of every mode by a number; a copy, at least float32."""
    if isinstance(X, Data):
        return cast(Any, X).scaled_by(by)
    if is_sparse(X):
        places, values = _stored(X)
        for index, numbers in zip(places, by, strict=True):
            values = values * numbers[index].astype(values.dtype)
        made = make_sparse(places, values, X.shape)
        return made.to(X.device) if isinstance(X, Tensor) else made
    if isinstance(X, Tensor):
        scaled = X.detach().to(torch.promote_types(X.dtype, torch.float32))
        shaped = lambda numbers, mode: torch.from_numpy(numbers).to(scaled).reshape(-1, *[1] * (X.dim() - 1 - mode))
    else:
        scaled = X.astype(np.promote_types(X.dtype, np.float32))
        shaped = lambda numbers, mode: numbers.astype(scaled.dtype).reshape(-1, *[1] * (X.ndim - 1 - mode))
    for mode, numbers in enumerate(by):
        scaled = scaled * shaped(numbers, mode)
    return scaled


def _stored(X: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """Read the places and the values that sparse data store."""
    return coordinates(X if isinstance(X, Tensor) else X.tocoo())


def stored_entries(X: Any) -> list[np.ndarray]:
    """Find the places of the entries that sparse data store, one index for each mode."""
    return list(_stored(X)[0]) if is_sparse(X) else []


def counted_entries(X: Any, weights: Any) -> Any:
    """Find the places of entries that are not hidden; None where all count."""
    if is_sparse(X):
        return None
    hidden = X.isnan().cpu().numpy() if isinstance(X, Tensor) else np.isnan(np.ma.getdata(X)) | np.ma.getmaskarray(X)
    if weights is not None:
        dense = weights.toarray() if is_sparse(weights) and not isinstance(weights, Tensor) else weights
        hidden = hidden | (np.asarray(dense.cpu() if isinstance(dense, Tensor) else dense) == 0)
    return (~hidden).nonzero() if hidden.any() else None


def hide_entries(X: Any, at: list[np.ndarray]) -> Any:
    """Put NaN in some places; the rest is copied."""
    if isinstance(X, Tensor) and X.layout == torch.strided:
        hidden = X.to(torch.promote_types(X.dtype, torch.float32)).clone()
        hidden[tuple(torch.from_numpy(index).to(X.device) for index in at)] = torch.nan
        return hidden
    if not is_sparse(X):
        hidden = X.astype(np.promote_types(X.dtype, np.float32))
        hidden[tuple(at)] = np.nan
        return hidden
    places, values = _stored(X)
    both = [np.concatenate(pair) for pair in zip(places, at, strict=True)]
    return make_sparse(both, np.concatenate([values, np.full(len(at[0]), np.nan, values.dtype)]), X.shape)


def replace_entries(X: Any, at: list[np.ndarray], value: float) -> Any:
    """Put a number in some places of a dense array; the rest is copied."""
    filled = hide_entries(X, at)
    index = tuple(torch.from_numpy(i).to(X.device) for i in at) if isinstance(X, Tensor) else tuple(at)
    filled[index] = value
    return filled


def lower_weights(X: Any, weights: Any, at: list[np.ndarray], share: float) -> np.ndarray:
    """Make weights of a dense array: those given, or 1, times `share` in some places."""
    lowered = np.ones(tuple(X.shape)) if weights is None else np.array(to_host(weights), dtype=np.float64)
    lowered[tuple(at)] *= share
    return lowered


def mark_entries(shape: tuple[int, ...], at: list[np.ndarray], weights: Any = None) -> Any:
    """Make sparse weights that are 0 but in some places: there 1, or as given."""
    values = np.ones(len(at[0])) if weights is None else np.asarray(weights[tuple(at)], dtype=np.float64)
    return make_sparse(at, values, shape)
