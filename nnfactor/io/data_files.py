"""Data files: arrays, tables with names, sparse matrices and tensors, each read as what an estimator takes.

A kind of file is a row of `READERS`. Packages beyond numpy and scipy are imported where a file needs them, and the
message names the one that is missing.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from .anndata_files import read_anndata
from .file_kinds import TABLES, choose, file_kind, need, open_text, told_of
from .labels import as_labels, check_columns
from .table import Table
from .text_tables import Labels, Layout, layout_of, read_long_table, read_names, read_text_table
from .xarray_objects import read_netcdf

PIECE = 2**24  # bytes that are read at once, in whole chunks


def read_data(
    path: str | os.PathLike[str],
    key: str | None = None,
    long: bool = False,
    header: bool | None = None,
    labels: Labels = None,
    row_names: bool | None = None,
    names: Sequence[Any] | None = None,
    drop: Labels = None,
) -> Table:
    r"""Read a data file by the end of its name.

    Parameters
    ----------
    path : str or path
        `.npy`, `.npz` (arrays, scipy sparse); `.csv`, `.tsv`, `.txt` (with or without names of rows and columns) and
        `.mtx`, also as `.gz`; `.mat`; `.parquet` (pandas), `.h5`, `.hdf5`, `.h5ad` (h5py), `.zarr` (zarr, also
        AnnData's), `.nc` (xarray).
    key : str, optional
        Which array of a file with several: a name in `.npz`, `.mat`, `.h5`, `.zarr` and `.nc`; a layer of AnnData.
    long : bool
        A text file lists entries: names or numbers of rows, columns, ..., and last a value. Others are zero.
    header, row_names : bool, optional
        Whether the first line of a text table names columns, the first column rows. None: if text or gaps say so.
    labels, drop : str or sequence of str, optional
        Columns of a text table or `.parquet` that hold labels, text or whole numbers: they are no data, but stand in
        `Table.labels`, the unlabelled as -1 or None. Of AnnData columns of `obs`, of `.nc` coordinates. And columns
        of a text table that are left out, whatever they hold.
    names : sequence, optional
        For each dimension its names, or a text file with one in each line, or None: `("genes.tsv:2", "cells.tsv")`,
        where `:2` takes the second cell of a line, and `:symbol` the one that the first line calls so.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        A kind of file that is not known, several arrays and no `key`, text among numbers, rows of different lengths,
        names of another number, a damaged file; the message names the file, and the line and the column.
    ImportError, FileNotFoundError
        The package that reads this kind is missing, or the file is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from nnfactor.io import read_data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = (path := pathlib.Path(folder, "counts.csv")).write_text("cell,A,type,B\nx,1,T,0\ny,0,,3.5\n")
    ...     table = read_data(path, labels="type")
    >>> table.names, table.values.tolist(), table.labels["type"].tolist()
    ((('x', 'y'), ('A', 'B')), [[1.0, 0.0], [0.0, 3.5]], ['T', None])
    """
    kind = file_kind(path := Path(path), (*TABLES, *READERS))
    layout = layout_of(labels, header, row_names, drop)
    check_options(path, kind, key, long, layout)
    with told_of(path, kind):
        table = _read_text(path, kind, long, layout) if kind in TABLES else READERS[kind](path, key, layout.labels)
    return renamed(checked(replace(table, source=str(path) if key is None else f"{path}[{key!r}]")), names)


def renamed(table: Table, names: Sequence[Any] | None) -> Table:
    """Return the same table with other names of some dimensions, which may be in files."""
    if names is None:
        return table
    if isinstance(names, str | os.PathLike) or not isinstance(names, Sequence | np.ndarray):
        raise ValueError(f"names has an entry for each dimension: names, a file that has them, or None; got {names!r}")
    if len(names) != len(table.names):
        dimensions = f"{len(names)} entries for {len(table.names)} dimensions"
        raise ValueError(f"{table.source}: names has {dimensions}; give one for each, None where there are none")
    found = list(table.names)
    for axis, (given, n) in enumerate(zip(names, table.values.shape, strict=True)):
        if isinstance(given, str | os.PathLike):
            found[axis] = read_names(os.fspath(given), n)
        elif given is not None:
            found[axis] = tuple(map(str, given))
    return replace(table, names=tuple(found))


def checked(table: Table) -> Table:
    """Refuse what is no data: less than two dimensions, an empty one, text."""
    if len(table.values.shape) < 2:
        raise ValueError(
            f"{table.source} has shape {table.values.shape}; data have two dimensions at least, samples first"
        )
    if table.values.dtype.kind not in "biuf":
        raise ValueError(f"{table.source} holds {table.values.dtype}; data are numbers")
    if 0 in table.values.shape:
        raise ValueError(f"{table.source} has shape {table.values.shape}; data have no empty dimension")
    return table


def check_options(path: Path, kind: str, key: str | None, long: bool, layout: Layout) -> None:
    """Refuse options that a kind of file has no use for: they would be left out in silence."""
    what = "long tables" if long else kind
    if key is not None and kind not in KEYED:
        raise ValueError(f"{path}: key={key!r} is for files with several arrays ({', '.join(KEYED)}), not for {kind}")
    if long and kind not in TABLES:
        raise ValueError(f"{path}: long=True is for text tables ({', '.join(TABLES)}), not for {kind}")
    for name in ("header", "row_names"):
        if getattr(layout, name) is not None and (long or kind not in TABLES):
            raise ValueError(f"{path}: {name}= is for text tables ({', '.join(TABLES)}), not for {what}")
    if layout.labels and (long or kind not in LABELLED):
        raise ValueError(
            f"{path}: labels={layout.labels[0]!r} names a column of {', '.join(LABELLED)}, not of {what}; read_labels "
            "reads labels from a file of their own"
        )


def _read_text(path: Path, kind: str, long: bool, layout: Layout) -> Table:
    with open_text(path) as lines:
        if long:
            values, names, dims = read_long_table(lines, kind, str(path))
            return Table(values, names, source=str(path), dims=dims)
        return Table(*read_text_table(lines, kind, str(path), layout), source=str(path))


def unnamed(values: Any, path: Path) -> Table:
    """Make a table without names."""
    return Table(values, (None,) * len(values.shape), source=str(path))


def _read_npy(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    return unnamed(np.load(path, mmap_mode="r", allow_pickle=False), path)


def _read_npz(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        if key is None and "format" in file.files and "shape" in file.files:  # scipy's
            return unnamed(sp.csr_array(sp.load_npz(path)), path)
        data = [name for name in file.files if _holds_data(file, name)]
        return unnamed(file[choose(file.files if key is not None or not data else data, key, path)], path)


def _holds_data(file: Any, name: str) -> bool:
    """Tell from the head of an array whether it may be data: numbers in two dimensions at least."""
    heads = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with file.zip.open(f"{name}.npy") as opened:
        read = heads.get(np.lib.format.read_magic(opened))
        if read is None:  # names of fields beyond ASCII: no numbers
            return False
        shape, _, dtype = read(opened)
    return len(shape) >= 2 and dtype.kind in "biuf"


def _read_mtx(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    values = scipy.io.mmread(path, spmatrix=False)
    return unnamed(sp.csr_array(values) if sp.issparse(values) else values, path)


def _read_mat(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    try:
        arrays = scipy.io.loadmat(path, spmatrix=False)
    except NotImplementedError:  # version 7.3 is HDF5
        return _read_mat_hdf5(path, key)
    numbers = [name for name, value in arrays.items() if not name.startswith("__") and is_data(value)]
    values = arrays[choose(numbers, key, path)]
    return unnamed(sp.csr_array(values) if sp.issparse(values) else values, path)


def _read_mat_hdf5(path: Path, key: str | None) -> Table:
    """Read an array of MATLAB 7.3, whose dimensions come in reverse; its text are numbers with a mark."""
    with need("h5py", path).File(path, "r") as file:
        sparse = [name for name, item in file.items() if "MATLAB_sparse" in item.attrs]
        texts = [name for name, item in file.items() if item.attrs.get("MATLAB_class") == b"char"]
        arrays = [name for name, item in file.items() if hasattr(item, "dtype") and is_data(item) and name not in texts]
        item = file[choose([*sparse, *arrays], key, path)]
        if "MATLAB_sparse" not in item.attrs:
            return unnamed(item[()].T, path)
        parts = [item[name][()] if name in item else np.zeros(0) for name in ("data", "ir", "jc")]
        shape = (int(item.attrs["MATLAB_sparse"]), len(parts[2]) - 1)
        return unnamed(sp.csr_array(sp.csc_array(tuple(parts), shape=shape)), path)


def is_data(value: Any) -> bool:
    """Tell whether an array of a file may be data: numbers in two dimensions or more."""
    return getattr(value, "ndim", 0) >= 2 and value.dtype.kind in "biuf" and min(value.shape) > 0


def read_parquet(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    """Read a table of pandas or of another program; the first column may be text, the names of the rows."""
    need("pyarrow", path)  # pandas reads with it, and names it in several lines
    return frame_table(need("pandas", path).read_parquet(path), path, labels)


def frame_table(frame: Any, path: Path, labels: Sequence[str]) -> Table:
    """Make a table of a DataFrame, without the columns of labels."""
    check_columns(labels, list(map(str, frame.columns)), str(path))
    found = {name: as_labels(frame[name].to_numpy(), f"{path}, column {name!r}") for name in labels}
    frame = frame.drop(columns=list(labels))
    texts = [str(name) for name, kind in frame.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
    if texts and texts[0] == str(frame.columns[0]):
        frame, texts = frame.set_index(frame.columns[0]), texts[1:]
    if texts:
        raise ValueError(
            f"{path}: column {texts[0]!r} holds text; only the first column may, as names of rows; labels={texts[0]!r} "
            "reads it as labels"
        )
    named = frame.index.name is not None or frame.index.dtype.kind not in "iu"
    rows = tuple(map(str, frame.index)) if named else None
    return Table(frame.to_numpy(), (rows, tuple(map(str, frame.columns))), found, str(path))


def _read_h5(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    with need("h5py", path).File(path, "r") as file:
        return unnamed(read_rows(file[choose(datasets(file), key, path)]), path)


def read_rows(stored: Any, dtype: Any = None) -> np.ndarray:
    """Read an array of a file some rows at a time, as numbers of another dtype: never is it there twice."""
    first = (getattr(stored, "chunks", None) or (1,))[0]
    step = max(1, PIECE // max(1, first * prod(stored.shape[1:]) * stored.dtype.itemsize)) * first
    found = np.empty(stored.shape, stored.dtype if dtype is None else dtype)
    for start in range(0, stored.shape[0], step):
        found[start : start + step] = stored[start : start + step]
    return found


def datasets(file: Any) -> list[str]:
    """List the names of the data in an HDF5 file."""
    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if hasattr(item, "dtype") and is_data(item) else None)
    return found


def _read_zarr(path: Path, key: str | None, labels: Sequence[str] = ()) -> Table:
    return (
        read_anndata(path, key, labels)
        if holds_anndata(path)
        else unnamed(read_rows(open_zarr(path, key, labels)), path)
    )


def holds_anndata(path: Path) -> bool:
    """Tell whether a zarr folder is one of AnnData."""
    return need("zarr", path).open(str(path), mode="r").attrs.get("encoding-type") == "anndata"


def open_zarr(path: Path, key: str | None, labels: Sequence[str] = ()) -> Any:
    """Open the array of a zarr folder, without reading it."""
    if labels:
        raise ValueError(f"{path} holds no columns that labels={labels[0]!r} could name; read_labels reads other files")
    opened = need("zarr", path).open(str(path), mode="r")
    if hasattr(opened, "shape"):
        if key is not None:
            raise ValueError(f"{path} holds one array, and no {key!r}; leave key out")
        return opened
    return opened[choose([name for name, _ in opened.arrays()], key, path)]


READERS: dict[str, Callable[[Path, str | None, Sequence[str]], Table]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".mtx": _read_mtx,
    ".mat": _read_mat,
    ".parquet": read_parquet,
    ".h5": _read_h5,
    ".hdf5": _read_h5,
    ".h5ad": read_anndata,
    ".zarr": _read_zarr,
    ".nc": read_netcdf,
}

KEYED = (".npz", ".mat", ".h5", ".hdf5", ".h5ad", ".zarr", ".nc")

LABELLED = (*TABLES, ".parquet", ".h5ad", ".zarr", ".nc")
