"""What a run tells while it goes: lines on a terminal and in `log.txt`, progress, warnings as one line each."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .describe import told_in_options
from .folder import ResultFolder

LOGGER = logging.getLogger("nnfactor.cli")


@contextmanager
def follow(folder: ResultFolder, quiet: bool) -> Iterator[logging.Logger]:
    """Write the log of a run to its folder, and to standard error unless that should be quiet."""
    package, file = logging.getLogger("nnfactor"), logging.FileHandler(folder.file("log.txt"), encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = package.level
    package.addHandler(file)  # what fits tell goes to the file, too
    package.setLevel(logging.INFO)
    try:
        with tell(quiet) as log:
            yield log
    finally:
        package.setLevel(level)
        package.removeHandler(file)
        file.close()


@contextmanager
def tell(quiet: bool) -> Iterator[logging.Logger]:
    """Tell what happens, and every warning as one line."""
    handler = logging.NullHandler() if quiet else logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("nnfactor: %(message)s"))
    level = LOGGER.level
    told: set[str] = set()

    def warn(message: Any, *rest: Any, **more: Any) -> None:
        text = told_in_options(message)
        if text not in told:
            told.add(text)
            LOGGER.warning("warning: %s", text)

    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = warn
            yield LOGGER
    finally:
        LOGGER.setLevel(level)
        LOGGER.removeHandler(handler)
        handler.close()
