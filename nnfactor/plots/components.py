"""Components: over the rows of every mode, and as images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, sqrt
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from ..core.arguments import one_of, whole
from .panels import (
    are_channels,
    choose_kind,
    draw_bars,
    draw_columns,
    draw_graph,
    draw_heatmap,
    draw_image,
    draw_lines,
    draw_mutations,
    finish,
    read_edges,
    write_inside,
)
from .read import Factors, Mode, read_model
from .style import BOTH, MANY, PALETTE, color_bar, foreground, many_axes, one_axes, scale_of

Kind = Literal["auto", "lines", "points", "columns", "bars", "image", "mutations", "graph", "heatmap"]

KINDS = ("auto", "lines", "points", "columns", "bars", "image", "mutations", "graph", "heatmap")

# Inches of a panel, of few and of many components, and how many stand side by side then.
PANELS = {
    "bars": ((2.9, 2.2), (2.4, 1.35), 4, 5),
    "image": ((1.6, 1.75), (1.2, 1.35), 6, 10),
    "graph": ((2.0, 2.1), (1.6, 1.7), 5, 8),
    "mutations": ((8.0, 1.5), (6.0, 1.1), 1, 3),
}

USUAL = ((2.9, 1.5), (2.2, 1.05), 4, 6)


@dataclass(frozen=True)
class _Look:
    """How panels are drawn: what a caller of `components_plot` said of them."""

    kind: str
    image_shape: tuple[int, ...] | None
    positions: np.ndarray | None
    edges: Any
    n_top: int | None = None
    cmap: str | None = None

    def kind_of(self, mode: Mode, single: bool) -> str:
        """Say how a mode is drawn; raise where it cannot be as asked."""
        d = len(mode.factor)
        if self.kind == "auto":
            if self.positions is not None and len(self.positions) == d:
                return "graph"
            if self.image_shape is not None and np.prod(self.image_shape) == d:
                return "image"
            return choose_kind(mode, single)
        if self.kind == "mutations" and d != 96:
            raise ValueError(f"kind='mutations' draws the 96 channels; {mode.name!r} has {d} rows. Use kind='bars'")
        if self.kind == "mutations" and mode.names is not None and not are_channels(mode.names):
            raise ValueError(
                f"kind='mutations' needs names such as A[C>A]G, or none for the usual order; {mode.name!r} has "
                f"{mode.names[0]!r}"
            )
        if self.kind == "image" and self.image_shape is None:
            raise ValueError("kind='image' needs image_shape, the height and the width such as (8, 8)")
        if self.kind == "graph" and self.positions is None:
            raise ValueError("kind='graph' needs positions (n_nodes, 2)")
        return self.kind

    def draw(self, ax: Axes, mode: Mode, j: int, kind: str, color: str, first: bool) -> None:
        """Draw a component in a panel; `first`: the topmost of its column."""
        if kind == "image":
            draw_image(ax, mode.factor[:, j].reshape(_fitting(self.image_shape, mode)), self.cmap)
        elif kind == "graph":
            positions = _placed(self.positions, mode)
            draw_graph(ax, mode, j, positions, read_edges(self.edges, len(positions)), self.cmap)
        elif kind == "mutations":
            draw_mutations(ax, mode, j, first)
        elif kind == "bars":
            draw_bars(ax, mode, j, color, self.n_top or len(mode.factor))
        elif kind == "columns":
            draw_columns(ax, mode, j, color)
        else:
            draw_lines(ax, mode, j, color, "." if kind == "points" else None)
        finish(ax, kind, not (mode.factor < 0).any())


def components_plot(
    model: Any,
    *,
    mode: Any = None,
    components: Sequence[int] | None = None,
    kind: Kind = "auto",
    names: Any = None,
    mode_names: Any = None,
    image_shape: Sequence[int] | None = None,
    positions: Any = None,
    graph: Any = None,
    n_top: int | None = None,
    cmap: str | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw the components of a model over the rows of its modes.

    One mode has a panel for each component. Several have a row of panels for each component, and with more than twelve
    components one heat map for each mode. Features have `feature_names_in_`, a consensus its spread around the medians.

    Parameters
    ----------
    model : fitted factorization, RankSelection, Consensus, or list of factors (d, k), samples first
    mode : int, str or list of them; default: the features of matrices and of views, all modes of tensors
    components : sequence of int, indices from 0 as of `components_`, default all; titles count from 1
    kind : {"auto", "lines", "points", "columns", "bars", "image", "mutations", "graph", "heatmap"}
        "auto" goes by what is there: an image or positions; the 96 mutation channels, known by names such as A[C>A]G,
        in their six groups and as shares; names that are rising numbers (wavelengths) as curves over them; other names
        as bars of the largest entries; few rows as columns; samples as points, else curves. "heatmap": all components
        of a mode in one panel, each divided by its largest entry.
    names, mode_names : by mode, such as `(None, genes)`; names may be a mapping, which takes "components" as well
    image_shape : (height, width[, 3]), of those modes whose rows are pixels: features, or samples that are a map
    positions : (n_nodes, 2) array, of those modes whose rows are the nodes of a graph
    graph : Graph, adjacency (n_nodes, n_nodes) or pairs of nodes (m, 2); default `graph_` of the model
    n_top : int, bars of a panel; default 10, or 5 of more than twelve components
    cmap : str, colours of images; default that of the style ("viridis"), of values of any sign "RdBu_r"
    axes : Axes or array of Axes, one for each panel, row by row; default: those of a new figure

    Returns
    -------
    array of Axes: (n_components,) of one mode, (n_components, n_modes) of several, (n_modes,) of heat maps

    Raises
    ------
    ValueError
        A mode, component or kind that the model does not have; the wrong number of axes or names.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import components_plot
    >>> model = NMF(2, random_state=0).fit([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [2.0, 1.0, 4.0]])
    >>> axes = components_plot(model, names={"features": ["a", "b", "c"]}, axes=Figure().subplots(1, 2))
    >>> axes[0].get_title(), [text.get_text() for text in axes[0].get_yticklabels()]
    ('component 1', ['c', 'a', 'b'])
    """
    factors = read_model(model, names, mode_names)
    look = _read_look(kind, image_shape, positions, getattr(model, "graph_", None) if graph is None else graph)
    return _draw_components(factors, mode, components, replace(look, n_top=n_top, cmap=cmap), axes)


