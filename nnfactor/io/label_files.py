"""Labels in files of their own, brought into the order of the samples."""

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .anndata_files import names_of, obs_columns, open_anndata
from .file_kinds import choose, file_kind, listed, need, open_text, told_of
from .labels import as_labels, check_columns
from .text_tables import text_rows

KINDS = (".txt", ".csv", ".tsv", ".npy", ".npz", ".h5ad", ".zarr", ".parquet")


class Column(NamedTuple):
    """Labels as they stand in a file, the names of their samples if it has them, and the place of each for messages."""

    labels: Any
    samples: Sequence[str] | None
    places: list[str]
    what: str


def read_labels(
    path: str | os.PathLike[str],
    names: Sequence[str] | None = None,
    column: str | None = None,
    n_samples: int | None = None,
) -> np.ndarray:
    r"""Read labels of samples from a file.

    Parameters
    ----------
    path : str or path
        `.txt`: one label in each line. `.csv`, `.tsv` (also `.gz`): the first line names the columns; with several, the
        first one holds the names of the samples. `.npy`, `.npz`; `.h5ad`, AnnData's `.zarr`: a column of `obs`;
        `.parquet`.
    names : sequence of str, optional
        Names of the samples in the order of the data, as in `Table.names[0]`. Labels of a file that has names are
        brought into this order; samples that it does not list are unlabelled. None: labels stay as they stand.
    column : str, optional
        Which column of a table, or array of an `.npz`; may be left out where there is one.
    n_samples : int, optional
        How many labels there must be; that of `names` where these are given.

    Returns
    -------
    array (n,)
        Whole numbers with -1 for the unlabelled, or objects: text with None for them. Empty cells, NaN, "NA" and the
        like are unlabelled; numbers as text are numbers.

    Raises
    ------
    ValueError
        Another number of labels than samples, samples that the data do not have, samples that are listed twice,
        fractions; the message names the line or the sample.
    ImportError, FileNotFoundError
        The package that reads this kind is missing, or the file is.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from nnfactor.io import read_labels
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "types.csv")
    ...     size = path.write_text("cell,type\nc,T\na,B\n")
    ...     read_labels(path, names=["a", "b", "c"], column="type").tolist()
    ['B', None, 'T']
    """
    path = Path(path)
    kind = file_kind(path, KINDS)
    n = len(names) if names is not None else n_samples
    with told_of(path, kind):
        found = _read(path, kind, names, column, n)
    labels = as_labels(found.labels, found.what, found.places)
    if names is not None and found.samples is not None:
        return _ordered(labels, list(map(str, names)), found)
    if n is not None and len(labels) != n:
        hint = "; is the first line a heading? leave it out" if kind == ".txt" and len(labels) == n + 1 else ""
        raise ValueError(f"{found.what}: {len(labels)} labels for {n} samples; each sample has one{hint}")
    return labels


def _read(path: Path, kind: str, names: Sequence[str] | None, column: str | None, n: int | None) -> Column:
    if kind == ".txt":
        if column is not None:
            raise ValueError(f"{path}: column={column!r} is for tables; a .txt file has one label in each line")
        return _read_lines(path)
    if kind in (".csv", ".tsv"):
        return _read_table(path, kind, names, column, n)
    if kind in (".npy", ".npz"):
        return _read_array(path, kind, column)
    return _read_obs(path, column) if kind in (".h5ad", ".zarr") else _read_parquet(path, column)


def _read_lines(path: Path) -> Column:
    """Read one label in each line; an empty line is an unlabelled sample, except for the last one."""
    with open_text(path) as file:
        lines = [line.rstrip("\r\n") for line in file]
    for i, line in enumerate(lines):
        if "\t" in line.strip():
            raise ValueError(f"{path}, line {i + 1}: one label in each line, got several cells; save the table as .tsv")
    return Column(lines, None, [f"line {i + 1}" for i in range(len(lines))], str(path))


def _read_table(path: Path, kind: str, names: Sequence[str] | None, column: str | None, n: int | None) -> Column:
    """Read a column of a table of text, and the first one: the names of the samples."""
    with open_text(path) as file:
        rows = list(text_rows(file, kind, str(path), skip_blank=False))
    while rows and not any(cell.strip() for cell in rows[-1][1]):
        rows.pop()
    if not rows:
        raise ValueError(f"{path}: the file is empty")
    width = len(rows[0][1])
    for line, cells in rows:
        if len(cells) != width and not (width == 1 and not cells):
            raise ValueError(f"{path}, line {line}: {len(cells)} cells, but the lines before have {width}")
    head = [cell.strip() for cell in rows[0][1]]
    if width == 1:
        return _read_only_column(path, rows, column, n)
    if names is not None and head[0] in set(map(str, names)):
        raise ValueError(
            f"{path}, line 1: {head[0]!r} is a sample, but that line holds the names of the columns; add such a line"
        )
    at = head.index(_choose_column(path, head[1:], column), 1)
    places = [f"line {line}" for line, _ in rows[1:]]
    samples = [cells[0].strip() for _, cells in rows[1:]]
    return Column([cells[at] for _, cells in rows[1:]], samples, places, f"{path}, column {head[at]!r}")


