"""Several models beside each other, their components matched."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from scipy.optimize import linear_sum_assignment

from ..core.arguments import one_of
from ..metrics.components import unit_columns
from .components import draw_mosaic
from .panels import CHANNELS, choose_kind, draw_lines, draw_mutations, finish, write_inside
from .read import Factors, Mode, read_many, read_model
from .style import MANY, color_bar, legend, look, many_axes, shorten

KINDS = ("auto", "lines", "points", "names", "mutations", "image", "similarity")

MARKERS = "os^DvP*X"


@dataclass(frozen=True)
class _Matched:
    """Models over the same modes; `at[m]` are the components of model m that match those of the reference, or -1."""

    labels: list[str]
    modes: list[list[Mode]]  # of every model
    reference: int
    at: list[np.ndarray]
    cosines: list[np.ndarray]

    def title(self, j: int) -> str:
        """Name a component, with the least cosine of its matches."""
        others = [c[j] for m, c in enumerate(self.cosines) if m != self.reference]
        return f"{j + 1}: {min(others):.2f}"


def component_comparison_plot(
    models: Any,
    *,
    mode: Any = None,
    kind: Literal["auto", "lines", "points", "names", "mutations", "image", "similarity"] = "auto",
    names: Any = None,
    mode_names: Any = None,
    image_shape: Sequence[int] | None = None,
    n_top: int = 10,
    cmap: str | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw the components of several models over each other, matched one to one.

    Components are brought to unit length and assigned to those of the model with most components by the product of
    their cosines over the modes that are drawn. A title has the number of a component and the least cosine of the
    others to it.

    Parameters
    ----------
    models : mapping of label to model, or list; two or more, of the same data
    mode : int, str or list of them; default: all but the samples, which may be others
    kind : {"auto", "lines", "points", "names", "mutations", "image", "similarity"}
        "names": the largest entries of the reference by name. "image": a row of images for each model. "similarity":
        the cosines of all pairs of components as a map for each model ("auto" for more than twelve components in
        several modes).
    names, mode_names, image_shape, cmap, axes : as for `components_plot`
    n_top : int, entries of "names"; default 10

    Returns
    -------
    array of Axes: (n_components,) of one mode, (n_components, n_modes) of several, (n_models,) of images, and
    (n_models - 1,) of similarities

    Raises
    ------
    ValueError
        A single model; models whose modes differ; Tucker models in more than one mode.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import component_comparison_plot
    >>> X = load_iris(as_frame=True).data
    >>> models = {name: NMF(2, loss=name, random_state=0).fit(X) for name in ("frobenius", "kullback-leibler")}
    >>> axes = component_comparison_plot(models, axes=Figure().subplots(1, 2))
    >>> [line.get_label() for line in axes[0].get_lines()], axes[0].get_title()
    (['frobenius', 'kullback-leibler'], '1: 1.00')
    """
    one_of("kind", kind, KINDS)
    matched = _match(models, mode, names, mode_names)
    k, several = len(matched.at[0]), len(matched.modes[0]) > 1
    if kind == "image" or (kind == "auto" and image_shape is not None):
        return _images(matched, image_shape, cmap, axes)
    if kind == "similarity" or (kind == "auto" and k > MANY and several):
        return _similarities(matched, cmap, axes)
    return _overlay(matched, kind, n_top, axes)


