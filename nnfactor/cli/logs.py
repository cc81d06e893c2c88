"""What a run tells while it goes: lines on a terminal and in `log.txt`, progress, warnings as one line each."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .folder import ResultFolder

LOGGER = logging.getLogger("nnfactor.cli")


@contextmanager
def follow(folder: ResultFolder, quiet: bool) -> Iterator[logging.Logger]:
    """Write the log of a run to its folder, and to standard error unless that should be quiet."""
    handlers: list[logging.Handler] = [logging.FileHandler(folder.file("log.txt"), encoding="utf-8")]
    handlers[0].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    with tell(quiet, handlers) as log:
        yield log


@contextmanager
def tell(quiet: bool, handlers: list[logging.Handler] | None = None) -> Iterator[logging.Logger]:
    """Tell what happens, and every warning as one line."""
    handlers = list(handlers or ())
    if not quiet:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[-1].setFormatter(logging.Formatter("nnfactor: %(message)s"))
    level = LOGGER.level
    told: set[str] = set()

    def warn(message: Any, *rest: Any, **more: Any) -> None:
        text = " ".join(str(message).split())
        if text not in told:
            told.add(text)
            LOGGER.warning("warning: %s", text)

    for handler in handlers:
        LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = warn
            yield LOGGER
    finally:
        LOGGER.setLevel(level)
        for handler in handlers:
            LOGGER.removeHandler(handler)
            handler.close()
