"""How the cost of an iteration grows: one size varied at a time, the slope on doubly logarithmic axes."""

from __future__ import annotations

from ...harness.kinds import Context
from ...harness.results import Report
from .parameters import Parameters


def run(parameters: Parameters, context: Context) -> Report:
    """Measure every size, one after the other."""
    from .cases import measure
    from .report import report

    return report(parameters, measure(parameters, context))