def _read_look(kind: str, image_shape: Any, positions: Any, edges: Any) -> _Look:
    """Read what says how panels are drawn."""
    one_of("kind", kind, KINDS)
    shape = None if image_shape is None else tuple(int(d) for d in image_shape)
    return _Look(kind, shape, None if positions is None else np.asarray(positions, dtype=np.float64), edges)


def _draw_components(factors: Factors, mode: Any, components: Any, look: _Look, axes: Any) -> np.ndarray:
    """Draw one mode, several, or heat maps of them."""
    chosen, modes = _chosen(factors, components), factors.select(mode)
    few = len(chosen) <= MANY
    if look.n_top is not None:
        whole("n_top", look.n_top, also="None or ")
    look = replace(look, n_top=look.n_top or (10 if few else 5))
    if look.kind == "heatmap" or (look.kind == "auto" and len(modes) > 1 and not few):
        return _heatmaps(factors, modes, chosen, look, axes)
    draw = partial(_single, factors, modes[0]) if len(modes) == 1 else partial(_rows, factors, modes)
    return draw(chosen, look, axes)


def _chosen(factors: Factors, components: Sequence[int] | None) -> list[int]:
    """Read which components are drawn."""
    k = factors.n_components
    if components is None:
        return list(range(k))
    found = [int(j) for j in components]
    if not found or not all(0 <= j < k for j in found):
        raise ValueError(f"components={components!r} are not all there; {factors.title} has those from 0 to {k - 1}")
    return found


def _single(names: Factors, mode: Mode, chosen: list[int], look: _Look, axes: Any) -> np.ndarray:
    """Draw one mode: a panel for each component."""
    chosen = [j for j in chosen if j < mode.factor.shape[1]]
    kind, few = look.kind_of(mode, True), len(chosen) <= MANY
    size, small, columns, more = PANELS.get(kind, USUAL)
    if kind == "mutations" and 6 < len(chosen) <= 20:
        columns = more = 2
    n_columns = min(len(chosen), columns if few else more)
    shared = kind in ("lines", "points", "columns")
    panels = many_axes(axes, len(chosen), n_columns, size if few else small, sharex=shared)
    for i, (ax, j) in enumerate(zip(panels, chosen, strict=True)):
        look.draw(ax, mode, j, kind, PALETTE[0], axes is not None or i < n_columns)
        text, options = names.title_of(j, few), {"fontsize": "medium"} if few else {"fontsize": "small", "pad": 2}
        if kind == "mutations":
            write_inside(ax, text)
        else:
            ax.set_title(text, **options)
        if not few and kind in ("lines", "points", "columns"):
            ax.yaxis.set_tick_params(labelleft=False)
        if shared and i >= len(chosen) - n_columns:  # nothing stands below
            ax.xaxis.set_tick_params(labelbottom=True)
            ax.set_xlabel(mode.name, fontsize="small")
    return panels


