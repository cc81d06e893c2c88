"""Data, labels and weights that a command line names."""

import hashlib
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import nnfactor

from ..core.arrays import float_type
from ..io import Table, open_data, read_data, read_labels
from ..io.blocks import can_be_opened
from ..io.data_files import read_rows
from ..io.file_kinds import split_column
from ..io.label_files import KINDS
from ..io.text_tables import TextInColumn
from ..selection.arrays import as_indexable, take
from .arguments import read_size
from .describe import told_in_options
from .errors import UserError
from .logs import LOGGER
from .memory.needs import refuse_too_large

LISTS = ("CoTraining", "Coupled", "PARAFAC2", "PairwiseCoRegularizedSpectral", "SULF")  # `fit` takes a list of arrays

UNLABELLED = (
    "Coupled", "GraphNMF", "KernelNMF", "LNMF", "NMF", "NTD", "NTF", "PARAFAC2", "PolynomialNMF", "SemiNMF",
)  # fmt: skip

OF_SAMPLES = ("CoTraining", "PairwiseCoRegularizedSpectral", "SULF")  # all files have the same rows

NO_NAMES = "-"  # in place of a file: the dimension has those of the data file

SMALL = 2**16  # bytes of a file of a large folder up to which it is read: what describes the arrays

LARGE = 2**24  # numbers of an array that is converted as it is read

DOMINANT = 0.9  # share of the squared norm from which on a column is told of: the others hardly change the fit

WHOLE = 2**30  # bytes of a file up to which its checksum reads all of it

Names = Sequence[str] | None


@dataclass(frozen=True)
class Given:
    """What a model is fitted to, with the names of rows and columns, and checksums of the files."""

    X: Any
    y: Any
    weights: Any
    tables: list[Table]
    digests: dict[str, str]

    @property
    def names(self) -> list[list[Names]]:
        """Names for each file and each of its dimensions."""
        return [list(table.names) for table in self.tables]

    @property
    def samples(self) -> Names:
        """Names of the samples, None where no file has any."""
        return samples_of(self.names)


def samples_of(names: Sequence[Sequence[Names]]) -> Names:
    """Return the names of the samples, from those for each file and dimension; None where no file has any."""
    return next((of[0] for of in names if of[0] is not None), None)


def read_given(arguments: Namespace, model: str, opened: bool = False) -> Given:
    """Read data, labels and weights; `opened`: only open the data, where their kind of file can be."""
    paths = list(arguments.data or ())
    if not paths:
        raise UserError(told_without_data(arguments))
    if arguments.labels and model in UNLABELLED:
        raise UserError(
            f"{model} uses no labels; leave --labels out, or say --drop-columns for a column that is no data"
        )
    if len(paths) > 1 and model not in LISTS:
        raise UserError(f"{model} takes one data file, got {len(paths)}; several are for {', '.join(LISTS)}")
    size = getattr(arguments, "max_bytes", None)
    if size and (len(paths) > 1 or model in LISTS):
        raise UserError(f"--max-bytes is for one data file of a model that takes one array, not for {model}")
    if size and arguments.weights:
        raise UserError("--weights go with data in memory; leave --max-bytes or --weights out")
    names = getattr(arguments, "names", None)
    if names and len(paths) > 1:
        raise UserError(f"--names is for one data file, got {len(paths)}; use files that hold names")
    column = column_of(arguments.labels, paths[0])
    opened = opened and model not in LISTS and can_be_opened(paths[0]) and not _whole(arguments)
    tables = [_read_data(path, arguments, column if i == 0 else None, opened) for i, path in enumerate(paths)]
    if model in OF_SAMPLES:
        check_alike(tables, [(i, 0) for i in range(len(tables))])
    X = [table.values for table in tables] if model in LISTS and not _is_stack(tables) else tables[0].values
    X = nnfactor.Chunked(X, read_size(size)) if size else X
    given = Given(X, None, None, tables, {})
    y = None if not arguments.labels else _labels(arguments.labels, column, given)
    weights = None if not arguments.weights else _weights(arguments.weights, tables[0], arguments)
    files = {f"data {i}": path for i, path in enumerate(paths, 1)}  # their order and their parts decide, too
    files |= {} if column or not arguments.labels else {"labels": split_column(arguments.labels)[0]}
    files |= {"weights": arguments.weights} if arguments.weights else {}
    files |= {f"names {i}": split_column(name)[0] for i, name in enumerate(names or (), 1) if name != NO_NAMES}
    digests = {f"{part}: {Path(path).resolve()}": digest(Path(path)) for part, path in files.items()}
    return Given(X, y, weights, tables, digests)


