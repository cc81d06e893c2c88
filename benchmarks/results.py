"""What an experiment hands over: numbers as rows, and how a person should see them. Plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of words and numbers; `head` names the columns."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Line:
    """One curve of a panel."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes; both may be logarithmic."""

    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = True
    log_y: bool = True
    rule: tuple[float, str] | None = None  # a horizontal line and what it means


@dataclass(frozen=True)
class Figure:
    """Panels side by side that share one legend."""

    caption: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, then tables and figures in order."""

    title: str
    text: Sequence[str] = ()
    parts: Sequence[Table | Figure] = ()


@dataclass(frozen=True)
class Report:
    """The outcome of an experiment.

    Attributes
    ----------
    sections : sequence of Section
        For the page.
    rows : sequence of dict
        Every number, one flat record each with a `kind`: `results.jsonl`; but for the kinds in `bulky` also
        `summary.csv`.
    bulky : tuple of str
        Kinds of rows that a summary leaves out (points of curves).
    notes : dict
        Added to `machine.json`.
    """

    sections: Sequence[Section]
    rows: Sequence[Row]
    bulky: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
