"""`python -m benchmarks compare A B`: two finished runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..harness.errors import BenchmarkError
from ..harness.journal import read_rows
from ..harness.results import Row, Table
from .page import cell
from .scores import Scores


def compare(a: Path, b: Path) -> Table:
    """Numbers of both with their spread, and the differences, for whatever the two runs have in common.

    Raises
    ------
    BenchmarkError
        A folder without results, or nothing in common.
    """
    ours, theirs = (read_rows(folder) for folder in (a, b))
    summaries = [[r for r in rows if r["kind"] == "summary"] for rows in (ours, theirs)]
    table = _of_studies(ours, theirs, summaries) if all(summaries) else _of_rows(ours, theirs)
    if not table.rows:
        raise BenchmarkError(f"{a} and {b} have no result in common")
    return table


def text(table: Table) -> str:
    """Write a table for a terminal."""
    lines = [list(map(str, table.head)), *([cell(v) for v in row] for row in table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.head))]
    return "\n".join("  ".join(v.ljust(w) for v, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _of_studies(ours: Sequence[Row], theirs: Sequence[Row], summaries: Sequence[Sequence[Row]]) -> Table:
    keys = [list(dict.fromkeys((r["metric"], r["setting"], r["method"]) for r in rows)) for rows in summaries]
    rows = []
    for metric, setting, method in (key for key in keys[0] if key in set(keys[1])):
        a, b = (Scores(run, metric).chosen(method, setting) for run in (ours, theirs))
        if a and b:
            rows.append([metric, setting, method, a, b, b.mean - a.mean])
    return Table("", ["metric", "setting", "method", "A", "B", "B - A"], rows)


def _of_rows(ours: Sequence[Row], theirs: Sequence[Row]) -> Table:
    """Rows that agree in all words and whole numbers: their other numbers."""
    known = {_identity(r): r for r in theirs}
    rows = []
    for r in ours:
        other = known.get(_identity(r), {})
        for name, value in r.items():
            if isinstance(value, float) and isinstance(other.get(name), float):
                rows.append([_words(r), name, value, other[name], other[name] - value])
    return Table("", ["row", "number", "A", "B", "B - A"], rows)


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple((k, str(v)) for k, v in sorted(row.items()) if not isinstance(v, float))


def _words(row: Row) -> str:
    return " ".join(str(v) for v in row.values() if isinstance(v, (str, int)) and not isinstance(v, bool))
