"""Entries that are missing, or that count differently, taken from what users hand in."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..factors import even_split
from .as_data import as_data, as_scipy, as_tensor, coordinates, is_sparse, sum_repeated, to_csr
from .base import Data
from .dense import Dense
from .partly_observed import MostlyObserved, Observed
from .sparse import Sparse
from .sparse_tensor import SparseTensor
from .stored_entries import StoredEntries
from .weighted import Weighted, WeightedDense

# Of the entries hidden, up to which it is faster to correct sums over all entries; but for small data, with which the
# problems of a batch fit into one product, and are corrected one by one.
FEW, SMALL = 0.07, 1 << 15

Weigh = Callable[[Data], Data]  # from data, 0 where entries are hidden, to the same with their weights


def take_mask(X: Any) -> tuple[Any, np.ndarray | None]:
    """Split a masked array into its entries and what is hidden; None where nothing is."""
    if not isinstance(X, np.ma.MaskedArray):
        return X, None
    mask = np.ma.getmaskarray(X)
    return np.ma.getdata(X), (mask if mask.any() else None)


def hide(
    X: Any,
    missing: str | None,
    mask: np.ndarray | None,
    weights: Any,
    zeros_are_free: bool,
    shape: Sequence[int] | None = None,
    none_may_count: bool = False,
) -> tuple[Any, Weigh | None]:
    """Return X with zeros in place of hidden entries, and what gives the data made of it their weights.

    The second is None where all entries count alike. `missing`: "nan" hides NaN, "unstored" what sparse data do not
    store. `zeros_are_free`: a zero has a finite divergence, so that sums over all entries can be corrected. `shape` is
    that in which X was given, and weights are: its samples may have been folded. `none_may_count`: of new samples all
    entries may be hidden; of those to learn from this is refused.
    """
    X, weigh, counts = _split(X, missing, mask, weights, zeros_are_free, shape)
    if not (counts or none_may_count):
        raise ValueError("X has no entry that counts: all are hidden or have weight 0")
    return X, weigh


def _split(
    X: Any, missing: str | None, mask: np.ndarray | None, weights: Any, zeros_are_free: bool, shape: Any
) -> tuple[Any, Weigh | None, bool]:
    """Return what `hide` does, and whether any entry counts."""
    if isinstance(X, Data):
        if not X.in_memory and not X.weighted and (weights is not None or missing is not None):
            X = cast(Any, X).hidden(missing, weights, zeros_are_free)
            return X, None, not X.weighted or cast(Any, X).facts.counts
        if weights is not None:
            raise ValueError("weights go with arrays, or with data in blocks; X is Data. Hand in what it was made of")
        return X, None, True
    weights = None if weights is None else _read_weights(weights, X, shape or X.shape)
    if is_sparse(X):
        if isinstance(weights, Tensor) and missing != "unstored":
            X = _densify(X)
        else:
            return _hide_stored(X, weights, missing)
    X = as_tensor(X)
    if missing == "unstored":
        raise ValueError("missing='unstored' is for sparse X, but X is dense; use missing='nan' and NaN, or weights")
    if weights is not None and not isinstance(weights, Tensor):
        return _observe(X, weights[0], weights[1], missing, mask)
    hidden = X.isnan() if missing == "nan" else torch.zeros((), dtype=torch.bool, device=X.device)
    if mask is not None:
        hidden = hidden | torch.from_numpy(mask.reshape(X.shape)).to(X.device)
    if weights is None and not bool(hidden.any()):
        return X, None, True
    W = (~hidden).to(X.dtype) if weights is None else weights.to(X)
    if weights is not None and bool(hidden.any()):
        W = W.masked_fill(hidden, 0)
    zero = W == 0
    clean = X.masked_fill(zero, 0) if bool(zero.any()) else X
    return clean, _weigh_dense(W, zeros_are_free), not bool(zero.all())


def hidden_counts(data: Data) -> tuple[str, bool, int, int]:
    """Tell how entries are hidden, whether weights are 0 and 1 only, how many are 0, and of how many."""
    if isinstance(data, WeightedDense):
        return "dense", data.binary, int((data.weights.X == 0).sum()), data.weights.X.numel()
    kind = "observed" if isinstance(data, Observed) else "stored" if isinstance(data, MostlyObserved) else "plain"
    return kind, True, 0, prod(data.shape)


def relaxes_all(counts: Sequence[tuple[str, bool, int, int]]) -> bool:
    """Tell whether data of several parts relax, from `hidden_counts` of each: as those of one would."""
    kinds = {kind for kind, *_ in counts}
    _, binary, hidden, total = zip(*counts, strict=True)
    return "observed" in kinds or ("dense" in kinds and not _are_few(all(binary), sum(hidden), sum(total)))


def weigh_all(data: Data, shape: Sequence[int]) -> Weighted:
    """Give data the weight 1, where other parts of data of this shape have weights, and the cut of all."""
    if isinstance(data, Dense):
        data = WeightedDense(data.X, torch.ones_like(data.X))
    if isinstance(data, WeightedDense):
        return WeightedDense(cast(Dense, data.data).X, data.weights.X, even_split(shape))
    nothing: list[np.ndarray] = [np.zeros(0, dtype=np.int64) for _ in data.shape]
    return data if isinstance(data, Weighted) else MostlyObserved(data, _stored(nothing, np.zeros(0), data))


def _are_few(binary: bool, hidden: int, total: int) -> bool:
    """Tell whether so few entries are hidden that sums over all are corrected."""
    return binary and total > SMALL and hidden / total <= FEW


def _weigh_dense(W: Tensor, zeros_are_free: bool) -> Weigh:
    """Give dense data their weights: few hidden entries by corrections, unless a zero in their place costs infinity."""
    binary = bool(((W == 0) | (W == 1)).all())
    few = zeros_are_free and _are_few(binary, int((W == 0).sum()), W.numel())

    def weigh(data: Data) -> Data:
        X, w = cast(Dense, data).X, W.to(data.device, data.dtype)
        if few:
            at = [index.cpu().numpy() for index in (w == 0).nonzero().unbind(1)]
            return MostlyObserved(data, _stored(at, np.ones(len(at[0])), data))
        return WeightedDense(X if binary else X * w, w, data.cut)

    return weigh


def _hide_stored(X: Any, weights: Any, missing: str | None) -> tuple[Any, Weigh | None, bool]:
    """Hide entries of sparse data: NaN that are stored, or all that are not."""
    coords, values = _coordinates(X)
    hidden = np.isnan(values) if missing == "nan" else np.zeros(len(values), bool)
    if missing == "unstored":
        hidden = np.isnan(values)
        W = (~hidden).astype(np.float64)
        if isinstance(weights, Tensor):
            W *= _at(weights, coords)
        elif weights is not None:
            W *= _look_up(coords, weights[0], weights[1], X.shape)
    elif weights is not None:
        given, W = weights
        values = _look_up(given, coords, values, X.shape)
        hidden = np.isnan(values) if missing == "nan" else hidden[:0]
        coords, W = given, (W * ~hidden if missing == "nan" else W)
    elif not hidden.any():
        return X, None, True
    else:
        clean = make_sparse(coords, np.where(hidden, 0, values), X.shape)
        at = [index[hidden] for index in coords]
        count = prod(X.shape) > len(at[0])
        return clean, lambda data: MostlyObserved(data, _stored(at, np.ones(len(at[0])), data)), count
    return _clean_stored(coords, values, W, X)


def _observe(
    X: Tensor, coords: list[np.ndarray], W: np.ndarray, missing: str | None, mask: np.ndarray | None
) -> tuple[Any, Weigh, bool]:
    """Take of dense data the entries that sparse weights name, but for those that are missing or masked."""
    values = _at(X, coords)
    if missing == "nan":
        W = np.where(np.isnan(values), 0, W)
    if mask is not None:
        W = np.where(mask.reshape(X.shape)[tuple(coords)], 0, W)
    return _clean_stored(coords, values, W, X)


def _clean_stored(coords: Sequence[np.ndarray], values: np.ndarray, W: np.ndarray, X: Any) -> tuple[Any, Weigh, bool]:
    """Return sparse data with zeros where the weight is 0, what weighs them, and whether any entry counts."""
    clean = make_sparse(coords, np.where(W == 0, 0, values), X.shape)
    return clean, lambda data: _weigh_stored(data, coords, W), bool(W.any())


def _weigh_stored(data: Data, coords: Sequence[np.ndarray], W: np.ndarray) -> Data:
    """Give stored entries their weights, in one pattern."""
    weights = _stored(coords, W, data)
    if (W == 1).all():
        return Observed(cast(StoredEntries, data), weights)
    at = [index.cpu().numpy() for index in cast(StoredEntries, data).coordinates()]
    values = (cast(StoredEntries, data).rows.values * weights.rows.values).cpu().numpy()
    return Observed(_stored(at, values, data), weights)


def _stored(coords: Sequence[np.ndarray], values: np.ndarray, like: Data) -> StoredEntries:
    """Make sparse data, zeros stored too."""
    if len(like.shape) == 2:
        S = sp.csr_array((values, tuple(coords)), shape=like.shape)
        S.sum_duplicates()
        return Sparse(S, like.device, like.dtype)
    return SparseTensor(list(coords), values, like.shape, like.device, like.dtype)


def _read_weights(weights: Any, X: Any, given: Sequence[int]) -> Any:
    """Read weights of the shape of X, or of that in which it was given: a tensor, or coordinates and values."""
    if not hasattr(weights, "shape"):
        try:
            weights = np.asarray(weights)
        except ValueError:
            told = f"weights is a {type(weights).__name__} of entries of different shapes"
            raise ValueError(f"{told}; it must be one array of the shape of X, {tuple(given)}") from None
    shape = tuple(weights.shape)
    if shape not in (tuple(X.shape), tuple(given)):
        raise ValueError(f"weights has shape {shape}; it must be that of X, {tuple(given)}")
    if isinstance(weights, Tensor) and weights.device.type == "meta":
        raise ValueError("weights is on the meta device, which holds no numbers; hand in a tensor on 'cpu' or 'cuda'")
    as_data(weights, name="weights")  # refuses what is no number, not finite or negative
    if not is_sparse(weights):
        return as_tensor(weights, "weights").reshape(tuple(X.shape))
    coords, W = _coordinates(weights)
    if shape != tuple(X.shape):
        coords = list(np.unravel_index(_places(coords, shape), tuple(X.shape)))
    return coords, W


def _coordinates(X: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """List the stored entries of a sparse array, each place once."""
    if len(X.shape) == 2:
        S = to_csr(as_scipy(X)).tocoo()
        return list(S.coords), S.data
    coords, values = coordinates(X)
    places = _places(coords, X.shape)
    return (coords, values) if len(np.unique(places)) == len(places) else sum_repeated(coords, values)


def make_sparse(coords: Sequence[np.ndarray], values: np.ndarray, shape: Sequence[int]) -> Any:
    """Make a sparse matrix, or of more modes a sparse tensor; entries of one place are added (a NaN stays one)."""
    if len(shape) == 2:
        return sp.coo_array((values, tuple(coords)), shape=tuple(shape)).tocsr()
    at = torch.from_numpy(np.stack(coords).astype(np.int64))
    made = torch.sparse_coo_tensor(at, torch.from_numpy(values), tuple(shape), device="cpu", check_invariants=False)
    return made.coalesce()


def _at(X: Tensor, coords: Sequence[np.ndarray]) -> np.ndarray:
    """Take the entries at some places, on the host."""
    return X[tuple(torch.from_numpy(index.astype(np.int64)).to(X.device) for index in coords)].cpu().numpy()


def _densify(X: Any) -> Any:
    """Make a dense array: of data whose weights are one already."""
    X = as_scipy(X)
    return X.toarray() if sp.issparse(X) else X.to_dense() if isinstance(X, Tensor) else X.todense()


def _look_up(
    wanted: Sequence[np.ndarray], coords: Sequence[np.ndarray], values: Any, shape: Sequence[int]
) -> np.ndarray:
    """Find the values stored at some places; 0 where nothing is."""
    if not len(values):
        return np.zeros(len(wanted[0]))
    known, asked = _places(coords, shape), _places(wanted, shape)
    order = np.argsort(known)
    found = order[np.searchsorted(known, asked, sorter=order).clip(max=len(known) - 1)]
    return np.where(known[found] == asked, values[found], 0)


def _places(coords: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """Compute the position of places in the flattened array."""
    return np.ravel_multi_index([index.astype(np.int64) for index in coords], tuple(shape))
