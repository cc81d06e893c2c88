"""NMF, KL-NMF, nonnegative CP and restarts against scikit-learn, TensorLy and torchnmf: time to common errors."""

from __future__ import annotations

from ...harness.kinds import Context
from ...harness.results import Report
from .parameters import Parameters


def run(parameters: Parameters, context: Context) -> Report:
    """Run every problem, one after the other."""
    from threadpoolctl import threadpool_limits

    from .report import report
    from .runs import measure_all

    with threadpool_limits(context.settings.threads):  # one number of threads for every library
        return report(parameters, measure_all(parameters, context), context)
