"""What one panel shows: a component over the rows of a mode, as lines, bars, an image, a graph, mutation channels."""

import re
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator

from ..core.graph.graph import Graph
from .read import Mode
from .style import PALETTE, foreground, scale_of, shorten, tidy, whole_ticks

FEW, SOME = 12, 40  # rows that are drawn as bars, and that have names on the axis

CHANNEL = re.compile(r"^([ACGT])\[([CT])>([ACGT])\]([ACGT])$")

# The six groups of substitutions, in the colours that signatures are printed in; None, which is black there, has the
# colour of the axes' words.
GROUPS: dict[str, str | None] = {
    "C>A": "#03BCEE",
    "C>G": None,
    "C>T": "#E32926",
    "T>A": "#A5A5A5",
    "T>C": "#8DB750",
    "T>G": "#E5A6A8",
}

CHANNELS = tuple(f"{a}[{group}]{b}" for group in GROUPS for a in "ACGT" for b in "ACGT")


def are_channels(names: Sequence[str] | None) -> bool:
    """Tell whether names are those of the 96 mutation channels, in any order."""
    return names is not None and len(names) == 96 and set(names) == set(CHANNELS)


def choose_kind(mode: Mode, single: bool) -> str:
    """Choose how a mode is drawn; `single`: it has all panels for itself, so that there is space for names."""
    d = len(mode.factor)
    if mode.lengths:
        return "lines"
    if are_channels(mode.names):
        return "mutations"
    if mode.ticks is not None:
        return "lines"
    if mode.names is not None:
        return "bars" if single else "columns" if d <= SOME else "points"
    if d <= FEW:
        return "columns"
    return "points" if mode.is_samples else "lines"


def draw_lines(ax: Axes, mode: Mode, j: int, color: str, marker: str | None = None, **options: Any) -> None:
    """Draw a component over the rows: by their numbers, or by names that are numbers."""
    x = np.arange(len(mode.factor)) if mode.ticks is None else mode.ticks
    values = mode.factor[:, j]
    if mode.lengths:
        return _draw_evolving(ax, mode, j)
    style: dict[str, Any] = {"linestyle": "none", "marker": ".", "markersize": 3} if marker else {"linewidth": 1.2}
    ax.plot(x, values, **{"color": color, **style, **options})
    if mode.spread is not None:
        around = mode.spread[:, j]
        ax.fill_between(x, np.maximum(values - around, min(0.0, values.min())), values + around, color=color, alpha=0.3)
    if mode.ticks is None:
        whole_ticks(ax.xaxis, 4)


def _draw_evolving(ax: Axes, mode: Mode, j: int) -> None:
    """Draw a component of every slice, from the first to the last in the colours of the style's map."""
    ends = np.cumsum(mode.lengths)
    for i, (end, length) in enumerate(zip(ends, mode.lengths, strict=True)):
        shade = plt.get_cmap(plt.rcParams["image.cmap"])(0.15 + 0.7 * i / max(len(ends) - 1, 1))
        ax.plot(np.arange(length), mode.factor[end - length : end, j], color=shade, linewidth=0.9)
    whole_ticks(ax.xaxis, 4)


def draw_columns(ax: Axes, mode: Mode, j: int, color: str) -> None:
    """Draw a component as upright bars, one for each row."""
    around = None if mode.spread is None else mode.spread[:, j]
    x = np.arange(len(mode.factor))
    ax.bar(x, mode.factor[:, j], color=color, yerr=around, ecolor=foreground(ax))
    if mode.names is not None and len(x) <= SOME:
        ax.set_xticks(x, [shorten(name, 16) for name in mode.names], rotation=90, fontsize="x-small")
    else:
        whole_ticks(ax.xaxis, 6)


def draw_bars(ax: Axes, mode: Mode, j: int, color: str, n_top: int) -> None:
    """Draw the largest entries of a component as bars with their names, the largest on top."""
    values = mode.factor[:, j]
    top = np.argsort(-np.abs(values), kind="stable")[:n_top]
    names = mode.names or tuple(map(str, range(len(values))))
    colors = [color if values[i] >= 0 else PALETTE[1] for i in top]
    around = None if mode.spread is None else mode.spread[top, j]
    ax.barh(np.arange(len(top)), values[top], color=colors, xerr=around, ecolor=foreground(ax))
    ax.set_yticks(np.arange(len(top)), [shorten(names[i]) for i in top], fontsize="x-small")
    ax.set_ylim(len(top) - 0.4, -0.6)
    ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))


def draw_image(ax: Axes, values: np.ndarray, cmap: str | None) -> None:
    """Draw an image `(height, width)`, or `(height, width, 3)` in colour; each has its own scale."""
    if values.ndim == 3:
        shown = np.clip(np.nan_to_num(values) / (np.nanmax(np.abs(values), initial=0) or 1.0), 0, 1)
        ax.imshow(np.dstack([shown, np.isfinite(values).all(-1)]))
    else:
        ax.imshow(values, **scale_of(values, cmap))
    ax.set_xticks([])
    ax.set_yticks([])


