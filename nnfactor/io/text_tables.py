"""Tables of text: numbers with names of rows and columns, or one entry of a matrix or tensor in each line."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .file_kinds import TABLES, file_kind, open_text, split_column, told_of
from .labels import MISSING, as_labels, check_columns

Names = tuple[str, ...] | None
Labels = str | Sequence[str] | None

Line = tuple[int, list[str]]

# Heads of columns that are no data, also behind a word such as patient_id.
IDENTIFIERS = re.compile(
    r"(.*[\W_])?(id|index|key|nr|no|row_?names|sample|subject|patient|cell|gene|unnamed: 0)", re.IGNORECASE
)

COUNTED = (
    5  # whole numbers that rise from the first cell to the last, from so many on, may be names of columns: years, nm
)


class Row(NamedTuple):
    """A line of a table: its number, the name of the row or None, the numbers, and the cells of labels."""

    line: int
    name: str | None
    numbers: np.ndarray
    labels: list[str]


@dataclass(frozen=True)
class Layout:
    """What a user says of a table: names of columns that hold labels, and where names are; None: what the cells say.

    `dropped` are those of `labels` that are no data, and no labels either: whatever they hold is left out.
    """

    labels: Sequence[str] = ()
    header: bool | None = None
    row_names: bool | None = None
    dropped: Sequence[str] = ()


def layout_of(labels: Labels, header: bool | None = None, row_names: bool | None = None, drop: Labels = None) -> Layout:
    """Make a layout of the arguments of a reader."""
    apart, dropped = ([some] if isinstance(some, str) else list(some or ()) for some in (labels, drop))
    return Layout([*apart, *dropped], header, row_names, dropped)


class TextTable:
    """A table of text, read line by line; iterating gives a `Row` for each.

    Attributes
    ----------
    columns : tuple of str or None
        Names of the columns of numbers, where the first line holds them.
    width : int, how many numbers a row has; named : bool, whether rows have names

    A first line with text behind its first cell, or with an empty first cell, holds the names of the columns; a first
    column with text, or whose head is empty, those of the rows. The head may be left out. Missing values are NaN.
    """

    def __init__(self, lines: Iterable[str], kind: str, source: str, layout: Layout = Layout()) -> None:
        self.source, labels = source, layout.labels
        rows = text_rows(lines, kind, source)
        line, first = next(rows, (0, []))
        if not first:
            raise ValueError(f"{source}: the file is empty")
        if labels and layout.header is False:
            raise ValueError(f"{source}: labels are named by the first line, which header=False says holds none")
        self.header = first if _is_header(first, source, True if labels else layout.header) else None
        body = rows if self.header else chain([(line, first)], rows)
        line, cells = next(body, (0, []))
        self._body = chain([(line, cells)] if cells else [], body)
        if self.header and cells:
            _check_ends(self.header, cells, line, source)
        self._arrange(cells or first, layout)
        if not cells or not self.width:
            raise ValueError(f"{source}: there are no numbers below or beside the names")

    def _arrange(self, cells: list[str], layout: Layout) -> None:
        """Find out which cells of a line are numbers, names and labels from the first one."""
        self._cells = len(cells)
        header = [cell.strip() for cell in self.header or ()]
        behind = self._cells - len(header) if header else 0
        if behind == 1:  # nothing stands over the names of the rows
            header = ["", *header]
        check_columns(layout.labels, header, self.source)
        self._labels = [header.index(name) for name in layout.labels]
        kept = [i for i in range(self._cells) if i not in self._labels]
        head = [header[i] for i in kept if i < len(header)]
        self.named = bool(kept) and self._has_names(head[0] if head else None, cells[kept[0]], layout)
        if behind not in (0, int(self.named)):
            raise ValueError(
                f"{self.source}: the first line has {len(self.header or [])} names, and the second {self._cells} cells"
            )
        self._numbers = kept[self.named :]
        self._first = kept[0] if self.named else None
        self._plain = not layout.labels
        self.width = len(self._numbers)
        self.columns = tuple(header[i] for i in self._numbers) if header else None

    def _has_names(self, head: str | None, cell: str, layout: Layout) -> bool:
        """Tell whether the first column holds names of rows: it does if it is text, or nothing stands over it."""
        if layout.row_names is not None:
            return layout.row_names
        if _number(cell) is None or head == "":
            return True
        if head is not None and IDENTIFIERS.fullmatch(head):
            raise ValueError(
                f"{self.source}: the first column is called {head!r} and holds numbers; say row_names=True if they are "
                "names of rows, or row_names=False if they are data"
            )
        return False

    def __iter__(self) -> Iterator[Row]:
        for line, cells in self._body:
            if len(cells) != self._cells:
                raise ValueError(
                    f"{self.source}, line {line}: {len(cells)} cells, but the lines before have {self._cells}"
                )
            name = None if self._first is None else cells[self._first].strip()
            numbers = cells[self.named :] if self._plain else [cells[i] for i in self._numbers]
            yield Row(line, name, self._read_numbers(numbers, line), [cells[i] for i in self._labels])

    def _read_numbers(self, cells: list[str], line: int) -> np.ndarray:
        try:
            return read_numbers(cells)
        except TextFound as found:
            i = found.index
            names = self.columns or ("",)
            column = names[i] if all(_number(name) is None for name in names) else None
            advice = "with a first line that names the columns, labels= would read one as labels"
            advice = advice if column is None else f"labels={column!r} reads its column as labels"
            raise TextInColumn(
                f"{self.source}, line {line}, column {self._numbers[i] + 1}: {cells[i]!r} is no number; only the first "
                f"line and the first column may hold text; {advice}",
                column,
            ) from None


def read_text_table(
    lines: Iterable[str], kind: str, source: str, layout: Layout = Layout()
) -> tuple[np.ndarray, tuple[Names, Names], dict[str, np.ndarray]]:
    """Read a table of numbers; return it in float64, the names of its rows and columns, and the labels by name."""
    table = TextTable(lines, kind, source, layout)
    rows = list(table)
    names = tuple(str(row.name) for row in rows) if table.named else None
    wanted = [i for i, name in enumerate(layout.labels) if name not in layout.dropped]
    cells = [(row.line, [row.labels[i] for i in wanted]) for row in rows]
    labels = label_columns([layout.labels[i] for i in wanted], cells, source)
    return np.stack([row.numbers for row in rows]), (names, table.columns), labels


def label_columns(names: Sequence[str], cells: Sequence[Line], source: str) -> dict[str, np.ndarray]:
    """Make labels of the cells of lines, a column for each name."""
    places = [f"line {line}" for line, _ in cells]
    columns = zip(*(of_line for _, of_line in cells), strict=True) if names else ()
    return {n: as_labels(c, f"{source}, column {n!r}", places) for n, c in zip(names, columns, strict=True)}


def read_long_table(lines: Iterable[str], kind: str, source: str) -> tuple[Any, tuple[Names, ...], Names]:
    """Read one entry in each line, `name of a row, name of a column, ..., value`, as a sparse matrix or tensor.

    Positions are names in the order of their first appearance, or whole numbers from 0 if all of a column are. Returned
    are the entries, the names along each dimension, and what the dimensions are called, if the first line says it.
    """
    rows = text_rows(lines, kind, source)
    line, first = next(rows, (0, []))
    if len(first) < 3:
        raise ValueError(
            f"{source}, line {line}: an entry has at least two positions and a value, got {len(first)} cells"
        )
    has_header = _number(first[-1]) is None
    dims = tuple(cell.strip() for cell in first[:-1]) if has_header else None
    places: list[list[str]] = []
    values: list[float] = []
    body = rows if has_header else chain([(line, first)], rows)
    for line, cells in body:
        if len(cells) != len(first):
            raise ValueError(f"{source}, line {line}: {len(cells)} cells, but the lines before have {len(first)}")
        places.append([cell.strip() for cell in cells[:-1]])
        try:
            values.append(float(read_numbers(cells[-1:])[0]))
        except TextFound:
            raise ValueError(
                f"{source}, line {line}, column {len(first)}: {cells[-1]!r} is no number; the last cell is the value"
            ) from None
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
    return (entries.tocsr() if len(shape) == 2 else entries), tuple(names for *_, names in coded), dims


def read_names(where: str, n: int) -> tuple[str, ...]:
    """Read n names from a file of text, one in each line; `FILE:COLUMN` says which cell, by its number or its head.

    Without a column it is the first cell. The first line is a head if there is one line more than names.
    """
    file, named = split_column(where)
    column = "1" if named is None else named
    kind = file_kind(Path(file), TABLES)
    with told_of(Path(file), kind), open_text(Path(file)) as lines:
        apart = (line.rstrip("\r\n") for line in lines) if kind == ".txt" else text_rows(lines, kind, file)
        rows = [[cell.strip() for cell in (line[1] if isinstance(line, tuple) else [line])] for line in apart]
    while rows and not any(rows[-1]):
        rows.pop()
    if len(rows) not in (n, n + 1):
        raise ValueError(f"{file} has {len(rows)} lines for {n} names; each line has one, and the first may be a head")
    head = rows[0] if len(rows) > n else []
    at = int(column) - 1 if column.isdecimal() else head.index(column) if column in head else -1
    if not 0 <= at < min(map(len, rows)):
        among = f"; its first line has {', '.join(map(repr, head))}" if head else ""
        raise ValueError(f"{file} has no column {column!r}{among}: name one in its first line, or by its number from 1")
    return tuple(cells[at] for cells in rows[len(rows) - n :])


def text_rows(lines: Iterable[str], kind: str, source: str, skip_blank: bool = True) -> Iterator[Line]:
    """Iterate over lines with their numbers, as cells; those without any text are skipped."""
    delimiter, other = (",", "\t") if kind == ".csv" else ("\t", ",")
    reader = csv.reader(lines, delimiter=delimiter)
    first, empty = True, 0
    try:
        for cells in reader:
            if kind == ".txt" and len(cells) == 1:
                cells = cells[0].split()
            if not skip_blank or any(cell.strip() for cell in cells):
                if first and len(cells) == 1 and (mark := next((c for c in (other, ";") if c in cells[0]), "")):
                    raise ValueError(
                        f"{source}, line {reader.line_num}: cells are separated by {mark!r}, but in a {kind} file by "
                        f"{delimiter!r}; save it anew, with points in decimal fractions"
                    )
                if empty:
                    raise ValueError(f"{source}, line {empty}: all cells are empty; remove the line, or write NaN")
                first = False
                yield reader.line_num, cells
            elif len(cells) > 1:  # below a table it is no sample, above a line of numbers it may be one
                empty = empty or reader.line_num
    except csv.Error as error:
        raise ValueError(f"{source}, line {reader.line_num}: {error}; is a quotation mark left open?") from None


class TextInColumn(ValueError):
    """Says that a column of numbers holds text; `column` is its name, None where columns have none."""

    def __init__(self, message: str, column: str | None) -> None:
        super().__init__(message)
        self.column = column


class TextFound(ValueError):
    """Says that a cell is text; `index` is its position among the cells."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def read_numbers(cells: list[str]) -> np.ndarray:
    """Read cells as float64, missing ones as NaN; text raises `TextFound`."""
    if "_" not in "".join(cells):  # which Python takes for a mark between digits
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            pass
    found = [_number(cell) for cell in cells]
    if None in found:
        raise TextFound(found.index(None))
    return np.array(found, dtype=np.float64)


