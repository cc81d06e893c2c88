"""Writing a finished run: one self-contained page, every number beside it, the configuration and the machine."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..harness.config import Config, to_toml
from ..harness.errors import BenchmarkError
from ..harness.journal import write_rows
from ..harness.results import Figure, Picture, Report, Row, Score, Section, Table

TEMPLATE = Path(__file__).with_name("page.html.jinja")

EXTRA = ("jinja2", "matplotlib", "tqdm")


def need_extra() -> None:
    """Raise a BenchmarkError that says what to install, before a long run and not after it."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise BenchmarkError(f'{" and ".join(missing)} missing; install with: python -m pip install -e ".[bench]"')


def write(folder: Path, config: Config, report: Report, machine: Mapping[str, Any]) -> Path:
    """Write all files of a run; returns the page."""
    machine = {**machine, **report.notes}
    summary = [row for row in report.rows if row["kind"] not in report.bulky]
    write_rows(folder, report.rows)
    (folder / "config.toml").write_text(to_toml(config.tables()), encoding="utf-8")
    (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
    write_csv(folder / "summary.csv", summary)
    page = folder / "report.html"
    page.write_text(render(config, report, machine), encoding="utf-8")
    return page


def render(config: Config, report: Report, machine: Mapping[str, Any]) -> str:
    """Write the page as text; figures are inside it."""
    import jinja2

    from .plots import svg

    env = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    env.filters |= {"cell": cell, "svg": svg, "columns": columns}
    env.tests |= {"worth_showing": worth_showing, "numeric": numeric}
    for name, cls in (("table", Table), ("figure", Figure), ("picture", Picture)):
        env.tests[name] = lambda part, cls=cls: isinstance(part, cls)
    template = env.from_string(TEMPLATE.read_text(encoding="utf-8"))
    machine = {"variants": [], **machine}
    return template.render(config=config, report=report, machine=machine, toml=to_toml(config.tables()))


def worth_showing(section: Section) -> bool:
    """Whether there is more than a heading: text, a figure, or a table with rows."""
    return bool(section.text) or any(not isinstance(part, Table) or part.rows for part in section.parts)


def numeric(value: Any) -> bool:
    """Whether a cell is set to the right: numbers and what stands for a missing one."""
    return isinstance(value, int | float | Score) or value is None


def columns(table: Table) -> list[tuple[str, bool]]:
    """List the heads of a table, and whether only numbers stand below them."""
    below = zip(*table.rows, strict=True)
    return [(name, all(map(numeric, values))) for name, values in zip(table.head, below, strict=True)]


def cell(value: Any) -> str:
    """Write a number with four significant digits and no exponent where that is readable; a dash for nothing.

    >>> [cell(v) for v in (0.012344, 3, 12345.6, 1234567.0, None, "x")]
    ['0.01234', '3', '12346', '1.235e+06', '-', 'x']
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"
    return str(value)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows with the union of their keys as columns."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
