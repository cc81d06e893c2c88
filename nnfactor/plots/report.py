"""A page that shows a result folder: the choice of the rank, the components of each, how they were found."""

import csv
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ..io import read_data
from ..io.complete_files import replacing
from .components import components_plot
from .page import as_png, file_links, folded, page, picture, section, table
from .panels import are_channels
from .style import MANY

TOP = 10  # largest entries of a component that are listed

SOLUTION = re.compile(r"k_(\d+|model)")


@dataclass(frozen=True)
class Solution:
    """One solution of a folder: tables of components `(k, d)`, or of modes `(d, k)`, with names."""

    title: str
    folder: Path
    rank: int | None
    features: Mapping[str, tuple[np.ndarray, Sequence[str], Sequence[str]]]  # (k, d), components, rows
    usages: tuple[np.ndarray, Sequence[str], Sequence[str]] | None
    restarts: Mapping[str, list[Any]]


@dataclass(frozen=True)
class Results:
    """What a report is made of; `ranks` are the columns of the table of ranks."""

    folder: Path
    title: str
    command: str = ""
    reason: str = ""
    suggested: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ranks: Mapping[str, list[Any]] = field(default_factory=dict)
    solutions: Sequence[Solution] = ()


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` into a result folder: one page that opens from disk, with all pictures inside.

    It has what is there of: `metadata.json` (title, command, reason, suggested rank), `selection_plot.png`,
    `all_solutions_stat.tsv`, and for each `all_solutions/k_*` its tables of factors, restarts and `components.png`
    (drawn anew where it is missing). No request leaves the page; it links to the files beside it.

    Parameters
    ----------
    folder : str or path, such as the command line writes

    Returns
    -------
    path of the page

    Raises
    ------
    ValueError
        A folder without `all_solutions` and `suggested_solution`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from nnfactor.io import write_table
    >>> from nnfactor.plots import write_report
    >>> with TemporaryDirectory() as folder:
    ...     solution = Path(folder, "all_solutions", "k_02")
    ...     solution.mkdir(parents=True)
    ...     write_table(solution / "components.tsv", [[1.0, 0.0], [0.0, 2.0]], ["sky", "sea"], ["blue", "green"])
    ...     page = write_report(folder).read_text()
    >>> "sky" in page, "http:" in page
    (True, False)
    """
    results = read_results(Path(folder))
    path = results.folder / "report.html"
    with replacing(path) as unfinished:
        unfinished.write_text(render(results), encoding="utf-8")
    return path


def read_results(folder: Path) -> Results:
    """Read what a folder has."""
    found = sorted(p for p in (folder / "all_solutions").glob("k_*") if p.is_dir() and SOLUTION.fullmatch(p.name))
    found = found or [p for p in (folder / "suggested_solution",) if p.is_dir()]
    if not found:
        raise ValueError(f"{folder} has no all_solutions/k_* and no suggested_solution; it is no result folder")
    file = folder / "metadata.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    command, plan = known.get("command", ""), known.get("plan", {})
    what = " of ".join(str(plan[name]) for name in ("verb", "model") if name in plan)
    return Results(
        folder,
        f"{folder.resolve().name}{f': {what}' if what else ''}",
        shlex.join(command) if isinstance(command, list) else str(command),
        str(known.get("reason") or ""),
        known.get("suggested"),
        known,
        read_columns(folder / "all_solutions_stat.tsv"),
        [_read_solution(path) for path in found],
    )


def read_columns(path: Path) -> dict[str, list[Any]]:
    """Read the columns of a table, numbers as numbers."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file, delimiter="\t"))
    return {name: [_value(row[i]) for row in rows] for i, name in enumerate(head)}


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def _read_solution(path: Path) -> Solution:
    found = SOLUTION.fullmatch(path.name)
    rank = int(found[1]) if found and found[1].isdigit() else None
    features = {}
    for file in sorted(path.glob("components.tsv")) + sorted(path.glob("factor_*.tsv")):
        values, rows, columns = _read_named(file)
        wide = file.stem == "components"
        name = "features" if wide else file.stem.removeprefix("factor_")
        features[name] = (values, rows, columns) if wide else (values.T, columns, rows)
    usages = path / "usages.tsv"
    title = f"{rank} component{'' if rank == 1 else 's'}" if rank is not None else "the solution"
    shown = _read_named(usages) if usages.exists() else None
    return Solution(title, path, rank, features, shown, read_columns(path / "restarts.tsv"))


def _read_named(path: Path) -> tuple[np.ndarray, Sequence[str], Sequence[str]]:
    """Read a table of numbers, with numbers for names that are missing."""
    read = read_data(path)
    rows, columns = (
        [*map(str, n)] if n else [*map(str, range(d))] for n, d in zip(read.names, read.values.shape, strict=True)
    )
    return np.asarray(read.values, dtype=np.float64), rows, columns


def render(results: Results) -> str:
    """Write the page as text."""
    sections, links = [], {}
    if results.ranks or (results.folder / "selection_plot.png").exists():
        links["ranks"] = "Number of components" if len(results.solutions) > 1 else "The fit"
        sections.append(section("ranks", links["ranks"], _choice(results)))
    links["solutions"] = "Solutions" if len(results.solutions) > 1 else "The solution"
    shown = results.suggested if results.suggested is not None else results.solutions[-1].rank
    parts = [_show_solution(results, solution, solution.rank == shown) for solution in results.solutions]
    sections.append(section("solutions", links["solutions"], parts))
    links["run"] = "The run"
    sections.append(section("run", links["run"], _run(results)))
    return page(results.title, results.reason, links, sections)


def _choice(results: Results) -> list[str]:
    """Show the picture of the choice, and the table of ranks."""
    ranks, parts = list(results.ranks.get("rank", [])), []
    file = results.folder / "selection_plot.png"
    if file.exists():
        over = f" over {ranks[0]} to {ranks[-1]} components" if ranks else ""
        told = f"; suggested: {results.suggested}" if results.suggested is not None else "; none is suggested"
        text = f"What the choice goes by{over}{told}. The numbers are in the table of ranks."
        parts.append(picture(file.read_bytes(), text))
    if results.ranks:
        marked = [i for i, rank in enumerate(ranks) if rank == results.suggested and len(ranks) > 1]
        columns = {name: values for name, values in results.ranks.items() if name != "suggested"}
        parts.append(_columns("Ranks; the suggested one is marked" if marked else "Results", columns, marked))
    files = ("all_solutions_stat.tsv", "held_out.tsv", "selection_plot.png", "selection_plot.pdf")
    return [*parts, file_links(results.folder, [p for name in files if (p := results.folder / name).exists()])]


def _show_solution(results: Results, solution: Solution, is_open: bool) -> str:
    """Show the components of a solution, what is largest in them, its restarts and its files."""
    suggested = len(results.solutions) > 1 and results.suggested is not None and solution.rank == results.suggested
    parts = [_draw(solution)]
    for name, (values, components, rows) in solution.features.items():
        parts.append(_largest(f"Largest {name} of every component", values, components, rows))
    if solution.usages is not None:
        values, rows, components = solution.usages
        parts.append(_largest("Samples that have most of every component", values.T, components, rows))
    if solution.restarts:
        parts.append(_columns("Restarts", solution.restarts))
    files = sorted(p for p in solution.folder.iterdir() if p.is_file() and not p.name.startswith("."))
    parts += ["<h3>Files</h3>", file_links(results.folder, files)]
    key = f"k{solution.rank}" if solution.rank is not None else "solution"
    return folded(key, f"{solution.title}{', suggested' if suggested else ''}", parts, is_open)


def _largest(caption: str, values: np.ndarray, components: Sequence[str], rows: Sequence[str]) -> str:
    """List the names of the largest entries of every component."""
    top = min(TOP, values.shape[1])
    order = np.argsort(-np.abs(values), axis=1, kind="stable")[:, :top]
    names = [", ".join(rows[i] for i in at if values[j, i] != 0) for j, at in enumerate(order)]
    return _columns(caption, {"component": list(components), "sum": values.sum(1).tolist(), "largest first": names})


def _columns(caption: str, columns: Mapping[str, Sequence[Any]], marked: Sequence[int] = ()) -> str:
    """Write a table of named columns."""
    return table(caption, [n.replace("_", " ") for n in columns], zip(*columns.values(), strict=True), marked)


def _draw(solution: Solution) -> str:
    """Show `components.png`, or draw it."""
    if not solution.features:
        return ""
    file, k = solution.folder / "components.png", len(next(iter(solution.features.values()))[0])
    kind = "mutation channels" if any(are_channels(rows) for _, _, rows in solution.features.values()) else "features"
    text = f"{k} components over {kind}; what is largest in each of them is in the table below."
    if file.exists():
        return picture(file.read_bytes(), text, wide=True)
    pictures = []
    for name, (values, components, rows) in solution.features.items():
        with plt.style.context("default"):
            figure = _figure(values, components, rows)
        pictures.append(picture(as_png(figure), text, name if len(solution.features) > 1 else "", True))
    return "".join(pictures)


def _figure(values: np.ndarray, components: Sequence[str], rows: Sequence[str]) -> Figure:
    """Draw components in a figure that no one else sees."""
    numbered = list(rows) == [*map(str, range(len(rows)))]
    k, channels = len(values), are_channels(rows)
    n_columns = (1 if k <= 6 else 2) if channels else min(k, 4)
    n_rows = -(-k // n_columns)
    height = 1.5 if channels or numbered else 2.2
    figure = Figure(figsize=(10, min(height * n_rows + 0.3, 60)), layout="constrained" if k <= 2 * MANY else "tight")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[k:]:
        ax.remove()
    named = {"components": components} if numbered else {"components": components, "features": rows}
    components_plot([np.zeros((1, k)), values.T], names=named, axes=axes[:k], mode=1)
    return figure


def _run(results: Results) -> list[str]:
    """Say how the results were made."""
    known = results.metadata
    lines = {"command": results.command, "data": "; ".join(map(str, known.get("data", [])))}
    lines |= {"root seed": known.get("plan", {}).get("seed", ""), **known.get("environment", {})}
    shown = {name: str(value) for name, value in lines.items() if value not in ("", None)}
    files = ("metadata.json", "seeds.txt", "log.txt")
    there = [p for name in files if (p := results.folder / name).exists()]
    body = "".join(
        f'<tr><th scope="row" class="text">{escape(n)}</th><td class="text">{escape(v)}</td></tr>'
        for n, v in shown.items()
    )
    return [
        f'<div class="scroll"><table><tbody>{body}</tbody></table></div>' if body else "",
        file_links(results.folder, there),
    ]
