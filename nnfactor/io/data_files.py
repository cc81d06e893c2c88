"""Data files: arrays, tables with names, sparse matrices and tensors, each read as what an estimator takes.

A kind of file is a row of `READERS`. Packages beyond numpy and scipy are imported where a file needs them, and the
message names the one that is missing.
"""

import gzip
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from .text_tables import read_long_table, read_text_table

Names = tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """What a data file holds.

    Attributes
    ----------
    values : array (n_samples, d_1, ..., d_r), scipy sparse matrix, or scipy `coo_array` of more dimensions
        As stored: a `.npy` file is a memory map. Estimators take it as it is.
    names : tuple, one entry for each dimension
        Names of its rows, columns, ...; None where the file has none.
    labels : dict
        Columns about the samples that the file holds beside the data, by name (AnnData's `obs`).
    source : str
        The file, and the part of it.
    """

    values: Any
    names: tuple[Names | None, ...]
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        for axis, (names, d) in enumerate(zip(self.names, self.values.shape, strict=True)):
            if names is not None and len(names) != d:
                raise ValueError(f"{self.source}: {len(names)} names for dimension {axis}, which has length {d}")
        for name, column in self.labels.items():
            if len(column) != self.values.shape[0]:
                raise ValueError(
                    f"{self.source}: labels {name!r} has {len(column)} entries for {self.values.shape[0]} rows"
                )

    def __repr__(self) -> str:
        """Say what was read: shape, type, share of zeros and of NaN."""
        stored = self.values.data if sp.issparse(self.values) else np.asarray(self.values)
        total = float(np.prod(self.values.shape, dtype=float)) or 1.0
        holes = int(np.isnan(stored).sum()) if stored.dtype.kind == "f" else 0
        zeros = total - np.count_nonzero(stored)
        kind = "sparse " if sp.issparse(self.values) else ""
        named = [f"dimension {axis}" for axis, names in enumerate(self.names) if names is not None]
        return (
            f"{self.source}: {' x '.join(map(str, self.values.shape))}, {kind}{stored.dtype}, "
            f"{zeros / total:.1%} zeros, {holes / total:.1%} NaN, names of {' and '.join(named) or 'nothing'}"
        )


def read_data(
    path: str | os.PathLike[str], key: str | None = None, long: bool = False, header: bool | None = None
) -> Table:
    r"""Read a data file by the end of its name.

    Parameters
    ----------
    path : str or path
        `.npy`, `.npz` (arrays, scipy sparse); `.csv`, `.tsv`, `.txt` (with or without names of rows and columns) and
        `.mtx`, also as `.gz`; `.mat`; `.parquet` (pandas), `.h5`, `.hdf5`, `.h5ad` (h5py), `.zarr` (zarr).
    key : str, optional
        Which array of a file with several: a name in `.npz`, `.mat`, `.h5` and `.zarr`; a layer in `.h5ad`.
    long : bool
        A text file lists entries: names or numbers of rows, columns, ..., and last a value. What is not listed is zero:
        a sparse matrix, or a sparse tensor of so many modes.
    header : bool, optional
        Whether the first line of a text table holds the names of the columns. None: it does if there is text behind its
        first cell, or if that is empty.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        A kind of file that is not known, several arrays and no `key`, text among numbers, rows of different lengths,
        entries listed twice; the message names the line and the column.
    ImportError, FileNotFoundError
        The package that reads this kind is missing, or the file is.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from nnfactor.io import read_data
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "counts.csv")
    ...     size = path.write_text("gene,A,B\nx,1,0\ny,0,3.5\n")
    ...     table = read_data(path)
    >>> table.names, table.values.tolist()
    ((('x', 'y'), ('A', 'B')), [[1.0, 0.0], [0.0, 3.5]])
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file")
    table = _read(path, key, long, header)
    source = str(path) if key is None else f"{path}[{key!r}]"
    if len(table.values.shape) < 2:
        raise ValueError(f"{source} has shape {table.values.shape}; data have two dimensions at least, samples first")
    if table.values.dtype.kind not in "biuf":
        raise ValueError(f"{source} holds {table.values.dtype}; data are numbers")
    return replace(table, source=source)


def _read(path: Path, key: str | None, long: bool, header: bool | None) -> Table:
    """Read a file by its kind."""
    kind = _kind(path)
    if kind in TABLES:
        with _open_text(path) as file:
            read = read_long_table(file, kind, str(path)) if long else read_text_table(file, kind, str(path), header)
        return Table(*read)
    if long:
        raise ValueError(f"{path}: long=True is for text tables ({', '.join(TABLES)}), not for {kind}")
    return READERS[kind](path, key)


def _kind(path: Path) -> str:
    """Return the end of a name that says the kind, without `.gz`."""
    ends = [end.lower() for end in path.suffixes]
    kind = ends[-2] if len(ends) > 1 and ends[-1] == ".gz" else (ends or [""])[-1]
    known, texts = (*TABLES, *READERS), (*TABLES, ".mtx")
    if kind not in known:
        raise ValueError(f"{path}: files that end in {kind or 'nothing'!r} are not known; use {', '.join(known)}")
    if ends[-1:] == [".gz"] and kind not in texts:
        raise ValueError(f"{path}: only {', '.join(texts)} are read from .gz; unpack it first")
    return kind


def _open_text(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _unnamed(values: Any) -> Table:
    return Table(values, (None,) * len(values.shape))


def _need(package: str, path: Path) -> Any:
    """Import a package that reads a kind of file, or name it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{path}: reading it needs the package {package}; pip install {package}") from error


