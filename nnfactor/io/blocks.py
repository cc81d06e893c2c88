"""Data files in blocks of rows, for `partial_fit` and `Chunked`: never the whole is in memory."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .anndata_files import data_item, encoding_of, is_array, names_of, obs_columns
from .data_files import (
    READERS,
    check_options,
    checked,
    datasets,
    frame_table,
    holds_anndata,
    open_zarr,
    renamed,
    unnamed,
)
from .file_kinds import TABLES, choose, file_kind, need, open_text, told_of
from .labels import as_labels, check_columns
from .table import Table
from .text_tables import Labels, Layout, TextTable, label_columns, layout_of
from .xarray_objects import labels_along, open_netcdf, table_of

WHOLE = {
    ".npz": "it is packed; save the array as .npy",
    ".mtx": "its entries come in any order; save the matrix as .h5ad, or as .npy",
    ".mat": "it is packed, or has its rows last; save the array as .npy",
}


def read_blocks(
    path: str | os.PathLike[str],
    n_rows: int,
    key: str | None = None,
    header: bool | None = None,
    labels: Labels = None,
    row_names: bool | None = None,
) -> Iterator[Table]:
    """Read a data file in blocks of rows.

    Parameters
    ----------
    path : str or path
        Text tables, `.npy`, `.parquet`, `.h5`, `.hdf5`, `.h5ad` and AnnData's `.zarr` (dense or by rows),
        `.zarr`, `.nc`.
    n_rows : int
        Rows of a block; the last one may have fewer.
    key, header, labels, row_names : as of `read_data`
        All labels are read before, so that they are of one kind in all blocks.

    Yields
    ------
    Table
        Its rows with their names and labels; its source says which rows they are.

    Raises
    ------
    ValueError
        As `read_data`, and for files of which rows cannot be read alone, with the reason.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from nnfactor import NMF
    >>> from nnfactor.io import read_blocks
    >>> X = np.random.default_rng(0).random((10, 4))
    >>> model = NMF(2, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "x.npy"), X)
    ...     for block in read_blocks(Path(folder, "x.npy"), n_rows=4):
    ...         model = model.partial_fit(block.values)
    >>> model.n_samples_seen_, model.components_.shape
    (10, (2, 4))
    """
    path = Path(path)
    kind = file_kind(path, (*TABLES, *READERS))
    if kind in WHOLE:
        raise ValueError(f"{path} cannot be read in blocks: {WHOLE[kind]}, or read it whole with read_data")
    if isinstance(n_rows, bool) or not isinstance(n_rows, int | np.integer) or n_rows < 1:
        raise ValueError(f"n_rows must be a whole number >= 1, got {n_rows!r}")
    layout = layout_of(labels, header, row_names)
    check_options(path, kind, key, False, layout)
    return _checked_blocks(path, kind, key, layout, int(n_rows))


def open_data(
    path: str | os.PathLike[str],
    key: str | None = None,
    labels: Labels = None,
    names: Sequence[Any] | None = None,
) -> Table:
    """Open a data file without reading its numbers, for `nnfactor.Chunked`.

    Parameters
    ----------
    path : str or path
        `.npy`, `.h5`, `.hdf5`, `.zarr`, `.h5ad` and AnnData's `.zarr` (dense or by rows).
    key, labels, names : as of `read_data`

    Returns
    -------
    Table
        Its values give blocks of rows for slices: a memory map, a dataset of h5py, an array of zarr. The file stays
        open as long as they live.

    Raises
    ------
    ValueError
        As `read_data`, and for files of other kinds.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from nnfactor import NMF, Chunked
    >>> from nnfactor.io import open_data
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "x.npy"), np.random.default_rng(0).random((10, 4)))
    ...     model = NMF(2, random_state=0).fit(Chunked(open_data(Path(folder, "x.npy")).values, n_rows=4))
    >>> model.embedding_.shape
    (10, 2)
    """
    path = Path(path)
    kind = file_kind(path, (*TABLES, *READERS))
    if kind not in OPENED:
        raise ValueError(
            f"{path} cannot be opened in blocks; use {', '.join(OPENED)}, or read it whole with read_data (on the "
            "command line without --max-bytes)"
        )
    layout = layout_of(labels)
    check_options(path, kind, key, False, layout)
    with told_of(path, kind):
        table = OPENED[kind](path, key, layout.labels)
    return renamed(checked(replace(table, source=str(path) if key is None else f"{path}[{key!r}]")), names)


def can_be_opened(path: str | os.PathLike[str]) -> bool:
    """Tell whether `open_data` takes this kind of file."""
    return Path(path).suffix.lower() in OPENED


def _open_npy(path: Path, key: str | None, labels: Sequence[str]) -> Table:
    return unnamed(np.load(path, mmap_mode="r", allow_pickle=False), path)


def _open_h5(path: Path, key: str | None, labels: Sequence[str]) -> Table:
    file = need("h5py", path).File(path, "r")  # open as long as its dataset lives
    return unnamed(file[choose(datasets(file), key, path)], path)


def _open_zarr(path: Path, key: str | None, labels: Sequence[str]) -> Table:
    if not holds_anndata(path):
        return unnamed(open_zarr(path, key, labels), path)
    return _open_parts(need("zarr", path).open(str(path), mode="r"), path, key, labels)


def _open_h5ad(path: Path, key: str | None, labels: Sequence[str]) -> Table:
    return _open_parts(need("h5py", path).File(path, "r"), path, key, labels)


def _open_parts(file: Any, path: Path, key: str | None, labels: Sequence[str]) -> Table:
    """Open AnnData's X or a layer, with its names and columns."""
    item = data_item(file, key, path)
    values = item if is_array(item) else _CompressedRows(item, path)
    return Table(values, names_of(file, path), obs_columns(file, labels, path), str(path))


