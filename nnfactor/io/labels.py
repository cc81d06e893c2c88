"""Labels as files hold them, made those that estimators take."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from .file_kinds import nearest

MISSING = {"", "na", "nan", "n/a", "<na>", "null", "none"}  # in small letters: cells that stand for no value

UNLABELLED = {*MISSING, "-1", "-1.0"}  # the same among labels


def as_labels(values: Any, source: str, places: Sequence[str] | None = None) -> np.ndarray:
    """Make labels of a column: whole numbers with -1 for the unlabelled, or text with None for them.

    Parameters
    ----------
    values : array or sequence (n,) of numbers or text
        Text that is whole numbers throughout is read as numbers; NaN, None, empty cells, "NA" and the like are missing.
    source : str
        The file and the column, for messages.
    places : sequence of str, optional
        Where each label stands, for messages; None: "entry 0", ...

    Raises
    ------
    ValueError
        Fractions, infinite numbers, dates, text beside numbers in an array; the message says where.

    Examples
    --------
    >>> as_labels(["3", "", "-1", "7"], "y.csv").tolist(), as_labels(["B", "NA", "T"], "y.csv").tolist()
    ([3, -1, -1, 7], ['B', None, 'T'])
    """
    place = (lambda i: places[i]) if places is not None else (lambda i: f"entry {i}")
    A = np.asarray(values) if isinstance(values, np.ndarray) else np.array(list(values), dtype=object)
    if A.ndim != 1:
        raise ValueError(f"{source} has shape {A.shape}; labels are one number or text for each sample")
    if A.dtype.kind in "biuf":
        return _whole(A, source, place)
    if A.dtype.kind not in "OSU":
        raise ValueError(f"{source} holds {A.dtype}; labels are whole numbers or text")
    cells = [_cell(value) for value in A.tolist()]
    known = [i for i, cell in enumerate(cells) if cell is not None]
    texts = [i for i in known if isinstance(cells[i], str)]
    if (texts and len(texts) < len(known)) or any(not isinstance(cells[i], str | Real) for i in known):
        odd = next(i for i in known if not isinstance(cells[i], str))
        raise ValueError(f"{source}, {place(odd)}: {cells[odd]!r} stands among text; use labels of one kind")
    numbers = [None if cell is None else _as_number(cell) for cell in cells]
    if all(numbers[i] is not None for i in known):
        return _whole(np.array([-1 if n is None else n for n in numbers], dtype=_kind(numbers)), source, place)
    labels = np.empty(len(cells), dtype=object)
    labels[:] = cells
    return labels


def choose_labels(columns: Mapping[str, np.ndarray], wanted: Sequence[str], source: str) -> dict[str, np.ndarray]:
    """Choose columns by name, as labels; all as they are if none is asked for."""
    check_columns(wanted, list(columns), source)
    return {name: as_labels(columns[name], f"{source}, column {name!r}") for name in wanted} or dict(columns)


def check_columns(wanted: Iterable[str], columns: Sequence[str], source: str, option: str = "labels") -> None:
    """Refuse names of columns that are not there, or there twice."""
    for name in wanted:
        if columns.count(name) != 1:
            wrong = f"no column {name!r}" if name not in columns else f"{columns.count(name)} columns {name!r}"
            raise ValueError(f"{source} has {wrong}; {option}= takes one of {nearest(name, columns)}")


def _cell(value: Any) -> Any:
    """Return text without blanks around it, a number, or None for whatever stands for no label."""
    value = value.decode(errors="replace") if isinstance(value, bytes) else value
    if isinstance(value, str):
        value = value.strip()
        return None if value.lower() in UNLABELLED else value
    try:
        return None if value is None or bool(value != value) else value  # NaN and NaT differ from themselves
    except TypeError:  # pandas.NA neither equals nor differs
        return None


def _as_number(cell: Any) -> int | float | None:
    """Read a number, exactly if it is whole and has 64 bits; None for text, such as `1_2` or long identifiers."""
    if isinstance(cell, str) and "_" in cell:
        return None
    try:
        number = int(cell) if isinstance(cell, str) else cell
    except ValueError:
        try:
            number = float(cell)
        except ValueError:
            return None
    if isinstance(number, float | np.floating):
        return int(number) if float(number).is_integer() else float(number)
    return int(number) if -(2**63) <= number < 2**63 else None


def _kind(numbers: Sequence[Any]) -> type:
    return np.float64 if any(isinstance(n, float) for n in numbers) else np.int64


def _whole(A: np.ndarray, source: str, place: Any) -> np.ndarray:
    """Return whole numbers as int64, NaN as -1; booleans as they are."""
    if A.dtype.kind in "bi":
        return A if A.dtype.kind == "b" else A.astype(np.int64)
    missing = np.isnan(A) if A.dtype.kind == "f" else np.zeros(len(A), dtype=bool)
    A = np.where(missing, -1, A) if missing.any() else A  # -1 does not fit unsigned numbers
    bad = np.flatnonzero((np.floor(A) != A) | (np.abs(A.astype(np.float64)) >= 2.0**63))
    if bad.size:
        raise ValueError(f"{source}, {place(int(bad[0]))}: {A[bad[0]]} is no label; labels are whole numbers or text")
    return A.astype(np.int64)
