"""Tables of results: numbers with names of rows and columns, written so that they read back the same."""

import gzip
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .complete_files import replacing
from .fitted_factors import as_numpy

DELIMITERS = {".csv": ",", ".tsv": "\t"}


def write_table(
    path: str | os.PathLike[str],
    values: Any,
    row_names: Sequence[Any] | None = None,
    column_names: Sequence[Any] | None = None,
) -> None:
    r"""Write a table of numbers, completely or not at all; an existing file is replaced.

    Parameters
    ----------
    path : str or path
        `.tsv` or `.csv`, also `.gz`; `.npy`, which holds no names.
    values : array or tensor (n, m)
        Each number has the fewest digits that make it again, bit for bit, in its own precision: read a table of float32
        as float32.
    row_names, column_names : sequence, optional
        Where only one of them is given, or all are blank, the other ones are 0, 1, ...: `read_data` then tells names
        from numbers.

    Raises
    ------
    ValueError
        Names of another number than rows or columns, names for `.npy`, values that are no real numbers or no table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from nnfactor.io import read_data, write_table
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "components.tsv")
    ...     write_table(path, [[0.1, 2.0]], ["k1"], ["gene A", "gene B"])
    ...     path.read_text(), read_data(path).names
    ('\tgene A\tgene B\nk1\t0.1\t2.0\n', (('k1',), ('gene A', 'gene B')))
    """
    path, A = Path(path), as_numpy(values)
    ends = [end.lower() for end in path.suffixes]
    kind = ends[-2] if len(ends) > 1 and ends[-1] == ".gz" else (ends or [""])[-1]
    if kind not in (*DELIMITERS, ".npy") or (kind == ".npy" and ends[-1] == ".gz"):
        raise ValueError(f"{path}: tables are written as .tsv, .csv or .npy, also .tsv.gz and .csv.gz")
    if A.dtype.kind not in "biuf" or A.dtype.itemsize > 8:
        raise ValueError(f"{path}: values hold {A.dtype}; a table holds real numbers of 64 bits at most")
    if kind == ".npy":
        if row_names is not None or column_names is not None:
            raise ValueError(f"{path}: a .npy file holds no names; use .tsv or .csv")
        with replacing(path) as unfinished, open(unfinished, "wb") as file:
            np.save(file, A, allow_pickle=False)
        return
    if A.ndim != 2 or 0 in A.shape:
        raise ValueError(f"{path}: values have shape {A.shape}; a table has rows and columns")
    names = [
        _names(path, what, given, d) for what, given, d in zip(WHAT, (row_names, column_names), A.shape, strict=True)
    ]
    if any(given is not None for given in (row_names, column_names)):
        names = [
            list(map(str, range(d))) if not any(given or ()) else given for given, d in zip(names, A.shape, strict=True)
        ]
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        _write(file, A, names[0], names[1], DELIMITERS[kind], packed=ends[-1] == ".gz")


WHAT = ("row_names", "column_names")


def _names(path: Path, what: str, names: Sequence[Any] | None, d: int) -> list[str] | None:
    if names is None:
        return None
    given = [str(name) for name in names]
    if len(given) != d:
        raise ValueError(f"{path}: {what} has {len(given)} names, but the table has {d}")
    return given


def _write(file: Any, A: np.ndarray, rows: Any, columns: Any, delimiter: str, packed: bool) -> None:
    """Write lines; an empty cell over the names of the rows says that the first column holds names."""
    stream = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if packed else file
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    quoted = lambda name: '"' + name.replace('"', '""') + '"' if set(name) & {delimiter, '"', "\r", "\n"} else name
    if columns is not None:
        text.write(delimiter.join(["", *map(quoted, columns)]) + "\n")
    for i, row in enumerate(A):
        text.write(delimiter.join([*([quoted(rows[i])] if rows is not None else ()), *_digits(row)]) + "\n")
    text.flush()
    text.detach()
    if packed:
        stream.close()


def _digits(row: np.ndarray) -> list[str]:
    """Give numbers their shortest digits that read back bit for bit."""
    if row.dtype.kind != "f":
        return list(map(str, (row.astype(np.uint8) if row.dtype.kind == "b" else row).tolist()))
    return list(map(repr, row.tolist())) if row.dtype.itemsize == 8 else row.astype(str).tolist()
