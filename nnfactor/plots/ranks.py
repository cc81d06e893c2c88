"""How the fit, what is held out and the agreement of restarts depend on the number of components."""

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from ..core.arguments import one_of
from ..selection.rank import CONSISTENT, LEAST, STABLE, RankSelection
from .data import sum_of_squares
from .read import read_many, read_model
from .style import PALETTE, foreground, legend, many_axes, one_axes, tidy, whole_ticks

NAMES = {
    "error": "norm of the residual",
    "loss": "loss",
    "fit": "sum of squares explained (%)",
    "held_out": "held-out loss\n(share of a constant's)",
}


def scree_plot(
    models: Any,
    X: Any = None,
    *,
    metric: Literal["error", "loss", "fit"] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how well models fit over their numbers of components.

    A fit to all data always improves with components: a bend is a hint, and `selection_plot` shows what decides.

    Parameters
    ----------
    models : RankSelection, or a list or mapping of label to fitted models; of several with one rank all are dots
    X : the data of the fits, for metric="fit"
    metric : {"error", "loss", "fit"}, optional
        `reconstruction_err_`; `loss_`; or what the model explains of the sum of squares of X, per cent. Default: "fit"
        with X, else "error".
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        metric="fit" without X; models that were not fitted.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import scree_plot
    >>> X = load_iris().data
    >>> ax = scree_plot([NMF(k, random_state=0).fit(X) for k in (1, 2, 3)], X, ax=Figure().subplots())
    >>> ax.get_ylabel(), ax.get_lines()[0].get_xdata().tolist()
    ('sum of squares explained (%)', [1, 2, 3])
    """
    metric = ("error" if X is None else "fit") if metric is None else metric
    one_of("metric", metric, ("error", "loss", "fit"))
    if metric == "fit" and X is None:
        raise ValueError("X is None; metric='fit' needs the data, or use metric='error'")
    ax = one_axes(ax, (5.0, 3.4))
    _draw_scree(ax, models, X, metric)
    return ax


def _draw_scree(ax: Axes, models: Any, X: Any, metric: str) -> None:
    """Draw the best model of every rank as a line, and all others as dots."""
    given = read_many(models)
    ranks = [_rank(model) for model in given.values()]
    values = np.array([_value(model, metric, label) for label, model in given.items()])
    if metric == "fit":
        values = 100 - 100 * values**2 / (sum_of_squares(X) or 1.0)
    labelled = any(isinstance(rank, str) for rank in ranks)
    known = list(dict.fromkeys(ranks)) if labelled else sorted(set(ranks))
    best = [
        (np.max if metric == "fit" else np.min)([v for r, v in zip(ranks, values, strict=True) if r == k])
        for k in known
    ]
    x = list(range(len(known))) if labelled else known
    ax.plot(x, best, "o-", color=PALETTE[0], markersize=4)
    if len(known) < len(ranks):
        ax.plot([x[known.index(r)] for r in ranks], values, ".", color=PALETTE[0], alpha=0.5)
    if isinstance(models, RankSelection) and models.rank is not None:
        _mark(ax, models.rank, best[known.index(models.rank)])
        legend(ax)
    if labelled:
        ax.set_xticks(x, known)
    else:
        _rank_ticks(ax, known)
    ax.set_xlabel("components")
    ax.set_ylabel(NAMES[metric])
    tidy(ax)


def _rank(model: Any) -> Any:
    """Read the number of components; of Tucker models those of all modes, as text."""
    factors = read_model(model)
    if factors.core is not None:
        return " x ".join(map(str, factors.core.shape))
    return int(factors.n_components)


def _value(model: Any, metric: str, label: str) -> float:
    name = "loss_" if metric == "loss" else "reconstruction_err_"
    if not hasattr(model, name):
        raise ValueError(f"models[{label!r}] is {type(model).__name__} without {name}; give fitted factorizations")
    return float(getattr(model, name))


def _rank_ticks(ax: Axes, ranks: Any) -> None:
    """Put a tick at every rank, if they are few."""
    if len(ranks) <= 15:
        ax.xaxis.set_major_locator(FixedLocator([float(r) for r in ranks]))
    else:
        whole_ticks(ax.xaxis)


def _mark(ax: Axes, rank: int, value: float) -> None:
    """Mark the suggested rank by a line, and by a ring around its value."""
    color = PALETTE[1]
    ax.axvline(rank, color=color, linewidth=1, linestyle=":")
    ring = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 1.6, "linestyle": "none"}
    ax.plot([rank], [value], "o", color=color, label=f"suggested: {rank}", **ring)  # type: ignore[arg-type]


def selection_plot(found: RankSelection, *, axes: Any = None) -> np.ndarray:
    """Draw what `select_rank` went by: the criterion, then the agreement of restarts, one above the other.

    The panel of the criterion has the held-out loss with its standard error. The dashed line is the least loss plus one
    standard error of the difference to it, over the same folds: the suggested rank is the smallest below this line. Of
    stability and of core consistency the dashed lines are what a rank must reach.

    Parameters
    ----------
    found : RankSelection
    axes : Axes or array of Axes, optional
        One is that of the criterion, the others are left out then. Else one for each panel; default: a new figure.

    Returns
    -------
    (n_panels,) array of Axes
        The criterion; silhouettes of restarts (where there are several, and the criterion is not of them); core
        consistency (of dense tensors).

    Raises
    ------
    TypeError
        Something else than what `select_rank` returned.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF, select_rank
    >>> from nnfactor.plots import selection_plot
    >>> found = select_rank(NMF(2), load_iris().data, range(1, 4), random_state=0)
    >>> axes = selection_plot(found, axes=Figure().subplots(2, 1))
    >>> axes[0].get_title(), axes[1].get_ylabel()
    ('3 components by bicross', 'silhouette of restarts')
    """
    if not isinstance(found, RankSelection):
        raise TypeError(f"found is {type(found).__name__}; give what select_rank returned")
    table = {name: np.asarray(found.table[name]) for name in found.table}
    panels = _panels(found.criterion, table)
    if isinstance(axes, Axes):
        panels = panels[:1]
    made = many_axes(axes, len(panels), 1, (6.0, 2.6), sharex=True)
    for ax, panel in zip(made, panels, strict=True):
        _draw_panel(ax, panel, table, found, ax is made[0])
    made[0].set_title(
        f"no clear rank by {found.criterion}" if found.rank is None else f"{found.rank} components by {found.criterion}"
    )
    made[-1].set_xlabel("components")
    return made


def _draw_panel(ax: Axes, panel: str, table: dict[str, np.ndarray], found: RankSelection, first: bool) -> None:
    """Draw one quantity over the ranks, and mark the suggested one."""
    if panel == "held_out":
        values = _draw_held_out(ax, table, found)
    elif panel == "core_consistency":
        lines = {"core_consistency": ("core consistency", CONSISTENT)}
        values = _draw_thresholds(ax, table, lines, "core consistency (%)")
    else:
        of = "restarts" if panel == "restarts" else "fits to halves"
        lines = {f"{panel}_mean": ("mean", STABLE), f"{panel}_min": ("least", LEAST)}
        values = _draw_thresholds(ax, table, lines, f"silhouette of {of}")
    if found.rank is not None and first:
        _mark(ax, found.rank, values[list(table["rank"]).index(found.rank)])
    elif found.rank is not None:
        ax.axvline(found.rank, color=PALETTE[1], linewidth=1, linestyle=":")
    _rank_ticks(ax, table["rank"])
    tidy(ax)
    legend(ax)


def _panels(criterion: str, table: dict[str, np.ndarray]) -> list[str]:
    """List what is drawn, the criterion first."""
    there = lambda name: name in table and np.isfinite(table[name]).any()
    first = {
        "stability": "stability" if "stability_mean" in table else "restarts",
        "core_consistency": "core_consistency",
    }
    found = [first.get(criterion, "held_out")]
    found += ["restarts"] if there("restarts_mean") else []
    found += ["core_consistency"] if there("core_consistency") else []
    return list(dict.fromkeys(found))


def _draw_held_out(ax: Axes, table: dict[str, np.ndarray], found: RankSelection) -> np.ndarray:
    """Draw the held-out losses, their standard errors, and the line of the rule."""
    ranks, values, errors = (table[name] for name in ("rank", "held_out", "held_out_se"))
    ax.errorbar(ranks, values, errors, fmt="o-", color=PALETTE[0], markersize=4, capsize=3, label="mean over folds")
    limits = _limits(table, found.losses)
    if limits is not None:
        line = {"linestyle": "--", "linewidth": 1, "color": foreground(ax), "alpha": 0.7}
        ax.plot(ranks, limits, label="least + one standard error", **line)  # type: ignore[arg-type]
    ax.set_ylabel(NAMES["held_out"])
    if 0 < 20 * values.min() < values.max():  # else the rule, which is about the least ones, would not be seen
        ax.set_yscale("log", nonpositive="clip")
    return values


def _limits(table: dict[str, np.ndarray], losses: np.ndarray | None) -> np.ndarray | None:
    """Compute, for each rank, the least mean loss plus one standard error of the difference to it over the folds."""
    if losses is None or len(losses) < 2:
        return None
    constant = losses[:, :1]
    shares = np.where(constant > 0, losses / np.where(constant > 0, constant, 1), 1.0)
    deviations = shares[:, 2:].std(0, ddof=1)
    known = deviations > 0
    if not known.any():
        return None
    factor = float((table["held_out_se"][known] / deviations[known]).mean())  # that of overlapping folds
    best = int(shares.mean(0).argmin())
    return shares[:, best].mean() + factor * (shares - shares[:, [best]]).std(0, ddof=1)[2:]


def _draw_thresholds(
    ax: Axes, table: dict[str, np.ndarray], lines: dict[str, tuple[str, float]], label: str
) -> np.ndarray:
    """Draw columns of the table, each with what a rank must reach."""
    first = None
    for i, (column, (name, least)) in enumerate(lines.items()):
        values = table[column]
        first = values if first is None else first
        ax.plot(table["rank"], values, "o-" if i == 0 else "s-", color=PALETTE[2 * i], markersize=4, label=name)
        ax.axhline(least, color=PALETTE[2 * i], linestyle="--", linewidth=1)
    ax.set_ylabel(label)
    assert first is not None
    if np.nanmin(first) < -100:  # of core consistency: how far below says nothing
        ax.set_ylim(-110, 110)
    return first
