"""Writing a finished run: one self-contained page, every number beside it, the configuration and the machine."""

from __future__ import annotations

import csv
import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..harness.config import Config, to_toml
from ..harness.errors import BenchmarkError
from ..harness.journal import write_rows
from ..harness.results import Figure, Picture, Report, Row, Section, Table

EXTRA = ("matplotlib", "tqdm")

FILES = ("summary.csv", "details.csv", "results.jsonl", "config.toml", "machine.json")

VERDICTS = {"met": "good", "not met": "bad"}

QUICK = (
    "Run with --quick: small data and few iterations, to see that everything works. Times, scores and verdicts say "
    "nothing about the configuration at its full size."
)


def need_extra() -> None:
    """Raise a BenchmarkError that says what to install, before a long run and not after it."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise BenchmarkError(f'{" and ".join(missing)} missing; install with: python -m pip install -e ".[bench]"')


def write(folder: Path, config: Config, report: Report, machine: Mapping[str, Any]) -> Path:
    """Write all files of a run; returns the page."""
    machine = {"variants": [], **machine, **report.notes}
    write_rows(folder, report.rows)
    (folder / "config.toml").write_text(to_toml(config.tables()), encoding="utf-8")
    (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
    write_csv(folder / "summary.csv", [row for row in report.rows if row["kind"] not in report.bulky])
    if details := [r for r in report.rows if r["kind"] in report.bulky and r["kind"] != "picture"]:
        write_csv(folder / "details.csv", details)
    page = folder / "report.html"
    page.write_text(render(folder, config, report, machine), encoding="utf-8")
    return page


def render(folder: Path, config: Config, report: Report, machine: Mapping[str, Any]) -> str:
    """Write the page as text; figures are inside it, and it links to the files of the run."""
    from nnfactor.plots.page import file_links, page, paragraph, section

    shown = {f"part{i}": one for i, one in enumerate(report.sections) if worth_showing(one)}
    begin = [
        paragraph(f"What is done and what was found: docs/findings/{config.name}.md."),
        paragraph(ran_on(config, machine)),
    ]
    begin += [paragraph(QUICK, "note")] if "quick" in machine["variants"] else []
    files = [path for name in FILES if (path := folder / name).exists()]
    texts = [f"<pre>{escape(text)}</pre>" for text in (to_toml(config.tables()), json.dumps(machine, indent=2))]
    return page(
        config.name,
        config.header.summary,
        {**{key: one.title for key, one in shown.items()}, "run": "The run"},
        [
            *begin,
            *(section(key, one.title, _parts(one)) for key, one in shown.items()),
            section(
                "run",
                "The run",
                [paragraph("Every number, the configuration and the machine:"), file_links(folder, files), *texts],
            ),
        ],
    )


def ran_on(config: Config, machine: Mapping[str, Any]) -> str:
    """Say where and with what a run was made."""
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'} of {machine['cores']} cores"
    return (
        f"{machine['device']} ({machine['device_name']}), {threads}, {config.header.run.dtype}, "
        f"torch {machine['versions']['torch']}, Python {machine['python']}, {machine['time']}."
    )


def _parts(one: Section) -> list[str]:
    """Write the paragraphs, tables and pictures of a section."""
    from nnfactor.plots.page import paragraph, picture, table

    from .plots import svg

    parts = [paragraph(line) for line in one.text]
    for part in one.parts:
        if isinstance(part, Figure):
            parts.append(picture(svg(part), f"{part.caption}: {one.title}", part.caption, True, kind="svg+xml"))
        elif isinstance(part, Picture):
            parts.append(picture(b64decode(part.png), part.caption, part.caption, width=part.width))
        elif part.rows:
            parts.append(table(part.caption or one.title, part.head, part.rows, classes=VERDICTS))
    return parts


def worth_showing(one: Section) -> bool:
    """Whether there is more than a heading: text, a figure, or a table with rows."""
    return bool(one.text) or any(not isinstance(part, Table) or part.rows for part in one.parts)


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
