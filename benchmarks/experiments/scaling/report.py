"""The growth of costs as a report: slopes, curves, every number as a row. Plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...harness.results import Figure, Line, Panel, Report, Row, Section, Table
from .parameters import LABELS, Parameters


def report(p: Parameters, curves: Sequence[Any]) -> Report:
    """Collect everything a person should see, and every number."""
    slopes = [_slope_row(c) for c in curves]
    text = (
        "Slope 1: twice the size, twice the time. Small problems are bound by the number of operations that are "
        "launched and not by their size, which flattens a slope; the last doubling least."
    )
    table = Table.of("Time per iteration against size, on doubly logarithmic axes", slopes)
    groups = [[c for c in curves if c.vary == v] for v in p.vary]
    rows = [{"kind": "point", **row} for c in curves for row in _point_rows(c)]
    rows += [{"kind": "slope", **row} for row in slopes]
    return Report([Section("Slopes", [text], [table]), *map(_section, groups)], rows)


def _slope_row(c: Any) -> Row:
    sizes = {"from": c.points[0].size, "to": c.points[-1].size}
    slopes = {"slope": c.slope, "last_slope": c.last_slope, "roofline_share": c.roofline_share}
    return {"vary": c.vary, "solver": c.solver, **sizes, **slopes}


def _point_rows(c: Any) -> list[Row]:
    at = {"vary": c.vary, "solver": c.solver}
    return [{**at, "size": x.size, **asdict(x.time), "least_seconds": x.least} for x in c.points]


def _section(curves: Sequence[Any]) -> Section:
    points = curves[0].points
    sizes, label = [x.size for x in points], LABELS[curves[0].vary]
    lines = [Line(c.solver, sizes, [1e3 * x.time.median for x in c.points]) for c in curves]
    least = Line("roofline of the data products", sizes, [1e3 * x.least for x in points])
    table = Table.of("Seconds per iteration", [row for c in curves for row in _point_rows(c)])
    return Section(
        label, (), [Figure("Time per iteration", [Panel(label, "ms per iteration", [*lines, least])]), table]
    )