def _overlay(matched: _Matched, kind: str, n_top: int, axes: Any) -> np.ndarray:
    """Draw matched components over each other: a panel for each component and mode."""
    modes, k = matched.modes[matched.reference], len(matched.at[0])
    kinds = [_kind_of(m) if kind == "auto" else kind for m in modes]
    few, channels = k <= MANY, kinds == ["mutations"]
    n_columns = len(modes) if len(modes) > 1 else min(k, 4 if few else 6)
    size = (3.0 if few else 2.4, 2.2 if kinds[0] == "names" else 1.6 if few and len(modes) == 1 else 1.2)
    if channels:
        n_columns = 1 if k <= 6 else 2 if k <= 20 else 3
        size = (8.0 if n_columns < 3 else 6.0, 1.5)
    shared = "col" if len(modes) > 1 and "names" not in kinds else False
    panels = many_axes(axes, k * len(modes), n_columns, size, sharex=shared).reshape(k, len(modes))
    for j, row in enumerate(panels):
        for i, ax in enumerate(row):
            _draw(ax, matched, i, j, kinds[i], n_top, j * len(modes) < n_columns)
            title = f"{modes[i].name}, {matched.title(j)}" if j == 0 and len(modes) > 1 else matched.title(j)
            if channels:
                write_inside(ax, title)
            else:
                ax.set_title(title, fontsize="medium" if few and len(modes) == 1 else "small")
    bars = {"title": f"bars: {matched.labels[matched.reference]}"} if kinds[-1] == "mutations" else {}
    legend(panels[0, -1], loc="best", fontsize="x-small", title_fontsize="x-small", **bars)
    return panels[:, 0] if len(modes) == 1 else panels


def _kind_of(mode: Mode) -> str:
    """Choose how a mode is compared: as `components_plot` draws it, but for bars, which would hide each other."""
    kind = choose_kind(mode, True)
    return (
        "names"
        if kind == "bars" or (kind == "columns" and mode.names is not None)
        else {"columns": "lines"}.get(kind, kind)
    )


def _match(models: Any, mode: Any, names: Any, mode_names: Any) -> _Matched:
    """Read the models, and assign their components."""
    given = read_many(models)
    if len(given) < 2:
        raise ValueError("models has one model; give two or more, as a list or as a mapping of label to model")
    read = [read_model(model, names, mode_names) for model in given.values()]
    modes = [
        _unit(f, f.select([i for i, m in enumerate(f.modes) if not m.is_samples] if mode is None else mode))
        for f in read
    ]
    shapes = [[len(m.factor) for m in each] for each in modes]
    if any(shape != shapes[0] for shape in shapes):
        listed = ", ".join(f"{label}: {shape}" for label, shape in zip(given, shapes, strict=True))
        raise ValueError(f"models have modes of different lengths ({listed}); compare models of the same features")
    ranks = [each[0].factor.shape[1] for each in modes]
    reference = int(np.argmax(ranks))
    cosines = [_cosines(modes[reference], each) for each in modes]
    at, found = [], []
    for C in cosines:
        rows, columns = linear_sum_assignment(C, maximize=True)
        order, values = np.full(max(ranks), -1), np.zeros(max(ranks))
        order[rows], values[rows] = columns, C[rows, columns]
        at.append(order)
        found.append(values)
    return _Matched(list(given), modes, reference, at, found)


def _unit(factors: Factors, modes: list[Mode]) -> list[Mode]:
    """Bring the components of modes to unit length."""
    if len({m.factor.shape[1] for m in modes}) > 1:
        raise ValueError(f"{factors.title} has different numbers of components in its modes; compare one, as mode=1")
    return [Mode(m.name, unit_columns(m.factor), m.names, m.is_samples, m.lengths) for m in modes]


def _cosines(a: list[Mode], b: list[Mode]) -> np.ndarray:
    """Multiply the cosines of all modes, `(k_a, k_b)`."""
    return reduce(np.multiply, [A.factor.T @ B.factor for A, B in zip(a, b, strict=True)])


