"""xarray: arrays with names of dimensions and coordinates go in, and factors come back with them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..version import VERSION
from .file_kinds import choose, need
from .fitted_factors import as_numpy, fitted_factors
from .labels import choose_labels
from .table import Names, Table


def table_of(array: Any, labels: Sequence[str] = (), source: str = "") -> Table:
    """Make a table of an `xarray.DataArray`: coordinates are names, and other columns of its first dimension labels."""
    dims = tuple(map(str, array.dims))
    names = tuple(_texts(array.coords[dim].values) if dim in array.coords else None for dim in array.dims)
    return Table(array.values, names, labels_along(array, labels, source), source, dims)


def labels_along(array: Any, labels: Sequence[str], source: str) -> dict[str, np.ndarray]:
    """Return coordinates of the first dimension beside its names: those asked for, as labels, or all as they are."""
    first = array.dims[0]
    found = {str(name): A.values for name, A in array.coords.items() if A.dims == (first,) and name != first}
    return choose_labels({name: _column(values) for name, values in found.items()}, labels, source)


@contextmanager
def open_netcdf(path: Path, key: str | None) -> Iterator[Any]:
    """Open an array of a netCDF file, without reading it."""
    with open(path, "rb") as start:
        if start.read(4) == b"\x89HDF":  # netCDF 4; scipy reads netCDF 3
            need("h5netcdf", path)
    with need("xarray", path).open_dataset(path) as file:
        found = [str(name) for name, A in file.data_vars.items() if A.ndim >= 2 and A.dtype.kind in "biuf"]
        yield file[choose(found, key, path)]


def read_netcdf(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    """Read an array of a netCDF file with its coordinates."""
    with open_netcdf(path, key) as array:
        return table_of(array, labels, str(path))


def to_xarray(model: Any, X: Any, embedding: Any = None) -> Any:
    """Return the factors of a model with the dimensions and coordinates of its data.

    Parameters
    ----------
    model : fitted factorization
        With `embedding_` and one entry of `factors_` for each further dimension of X.
    X : xarray.DataArray or Table
        The data, samples first: what was fitted, or new samples with their `embedding`; dimensions and coordinates
        are taken. A `Table` without `dims` has "sample" and "feature", a tensor "sample", "mode_1", "mode_2", ...
    embedding : array (n_samples, k), optional
        Coefficients of the samples in X, such as `model.transform(X)`; None: `model.embedding_`.

    Returns
    -------
    xarray.Dataset
        `embedding` (first dimension, "component"); `factor_D` (D, "component") for every other dimension D. Where
        dimensions have components of their own (`NTD`), these are "component_D", and `core` has them all. All
        coordinates of X are there; its attributes name the model.

    Raises
    ------
    ValueError
        Factors of other lengths than the dimensions, several views, a dimension that is called "component".
    TypeError, ImportError
        X has no names of dimensions, or the model no factors; xarray is missing.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NMF
    >>> from nnfactor.io import Table, to_xarray
    >>> table = Table(np.eye(3) + 1, (("a", "b", "c"), None), dims=("time", "band"))
    >>> found = to_xarray(NMF(2, random_state=0).fit(table.values), table)
    >>> dict(found.factor_band.sizes), found.embedding.sel(time="b").dims
    ({'band': 3, 'component': 2}, ('component',))
    """
    xarray = need("xarray", type(model).__name__, "to_xarray")
    dims, coords, shape = _frame_of(X)
    factors = fitted_factors(model)
    factors[0] = factors[0] if embedding is None else as_numpy(embedding)
    found = tuple(F.shape[0] for F in factors)
    if found != shape:
        advice = "hand in the embedding of these samples" if found[1:] == shape[1:] else "X must be its data"
        raise ValueError(f"X has shape {shape}, but {type(model).__name__} has factors of {found} rows; {advice}")
    core = as_numpy(model.core_) if hasattr(model, "core_") else None
    ranks = tuple("component" if core is None else f"component_{dim}" for dim in dims)
    if taken := {*ranks, "embedding", "core"} & {*dims, *coords}:
        raise ValueError(f"X has a dimension or coordinate {min(taken)!r}, the name of a result; rename it")
    names = ["embedding", *(f"factor_{dim}" for dim in dims[1:])]
    arrays: dict[str, Any] = {name: ((d, r), F) for name, d, r, F in zip(names, dims, ranks, factors, strict=True)}
    arrays |= {} if core is None else {"core": (ranks, core)}
    numbers = {r: np.arange(F.shape[1]) for r, F in zip(ranks, factors, strict=True)}
    about = {"model": type(model).__name__, "nnfactor": VERSION}
    return xarray.Dataset(arrays, coords=coords, attrs=about).assign_coords(numbers)


def _frame_of(X: Any) -> tuple[Names, Any, tuple[int, ...]]:
    """Return the dimensions of an array or a table, its coordinates and its shape."""
    if isinstance(X, Table):
        features = ("feature",) if len(X.names) == 2 else tuple(f"mode_{b}" for b in range(1, len(X.names)))
        dims = X.dims or ("sample", *features)
        coords = {dim: list(names) for dim, names in zip(dims, X.names, strict=True) if names is not None}
        return dims, coords, tuple(X.values.shape)
    if not hasattr(X, "dims") or not hasattr(X, "coords"):
        raise TypeError(f"X is a {type(X).__name__}; to_xarray takes an xarray.DataArray or a Table of read_data")
    return tuple(X.dims), X.coords, tuple(X.shape)


def _texts(values: np.ndarray) -> Names:
    return tuple(map(str, values.tolist() if values.dtype.kind in "OSUbiuf" else values))


def _column(values: np.ndarray) -> np.ndarray:
    """Return numbers as they are, and all else, such as dates, as text."""
    if values.dtype.kind in "biufO":
        return values
    found = np.empty(len(values), dtype=object)
    found[:] = _texts(values)
    return found