def _rows(names: Factors, modes: list[Mode], chosen: list[int], look: _Look, axes: Any) -> np.ndarray:
    """Draw several modes: a row of panels for each component, a column for each mode."""
    shape = len(chosen), len(modes)
    height = 1.2 if len(chosen) <= MANY else 0.8
    panels = many_axes(axes, len(chosen) * len(modes), len(modes), (3.0, height), sharex="col").reshape(shape)
    for column, mode in zip(panels.T, modes, strict=True):
        kind = look.kind_of(mode, False)
        for i, (ax, j) in enumerate(zip(column, chosen, strict=True)):
            if j >= mode.factor.shape[1]:  # Tucker models have fewer components in some modes
                ax.set_axis_off()
                continue
            look.draw(ax, mode, j, kind, PALETTE[j % BOTH], i == 0)
        last = sum(j < mode.factor.shape[1] for j in chosen) - 1
        column[last].xaxis.set_tick_params(labelbottom=True)
        column[0].set_title(mode.name, pad=18 if kind == "mutations" else None)
        if kind == "columns" and mode.names is not None:
            for ax in column[:-1]:
                ax.xaxis.set_tick_params(labelbottom=False)
    for ax, j in zip(panels[:, 0], chosen, strict=True):
        ax.set_ylabel(names.title_of(j, False), rotation=0, ha="right", va="center")
    return panels


def _heatmaps(names: Factors, modes: list[Mode], chosen: list[int], look: _Look, axes: Any) -> np.ndarray:
    """Draw a heat map for each mode."""
    panels = many_axes(axes, len(modes), len(modes), (3.2 + 0.03 * len(chosen), 4.2))
    for ax, mode in zip(panels, modes, strict=True):
        own = [j for j in chosen if j < mode.factor.shape[1]]
        image = draw_heatmap(ax, mode, own, [names.title_of(j, False) for j in own], look.cmap)
        ax.set_title(mode.name)
    color_bar(panels[-1], image, "share of the largest entry")
    return panels


def _fitting(image_shape: tuple[int, ...] | None, mode: Mode) -> tuple[int, ...]:
    """Give the shape of an image that has as many pixels as a mode has rows."""
    d = len(mode.factor)
    if image_shape is None or len(image_shape) not in (2, 3) or np.prod(image_shape) != d:
        raise ValueError(
            f"image_shape={image_shape} does not have the {d} rows of {mode.name!r}; give a height and a width whose "
            "product it is (times 3 in colour)"
        )
    if len(image_shape) == 3 and image_shape[2] != 3:
        raise ValueError(f"image_shape={image_shape} has {image_shape[2]} channels; colour images have 3")
    return image_shape


def _placed(positions: np.ndarray | None, mode: Mode) -> np.ndarray:
    """Give the positions of nodes, one for each row of a mode."""
    if positions is None or positions.shape != (len(mode.factor), 2):
        found = None if positions is None else positions.shape
        raise ValueError(f"positions have shape {found}; {mode.name!r} needs ({len(mode.factor)}, 2)")
    return positions


