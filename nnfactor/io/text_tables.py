"""Tables of text: numbers with names of rows and columns, or one entry of a matrix or tensor in each line."""

import csv
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

MISSING = {"", "na", "nan", "n/a", "null", "none"}

Names = tuple[str, ...] | None


def read_text_table(
    lines: Iterable[str], kind: str, source: str, has_header: bool | None = None
) -> tuple[np.ndarray, tuple[Names, Names]]:
    """Read a table of numbers; return it in float64, and the names of its rows and columns.

    A first line with text behind its first cell, or with an empty first cell, holds the names of the columns; a first
    column with text, or whose head is empty, those of the rows. The head may be left out. Missing values are NaN.
    """
    rows = _rows(lines, kind)
    line, first = next(rows, (0, []))
    if not first:
        raise ValueError(f"{source}: the file is empty")
    header = first if _is_header(first, source, has_header) else None
    body = rows if header else _prepend((line, first), rows)
    values: list[np.ndarray] = []
    names: list[str] = []
    width, named = 0, False
    for line, cells in body:
        if not values:
            named = _number(cells[0]) is None or _heads_names(header, cells)
            width = len(cells) - named
            _check_header(header, len(cells), named, source)
        if len(cells) != width + named:
            raise ValueError(f"{source}, line {line}: {len(cells)} cells, but the lines before have {width + named}")
        names += cells[:1] if named else []
        values.append(_numbers(cells[named:], line, named, source))
    if not values or not width:
        raise ValueError(f"{source}: there are no numbers below or beside the names")
    columns = None if header is None else tuple(cell.strip() for cell in header[len(header) - width :])
    return np.stack(values), (tuple(name.strip() for name in names) if named else None, columns)


def read_long_table(lines: Iterable[str], kind: str, source: str) -> tuple[Any, tuple[Names, ...]]:
    """Read one entry in each line, `name of a row, name of a column, ..., value`, as a sparse matrix or tensor.

    Positions are names in the order of their first appearance, or whole numbers from 0 if all of a column are.
    """
    rows = _rows(lines, kind)
    line, first = next(rows, (0, []))
    if len(first) < 3:
        raise ValueError(
            f"{source}, line {line}: an entry has at least two positions and a value, got {len(first)} cells"
        )
    body = rows if _number(first[-1]) is None else _prepend((line, first), rows)
    places: list[list[str]] = []
    values: list[float] = []
    for line, cells in body:
        if len(cells) != len(first):
            raise ValueError(f"{source}, line {line}: {len(cells)} cells, but the lines before have {len(first)}")
        places.append([cell.strip() for cell in cells[:-1]])
        values.append(float(_numbers(cells[-1:], line, len(first) - 1, source)[0]))
    if not values:
        raise ValueError(f"{source}: there are no entries")
    coded = [_code(column) for column in zip(*places, strict=True)]
    coordinates = np.stack([codes for codes, _, _ in coded])
    distinct = np.unique(coordinates, axis=1)
    if distinct.shape[1] < len(values):
        _, index, counts = np.unique(coordinates, axis=1, return_index=True, return_counts=True)
        twice = places[int(index[np.flatnonzero(counts > 1)[0]])]
        raise ValueError(f"{source}: the entry at {', '.join(twice)} is listed more than once")
    shape = tuple(size for _, size, _ in coded)
    entries = sp.coo_array((np.array(values), tuple(coordinates)), shape=shape)
    return (entries.tocsr() if len(shape) == 2 else entries), tuple(names for *_, names in coded)


def _rows(lines: Iterable[str], kind: str) -> Iterator[tuple[int, list[str]]]:
    """Iterate over lines that are not empty, with their numbers, as cells."""
    delimiter = "," if kind == ".csv" else "\t"
    reader = csv.reader(lines, delimiter=delimiter)
    for cells in reader:
        if kind == ".txt" and len(cells) == 1:
            cells = cells[0].split()
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _prepend(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _number(cell: str) -> float | None:
    """Read a number; NaN for a missing value, None for text."""
    cell = cell.strip()
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        return None


def _is_header(cells: list[str], source: str, told: bool | None) -> bool:
    """Tell whether the first line holds names of columns."""
    if told is not None:
        return told
    texts = [_number(cell) is None for cell in cells]
    if texts[0] and len(texts) > 1 and not any(texts[1:]):
        raise ValueError(
            f"{source}, line 1: {cells[0]!r} and numbers are names of columns, or a row and its name; say header=True "
            "or header=False"
        )
    return any(texts) or not cells[0].strip()


def _heads_names(header: list[str] | None, cells: list[str]) -> bool:
    """Tell whether the header says that the first column holds names although they are numbers."""
    return header is not None and (len(header) == len(cells) - 1 or not header[0].strip())


def _check_header(header: list[str] | None, cells: int, named: bool, source: str) -> None:
    if header is not None and len(header) not in ({cells, cells - 1} if named else {cells}):
        raise ValueError(f"{source}: the first line has {len(header)} names, and the second {cells} cells")


def _numbers(cells: list[str], line: int, before: int, source: str) -> np.ndarray:
    """Read cells as float64; text is refused with its line and column."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        found = [_number(cell) for cell in cells]
    if None in found:
        column = found.index(None)
        where = f"line {line}, column {column + before + 1}"
        raise ValueError(
            f"{source}, {where}: {cells[column]!r} is no number; only the first line and the first column may hold text"
        )
    return np.array(found, dtype=np.float64)


def _code(column: tuple[str, ...]) -> tuple[np.ndarray, int, Names]:
    """Turn positions into numbers from 0: those that they are, or the order of their names."""
    if all(cell.isdecimal() for cell in column):
        numbers = np.array(column, dtype=np.int64)
        return numbers, int(numbers.max()) + 1, None
    order: dict[str, int] = {}
    codes = np.array([order.setdefault(cell, len(order)) for cell in column])
    return codes, len(order), tuple(order)