def _draw(ax: Axes, matched: _Matched, i: int, j: int, kind: str, n_top: int, first: bool) -> None:
    """Draw component j of the reference, and what matches it, in mode i."""
    reference = matched.modes[matched.reference][i]
    if kind == "mutations":
        draw_mutations(ax, reference, j, first)
    top = np.argsort(-np.abs(reference.factor[:, j]), kind="stable")[:n_top]
    names = reference.names or tuple(map(str, range(len(reference.factor))))
    for m, label in enumerate(matched.labels):
        at, mode = matched.at[m][j], matched.modes[m][i]
        if at < 0 or (kind == "mutations" and m == matched.reference):
            continue
        style = look(m) | {"label": label}
        if kind == "names":
            points = {**style, "linestyle": "none", "marker": MARKERS[m % len(MARKERS)], "markersize": 4}
            ax.plot(mode.factor[top, at], np.arange(len(top)), alpha=0.8, **points)  # type: ignore[arg-type]
        elif kind == "mutations":
            order = [mode.names.index(c) for c in CHANNELS] if mode.names else list(range(96))
            shares = mode.factor[order, at] / (mode.factor[:, at].sum() or 1.0)
            points = {**style, "linestyle": "none", "marker": MARKERS[m % len(MARKERS)], "markersize": 2.5}
            ax.plot(np.arange(96), shares, **points)  # type: ignore[arg-type]
        else:
            color = style.pop("color")
            draw_lines(
                ax, mode, int(at), color, "." if kind == "points" else None, **({} if kind == "points" else style)
            )
    if kind == "names":
        ax.set_yticks(np.arange(len(top)), [shorten(names[n]) for n in top], fontsize="x-small")
        ax.set_ylim(len(top) - 0.4, -0.6)
    nonnegative = not any((modes[i].factor < 0).any() for modes in matched.modes)
    finish(ax, kind, nonnegative)
    if kind == "mutations" and nonnegative:
        top_of = [np.max(np.asarray(line.get_ydata())) for line in ax.get_lines() if line.get_label() in matched.labels]
        ax.set_ylim(0, max(ax.get_ylim()[1], 1.3 * max(top_of, default=0.0)))


def _images(matched: _Matched, image_shape: Any, cmap: str | None, axes: Any) -> np.ndarray:
    """Draw a row of images for each model, in the order of the reference."""
    modes = [each[0] for each in matched.modes]
    if image_shape is None or len(matched.modes[0]) != 1 or np.prod(image_shape) != len(modes[0].factor):
        raise ValueError(
            f"kind='image' needs one mode and image_shape with its {len(modes[0].factor)} rows, got {image_shape}"
        )
    k = len(matched.at[0])
    n_columns = min(k, 20)
    panels = many_axes(axes, len(modes), 1, (max(0.8 * n_columns, 3), 0.3 + 0.9 * -(-k // n_columns)))
    for ax, label, mode, at in zip(panels, matched.labels, modes, matched.at, strict=True):
        images = np.where(at >= 0, mode.factor[:, at], np.nan).T.reshape(k, *image_shape)
        draw_mosaic(np.nan_to_num(images), range(1, k + 1), n_columns, cmap, ax)
        ax.set_title(label, loc="left", fontsize="medium")
    return panels


def _similarities(matched: _Matched, cmap: str | None, axes: Any) -> np.ndarray:
    """Draw the cosines of all pairs, the matched ones on the diagonal."""
    others = [m for m in range(len(matched.labels)) if m != matched.reference]
    panels = many_axes(axes, len(others), min(len(others), 3), (4.2, 3.8))
    for ax, m in zip(panels, others, strict=True):
        C = _cosines(matched.modes[matched.reference], matched.modes[m])
        at = matched.at[m]
        order = np.concatenate([at[at >= 0], np.setdiff1d(np.arange(C.shape[1]), at)])
        signed = bool((C < -1e-9).any())
        ends = [0.5, C.shape[1] + 0.5, C.shape[0] + 0.5, 0.5]  # components count from 1
        look_of = {"vmin": -1 if signed else 0, "cmap": cmap or ("RdBu_r" if signed else None)}
        image = ax.imshow(C[:, order], vmax=1, extent=ends, **look_of)
        ax.set_xlabel(f"{matched.labels[m]}, matched")
        ax.set_ylabel(matched.labels[matched.reference])
        ax.set_title(f"mean cosine {matched.cosines[m].mean():.2f}")
    color_bar(panels[-1], image, "cosine")
    return panels
