"""What an experiment hands over: numbers as rows, and how a person should see them. Plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of words and numbers; `head` names the columns."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, caption: str, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Make a table of rows that name their cells; the first one gives the columns."""
        return cls(caption, list(rows[0]) if rows else [], [list(row.values()) for row in rows])


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
class Picture:
    """A picture; `png` is base64 (`pictures.tiles` makes one of arrays)."""

    caption: str
    png: str
    width: int = 0  # pixels on the page; 0: as it is


@dataclass(frozen=True)
class Score:
    """Mean and standard deviation (n - 1) over `count` splits.

    >>> str(Score.of([90.0, 92.0])), str(Score.of([90.0])), str(Score(86.9, 1.5, 0))
    ('91.0 ± 1.4', '90.0', '86.9 ± 1.5')
    """

    mean: float
    std: float | None = None
    count: int = 0

    @classmethod
    def of(cls, values: Sequence[float]) -> Score:
        """Of at least one number."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))

    def __float__(self) -> float:
        return self.mean

    def __str__(self) -> str:
        return f"{self.mean:.1f}" + ("" if self.std is None else f" ± {self.std:.1f}")


@dataclass(frozen=True)
class Bar:
    """A number that a run should reach, and what it reached.

    Attributes
    ----------
    claim, where : str
    bar : str
        With its direction: "at least 4".
    measured : float or None
    verdict : str
        "met", "not met" or "not run".
    note : str
        The spread, and what bounds it.
    """

    claim: str
    where: str
    bar: str
    measured: float | None
    verdict: str
    note: str = ""

    @classmethod
    def at_least(cls, claim: str, where: str, bar: float, measured: float | None, note: str = "") -> Bar:
        """Judge what should be large; nothing measured is "not run"."""
        verdict = "not run" if measured is None else "met" if measured >= bar else "not met"
        return cls(claim, where, f"at least {bar:g}", measured, verdict, note)

    @classmethod
    def at_most(cls, claim: str, where: str, bar: float, measured: float | None, note: str = "") -> Bar:
        """Judge what should be small; nothing measured is "not run"."""
        verdict = "not run" if measured is None else "met" if measured <= bar else "not met"
        return cls(claim, where, f"at most {bar:.3g}", measured, verdict, note)


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, then tables and figures in order."""

    title: str
    text: Sequence[str] = ()
    parts: Sequence[Table | Figure | Picture] = ()


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