def _read_only_column(path: Path, rows: list[Any], column: str | None, n: int | None) -> Column:
    """Read a table of one column; whether its first line is a heading, `column` or the number of samples says."""
    first = rows[0][1][0].strip()
    if column is not None and column != first:
        raise ValueError(f"{path} has no column {column!r}; its first line is {first!r}")
    if column is None and n not in (len(rows), len(rows) - 1):
        known = f"{n} samples" if n is not None else "an unknown number of samples"
        raise ValueError(
            f"{path}: {len(rows)} lines for {known}; is {first!r} in line 1 a label or a heading? say column={first!r} "
            "if it is a heading, or save one label in each line as .txt"
        )
    body = rows[1:] if column is not None or n == len(rows) - 1 else rows
    labels = [cells[0] if cells else "" for _, cells in body]
    return Column(labels, None, [f"line {line}" for line, _ in body], str(path))


def _choose_column(path: Path, columns: list[str], column: str | None) -> str:
    if column is None and len(columns) == 1:
        return columns[0]
    if column is None:
        raise ValueError(f"{path} has several columns; name one as column: {listed(columns)}")
    check_columns([column], columns, str(path), "column")
    return column


def _read_array(path: Path, kind: str, column: str | None) -> Column:
    if kind == ".npy" and column is not None:
        raise ValueError(f"{path}: column={column!r} is for tables and .npz; a .npy file holds one array")
    with open(path, "rb") as file:
        loaded: Any = np.load(file, allow_pickle=False)
        if kind == ".npz":
            column = choose(loaded.files, column, path, "column")
            loaded = loaded[column]
    if loaded.ndim == 2 and loaded.shape[1] == 1:
        loaded = loaded[:, 0]
    what = str(path) if kind == ".npy" else f"{path}[{column!r}]"
    if loaded.ndim == 1:
        return Column(loaded, None, [f"entry {i}" for i in range(len(loaded))], what)
    raise ValueError(f"{what} has shape {loaded.shape}; labels are one number or text for each sample")


def _read_obs(path: Path, column: str | None) -> Column:
    with open_anndata(path) as file:
        samples, columns = names_of(file, path)[0], obs_columns(file, (), path)
    column = _choose_column(path, list(columns), column)
    return Column(columns[column], samples, [repr(name) for name in samples], f"{path}, obs {column!r}")


def _read_parquet(path: Path, column: str | None) -> Column:
    frame = need("pandas", path).read_parquet(path)
    if frame.index.name is None and frame.index.dtype.kind in "iu" and frame.shape[1] > 1:
        frame = frame.set_index(frame.columns[0])
    named = frame.index.name is not None or frame.index.dtype.kind not in "iu"
    column = _choose_column(path, list(map(str, frame.columns)), column)
    labels = frame.iloc[:, list(map(str, frame.columns)).index(column)].to_numpy()
    samples = list(map(str, frame.index)) if named else None
    return Column(labels, samples, [f"row {i}" for i in range(len(frame))], f"{path}, column {column!r}")


def _ordered(labels: np.ndarray, names: list[str], found: Column) -> np.ndarray:
    """Bring labels into the order of the samples; whoever is not listed is unlabelled."""
    position = {name: i for i, name in enumerate(names)}
    if len(position) < len(names):
        twice = next(name for i, name in enumerate(names) if position[name] != i)
        raise ValueError(
            f"{found.what}: the data have several samples called {twice!r}; names must differ to match labels"
        )
    ordered = np.full(len(names), None if labels.dtype == object else -1, dtype=_with_gaps(labels, len(names)))
    seen: dict[str, str] = {}
    for sample, label, place in zip(found.samples or (), labels, found.places, strict=True):
        if sample not in position:
            like = ", ".join(map(repr, islice(names, 3)))
            raise ValueError(f"{found.what}, {place}: {sample!r} is no sample of the data, which are {like}, ...")
        if sample in seen:
            raise ValueError(f"{found.what}, {place}: sample {sample!r} has a label in {seen[sample]} already")
        seen[sample] = place
        ordered[position[sample]] = label
    return ordered


def _with_gaps(labels: np.ndarray, n: int) -> Any:
    """Return a type that can say -1: booleans only can if every sample has one."""
    return np.int64 if labels.dtype.kind == "b" and len(labels) < n else labels.dtype