def told_without_data(arguments: Namespace) -> str:
    """Say that data are missing; an option of several words takes those behind it."""
    greedy = next((name for name in ("names", "drop_columns") if getattr(arguments, name, None)), None)
    first = f"; name it before --{greedy.replace('_', '-')}, which takes all words behind it" if greedy else ""
    return f"{arguments.verb} needs a data file{first}; see nnfactor {arguments.verb} --help"


def _is_stack(tables: Sequence[Table]) -> bool:
    """Tell slices of one length in one array from a list of arrays."""
    return len(tables) == 1 and len(tables[0].values.shape) == 3


def _whole(arguments: Namespace) -> list[str]:
    """List the options that go with files that are read whole."""
    names = ("header", "row_names", "long", "transpose")
    return [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name, None)]


def _read_data(path: str, arguments: Namespace, column: str | None, opened: bool) -> Table:
    """Read a data file; of a column that holds text say also how to leave it out, which only data files can."""
    try:
        return _read(path, arguments, column, opened)
    except TextInColumn as found:
        if found.column is None:
            raise
        leaves_out = f"--drop-columns {shlex.quote(found.column)} leaves it out"
        raise UserError(f"{told_in_options(found)}, {leaves_out}") from found


def _read(path: str, arguments: Namespace, column: str | None, opened: bool = False) -> Table:
    layout = {name: getattr(arguments, name, None) for name in ("header", "row_names")}
    labels, dropped = [column] if column else [], getattr(arguments, "drop_columns", None) or []
    given = getattr(arguments, "names", None)
    names = [None if name == NO_NAMES else name for name in given] if given else None
    if getattr(arguments, "max_bytes", None) and (asked := _whole(arguments)):
        raise UserError(f"{asked[0]} goes with files that are read whole; leave --max-bytes out")
    if opened or getattr(arguments, "max_bytes", None):
        return open_data(path, key=arguments.key, labels=[*labels, *dropped], names=names)
    refuse_too_large(Path(path), arguments.key)
    said: dict[str, Any] = {**layout, "long": bool(arguments.long), "labels": labels, "drop": dropped}
    table = None if any(said.values()) else _read_as_floats(path, arguments.key, names)
    table = table or read_data(path, key=arguments.key, names=names, **said)
    if not arguments.transpose:
        return table
    if len(table.values.shape) != 2:
        raise UserError(f"--transpose is for matrices; {path} has {len(table.values.shape)} dimensions")
    return Table(table.values.T, table.names[::-1], {}, table.source)


def _read_as_floats(path: str, key: str | None, names: Any) -> Table | None:
    """Read whole numbers and half precision of a large array as the floats they become: not both are held."""
    if Path(path).suffix not in (".h5", ".hdf5", ".zarr"):
        return None
    table = open_data(path, key=key, names=names)
    dtype = np.dtype(float_type(table.values.dtype))
    if hasattr(table.values, "nnz") or table.values.dtype == dtype or not np.prod(table.values.shape) > LARGE:
        return None
    return replace(table, values=read_rows(table.values, dtype))


def told_of_scale(table: Table) -> str | None:
    """Say which column of a matrix in memory has nearly all of its squared norm; None where none has."""
    X = table.values
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.shape[1] < 3:
        return None
    with np.errstate(all="ignore"):  # NaN and infinity have messages of their own
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
        share, j = float(squares.max() / squares.sum()), int(squares.argmax())
    if not share > DOMINANT:
        return None
    names, percent = table.names[1], min(int(100 * share), 99)
    column = f"column {j + 1}" if names is None else f"column {names[j]!r}"
    return (
        f"{column} has more than {percent} % of the squared norm of {table.source} and decides the fit; unless that is "
        "meant, divide every column by its maximum or its standard deviation first"
    )


def column_of(labels: str | None, data: str) -> str | None:
    """Return the column of the data file that holds the labels, if it is one: obs:NAME, DATA:NAME, or NAME alone."""
    if not labels:
        return None
    for before in ("obs:", f"{data}:"):
        if labels.startswith(before):
            return labels.removeprefix(before)
    file = Path(split_column(labels)[0])
    return None if file.exists() or file.suffix in KINDS else labels


