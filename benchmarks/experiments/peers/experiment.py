"""NMF, KL-NMF, nonnegative CP and restarts against scikit-learn, TensorLy and torchnmf: time to common errors."""

from __future__ import annotations

from ...harness.kinds import Context
from ...harness.results import Report
from .parameters import BARS, Parameters

__all__ = ["BARS", "Parameters", "run"]


def run(parameters: Parameters, context: Context) -> Report:
    """Run every problem, one after the other."""
    from .report import report
    from .runs import measure_all

    return report(parameters, measure_all(parameters, context), context)
