"""How a fit came to its end."""

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from sklearn.utils.validation import check_is_fitted

from ..core.arguments import one_of
from ..models.shared.base import Factorization
from .read import TAKEN, read_many
from .style import foreground, legend, look, one_axes, tidy


def optimisation_diagnostic_plot(
    models: Any, *, x: Literal["iteration", "seconds"] = "iteration", excess: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw the objective over the iterations, and where the restarts ended.

    A curve is the best restart, of which there is a history; its end is filled where it converged, and hollow where
    `max_iter` ended it. Dots are the other restarts: those far above the curve found a worse minimum.

    Parameters
    ----------
    models : fitted factorization, RankSelection, or a list or mapping of label to models
    x : {"iteration", "seconds"}
        Restarts that are not the best have no seconds.
    excess : bool
        Whether to draw how far the objective is above the least of all models, as a share of it: late progress, and
        differences of restarts, become visible. For models of one objective.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        A model without a history, such as one made by `from_components`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import optimisation_diagnostic_plot
    >>> model = NMF(2, init="random", n_init=5, random_state=0).fit(load_iris().data)
    >>> ax = optimisation_diagnostic_plot(model, ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel(), bool((ax.get_lines()[0].get_ydata() == model.history_["objective"]).all())
    ('iteration', 'objective', True)
    """
    one_of("x", x, ("iteration", "seconds"))
    histories = {label: _read(model) for label, model in read_many(models).items()}
    ax = one_axes(ax, (6.0, 3.8))
    ends = [value for model, curve in histories.values() for value in (*curve["objective"], *_restarts(model)[1])]
    least = float(np.nanmin(ends))
    change = (lambda v: (np.asarray(v) - least) / (abs(least) or 1.0)) if excess else np.asarray
    for i, (label, (model, curve)) in enumerate(histories.items()):
        _draw_history(ax, model, curve[x], x, change, {"label": label, **look(i)})
    shown = np.concatenate([line.get_ydata() for line in ax.get_lines()])  # type: ignore[list-item]
    if excess or (shown.min() > 0 and shown.max() > 3 * shown.min()):
        ax.set_yscale("log", nonpositive="mask")
    ax.set_xlabel(x if x == "iteration" else "time (s)")
    ax.set_ylabel("objective above the least, as a share" if excess else "objective")
    if len(histories) > 1:
        legend(ax, ncols=1 + len(histories) // 13)
    else:
        ax.set_title(_summary(next(iter(histories.values()))[0]), color=foreground(ax), fontsize="medium")
    tidy(ax)
    return ax


def _draw_history(ax: Axes, model: Any, at: Any, x: str, change: Any, style: dict[str, Any]) -> None:
    """Draw the curve of the best restart, where the others ended, and its own end."""
    objective, color = change(model.history_["objective"]), style["color"]
    ax.plot(at, objective, linewidth=1.4, **style)
    if x == "iteration":
        n_iter, losses = _restarts(model)
        ax.plot(n_iter, change(losses), ".", color=color, alpha=0.6, markersize=5)
    face = color if model.converged_ else "none"
    ax.plot(at[-1], objective[-1], "o", color=color, markerfacecolor=face, markersize=6)


def _read(model: Any) -> tuple[Any, Any]:
    """Read a model and its history."""
    if not isinstance(model, Factorization):
        raise TypeError(f"model is {type(model).__name__}, which has no history; give {TAKEN.rpartition(',')[0]}")
    check_is_fitted(model, "factors_")
    if "history_" not in vars(model):
        raise ValueError(f"{type(model).__name__} has no history_; fit it: bases that are given have none")
    return model, model.history_


def _restarts(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """List at which iterations and objectives restarts of finite loss ended."""
    found = vars(model).get("restarts_", {})
    if "n_iter" not in found:
        return np.zeros(0), np.zeros(0)
    losses = np.asarray(found["loss"], dtype=np.float64)
    finite = np.isfinite(losses)
    return np.asarray(found["n_iter"])[finite], losses[finite]


def _summary(model: Any) -> str:
    """Say how the fit ended."""
    end = "converged" if model.converged_ else "stopped at max_iter"
    restarts = f", {model.n_init} restarts" if model.n_init > 1 else ""
    return f"{type(model).__name__}: {end} after {model.n_iter_} iterations{restarts}"
