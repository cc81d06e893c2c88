"""Result folders: what is written where, completely or not at all, and what an earlier run left behind."""

import csv
import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..io.complete_files import remove, replacing
from .arguments import read_ranks
from .errors import UserError

SOLUTIONS, SUGGESTED, JOBS = "all_solutions", "suggested_solution", "jobs"


class ResultFolder:
    """A folder of results, and the plan that it follows: all that decides the outcome."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.moved: Path | None = None  # where an earlier result went
        self.is_own = False  # whether nobody else can have begun to write to it

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a folder that exists."""
        folder = cls(Path(path))
        if not folder.path.exists():
            raise UserError(f"{path}: there is no such folder")
        if not folder.file("metadata.json").exists():
            raise UserError(f"{path} is no result folder: it has no metadata.json")
        try:
            folder.metadata = json.loads(folder.file("metadata.json").read_text())
        except ValueError as error:
            raise UserError(
                f"{folder.file('metadata.json')} is damaged ({error}); move {path} away, or give another --name"
            ) from None
        return folder

    @classmethod
    def begin(cls, path: Path, plan: Mapping[str, Any], about: Mapping[str, Any], shared: bool) -> Self:
        """Make a folder for a plan, or go on with one that was begun with the same plan.

        Another earlier result is moved to `NAME_previous_<time>`; where several workers share the folder it is refused.
        """
        folder = cls(path)
        if folder.file("metadata.json").exists():
            before = cls.open(path)
            same = before.metadata.get("plan") == json.loads(json.dumps(plan))
            if same and not before.metadata["finished"]:
                return before
            if shared:
                told = "is finished" if same else "holds another run"
                raise UserError(f"{path} {told}; move it away, or give another --name")
            folder.moved = _free_name(path)
            os.replace(path, folder.moved)
        elif path.exists() and any(path.iterdir()):
            raise UserError(f"{path} exists and is no result folder; give another --name or --output-dir")
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder.metadata = {**about, "plan": dict(plan), "finished": False}
            folder.write_metadata()
            folder.is_own = not shared
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
        return folder

    def undo(self) -> None:
        """Leave things as they were before `begin`, if it made the folder and nothing was computed yet."""
        if self.is_own and not any(p.is_file() for part in (SOLUTIONS, JOBS) for p in self.file(part).rglob("*")):
            remove(self.path)
            if self.moved is not None:
                os.replace(self.moved, self.path)

    @property
    def plan(self) -> Mapping[str, Any]:
        """What decides the outcome: verb, model, parameters, ranks, seed, checksums of the data."""
        return self.metadata["plan"]

    def file(self, *parts: str) -> Path:
        """Return the path of something in the folder."""
        return self.path.joinpath(*parts)

    def solution(self, rank: int | None) -> Path:
        """Return the folder of a rank; None: of a model without one."""
        return self.file(SOLUTIONS, "k_" + (f"{rank:02d}" if rank is not None else "model"))

    def solutions(self) -> list[Path]:
        """List the folders of finished solutions; refuse a folder without any."""
        if found := sorted(self.file(SOLUTIONS).glob("k_*")):
            return found
        raise UserError(f"{self.path} has no solution yet; run the command that began it again, or nnfactor combine")

    def choose(self, words: Sequence[str] | None) -> Path:
        """Return the folder of the solution that `-k` names, or the suggested one."""
        found, ranks = self.solutions(), read_ranks(words) if words else [None]
        if len(ranks) > 1:
            raise UserError(f"-k {' '.join(words or ())}: say one rank")
        (rank,) = ranks
        path = self.file(SUGGESTED) if rank is None else self.solution(rank)
        if not path.exists():
            names = ", ".join(p.name.removeprefix("k_").lstrip("0") for p in found)
            told = "no suggested solution" if rank is None else f"no solution of rank {rank}"
            raise UserError(f"{self.path} has {told}; say -k with one of {names}")
        return path

    def write_metadata(self, **changes: Any) -> None:
        """Write what is known of the run."""
        self.metadata |= changes
        write_text(self.file("metadata.json"), json.dumps(self.metadata, indent=2, default=_plain) + "\n")


def _free_name(path: Path) -> Path:
    """Return a name for an earlier result; two in one second are numbered."""
    stem = f"{path.name}_previous_{time.strftime('%Y-%m-%d_%H-%M-%S')}"
    names = (path.with_name(stem + (f"_{i}" if i else "")) for i in count())
    return next(name for name in names if not name.exists())


def _plain(value: Any) -> Any:
    """Turn what JSON does not know into what it does."""
    if isinstance(value, np.generic):
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def write_text(path: Path, text: str) -> None:
    """Write a file, completely or not at all."""
    with written(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Give a path to write a file or a folder to; it gets its name when it is complete, and a folder to stand in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        yield unfinished


def write_table_file(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a table, one column for each name, as tab-separated text with digits that read back the same."""
    text = io.StringIO()
    lines = csv.writer(text, delimiter="\t", lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([_cell(v) for v in row] for row in zip(*columns.values(), strict=True))
    write_text(path, text.getvalue())


def _cell(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if isinstance(value, float) else str(value)
