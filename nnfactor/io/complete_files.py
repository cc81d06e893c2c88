"""Files and folders that are there completely, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to, which takes the place of `path` when it is complete, and is removed if it never is.

    It may become a file or a folder. The folder that it stands in must exist.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    remove(unfinished)  # of a process that was killed, and had the same number
    try:
        yield unfinished
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(unfinished, path)
    finally:
        remove(unfinished)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
