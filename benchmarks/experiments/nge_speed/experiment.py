"""The solvers of nonnegative graph embedding on one objective: paper 002's comparison, and what came after it.

The paper measured its multiplicative rule 47 to 393 times faster per iteration than M-matrix NGE (Yang et al. 2008),
which formed k matrix inverses in every iteration. This runs that rule as printed and with the exact basis rule; the
M-matrix step by inverses, by batched Cholesky, by CG and by Jacobi sweeps; and coordinate and gradient methods.
"""

from __future__ import annotations

from itertools import product

from ...data.problems import Problem, load, needs_folder
from ...harness.errors import MissingData
from ...harness.kinds import Context
from ...harness.results import Report
from .parameters import BARS, Parameters

__all__ = ["BARS", "Parameters", "run"]


def run(parameters: Parameters, context: Context) -> Report:
    """Every setting, one after the other."""
    from .race import run_setting, total_iterations
    from .report import report

    problems, skipped = _problems(parameters, context)
    settings = list(product(problems, parameters.orders, parameters.alphas))
    tick = context.progress(len(settings) * total_iterations(parameters), "nge_speed")
    outcomes = []
    for problem, order, alpha in settings:
        context.say(f"{problem.title}, {order}-D, alpha = {alpha:g}")
        outcomes.append(run_setting(parameters, problem, order, alpha, context, tick))
    return report(parameters, outcomes, skipped, context)


def _problems(parameters: Parameters, context: Context) -> tuple[list[Problem], dict[str, str]]:
    """The problems that can be run, and why others cannot: a folder that was not named skips, a bad one is an error."""
    problems, skipped = [], {}
    for name in parameters.problems:
        if needs_folder(name) and context.data is None:
            skipped[name] = "no data folder: give --data DIR or NNFACTOR_DATA"
        else:
            problems.append(load(name, context.data, context.settings.seed))
    if not problems:
        raise MissingData("nothing to run: " + "; ".join(f"{name}: {why}" for name, why in skipped.items()))
    return problems, skipped
