"""The solvers of nonnegative graph embedding on one objective: those of Wang et al. 2009a, and later ones."""

from __future__ import annotations

from itertools import product

from ...data.datasets import load_available
from ...data.problems import load
from ...harness.errors import MissingData
from ...harness.kinds import Context
from ...harness.results import Report
from .parameters import Parameters


def run(parameters: Parameters, context: Context) -> Report:
    """Run every setting, one after the other."""
    from .race import run_setting, total_iterations
    from .report import report

    found, skipped = load_available(parameters.problems, lambda name: load(name, context.data, context.settings.seed))
    if skipped and context.data is not None:  # a folder that was not named skips, one without the file is an error
        raise MissingData("; ".join(skipped.values()))
    settings = list(product(found.values(), parameters.orders, parameters.alphas))
    tick = context.progress(len(settings) * total_iterations(parameters), "nge_speed")
    outcomes = []
    for problem, order, alpha in settings:
        context.say(f"{problem.title}, {order}-D, alpha = {alpha:g}")
        outcomes.append(run_setting(parameters, problem, order, alpha, context, tick))
    return report(parameters, outcomes, skipped, context)
