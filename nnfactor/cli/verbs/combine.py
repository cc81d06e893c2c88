"""`combine`: join what several workers have computed."""

from argparse import Namespace

from ..errors import UserError
from ..folder import ResultFolder
from ..jobs import Work, finish
from ..logs import follow, tell
from ..requests import Request, read_again


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Join the shares of all workers; say whose are missing."""
    folder = ResultFolder.open(arguments.result)
    if folder.metadata["finished"]:
        raise UserError(f"{arguments.result} is complete; there is nothing to combine")
    given = read_again(folder)
    with tell(arguments.quiet):
        work = Work.plan(folder.plan, Request.again(folder).estimator, given)
    missing = sorted({worker for worker, _ in work.missing(folder)})
    if missing:
        raise UserError(
            f"{arguments.result} lacks the work of --worker-index {', '.join(map(str, missing))} of "
            f"--total-workers {work.workers}; run its command with each of these, then combine"
        )
    with follow(folder, arguments.quiet):
        finish(folder, work, given, pictures=not arguments.no_plots)
    return 0
