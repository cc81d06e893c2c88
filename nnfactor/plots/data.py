"""The data of a fit beside what the model says of them, in blocks of samples."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..core.data.as_data import as_scipy, coordinates, is_sparse, to_csr
from ..core.labels import to_host
from ..models.shared.base import Factorization

ENTRIES = 4_000_000  # of a block


def sum_of_squares(X: Any) -> float:
    """Add up the squares of data, of all views or slices; hidden entries are left out."""
    if isinstance(X, list | tuple) and any(np.ndim(A) > 1 or hasattr(A, "shape") for A in X):
        return sum(sum_of_squares(A) for A in X if A is not None)
    values = coordinates(X if isinstance(X, Tensor) else X.tocoo())[1] if is_sparse(X) else as_dense(X)
    return float(np.nansum(np.square(np.asarray(values, dtype=np.float64))))


def as_dense(X: Any, unstored_is_hidden: bool = False) -> np.ndarray:
    """Read an array as float64, NaN where it hides something."""
    if is_sparse(X):
        places, values = coordinates(X.coalesce() if isinstance(X, Tensor) else X.tocoo())
        dense = np.full(tuple(X.shape), np.nan if unstored_is_hidden else 0.0)
        dense[tuple(places)] = values
        return dense
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    return np.asarray(to_host(X), dtype=np.float64)


def residual_blocks(model: Any, X: Any, every: int = 1) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield samples, and the residuals `X - model` of every array for them; a list of views or slices is one block.

    `every` is the step from one sample to the next that is read. Hidden entries are NaN.
    """
    check_is_fitted(model, "factors_")
    name = type(model).__name__
    if not isinstance(model, Factorization) or not hasattr(model, "inverse_transform"):
        raise ValueError(f"{name} has no inverse_transform, so that there are no residuals; give NMF, NTF, NTD or NGE")
    if "embedding_" not in vars(model):
        raise ValueError(f"{name} has no embedding_; fit it: bases that are given have no samples")
    V = to_host(model.embedding_)
    unstored = getattr(model, "missing", None) == "unstored"
    if isinstance(X, list | tuple) and any(hasattr(A, "shape") for A in X):
        shown = cast(Any, model).reconstruct() if hasattr(model, "evolving_") else model.inverse_transform(V)
        yield np.arange(len(V)), [as_dense(A, unstored) - to_host(B) for A, B in zip(X, shown, strict=True)]
        return
    if hasattr(model, "evolving_"):
        yield from residual_blocks(model, list(to_host(X)))
        return
    n, shape = len(V), getattr(X, "shape", None) or np.shape(X)
    if shape[0] != n:
        raise ValueError(f"X has {shape[0]} samples, and {name} was fitted to {n}; give the data of the fit")
    size = max(1, ENTRIES // max(1, int(np.prod(shape[1:]))))
    for start in range(0, n, size * every):
        at = np.arange(start, min(n, start + size * every), every)
        fitted = np.asarray(to_host(model.inverse_transform(V[at])), dtype=np.float64)
        yield at, [as_dense(_rows(X, at), unstored).reshape(fitted.shape) - fitted]


def _rows(X: Any, at: np.ndarray) -> Any:
    """Take samples of an array, a frame, a tensor, or sparse data."""
    if is_sparse(X) and len(X.shape) == 2 and not isinstance(X, Tensor):
        return to_csr(as_scipy(X))[at]
    if isinstance(X, Tensor):
        return X.index_select(0, torch.from_numpy(at).to(X.device))
    if sp.issparse(X):
        return sp.coo_array(X).tocsr()[at] if X.ndim == 2 else X[at]
    return X.iloc[at] if hasattr(X, "iloc") else X[at] if hasattr(X, "shape") else np.asarray(X)[at]