def _choose(arrays: Sequence[str], key: str | None, path: Path) -> str:
    """Choose the array of a file: the named one, or the only one."""
    if key is None and len(arrays) == 1:
        return arrays[0]
    if key is None or key not in arrays:
        asked = "holds several arrays" if key is None else f"holds no {key!r}"
        raise ValueError(f"{path} {asked}; name one as key: {', '.join(map(repr, arrays)) or 'there is none'}")
    return key


def _read_npy(path: Path, key: str | None) -> Table:
    return _unnamed(np.load(path, mmap_mode="r", allow_pickle=False))


def _read_npz(path: Path, key: str | None) -> Table:
    with np.load(path, allow_pickle=False) as file:
        if "format" in file.files and "shape" in file.files:  # scipy's
            return _unnamed(sp.csr_array(sp.load_npz(path)))
        return _unnamed(file[_choose(file.files, key, path)])


def _read_mtx(path: Path, key: str | None) -> Table:
    values = scipy.io.mmread(path)
    return _unnamed(sp.csr_array(values) if sp.issparse(values) else values)


def _read_mat(path: Path, key: str | None) -> Table:
    try:
        arrays = scipy.io.loadmat(path)
    except NotImplementedError:  # version 7.3 is HDF5, whose dimensions come in reverse
        table = _read_h5(path, key)
        return _unnamed(np.asarray(table.values).T)
    numbers = [name for name, value in arrays.items() if not name.startswith("__") and _is_data(value)]
    values = arrays[_choose(numbers, key, path)]
    return _unnamed(sp.csr_array(values) if sp.issparse(values) else values)


def _is_data(value: Any) -> bool:
    return getattr(value, "ndim", 0) >= 2 and value.dtype.kind in "biuf" and min(value.shape) > 0


def _read_parquet(path: Path, key: str | None) -> Table:
    frame = _need("pandas", path).read_parquet(path)
    texts = [str(name) for name, kind in frame.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
    if texts and texts[0] == str(frame.columns[0]):
        frame, texts = frame.set_index(frame.columns[0]), texts[1:]
    if texts:
        raise ValueError(f"{path}: column {texts[0]!r} holds text; only the first column may, as names of rows")
    named = frame.index.name is not None or frame.index.dtype.kind not in "iu"
    rows = tuple(map(str, frame.index)) if named else None
    return Table(frame.to_numpy(), (rows, tuple(map(str, frame.columns))))


def _read_h5(path: Path, key: str | None) -> Table:
    h5py = _need("h5py", path)
    with h5py.File(path, "r") as file:
        found: list[str] = []
        file.visititems(
            lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and _is_data(item) else None
        )
        return _unnamed(file[_choose(found, key, path)][()])


def _read_h5ad(path: Path, key: str | None) -> Table:
    """Read AnnData's X or a layer, the names of observations and variables, and the columns of `obs`."""
    h5py = _need("h5py", path)
    with h5py.File(path, "r") as file:
        layers = list(file.get("layers", ()))
        item = file["X"] if key is None else file["layers"][_choose(layers, key, path)]
        values = item[()] if isinstance(item, h5py.Dataset) else _sparse_group(item)
        obs, var = file["obs"], file["var"]
        names = tuple(_texts(frame[frame.attrs.get("_index", "_index")]) for frame in (obs, var))
        columns = [name for name in obs if name not in (obs.attrs.get("_index", "_index"), "__categories")]
        return Table(values, names, {name: _column(obs[name]) for name in columns})


def _sparse_group(group: Any) -> sp.csr_array:
    """Read a compressed sparse matrix of AnnData."""
    kind = {"csr_matrix": sp.csr_array, "csc_matrix": sp.csc_array}[group.attrs["encoding-type"]]
    parts = tuple(group[name][()] for name in ("data", "indices", "indptr"))
    return sp.csr_array(kind(parts, shape=tuple(group.attrs["shape"])))


def _texts(dataset: Any) -> Names:
    return tuple(v.decode() if isinstance(v, bytes) else str(v) for v in dataset[()])


def _column(item: Any) -> np.ndarray:
    """Read a column of `obs`: categories, texts or numbers; a missing category is None."""
    if "codes" in item:
        categories = np.array([*_texts(item["categories"]), None], dtype=object)
        return categories[item["codes"][()]]
    values = item[()]
    return np.array(_texts(item), dtype=object) if values.dtype.kind in "OS" else values


def _read_zarr(path: Path, key: str | None) -> Table:
    zarr = _need("zarr", path)
    opened = zarr.open(str(path), mode="r")
    if not hasattr(opened, "shape"):
        opened = opened[_choose([name for name, _ in opened.arrays()], key, path)]
    return _unnamed(np.asarray(opened))


TABLES = (".csv", ".tsv", ".txt")

READERS: dict[str, Callable[[Path, str | None], Table]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".mtx": _read_mtx,
    ".mat": _read_mat,
    ".parquet": _read_parquet,
    ".h5": _read_h5,
    ".hdf5": _read_h5,
    ".h5ad": _read_h5ad,
    ".zarr": _read_zarr,
}
