"""NMF, KL-NMF, nonnegative CP and restarts against the fastest of other packages: time to common errors."""

from __future__ import annotations

from ...harness.kinds import Context
from ...harness.results import Report
from .parameters import Parameters


def run(parameters: Parameters, context: Context) -> Report:
    """Run every problem, one after the other; say at the end how much faster it was over all sets of a race."""
    from threadpoolctl import threadpool_limits

    from .checks import summarise
    from .report import report
    from .runs import measure_all

    with threadpool_limits(context.settings.threads):  # one number of threads for every library
        found = measure_all(parameters, context)
        for line in summarise(found):
            context.say(str(line))
        return report(parameters, found, context)