def images_plot(
    model: Any,
    *,
    mode: Any = None,
    components: Sequence[int] | None = None,
    image_shape: Sequence[int] | None = None,
    n_columns: int | None = None,
    labels: bool | Sequence[str] = True,
    cmap: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw components as images, side by side in one panel; each is divided by its largest entry.

    Of a tensor whose samples are images the component is the product of its rows and columns, of a Tucker model that
    with the core. With `mode=0` and the shape of a grid of samples the coefficients are drawn as maps.

    Parameters
    ----------
    model : fitted factorization, RankSelection, Consensus, or list of factors (d, k), samples first
    mode : int or str, whose rows are pixels; default: the features
    components : sequence of int, indices from 0, default all
    image_shape : (height, width[, 3]), needed unless samples are images themselves
    n_columns : int, images in a row; default: about a square
    labels : bool, whether numbers of components, from 1, stand above the images; or their names
    cmap : str, default that of the style ("viridis"), of values of any sign "RdBu_r"
    ax : Axes, default: that of a new figure

    Returns
    -------
    Axes with one image `(rows of images, columns, ...)`, NaN between them

    Raises
    ------
    ValueError
        No image_shape, where the model needs one, or one of another size.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import images_plot
    >>> model = NMF(6, max_iter=20, tol=0, random_state=0).fit(load_digits().data[:200])
    >>> ax = images_plot(model, image_shape=(8, 8), ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['1', '2', '3', '4', '5', '6']
    """
    factors = read_model(model, None if isinstance(labels, bool) else {"components": labels})
    chosen = _chosen(factors, components)
    images = _component_images(factors, mode, None if image_shape is None else tuple(map(int, image_shape)))
    chosen = [j for j in chosen if j < len(images)]
    if n_columns is None:
        n_columns = ceil(sqrt(len(chosen) * images.shape[1] / images.shape[2] * 1.3))
    whole("n_columns", n_columns, also="None or ")
    above = None if labels is False else [factors.title_of(j, False) for j in chosen]
    return draw_mosaic(images[chosen], above, min(n_columns, len(chosen)), cmap, ax)


def _component_images(factors: Factors, mode: Any, shape: tuple[int, ...] | None) -> np.ndarray:
    """Make the images `(k, height, width[, 3])` of a mode, or of several modes that are rows and columns."""
    if mode is None and shape is None and len(factors.tensors) == 1:
        bases = [m.factor for m in factors.modes if not m.is_samples]
        lengths = [len(F) for F in bases]
        if not any(m.lengths for m in factors.modes) and (len(bases) == 2 or (len(bases) == 3 and lengths[2] == 3)):
            letters = "xyc"[: len(bases)]
            if factors.core is not None:
                ranks = "uvw"[: len(bases)]
                pairs = ",".join(map("".join, zip(letters, ranks, strict=True)))
                return np.einsum(f"k{ranks},{pairs}->k{letters}", factors.core, *bases)
            return np.einsum(",".join(f"{x}k" for x in letters) + f"->k{letters}", *bases)
    shown = factors.select(mode) if mode is not None else [m for m in factors.modes if not m.is_samples]
    if len(shown) != 1:
        listed = ", ".join(repr(m.name) for m in factors.modes)
        raise ValueError(
            f"mode is None, and {factors.title} has several ({listed}); name the one whose rows are pixels"
        )
    if shape is None:
        raise ValueError(
            f"image_shape is None, and {factors.title} has no images; give the height and the width, such as (8, 8), "
            f"whose product is {len(shown[0].factor)}, the rows of {shown[0].name!r}"
        )
    return shown[0].factor.T.reshape(-1, *_fitting(shape, shown[0]))


def draw_mosaic(images: np.ndarray, labels: Any, n_columns: int, cmap: str | None, ax: Axes | None) -> Axes:
    """Draw images `(n, height, width[, 3])` as one, with their labels above them."""
    n, height, width = images.shape[:3]
    n_rows = ceil(n / n_columns)
    gap = max(1, round(0.06 * width))
    above = max(gap, round(0.22 * height)) if labels is not None else gap
    whole_image = np.full((n_rows * (height + above), n_columns * (width + gap) - gap, *images.shape[3:]), np.nan)
    most = np.abs(images).max(axis=tuple(range(1, images.ndim)), keepdims=True)
    shown = images / np.where(most > 0, most, 1)
    corners = [((i // n_columns) * (height + above) + above, (i % n_columns) * (width + gap)) for i in range(n)]
    for (y, x), image in zip(corners, shown, strict=True):
        whole_image[y : y + height, x : x + width] = image
    inches = min(1.0 + 0.25 * (n <= MANY) + 0.5 * (n <= 4), 14 / n_columns)
    size = (max(inches * n_columns, 2.0), max(inches * n_rows * (height + above) / (width + gap), 1.5))
    ax = one_axes(ax, size)
    draw = partial(ax.text, ha="left", va="bottom", fontsize="x-small", color=foreground(ax))
    draw_image(ax, whole_image, cmap) if images.ndim == 4 else ax.imshow(
        whole_image, interpolation="nearest", **scale_of(whole_image, cmap)
    )
    for (y, x), label in zip(corners, labels or (), strict=False):
        draw(x - 0.5, y - 0.5, str(label))
    ax.set_axis_off()
    return ax
