"""The growth of costs as a report: slopes, curves, every number as a row. Plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...harness.results import Figure, Line, Panel, Report, Section, Table
from .cases import medians, typical_share
from .parameters import LABELS, Parameters


def report(p: Parameters, curves: Sequence[Any]) -> Report:
    """Everything a person should see, and every number."""
    sections = [
        _slopes(curves),
        *(_section(v, [c for c in curves if c.vary == v]) for v in p.vary),
    ]
    rows = [
        {
            "kind": "point",
            "vary": c.vary,
            "solver": c.solver,
            "size": x.size,
            **asdict(x.time),
            "least_seconds": x.least,
        }
        for c in curves
        for x in c.points
    ]
    rows += [
        {"kind": "slope", "vary": c.vary, "solver": c.solver, "slope": c.slope, "last_slope": c.last_slope}
        for c in curves
    ]
    return Report(sections, rows)


def _slopes(curves: Sequence[Any]) -> Section:
    head = ("varied", "solver", "from", "to", "slope", "slope of the last doubling", "roofline share, median")
    rows = [
        (LABELS[c.vary], c.solver, c.points[0].size, c.points[-1].size, c.slope, c.last_slope, typical_share(c))
        for c in curves
    ]
    text = (
        "Slope 1: twice the size, twice the time. Small problems are bound by the number of operations that are "
        "launched and not by their size, which flattens a slope; the last doubling feels that least."
    )
    return Section("Slopes", [text], [Table("Time per iteration against size, on doubly logarithmic axes", head, rows)])


def _section(vary: str, curves: Sequence[Any]) -> Section:
    sizes = [x.size for x in curves[0].points]
    lines = [Line(c.solver, sizes, [1e3 * t for t in medians(c)]) for c in curves]
    least = Line("roofline of the data products", sizes, [1e3 * x.least for x in curves[0].points])
    panel = Panel(LABELS[vary], "ms per iteration", [*lines, least])
    rows = [
        (c.solver, x.size, 1e3 * x.time.median, f"{1e3 * x.time.min:.3g} to {1e3 * x.time.max:.3g}")
        for c in curves
        for x in c.points
    ]
    table = Table("Milliseconds per iteration", ("solver", "size", "median", "min to max"), rows)
    return Section(LABELS[vary], (), [Figure("Time per iteration", [panel]), table])
