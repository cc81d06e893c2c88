"""How much every component accounts for, and how far the best core of Tucker's model is from a diagonal."""

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from ..core.arguments import one_of
from .data import as_dense, sum_of_squares
from .read import Factors, read_model
from .style import MANY, PALETTE, foreground, legend, one_axes, tidy, whole_ticks


def percentage_variation_plot(
    model: Any, X: Any = None, *, method: Literal["data", "model", "both"] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the sum of squares of every component, per cent of that of the data or of all components.

    Components overlap: shares of the data of nonnegative ones add up to less than the model explains. Models of
    several arrays have a bar for each of them.

    Parameters
    ----------
    model : fitted CP model: NMF, NTF, NGE, SULF, Coupled, PARAFAC2, ..., or list of factors
    X : the data of the fit, for method="data"; of several arrays a list
    method : {"data", "model", "both"}, optional
        What is 100 %. Default: "data" with X, else "model". "both" is of one array.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        method="data" without X; a Tucker model, whose components have no share of their own.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import percentage_variation_plot
    >>> X = load_iris().data
    >>> ax = percentage_variation_plot(NMF(2, random_state=0).fit(X), X, ax=Figure().subplots())
    >>> [round(bar.get_height()) for bar in ax.patches], ax.get_ylabel()
    ([36, 32], 'share of the sum of squares (%)')
    """
    method = ("model" if X is None else "data") if method is None else method
    one_of("method", method, ("data", "model", "both"))
    factors = read_model(model)
    if factors.core is not None:
        raise ValueError(f"{factors.title} has a core, whose entries share components; use core_element_plot")
    if method != "model" and X is None:
        raise ValueError(f"X is None; method={method!r} needs the data, or use method='model'")
    squares = _squares(factors)
    if method == "both" and len(squares) > 1:
        raise ValueError(
            f"method='both' is of one array, and {factors.title} has {len(squares)}; use 'data' or 'model'"
        )
    bars = _bars(factors, squares, X, method)
    ax = one_axes(ax, (float(np.clip(1.5 + 0.3 * factors.n_components, 4, 12)), 3.2))
    _draw_shares(ax, bars, factors.n_components)
    return ax


def _draw_shares(ax: Axes, bars: dict[str, np.ndarray], k: int) -> None:
    """Draw a bar for each component, or several side by side."""
    width, places = 0.8 / len(bars), np.arange(1, k + 1)
    for i, (label, heights) in enumerate(bars.items()):
        ax.bar(places + (i - (len(bars) - 1) / 2) * width, heights, width, color=PALETTE[i % len(PALETTE)], label=label)
    if len(places) <= MANY:
        ax.set_xticks(places)
    else:
        whole_ticks(ax.xaxis)
    ax.set_xlabel("component")
    ax.set_ylabel("share of the sum of squares (%)")
    if len(bars) > 1:
        legend(ax)
    tidy(ax)


def _squares(factors: Factors) -> np.ndarray:
    """Compute the sum of squares of every component in every array, `(n_tensors, k)`."""
    modes = factors.modes
    sums = [np.square(np.asarray(m.factor, dtype=np.float64)).sum(0) for m in modes]
    for i, m in enumerate(modes):
        if m.lengths:  # the rows of a slice are weighted by its own coefficients
            parts = np.split(np.square(m.factor), np.cumsum(m.lengths)[:-1])
            lengths = np.stack([part.sum(0) for part in parts])
            sums[i] = (lengths * np.square(modes[0].factor)).sum(0)
            sums[0] = np.ones_like(sums[0])
    found = np.array([np.prod([sums[i] for i in of], axis=0) for of in factors.tensors])
    return found if factors.weights is None else found * np.square(factors.weights)


def _bars(factors: Factors, squares: np.ndarray, X: Any, method: str) -> dict[str, np.ndarray]:
    """Compute the heights of the bars, per cent, by label."""
    found = {}
    labels = factors.labels or ("share of the data",)
    if method != "model":
        arrays = list(X) if len(squares) > 1 else [X]
        if len(arrays) != len(squares):
            raise ValueError(f"X has {len(arrays)} arrays; {factors.title} has {len(squares)}")
        for label, own, A in zip(labels, squares, arrays, strict=True):
            found[label] = 100 * own / (sum_of_squares(A) or 1.0)
    if method != "data":
        labels = factors.labels or ("share of the model",)
        found |= {label: 100 * own / (own.sum() or 1.0) for label, own in zip(labels, squares, strict=True)}
    return found


def core_element_plot(model: Any, X: Any = None, *, normalised: bool = False, ax: Axes | None = None) -> Axes:
    """Draw the entries of the core: of CP models the best core of Tucker's model with the same factors.

    A trilinear model has ones on the superdiagonal and zeros elsewhere; the title has the core consistency (Bro and
    Kiers 2003). Of a Tucker model its own core is drawn, sorted, with the largest entries named.

    Parameters
    ----------
    model : fitted NTF or another CP model of a tensor, or NTD
    X : array or tensor, samples first
        The data of the fit; not used for NTD. Sparse ones are made dense.
    normalised : bool
        Whether the core consistency is divided by the core's sum of squares in place of the number of components.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        A matrix or views, of which a core says nothing; no X.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NTF
    >>> from nnfactor.plots import core_element_plot
    >>> X = load_digits().images[:200]
    >>> ax = core_element_plot(NTF(2, random_state=0).fit(X), X, ax=Figure().subplots())
    >>> [len(line.get_xdata()) for line in ax.get_lines()[:2]], ax.get_title()[:16]
    ([2, 6], 'core consistency')
    """
    factors = read_model(model)
    ax_of = lambda: one_axes(ax, (6.0, 3.4))
    if factors.core is not None:
        return _draw_tucker(ax_of(), factors.core)
    if factors.is_matrix or len(factors.tensors) > 1 or any(m.lengths for m in factors.modes):
        raise ValueError(
            f"core_element_plot is of one tensor of order three or more (NTF, NGE, NTD); {factors.title} has none"
        )
    if X is None:
        raise ValueError("X is None; the core of a CP model is that which fits the data best")
    return _draw_core(ax_of(), _best_core(factors, X), factors.n_components, normalised)


def _draw_core(drawn: Axes, core: np.ndarray, k: int, normalised: bool) -> Axes:
    """Draw the superdiagonal, then the other entries by size."""
    ideal = np.zeros(core.shape)
    diagonal = (np.arange(k),) * core.ndim
    ideal[diagonal] = 1
    unit = float(np.square(core).sum()) if normalised else k
    consistency = 100 - 100 * float(np.square(core - ideal).sum()) / unit
    off = core[ideal == 0]
    off = off[np.argsort(-np.abs(off), kind="stable")]
    drawn.plot(np.arange(1, k + 1), core[diagonal], "o", color=PALETTE[0], markersize=4, label="superdiagonal")
    at = _thin(len(off))
    drawn.plot(k + 1 + at, off[at], ".", color=PALETTE[1], markersize=3, label="others")
    steps = {"color": foreground(drawn), "linestyle": "--", "linewidth": 1}
    drawn.plot([0.5, k + 0.5, k + 0.5, k + 1 + len(off)], [1, 1, 0, 0], label="trilinear", **steps)  # type: ignore[arg-type]
    drawn.set_xlabel("entry of the core, others by size")
    drawn.set_ylabel("value")
    drawn.set_title(f"core consistency {consistency:.1f} %")
    if len(off) > 20 * k:
        drawn.set_xscale("symlog", linthresh=k)
    legend(drawn)
    tidy(drawn)
    return drawn


def _best_core(factors: Factors, X: Any) -> np.ndarray:
    """Compute the core that fits the data best, by least squares."""
    core, shape = as_dense(X), tuple(len(m.factor) for m in factors.modes)
    if core.size != np.prod(shape) or len(core) != shape[0]:
        raise ValueError(f"X has shape {core.shape}, the model {shape}")
    if not np.isfinite(core).all():
        raise ValueError("X has hidden entries; the core is that of complete data")
    core = core.reshape(shape)
    for mode in factors.modes:  # every product moves its mode to the end: after all of them they are in order
        core = np.tensordot(core, np.linalg.pinv(np.asarray(mode.factor, dtype=np.float64)), (0, 1))
    return core


def _thin(n: int, most: int = 4000) -> np.ndarray:
    """Choose which of n sorted entries are drawn: all, or the first ones and then ever fewer."""
    return np.arange(n) if n <= most else np.unique(np.geomspace(1, n, most).astype(int) - 1)


def _draw_tucker(ax: Axes, core: np.ndarray) -> Axes:
    """Draw the entries of a core by size, and name the largest."""
    flat = core.ravel()
    order = np.argsort(-np.abs(flat), kind="stable")
    at = _thin(len(flat))
    energy = np.cumsum(np.square(flat[order])) / (float(np.square(flat).sum()) or 1.0)
    half = int(np.searchsorted(energy, 0.9)) + 1
    ax.plot(at + 1, flat[order][at], ".-", color=PALETTE[0], markersize=5, linewidth=0.8)
    for rank, i in enumerate(order[:3]):
        text = ", ".join(map(str, np.unravel_index(i, core.shape)))
        place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
        ax.annotate(f"({text})", (rank + 1, flat[i]), color=foreground(ax), **place)  # type: ignore[arg-type]
    ax.set_xscale("log")
    ax.set_xlabel("entry of the core by size")
    ax.set_ylabel("value")
    ax.set_title(f"{half} of {len(flat)} entries have 90 % of the sum of squares")
    tidy(ax)
    return ax