def _labels(labels: str, column: str | None, given: Given) -> Any:
    if column is not None:
        known = given.tables[0].labels
        if column not in known:
            raise UserError(f"--labels {labels}: {given.tables[0].source} has no column {column!r} of labels")
        return known[column]
    file, name = split_column(labels)
    if given.samples is None and file.endswith((".csv", ".tsv", ".gz", ".h5ad")):
        LOGGER.warning("warning: the data have no names of samples; labels are taken in the order of %s", file)
    return read_labels(file, names=given.samples, column=name, n_samples=given.tables[0].values.shape[0])


def _weights(path: str, table: Table, arguments: Namespace) -> Any:
    """Read weights in the form of the data; rows and columns with names are brought into their order."""
    alone = {"key": None, "drop_columns": None, "names": None}
    read = _read(path, Namespace(**{**vars(arguments), **alone}), None)
    if read.values.shape != table.values.shape:
        raise UserError(f"--weights {path} has shape {read.values.shape}, the data {table.values.shape}")
    return in_order(read.values, read.names, table.names, path)


def in_order(values: Any, given: Sequence[Names], wanted: Sequence[Names], source: str) -> Any:
    """Bring dimensions whose entries have names into the order of other names; refuse names that are missing or twice.

    A dimension without names on either side stays as it is.
    """
    for axis, (mine, other) in enumerate(zip(given, wanted, strict=False)):
        if mine is None or other is None or list(mine) == list(other):
            continue
        place = {name: i for i, name in enumerate(mine)}
        missing = [name for name in other if name not in place]
        if missing or len(mine) != len(other):
            told = f"lacks {missing[0]!r}" if missing else f"has {len(mine)} names where {len(other)} are wanted"
            raise UserError(f"{source} {told}: dimension {axis} must have the names of the fitted data")
        for names, whose in ((mine, source), (other, "the fitted data")):
            if len(set(names)) < len(names):  # which one is meant is not said
                twice = next(name for name in names if list(names).count(name) > 1)
                raise UserError(
                    f"{source} has other names in dimension {axis} than the fitted data, or another order, and {whose} "
                    f"the name {twice!r} twice; give every name once, or the names of the fitted data in their order"
                )
        if not getattr(values, "in_memory", True):
            raise UserError(f"{source}: dimension {axis} has another order than the fitted data; leave --max-bytes out")
        at = np.array([place[name] for name in other])
        dense = isinstance(values, np.ndarray)
        values = np.take(values, at, axis) if dense else take(as_indexable(values), at, axis)
    return values


def check_alike(tables: Sequence[Table], sides: Sequence[tuple[int, int]]) -> None:
    """Refuse dimensions, each of a table by its position, that stand for one thing and have different names."""
    named = [(tables[i], names) for i, axis in sides if (names := tables[i].names[axis]) is not None]
    for table, names in named[1:]:
        first, known = named[0]
        for j, (a, b) in enumerate(zip(known, names, strict=False)):
            if a != b:
                raise UserError(f"name {j + 1} is {a!r} in {first.source}, {b!r} in {table.source}; sort them alike")


def digest(path: Path) -> str:
    """Sum up a file, or all files of a folder; of files above 1 GiB their size, time, and first and last MiB.

    Of the many files of a folder above 1 GiB the names, sizes and times, and what small ones hold.
    """
    total = hashlib.blake2b(digest_size=16)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    large = path.is_dir() and sum(file.stat().st_size for file in files) > WHOLE
    for file in files:
        size = file.stat().st_size
        if large:
            total.update(f"{file.relative_to(path)} {size} {file.stat().st_mtime_ns}".encode())
        if large and size > SMALL:
            continue
        with open(file, "rb") as stream:
            if size <= WHOLE:
                while block := stream.read(2**22):
                    total.update(block)
                continue
            total.update(f"{size} {file.stat().st_mtime_ns}".encode())
            total.update(stream.read(2**20))
            stream.seek(-(2**20), 2)
            total.update(stream.read())
    return total.hexdigest()


def stem_of(path: str) -> str:
    """Return the name of a file without its end."""
    name = Path(path).name
    return name.removesuffix(".gz").rsplit(".", 1)[0] or name
