"""Curves as pictures of a page."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from ..harness.results import Figure, Panel

COLOURS = ("#3b6fb6", "#d1603d", "#3f8f5f", "#8a5aa8", "#b8860b", "#5b5b5b", "#c2518b", "#2a9d9d", "#7a4f2a", "#8fae3a")

STYLES = ("-", "--", ":")


def svg(figure: Figure) -> bytes:
    """Draw a figure as an SVG image."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 9, "font.family": "sans-serif"}
    with rc_context(style):
        canvas = Canvas(figsize=(5.2 * len(figure.panels), 4.6), layout="constrained")
        FigureCanvasSVG(canvas)
        axes = canvas.subplots(1, len(figure.panels), squeeze=False)[0]
        looks = _looks(figure)
        for ax, panel in zip(axes, figure.panels, strict=True):
            _draw(ax, panel, looks)
        handles = {line.get_label(): line for ax in axes for line in ax.get_lines() if line.get_label() in looks}
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
        buffer = BytesIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _looks(figure: Figure) -> dict[str, dict[str, str]]:
    """One colour and dash per label, the same in every panel."""
    labels = dict.fromkeys(line.label for panel in figure.panels for line in panel.lines)
    return {
        label: {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i % len(STYLES)]}
        for i, label in enumerate(labels)
    }


def _draw(ax: Any, panel: Panel, looks: dict[str, dict[str, str]]) -> None:
    for line in panel.lines:
        ax.plot(line.x, line.y, label=line.label, linewidth=1.4, **looks[line.label])
    if panel.rule:
        ax.axhline(panel.rule[0], color="#999999", linewidth=0.8)
        at = (0.01, panel.rule[0])  # on the left, where curves that fall are still above it
        ax.annotate(panel.rule[1], at, xycoords=("axes fraction", "data"), ha="left", va="bottom")
    ax.set_xscale("log" if panel.log_x else "linear")
    ax.set_yscale("log" if panel.log_y else "linear")
    ax.set_xlabel(panel.x)
    ax.set_ylabel(panel.y)
    ax.grid(alpha=0.25, which="both")
    ax.spines[["top", "right"]].set_visible(False)
