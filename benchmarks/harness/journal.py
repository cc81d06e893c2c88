"""The rows of a run on disk: the only module that reads and writes `results.jsonl`.

A study appends its rows as they come, and does not run again what is there; a finished run writes all of them anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from .config import Config, differences, load, to_toml
from .errors import BenchmarkError
from .results import Row

FILE = "results.jsonl"

Key = tuple[str, str, str, int, str]  # problem; setting and method of the job; split; point as JSON


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a run folder; a last line that was cut off is left out.

    Raises
    ------
    BenchmarkError
        There are none.
    """
    path, rows = folder / FILE, []
    if not path.is_file():
        raise BenchmarkError(f"{folder} holds no {FILE}; give the folder of a run, such as results/nge_speed")
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def write_rows(folder: Path, rows: Iterable[Row]) -> None:
    """Write one JSON object a line; the file is never half written."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = (folder / FILE).with_suffix(".tmp")
    beside.write_text(_lines(rows), encoding="utf-8")
    beside.replace(folder / FILE)


def key_of(row: Row) -> Key:
    """Say what a row belongs to."""
    return (row["problem"], *row["job"], row["split"], json.dumps(row["point"]))


class Journal:
    """`results.jsonl` of a run folder, appended point by point.

    Every row says of how many rows its point consists (`of`), so that a point that was cut off in the middle is known.

    Parameters
    ----------
    folder : Path
    config : Config
        A folder that was filled with another one is refused.
    restart : bool
        Forget what is there.
    """

    def __init__(self, folder: Path, config: Config, restart: bool = False) -> None:
        self.folder = folder
        self.points: dict[Key, list[Row]] = {}
        if not restart and (folder / FILE).exists():
            _check_alike(folder, config)
            self.points = _complete(read_rows(folder))
        write_rows(folder, (row for rows in self.points.values() for row in rows))
        (folder / "config.toml").write_text(to_toml(config.tables()), encoding="utf-8")

    def add(self, rows: Sequence[Row]) -> None:
        """Keep all rows of some points, at once."""
        points: dict[Key, list[Row]] = {}
        for row in rows:
            points.setdefault(key_of(row), []).append(row)
        for key, found in points.items():
            self.points[key] = [{**row, "of": len(found)} for row in found]
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.write(_lines(row for key in points for row in self.points[key]))


def _lines(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _complete(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    points: dict[Key, list[Row]] = {}
    for row in rows:
        if "of" in row:
            points.setdefault(key_of(row), []).append(row)
    return {key: found for key, found in points.items() if len(found) == found[0]["of"]}


def _check_alike(folder: Path, config: Config) -> None:
    """Raise a BenchmarkError if the rows in the folder come from other parameters."""
    there = folder / "config.toml"
    if not there.exists():
        return
    other = differences(load(there), config)
    if other:
        shown = "; ".join(other[:3]) + ("; ..." if len(other) > 3 else "")
        raise BenchmarkError(
            f"{folder} holds rows of another configuration ({shown}): give another --out, or --restart to start afresh"
        )