def draw_mutations(ax: Axes, mode: Mode, j: int, labels: bool) -> None:
    """Draw the 96 channels as shares, in their six groups; `labels`: with the names of the groups above."""
    order = np.arange(96) if mode.names is None else np.array([mode.names.index(c) for c in CHANNELS])
    values = mode.factor[order, j]
    total = float(values.sum()) or 1.0
    colors = [color or foreground(ax) for color in GROUPS.values()]
    around = None if mode.spread is None else mode.spread[order, j] / total
    ax.bar(np.arange(96), values / total, width=0.8, color=np.repeat(colors, 16), yerr=around, ecolor=foreground(ax))
    for i, (group, color) in enumerate(zip(GROUPS, colors, strict=True)):
        span = (16 * i - 0.4, 16 * i + 15.4)
        ax.plot(
            span, (1.03, 1.03), color=color, linewidth=4, solid_capstyle="butt", clip_on=False, transform=_above(ax)
        )
        if labels:
            at = (16 * i + 7.5, 1.08)
            text = {"ha": "center", "va": "bottom", "fontsize": "small", "color": foreground(ax)}
            ax.text(*at, group, transform=_above(ax), **text)  # type: ignore[arg-type]
    ax.set_xlim(-1, 96)
    ax.set_ylim(0, 1.3 * float((values / total + (0 if around is None else around)).max()) or 1.0)
    ax.set_xticks([])
    ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))


def write_inside(ax: Axes, text: str) -> None:
    """Write the title of a panel into its upper left corner, above the bars."""
    ax.set_title(text, loc="left", x=0.01, y=0.8, pad=0, fontsize="small")


def _above(ax: Axes) -> Any:
    """Positions in data from left to right, and in shares of the height of the axes upwards."""
    return ax.get_xaxis_transform()


def draw_graph(ax: Axes, mode: Mode, j: int, positions: np.ndarray, edges: np.ndarray, cmap: str | None) -> None:
    """Draw nodes at their positions, coloured by a component, above the edges."""
    if len(edges):
        lines = LineCollection(list(positions[edges]), colors=[foreground(ax)], linewidths=0.5, alpha=0.4, zorder=1)
        ax.add_collection(lines)
    values, size = mode.factor[:, j], float(np.clip(9000 / len(positions), 4, 120))
    ax.scatter(positions[:, 0], positions[:, 1], c=values, s=size, zorder=2, linewidths=0, **scale_of(values, cmap))
    ax.set_aspect("equal")
    ax.set_axis_off()


def read_edges(graph: Any, n: int) -> np.ndarray:
    """Read the edges of a graph as pairs of nodes `(m, 2)`, from pairs or from an adjacency `(n, n)`."""
    if graph is None:
        return np.zeros((0, 2), dtype=int)
    if isinstance(graph, Graph):
        graph = graph.adjacency
    matrix = graph if sp.issparse(graph) else np.asarray(graph)
    if matrix.shape == (n, n):
        i, j = matrix.nonzero()
        return np.stack([i, j], 1)[i < j]
    pairs = np.asarray(matrix)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or (pairs.size and pairs.max() >= n):
        raise ValueError(f"graph has shape {matrix.shape}; give an adjacency ({n}, {n}), or pairs of nodes (m, 2)")
    return pairs


def draw_heatmap(ax: Axes, mode: Mode, components: Sequence[int], titles: Sequence[str], cmap: str | None) -> Any:
    """Draw all components of a mode as columns, each divided by its largest entry; returns the image."""
    F = mode.factor[:, components]
    most = np.abs(F).max(0)
    shown = F / np.where(most > 0, most, 1)
    image = ax.imshow(shown, aspect="auto", interpolation="nearest", **{**scale_of(shown, cmap), "vmax": 1.0})
    if mode.names is not None and len(F) <= SOME:
        ax.set_yticks(np.arange(len(F)), [shorten(name) for name in mode.names], fontsize="x-small")
    else:
        whole_ticks(ax.yaxis)
    step = next((s for s in (1, 2, 5, 10, 20, 50) if len(components) / s <= FEW), 100)
    columns = np.arange(0, len(components), step)
    shown_titles = list(titles)[::step]
    upright = 90 if max(map(len, shown_titles)) > 3 else 0
    ax.set_xticks(columns, shown_titles, fontsize="small", rotation=upright)
    if not upright:
        ax.set_xlabel("component")
    return image


def finish(ax: Axes, kind: str, nonnegative: bool) -> None:
    """Remove the frame of curves and bars, keep few and small numbers on their axes, and let these begin at zero."""
    if kind in ("image", "graph", "heatmap"):
        return
    tidy(ax)
    ax.tick_params(labelsize="x-small")
    if kind in ("lines", "points", "columns"):
        ax.yaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
        if nonnegative:
            ax.set_ylim(bottom=0)
    if kind in ("bars", "names") and nonnegative:
        ax.set_xlim(left=0)
