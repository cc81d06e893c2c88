"""`plot`: pictures and the report of a result folder."""

from argparse import Namespace

from ..folder import ResultFolder
from ..logs import tell
from ..pictures import draw


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Draw the pictures again."""
    folder = ResultFolder.open(arguments.result)
    with tell(arguments.quiet) as log:
        draw(folder)
        log.info("wrote %s", folder.file("report.html"))
    return 0
