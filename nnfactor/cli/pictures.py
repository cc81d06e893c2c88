"""Pictures and the report of a result folder, from its files alone."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ..io import load, read_data
from ..selection import RankSelection
from .errors import UserError
from .folder import SUGGESTED, ResultFolder, written
from .solutions import MODEL, NAMES, component_names


def can_draw() -> bool:
    """Tell whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(folder: ResultFolder) -> None:
    """Draw the components of every solution and the choice of a rank, and write `report.html`."""
    solutions = folder.solutions()
    if not can_draw():
        raise UserError("pictures need matplotlib; pip install 'nnfactor[plot]'")

    from .. import plots
    from ..plots.report import write_report

    for solution in solutions:
        model = load(solution / MODEL)
        if not hasattr(model, "factors_"):
            continue
        axes = plots.components_plot(model, names=_names_of(model, solution))
        _save(axes.flat[0].figure, solution / "components.png")
        if solution == folder.solution(folder.metadata.get("suggested")):
            shutil.copyfile(solution / "components.png", folder.file(SUGGESTED, "components.png"))
    if folder.plan["verb"] == "select-rank":
        axes = plots.selection_plot(selection_of(folder))
        for end in ("png", "pdf"):
            _save(axes[0].figure, folder.file(f"selection_plot.{end}"), close=end == "pdf")
    write_report(folder.path)


def _save(figure: Any, path: Path, close: bool = True) -> None:
    import matplotlib.pyplot as plt

    with written(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:], dpi=120, bbox_inches="tight")
    if close:
        plt.close(figure)


def _names_of(model: Any, solution: Path) -> dict[Any, Any]:
    """Return names of components as in the tables, and of the rows of every mode as far as they are known."""
    names, modes = json.loads((solution / NAMES).read_text(encoding="utf-8")), 1 + len(model.factors_)
    rows = names[0] if len(names) == 1 and len(names[0]) == modes else [None] * modes
    k = (model.components_.shape[0],) if np.ndim(getattr(model, "components_", 0)) == 2 else model.embedding_.shape[1:]
    return {**dict(enumerate(rows)), "components": component_names(k[0])}


def selection_of(folder: ResultFolder) -> RankSelection:
    """Read the choice of a rank from the files of a folder."""
    from ..plots.report import read_columns

    known = folder.metadata
    if "criterion" not in known:
        raise UserError(f"{folder.path} is unfinished: run its command again, or nnfactor combine")
    columns = read_columns(folder.file("all_solutions_stat.tsv"))
    table = {name: np.array(values, dtype=np.float64) for name, values in columns.items()}  # None becomes NaN
    losses = folder.file("held_out.tsv")
    values = read_data(losses).values if losses.exists() else None
    return RankSelection(known["suggested"], known["criterion"], known["reason"], table, {}, values)
