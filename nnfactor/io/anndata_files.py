"""AnnData's files, HDF5 or zarr, read without its package."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .file_kinds import choose, listed, need
from .labels import choose_labels
from .table import Names, Table

TEXT = "OSUT"  # kinds of dtypes


@contextmanager
def open_anndata(path: Path) -> Iterator[Any]:
    """Open a file of AnnData: what HDF5 and zarr offer has the same names."""
    if path.suffix.lower() == ".zarr":
        yield need("zarr", path).open(str(path), mode="r")
    else:
        with need("h5py", path).File(path, "r") as file:
            yield file


def read_anndata(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    """Read AnnData's X or a layer, the names of observations and variables, and the columns of `obs`.

    `labels` asks for some of these columns, as labels; otherwise all come as they are.
    """
    with open_anndata(path) as file:
        item = data_item(file, key, path)
        values = item[()] if is_array(item) else _sparse_group(item, path)
        return Table(values, names_of(file, path), obs_columns(file, labels, path), str(path))


def is_array(item: Any) -> bool:
    """Tell arrays of a file from its groups."""
    return hasattr(item, "dtype")


def data_item(file: Any, key: str | None, path: Path) -> Any:
    """Find X, or a layer, in an open file."""
    if key is None and "X" not in file:
        raise ValueError(f"{path} has no X; name one of its layers as key: {listed(file.get('layers', ()))}")
    return file["X"] if key is None else file["layers"][choose(list(file.get("layers", ())), key, path)]


def names_of(file: Any, path: Path) -> tuple[Names, ...]:
    """Read the names of observations and variables."""
    for frame in ("obs", "var"):
        if file.get(frame) is None or is_array(file[frame]):
            raise ValueError(f"{path} has no table {frame}; write it with AnnData 0.7 or later")
    return tuple(texts(file[frame][_index(file[frame])]) for frame in ("obs", "var"))


def obs_columns(file: Any, labels: Sequence[str], path: Path) -> dict[str, np.ndarray]:
    """Read the columns of `obs`: those asked for, as labels, or all as they are."""
    obs = file["obs"]
    columns = {name: _column(obs, name) for name in obs if name not in (_index(obs), "__categories")}
    return choose_labels(columns, labels, f"{path}, obs")


def _index(frame: Any) -> str:
    return str(frame.attrs.get("_index", "_index"))


def _sparse_group(group: Any, path: Path) -> sp.csr_array:
    """Read a compressed sparse matrix of AnnData."""
    kind = sp.csr_array if encoding_of(group, path) == "csr_matrix" else sp.csc_array
    parts = tuple(group[name][()] for name in ("data", "indices", "indptr"))
    return sp.csr_array(kind(parts, shape=tuple(group.attrs["shape"])))


def encoding_of(group: Any, path: Path) -> str:
    """Tell how a sparse matrix is stored, by rows or by columns."""
    encoding = str(group.attrs.get("encoding-type", "group without an encoding"))
    if encoding not in ("csr_matrix", "csc_matrix"):
        raise ValueError(f"{path}: {group.name} is a {encoding}; data are an array or a sparse matrix")
    return encoding


def texts(item: Any) -> Names:
    """Read text: an array, or, as pandas 3 has it, an array beside a mask."""
    values = item if is_array(item) else item["values"]
    return tuple(v.decode() if isinstance(v, bytes) else str(v) for v in values[()])


def _column(frame: Any, name: str) -> np.ndarray:
    """Read a column of `obs`: categories, texts or numbers; what is missing is None."""
    item = frame[name]
    if not is_array(item) and "codes" in item:
        return _categories(item["categories"])[item["codes"][()]]
    older = frame.get("__categories", {})
    if name in older:  # before AnnData 0.8
        return _categories(older[name])[item[()]]
    values = item if is_array(item) else item["values"]
    column = np.array(texts(item), dtype=object) if values.dtype.kind in TEXT else values[()]
    if not is_array(item) and "mask" in item:
        column = np.array(column, dtype=object)
        column[item["mask"][()]] = None
    return column


def _categories(item: Any) -> np.ndarray:
    """Read categories, and None at the end, where the code -1 of what is missing points."""
    values = item if is_array(item) else item["values"]
    kept = list(texts(item)) if values.dtype.kind in TEXT else values[()].tolist()
    found = np.empty(len(kept) + 1, dtype=object)
    found[:-1] = kept
    return found
