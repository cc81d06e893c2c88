"""Colours, and axes to draw on: those that are given, or those of a new figure."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

# Okabe and Ito (2008) without black; those first that have a contrast of 3 to white and to black alike.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442")

DASHES = ("-", "--", "-.", ":")

DIVERGING = "RdBu_r"  # told apart by colour-blind readers; its middle, zero, is pale

BOTH = 4  # how many of them that are

MANY = 12  # components that have a row of panels of their own


def look(i: int) -> dict[str, Any]:
    """Choose the colour and the dashes of the i-th of several lines."""
    return {"color": PALETTE[i % len(PALETTE)], "linestyle": DASHES[i // len(PALETTE) % len(DASHES)]}


def foreground(ax: Axes) -> Any:
    """Give the colour of the axes' own words: a dark style was perhaps in force only when they were made."""
    return ax.xaxis.label.get_color()


def one_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Give the axes to draw on: the given ones, or those of a new figure of this size in inches."""
    if ax is None:
        return plt.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib Axes, got {type(ax).__name__}")
    return ax


def many_axes(axes: Any, n: int, n_columns: int, panel: tuple[float, float], **shared: Any) -> np.ndarray:
    """Give n axes `(n,)`: the given ones, or those of a new figure with panels of this size in inches."""
    if axes is None:
        rows = -(-n // n_columns)
        size = (min(panel[0] * n_columns, 24), min(panel[1] * rows + 0.3, 60))
        layout: Any = "constrained" if n <= 2 * MANY else "tight"  # which is faster, where there are many panels
        made = plt.subplots(rows, n_columns, figsize=size, layout=layout, squeeze=False, **shared)[1].ravel()
        for ax in made[n:]:
            ax.remove()
        return made[:n]
    given = [axes] if isinstance(axes, Axes) else list(np.asarray(axes, dtype=object).ravel())
    if len(given) != n or not all(isinstance(ax, Axes) for ax in given):
        raise ValueError(f"axes must be {n} matplotlib Axes, one for each panel; got {len(given)}")
    return _as_array(given)


def _as_array(given: Sequence[Axes]) -> np.ndarray:
    made = np.empty(len(given), dtype=object)
    made[:] = given
    return made


def tidy(ax: Axes) -> None:
    """Remove the frame where nothing stands."""
    ax.spines[["top", "right"]].set_visible(False)


def whole_ticks(axis: Any, n: int = 10) -> None:
    """Put ticks at whole numbers."""
    axis.set_major_locator(MaxNLocator(n, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def legend(ax: Axes, **options: Any) -> None:
    """Add a legend in the colours of the axes, if anything has a label."""
    if ax.get_legend_handles_labels()[1]:
        box = ax.legend(**{"frameon": False, "fontsize": "small", "labelcolor": foreground(ax), **options})
        box.get_title().set_color(foreground(ax))


def color_bar(ax: Axes, image: Any, label: str) -> None:
    """Add a colour bar beside the axes, which keep their size."""
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.02, 0, 0.03, 1)))
    bar.set_label(label, color=foreground(ax))
    bar.ax.tick_params(colors=foreground(ax), labelsize="small")
    bar.outline.set_visible(False)  # type: ignore[operator]


def scale_of(values: np.ndarray, cmap: str | None) -> dict[str, Any]:
    """Choose colours: of nonnegative values the sequential map of the style from 0 on, else a diverging one."""
    shown = values[np.isfinite(values)]
    most = float(np.abs(shown).max(initial=0)) or 1.0
    if (shown < 0).any():
        return {"cmap": cmap or DIVERGING, "vmin": -most, "vmax": most}
    return {"cmap": cmap or plt.rcParams["image.cmap"], "vmin": 0.0, "vmax": most}


def shorten(name: str, most: int = 24) -> str:
    """Cut a long name; `$` is no mathematics in a name."""
    name = str(name)
    return (name if len(name) <= most else name[: most - 1] + "…").replace("$", r"\$")