def _number(cell: str) -> float | None:
    """Read a number; NaN for a missing value, None for text (names such as `1_2` are text)."""
    cell = cell.strip()
    if cell.lower() in MISSING:
        return float("nan")
    try:
        return None if "_" in cell else float(cell)
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
            "or header=False; row_names=True if the first column then holds names that are numbers"
        )
    numbers = [_number(cell) for cell in cells]
    rising = all(a is not None and b is not None and a < b for a, b in pairwise(numbers))
    if len(cells) >= COUNTED and rising and all(cell.strip().isdecimal() for cell in cells):
        raise ValueError(
            f"{source}, line 1: whole numbers that rise are names of columns, such as wavelengths, or a row of data; "
            "say header=True or header=False"
        )
    return any(texts) or not cells[0].strip()


def _check_ends(header: list[str], cells: list[str], line: int, source: str) -> None:
    """Refuse lines that end in a delimiter, whose columns would be shifted, and a comment above a table."""
    behind = len(cells) - len(header)
    if behind == 1 and header[0].startswith("#"):
        raise ValueError(
            f"{source}, line 1: {header[0]!r} is a comment, or the name of a column; remove it, or the '#'"
        )
    unnamed = behind == 1 and _number(cells[0]) is not None
    if len(cells) > 1 and not cells[-1].strip() and (unnamed or (behind == 0 and not header[-1].strip())):
        raise ValueError(
            f"{source}, line {line}: the line ends in a delimiter, or its last value is missing; remove the delimiter, "
            "or name all columns"
        )


def _code(column: tuple[str, ...]) -> tuple[np.ndarray, int, Names]:
    """Turn positions into numbers from 0: those that they are, or the order of their names."""
    if all(cell.isdecimal() for cell in column):
        numbers = np.array(column, dtype=np.int64)
        return numbers, int(numbers.max()) + 1, None
    order: dict[str, int] = {}
    codes = np.array([order.setdefault(cell, len(order)) for cell in column])
    return codes, len(order), tuple(order)
