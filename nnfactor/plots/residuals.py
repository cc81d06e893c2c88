"""What a model leaves over: how residuals are distributed, and which samples or features it does not describe."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .data import residual_blocks
from .read import Factors, Mode, read_model
from .style import PALETTE, foreground, legend, one_axes, shorten, tidy

DRAWN = 4_000_000  # residuals of a histogram; of more data every so-manieth sample


def histogram_of_residuals(
    model: Any, X: Any, *, standardised: bool = True, bins: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw how the residuals are distributed, with the normal distribution of their mean and variance.

    A heavy right tail of counts says that squares suit them badly: try `loss="kullback-leibler"`.

    Parameters
    ----------
    model : fitted NMF, NTF, NTD, NGE or another factorization with `inverse_transform`
    X : the data of the fit; a list of views or slices has a histogram for each view, one for all slices
    standardised : bool
        Whether to subtract the mean and to divide by the standard deviation.
    bins : int, optional
        Default: 100, fewer for small data.
    ax : Axes, optional

    Returns
    -------
    Axes

    Notes
    -----
    Of more than 4 million entries every so-manieth sample is drawn. Hidden entries are left out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import histogram_of_residuals
    >>> X = load_iris().data
    >>> ax = histogram_of_residuals(NMF(2, random_state=0).fit(X), X, ax=Figure().subplots())
    >>> ax.get_xlabel(), float(sum(bar.get_width() * bar.get_height() for bar in ax.patches).round(6))
    ('standardised residual', 1.0)
    """
    factors = read_model(model)
    shapes = [getattr(A, "shape", None) or np.shape(A) for A in (X if isinstance(X, list | tuple) else [X])]
    every = 1 if isinstance(X, list | tuple) else max(1, int(np.prod(shapes[0], dtype=float) // DRAWN))
    parts = [residuals for _, residuals in residual_blocks(model, X, every)]
    joined = [np.concatenate([A.ravel() for A in of]) for of in zip(*parts, strict=True)]
    if factors.modes[-2].lengths if len(factors.modes) > 1 else False:  # slices are one array
        joined = [np.concatenate(joined)]
    ax = one_axes(ax, (5.0, 3.4))
    labels = factors.labels if len(joined) > 1 else ("residuals",)
    for i, (values, label) in enumerate(zip(joined, labels, strict=True)):
        _draw_histogram(ax, values[np.isfinite(values)], label, i, len(joined) > 1, standardised, bins)
    ax.set_xlabel("standardised residual" if standardised else "residual")
    ax.set_ylabel("density")
    if every > 1:
        ax.set_title(f"every {every}th sample", fontsize="small")
    legend(ax)
    tidy(ax)
    return ax


def _draw_histogram(
    ax: Axes, values: np.ndarray, label: str, i: int, several: bool, standardised: bool, bins: int | None
) -> None:
    """Draw a histogram, and the normal distribution of the same mean and variance."""
    if not len(values):
        raise ValueError("X has no entry that is not hidden; there are no residuals")
    mean, deviation = float(values.mean()), float(values.std())
    if standardised:
        values, mean, deviation = (values - mean) / (deviation or 1.0), 0.0, 1.0
    n = bins or int(np.clip(2 * len(values) ** (1 / 3), 10, 100))
    # A few far entries would leave all others in one bin: the axis ends at 10 standard deviations.
    low, high = max(values.min(), mean - 10 * deviation), min(values.max(), mean + 10 * deviation)
    kept = np.clip(values, low, high)
    style = {"histtype": "step", "linewidth": 1.4} if several else {"alpha": 0.7}
    ax.hist(kept, bins=n, density=True, color=PALETTE[i % len(PALETTE)], label=label, **style)  # type: ignore[arg-type]
    if i == 0 and deviation > 0:
        x = np.linspace(low, high, 200)
        normal = np.exp(-(((x - mean) / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))
        ax.plot(x, normal, color=foreground(ax), linewidth=1, linestyle="--", label="normal")


def outlier_plot(
    model: Any,
    X: Any,
    *,
    mode: Any = 0,
    names: Any = None,
    mode_names: Any = None,
    n_labels: int = 5,
    ax: Axes | None = None,
) -> Axes:
    """Draw for every sample (or row of another mode) its leverage against its sum of squared residuals.

    High leverage: the model bends towards it, perhaps with a component of its own. A large residual: the model does not
    describe it. Both: look at it first. The dashed lines are rules of thumb: leverage `2 k / n` (Hoaglin and Welsch
    1978), and two standard deviations above the mean of the residuals.

    Parameters
    ----------
    model : fitted NMF, NTF, NTD, NGE or another factorization with `inverse_transform`
    X : the data of the fit
    mode : int or str
        Default 0, the samples. Of views and slices there is no other.
    names, mode_names : as for `components_plot`
    n_labels : int
        How many of those beyond a line have their name, or number, at their side; default 5, the furthest.
    ax : Axes, optional

    Returns
    -------
    Axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from nnfactor import NMF
    >>> from nnfactor.plots import outlier_plot
    >>> X = np.random.default_rng(0).random((30, 2)) @ np.random.default_rng(1).random((2, 8))
    >>> X[7] = np.random.default_rng(2).random(8)
    >>> ax = outlier_plot(NMF(2, random_state=0).fit(X), X, n_labels=1, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['7']
    """
    factors = read_model(model, names, mode_names)
    index = factors.index(mode)
    shown = factors.modes[index]
    if index != 0 and (len(factors.tensors) > 1 or any(m.lengths for m in factors.modes)):
        raise ValueError(f"mode={mode!r} of {factors.title} has no residuals of its own; use mode=0, the samples")
    errors, leverage = _errors(factors, model, X, index), leverages(shown.factor)
    if len(errors) != len(leverage):
        raise ValueError(f"X has {len(errors)} rows in mode {mode!r}, the model {len(leverage)}")
    ax = one_axes(ax, (5.0, 4.0))
    _draw_outliers(ax, shown, leverage, errors, n_labels)
    return ax


def _draw_outliers(ax: Axes, shown: Mode, leverage: np.ndarray, errors: np.ndarray, n_labels: int) -> None:
    """Draw the points, the two lines, and the names of the furthest beyond them."""
    n, k = shown.factor.shape
    lines = min(2 * k / n, 1.0), float(errors.mean() + 2 * errors.std())
    ax.plot(leverage, errors, "o", color=PALETTE[0], markersize=4, alpha=0.6, markeredgewidth=0)
    line = {"color": foreground(ax), "linestyle": "--", "linewidth": 1, "alpha": 0.7}
    ax.axvline(lines[0], **line)  # type: ignore[arg-type]
    ax.axhline(lines[1], **line)  # type: ignore[arg-type]
    beyond = np.maximum(leverage / (lines[0] or 1.0), errors / (lines[1] or 1.0))
    ax.set_xlabel(f"leverage of {shown.name}")
    ax.set_ylabel("sum of squared residuals")
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    named = [int(i) for i in np.argsort(-beyond, kind="stable")[:n_labels] if beyond[i] > 1]
    _name_points(ax, leverage, errors, {i: shorten(shown.names[i]) if shown.names else str(i) for i in named})
    tidy(ax)


def _name_points(ax: Axes, x: np.ndarray, y: np.ndarray, texts: dict[int, str]) -> None:
    """Write names beside points, from the highest to the lowest, and one below the other where points are close."""
    height, width = 4.0 * 72 * 0.75, ax.get_xlim()[1]  # in points, of axes as they usually are
    step = 10 * ax.get_ylim()[1] / height
    placed: list[tuple[float, float]] = []
    for i in sorted(texts, key=lambda i: -y[i]):
        right, at = bool(x[i] > 0.6 * width), float(y[i])
        while any(abs(x[i] - x0) < 0.35 * width and abs(at - y0) < step for x0, y0 in placed):
            at -= step / 2
        placed.append((float(x[i]), at))
        offset = {"xytext": (-5 if right else 5, -3 + (at - y[i]) / step * 10), "textcoords": "offset points"}
        words = {"fontsize": "small", "ha": "right" if right else "left", "color": foreground(ax)}
        ax.annotate(texts[i], (x[i], y[i]), **offset, **words)  # type: ignore[arg-type]


def leverages(F: np.ndarray) -> np.ndarray:
    """Compute the diagonal of the projection on the columns of a factor, `(d,)`: between 0 and 1, the sum its rank."""
    U, s, _ = np.linalg.svd(np.asarray(F, dtype=np.float64), full_matrices=False)
    kept = s > s.max(initial=0) * max(F.shape) * np.finfo(np.float64).eps
    return np.square(U[:, kept]).sum(1)


def _errors(factors: Factors, model: Any, X: Any, index: int) -> np.ndarray:
    """Add up the squared residuals of every row of a mode."""
    total: Any = 0.0
    rows = []
    for _, residuals in residual_blocks(model, X):
        if len(residuals) > 1 and len(factors.tensors) == 1:  # slices: a number for each
            rows.append(np.array([np.nansum(A**2) for A in residuals]))
        elif index == 0:
            # what does not have the samples (an array coupled in another mode) is no part of their errors
            own = [A for A, of in zip(residuals, factors.tensors, strict=True) if of[0] == 0]
            rows.append(np.sum([np.nansum(A.reshape(len(A), -1) ** 2, axis=1) for A in own], axis=0))
        else:
            A = residuals[0].reshape(-1, *[len(m.factor) for m in factors.modes[1:]])
            total = total + np.nansum(A**2, axis=tuple(i for i in range(A.ndim) if i != index))
    return np.concatenate(rows) if rows else total
