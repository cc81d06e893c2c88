"""Callbacks that are ready: `NMF(10, callback=[ProgressBar(), JSONLines("log.jsonl")])`.

A callback is called with a `nnfactor.core.Progress` at every reading, for most estimators every 10 iterations. A true
answer stops the fit. Of a list all are told, and one true answer is enough. An estimator with a callback runs alone in
`batch_fit`; its restarts run as one batch, and `objectives` has one number for each of those that still run.
"""

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from .core.solve.history.progress import Progress

try:
    from tqdm.auto import tqdm
except ImportError:
    tqdm = None

__all__ = ["JSONLines", "Progress", "ProgressBar"]


class JSONLines:
    """Append a line of JSON to a file at every reading, for programs that watch.

    Its entries: "name" of the run, "iteration", "max_iter", "objective" (of the best), "objectives" and "running"
    (numbers of the problems that still run), "seconds", "memory" (bytes), and "time" (seconds since 1970). What is not
    finite is null. Each line is complete when the next sweep begins.

    Parameters
    ----------
    path : str or path
        Lines are appended: a fit that goes on from a checkpoint continues its file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __call__(self, progress: Progress) -> None:
        """Append a line."""
        finite = lambda value: value if math.isfinite(value) else None
        line = {
            "name": progress.name,
            "iteration": progress.iteration,
            "max_iter": progress.max_iter,
            "objective": finite(progress.objective),
            "objectives": [finite(value) for value in progress.objectives.tolist()],
            "running": progress.running.tolist(),
            "seconds": progress.seconds,
            "memory": progress.memory,
            "time": time.time(),
        }
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def __repr__(self) -> str:
        return f"JSONLines({str(self.path)!r})"


class ProgressBar:
    """Show iterations, objective and running problems as a bar of `tqdm` on a terminal or in a notebook.

    Nothing is shown where the output is a pipe or a file, or where tqdm is not installed. The bar is full at
    `max_iter`; most fits end before.
    """

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, progress: Progress) -> None:
        """Move the bar."""
        if tqdm is None:
            return
        if self._bar is None:  # disable=None: silent unless on a terminal
            self._bar = tqdm(total=progress.max_iter, desc=progress.name, unit="it", disable=None, file=sys.stderr)
        self._bar.set_postfix(objective=f"{progress.objective:.6g}", running=len(progress.running), refresh=False)
        self._bar.update(progress.iteration - self._bar.n)

    def close(self) -> None:
        """Leave the bar as it is, for the run has ended."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_bar": None}  # a copy has no bar yet

    def __repr__(self) -> str:
        return "ProgressBar()"
