"""The finished rows of a study, on disk as they come: what is there is not run again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .config import Config, differences, load, to_toml
from .errors import BenchmarkError
from .results import Row

Key = tuple[str, str, str, int, str]  # problem; setting and method of the job; split; point as JSON


def key_of(row: Row) -> Key:
    """What a row belongs to."""
    return (row["problem"], *row["job"], row["split"], json.dumps(row["point"]))


class Journal:
    """`results.jsonl` of a run folder, appended point by point.

    Every row says of how many rows its point consists (`of`), so that a point that was cut off in the middle is known.

    Parameters
    ----------
    folder : Path or None
        None keeps nothing on disk.
    config : Config
        A folder that was filled with another one is refused.
    restart : bool
        Forget what is there.
    """

    def __init__(self, folder: Path | None, config: Config | None, restart: bool = False) -> None:
        self.path = None if folder is None else folder / "results.jsonl"
        self.points: dict[Key, list[Row]] = {}
        if self.path is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if restart or not self.path.exists():
            self.path.unlink(missing_ok=True)
        else:
            _check_alike(folder, config)
            self.points = _complete(read_rows(self.path))
        if config is not None:
            (folder / "config.toml").write_text(to_toml(config.tables()), encoding="utf-8")
        self._write([row for rows in self.points.values() for row in rows], "w")

    def add(self, rows: Sequence[Row]) -> None:
        """All rows of some points, at once."""
        points: dict[Key, list[Row]] = {}
        for row in rows:
            points.setdefault(key_of(row), []).append(row)
        for key, found in points.items():
            self.points[key] = [{**row, "of": len(found)} for row in found]
        self._write([row for key in points for row in self.points[key]], "a")

    def _write(self, rows: Iterable[Row], mode: str) -> None:
        if self.path is not None:
            with self.path.open(mode, encoding="utf-8") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; a last line that was cut off is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _complete(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    points: dict[Key, list[Row]] = {}
    for row in rows:
        if "of" in row:
            points.setdefault(key_of(row), []).append(row)
    return {key: found for key, found in points.items() if len(found) == found[0]["of"]}


def _check_alike(folder: Path, config: Any) -> None:
    """A BenchmarkError if the rows in the folder come from other parameters."""
    there = folder / "config.toml"
    if config is None or not there.exists():
        return
    other = differences(load(there), config)
    if other:
        shown = "; ".join(other[:3]) + ("; ..." if len(other) > 3 else "")
        raise BenchmarkError(
            f"{folder} holds rows of another configuration ({shown}): give another --out, or --restart to start afresh"
        )