OPENED: dict[str, Callable[[Path, str | None, Sequence[str]], Table]] = {
    ".npy": _open_npy,
    ".h5": _open_h5,
    ".hdf5": _open_h5,
    ".h5ad": _open_h5ad,
    ".zarr": _open_zarr,
}


def _checked_blocks(path: Path, kind: str, key: str | None, layout: Layout, n_rows: int) -> Iterator[Table]:
    if kind in TABLES:
        blocks = _text_blocks(path, kind, n_rows, layout)
    elif kind in OPENED:
        blocks = _opened_blocks(kind, path, key, layout.labels, n_rows)
    else:
        blocks = BLOCKS[kind](path, key, layout.labels, n_rows)
    source, first = str(path) if key is None else f"{path}[{key!r}]", 0
    while True:
        with told_of(path, kind):  # not around the caller's work on a block
            block = next(blocks, None)
        if block is None:
            return
        last = first + block.values.shape[0]
        yield checked(replace(block, source=f"{source}, rows {first} to {last - 1}"))
        first = last


def _text_blocks(path: Path, kind: str, n_rows: int, layout: Layout) -> Iterator[Table]:
    columns = _text_labels(path, kind, layout) if layout.labels else {}
    with open_text(path) as lines:
        table = TextTable(lines, kind, str(path), layout)
        rows, first = iter(table), 0
        while block := list(islice(rows, n_rows)):
            names = tuple(str(row.name) for row in block) if table.named else None
            of_block = {name: column[first : first + len(block)] for name, column in columns.items()}
            yield Table(np.stack([row.numbers for row in block]), (names, table.columns), of_block)
            first += len(block)


def _text_labels(path: Path, kind: str, layout: Layout) -> dict[str, np.ndarray]:
    with open_text(path) as lines:
        table = TextTable(lines, kind, str(path), layout)
        return label_columns(layout.labels, [(row.line, row.labels) for row in table], str(path))


def _slices(values: Any, n_rows: int) -> Iterator[tuple[slice, Any]]:
    """Iterate over the rows of anything that is sliced, with the slices."""
    for first in range(0, values.shape[0], n_rows):
        rows = slice(first, min(first + n_rows, values.shape[0]))
        yield rows, values[rows]


def _opened_blocks(kind: str, path: Path, key: str | None, labels: Sequence[str], n_rows: int) -> Iterator[Table]:
    """Open a file, and iterate over its rows with their names and labels."""
    table = checked(OPENED[kind](path, key, labels))
    rows, *others = table.names
    for at, block in _slices(table.values, n_rows):
        of_block = {name: column[at] for name, column in table.labels.items()}
        yield Table(block, (rows and rows[at], *others), of_block)


class _CompressedRows:
    """Rows of a sparse matrix in a file, read where they are asked for."""

    def __init__(self, group: Any, path: Path) -> None:
        if (kind := encoding_of(group, path)) != "csr_matrix":
            raise ValueError(
                f"{path} cannot be read in blocks: {group.name} is a {kind}, stored by columns; write it by rows "
                "(adata.X.tocsr()), or read it whole with read_data"
            )
        self.group, self.shape = group, tuple(int(d) for d in group.attrs["shape"])
        self.starts, self.dtype = group["indptr"][()], group["data"].dtype
        self.nnz = int(self.starts[-1])  # which `Chunked` asks for, as scipy has it

    def __getitem__(self, rows: slice) -> sp.csr_array:
        starts = self.starts[rows.start : rows.stop + 1]
        stored = slice(int(starts[0]), int(starts[-1]))
        parts = (self.group["data"][stored], self.group["indices"][stored], starts - starts[0])
        return sp.csr_array(parts, shape=(rows.stop - rows.start, *self.shape[1:]))


def _parquet_blocks(path: Path, key: str | None, labels: Sequence[str], n_rows: int) -> Iterator[Table]:
    pandas, parquet = need("pandas", path), need("pyarrow.parquet", path)
    first = 0
    with parquet.ParquetFile(path) as file:
        check_columns(labels, file.schema_arrow.names, str(path))
        whole = pandas.read_parquet(path, columns=list(labels)) if labels else pandas.DataFrame()
        columns = {name: as_labels(whole[name].to_numpy(), f"{path}, column {name!r}") for name in labels}
        for batch in file.iter_batches(n_rows):
            table = frame_table(batch.to_pandas(), path, labels)
            last = first + table.values.shape[0]
            yield replace(table, labels={name: column[first:last] for name, column in columns.items()})
            first = last


def _netcdf_blocks(path: Path, key: str | None, labels: Sequence[str], n_rows: int) -> Iterator[Table]:
    with open_netcdf(path, key) as array:
        columns = labels_along(array, labels, str(path))
        for rows, block in _slices(array, n_rows):
            yield replace(table_of(block), labels={name: column[rows] for name, column in columns.items()})


BLOCKS: dict[str, Callable[[Path, str | None, Sequence[str], int], Iterator[Table]]] = {
    ".parquet": _parquet_blocks,
    ".nc": _netcdf_blocks,
}
