"""AnnData: factors come back beside the data, in the object or in its HDF5 file."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ..version import VERSION
from .anndata_files import names_of
from .complete_files import replacing
from .file_kinds import file_kind, nearest, need, told_of
from .fitted_factors import fitted_factors
from .labels import as_labels


def fit_anndata(model: Any, adata: Any, layer: str | None = None, labels: str | None = None, key: str = "nmf") -> Any:
    """Fit a model to an AnnData object, and store what it found there.

    Parameters
    ----------
    model : factorization of nnfactor
    adata : anndata.AnnData, observations as rows; results are written into it
    layer : str, optional
        Which of its layers; None: `X`.
    labels : str, optional
        A column of `obs`, for models that take labels; missing categories are unlabelled.
    key : str
        Where results go, as for `store_anndata`.

    Returns
    -------
    The model, fitted.

    Raises
    ------
    ValueError
        There is no such layer or column, or what `fit` raises; `adata` is unchanged then.
    """
    for what, name, known in (("layers", layer, adata.layers), ("obs", labels, adata.obs)):
        if name is not None and name not in known:
            raise ValueError(f"adata has no {name!r} in {what}; use one of {nearest(name, list(known.keys()))}")
    X = adata.X if layer is None else adata.layers[layer]
    if X is None:
        raise ValueError(f"adata has no X; use layer={next(iter(adata.layers.keys()), None)!r}")
    X = X.to_memory() if hasattr(X, "to_memory") else X  # a sparse matrix that stands in a file
    y = None if labels is None else as_labels(np.asarray(adata.obs[labels], dtype=object), f"adata.obs[{labels!r}]")
    fitted = model.fit(X) if y is None else model.fit(X, y)
    store_anndata(adata, fitted, key)
    return fitted


def store_anndata(adata: Any, model: Any, key: str = "nmf") -> None:
    """Write what a model found into an AnnData object, where scanpy looks for it.

    `obsm["X_nmf"]` has the coefficients (n_obs, k), `varm["NMF"]` the components (n_vars, k), and
    `uns["nnfactor"]["nmf"]` the model, its parameters and how the fit ended; for another `key` the names are
    `X_key` and `KEY`. Results under the same key are replaced.

    Raises
    ------
    ValueError
        The model was fitted to other observations or variables, or has several feature factors.
    """
    rows, factor = _factors(model, adata.n_obs, adata.n_vars, "adata")
    adata.obsm[f"X_{key}"] = rows
    adata.varm[key.upper()] = factor
    adata.uns["nnfactor"] = {**adata.uns.get("nnfactor", {}), key: _about(model)}


def write_h5ad_results(
    path_in: str | os.PathLike[str], path_out: str | os.PathLike[str], model: Any, key: str = "nmf"
) -> None:
    """Copy an AnnData file, and add what a model found, as `store_anndata` does; the package anndata is not needed.

    The copy is complete or not there; an existing `path_out` is replaced.

    Raises
    ------
    ValueError
        `path_out` is `path_in`, or the file has other observations or variables than the model was fitted to.
    ImportError
        h5py is missing.
    """
    source, target = Path(path_in), Path(path_out)
    file_kind(source, (".h5ad",))
    if target.exists() and source.samefile(target):
        raise ValueError(f"path_out={str(target)!r} is path_in, which stays as it is; name another file")
    h5py = need("h5py", source)
    with told_of(source, ".h5ad"), h5py.File(source, "r") as file:
        n_obs, n_vars = map(len, names_of(file, source))
    rows, factor = _factors(model, n_obs, n_vars, str(source))
    with replacing(target) as unfinished:
        shutil.copyfile(source, unfinished)
        with h5py.File(unfinished, "r+") as file:
            _write(_mapping(file, "obsm"), f"X_{key}", rows)
            _write(_mapping(file, "varm"), key.upper(), factor)
            _write(_mapping(_mapping(file, "uns"), "nnfactor"), key, _about(model))


def _factors(model: Any, n_obs: int, n_vars: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return both factors of a model of a matrix, if their lengths are those of the data."""
    factors = fitted_factors(model)
    shapes = tuple(F.shape[0] for F in factors)
    if shapes != (n_obs, n_vars):
        raise ValueError(
            f"{what} has {n_obs} observations and {n_vars} variables, but {type(model).__name__} was fitted to data of "
            f"{' x '.join(map(str, shapes))}; fit it to these data"
        )
    return factors[0], factors[1]


def _about(model: Any) -> dict[str, Any]:
    """Describe a model by what AnnData can write: text, numbers and lists of numbers; None is left out."""
    parameters = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    found = {
        "model": type(model).__name__,
        "version": VERSION,
        "params": {name: value for name, value in parameters.items() if value is not None},
    }
    ended = {"loss": "loss_", "n_iter": "n_iter_", "converged": "converged_"}
    return found | {name: _plain(getattr(model, a)) for name, a in ended.items() if hasattr(model, a)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple) and value and all(type(v) in (int, float) for v in value):
        return np.array(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else type(value).__name__  # an array, or terms with arrays, is no description


def _mapping(file: Any, name: str) -> Any:
    """Open a dictionary of AnnData, or make it."""
    group = file.require_group(name)
    group.attrs["encoding-type"], group.attrs["encoding-version"] = "dict", "0.1.0"
    return group


def _write(group: Any, name: str, value: Any) -> None:
    """Write a value as AnnData encodes it."""
    if name in group:
        del group[name]
    if isinstance(value, dict):
        made = _mapping(group, name)
        for part, of_part in value.items():
            _write(made, part, of_part)
        return
    group[name] = value
    kind = "string" if isinstance(value, str) else "array" if isinstance(value, np.ndarray) else "numeric-scalar"
    group[name].attrs["encoding-type"], group[name].attrs["encoding-version"] = kind, "0.2.0"
