"""Kinds of files: what the end of a name says, and what reading it needs."""

import difflib
import gzip
import importlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TABLES = (".csv", ".tsv", ".txt")

COMPRESSED = (*TABLES, ".mtx")  # kinds that may come as .gz


def file_kind(path: Path, known: Sequence[str]) -> str:
    """Return the end of a name that says the kind, without `.gz`; refuse others, and files that are not there."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file")
    ends = [end.lower() for end in path.suffixes]
    kind = ends[-2] if len(ends) > 1 and ends[-1] == ".gz" else (ends or [""])[-1]
    if kind not in known:
        raise ValueError(f"{path}: files that end in {kind or 'nothing'!r} are not known; use {', '.join(known)}")
    if ends[-1:] == [".gz"] and kind not in COMPRESSED:
        raise ValueError(f"{path}: only {', '.join(COMPRESSED)} are read from .gz; unpack it first")
    if path.is_dir() and kind != ".zarr":
        raise ValueError(f"{path} is a folder; name a file in it")
    return kind


def split_column(where: str) -> tuple[str, str | None]:
    """Split `FILE:COLUMN`; without a column, and where the colon belongs to the name of the file, it is None."""
    file, _, column = where.rpartition(":")
    named = file and not Path(where).exists() and (Path(file).exists() or Path(file).suffix)
    return (file, column) if named else (where, None)


@contextmanager
def told_of(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a reader says of a file that it cannot read into one line that names the file."""
    foreign = (ValueError, OSError, EOFError, zlib.error) if kind in TABLES else Exception
    try:
        yield
    except (ImportError, MemoryError, PermissionError):
        raise
    except foreign as error:  # each package has its own classes for damaged files
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} is damaged, truncated or no {kind} file: {said}") from error


@contextmanager
def open_text(path: Path) -> Iterator[Iterable[str]]:
    """Open a text file, packed or not; a mark of its encoding is skipped."""
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        try:
            yield file
        except UnicodeDecodeError as error:
            found = error.object[error.start]
            raise ValueError(f"{path} is no UTF-8 text (byte {found:#04x}); save it in UTF-8") from None


def need(package: str, path: str | os.PathLike[str], job: str = "reading it") -> Any:
    """Import a package that a kind of file needs, or name it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        installed = package.partition(".")[0]
        how = f"pip install {installed}, or nnfactor[files]"
        raise ImportError(f"{path}: {job} needs the package {installed}; {how}") from error


def choose(arrays: Sequence[str], key: str | None, path: Path, option: str = "key") -> str:
    """Choose the array of a file: the named one, or the only one."""
    if key is None and len(arrays) == 1:
        return arrays[0]
    if key is None or key not in arrays:
        asked = "holds several arrays" if key is None and arrays else f"holds no {key!r}" if arrays else "holds no data"
        raise ValueError(f"{path} {asked}; name one as {option}: {listed(arrays)}")
    return key


def listed(names: Iterable[str], most: int = 10) -> str:
    """List names for a message: the first ones, and how many there are more."""
    names = list(names)
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more if names else "there is none"


def nearest(name: str, names: Iterable[str]) -> str:
    """List the names that may be meant by one that is not there: similar ones, or the first ones."""
    names = list(names)
    return listed(difflib.get_close_matches(name, names, n=3) or names)
