"""Every plot of every model: it draws on the axes that it is given, in any style, or says what would work."""

from functools import partial

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from nnfactor import (
    LNMF,
    NGE,
    NMF,
    NTD,
    NTF,
    PARAFAC2,
    SULF,
    Coupled,
    KernelNMF,
    SemiNMF,
    batch_fit,
    consensus,
    select_rank,
)
from nnfactor.plots import (
    component_comparison_plot,
    components_plot,
    core_element_plot,
    histogram_of_residuals,
    images_plot,
    optimisation_diagnostic_plot,
    outlier_plot,
    percentage_variation_plot,
    scree_plot,
    selection_plot,
)
from nnfactor.plots.read import read_model

matplotlib.use("agg")

N, D, K = 24, 12, 2
rng = np.random.default_rng(0)
MATRIX, TENSOR = rng.random((N, D)), rng.random((N, 4, 5))
LABELS = np.arange(N) % 3
short = {"max_iter": 15, "tol": 0, "random_state": 0}

DATA = {
    "NMF": MATRIX,
    "SemiNMF": MATRIX - 0.5,
    "LNMF": MATRIX,
    "KernelNMF": MATRIX,
    "NGE": MATRIX,
    "NGE, tensor": TENSOR,
    "NTF": TENSOR,
    "NTD": TENSOR,
    "SULF": [MATRIX, rng.random((N, 7))],
    "PARAFAC2": [rng.random((6 + i, D)) for i in range(N // 4)],
    "Coupled": [MATRIX, TENSOR],
}

MAKE = {
    "NMF": lambda: NMF(K, **short).fit(MATRIX),
    "SemiNMF": lambda: SemiNMF(K, **short).fit(MATRIX - 0.5),
    "LNMF": lambda: LNMF(K, **short).fit(MATRIX),
    "KernelNMF": lambda: KernelNMF(K, **short).fit(MATRIX),
    "NGE": lambda: NGE(K, **short).fit(MATRIX, LABELS),
    "NGE, tensor": lambda: NGE(K, **short).fit(TENSOR, LABELS),
    "NTF": lambda: NTF(K, **short).fit(TENSOR),
    "NTD": lambda: NTD((3, 2, 2), **short).fit(TENSOR),
    "SULF": lambda: SULF(K, **short).fit(DATA["SULF"], LABELS),
    "PARAFAC2": lambda: PARAFAC2(K, **short).fit(DATA["PARAFAC2"]),
    "Coupled": lambda: Coupled(K, modes=[("sample", "gene"), ("sample", "time", "channel")], **short).fit(
        DATA["Coupled"]
    ),
}


@pytest.fixture(autouse=True)
def no_open_figures():
    """Whatever a test of this process has left open: figures are counted here."""
    plt.close("all")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    return {name: make() for name, make in MAKE.items()}


def components(model, X, new):
    factors = read_model(model)
    modes = factors.select(None)
    return components_plot(model, axes=new(1, K) if len(modes) == 1 else new(factors.n_components, len(modes)))


def features(model):
    """The factor of the first mode that is not the samples'."""
    return read_model(model).modes[1].factor


def comparison(model, X, new):
    return component_comparison_plot({"one": model, "two": model}, mode=1, axes=new(1, features(model).shape[1]))


# name -> (how it is called, the models of which it says that it is not for them)
PLOTS = {
    "components": (components, {}),
    "comparison": (comparison, {}),
    "images": (lambda m, X, new: images_plot(m, mode=1, image_shape=(len(features(m)), 1), ax=new(1, 1)[0, 0]), {}),
    "scree": (lambda m, X, new: scree_plot([m, m], X, ax=new(1, 1)[0, 0]), {}),
    "optimisation": (lambda m, X, new: optimisation_diagnostic_plot(m, ax=new(1, 1)[0, 0]), {}),
    "histogram": (
        lambda m, X, new: histogram_of_residuals(m, X, ax=new(1, 1)[0, 0]),
        {"KernelNMF": "inverse_transform"},
    ),
    "outlier": (lambda m, X, new: outlier_plot(m, X, ax=new(1, 1)[0, 0]), {"KernelNMF": "inverse_transform"}),
    "core": (
        lambda m, X, new: core_element_plot(m, X, ax=new(1, 1)[0, 0]),
        dict.fromkeys(
            ("NMF", "SemiNMF", "LNMF", "KernelNMF", "NGE", "SULF", "PARAFAC2", "Coupled"), "one tensor of order three"
        ),
    ),
    "variation": (
        lambda m, X, new: percentage_variation_plot(m, X, ax=new(1, 1)[0, 0]),
        {"NTD": "use core_element_plot"},
    ),
}


def draw(plot, model, X):
    """Draw on axes of a figure that pyplot does not know; return what was given and what came back."""
    given = []

    def new(rows, columns):
        given.append(Figure(figsize=(5, 4)).subplots(rows, columns, squeeze=False))
        return given[0]

    found = PLOTS[plot][0](model, X, new)
    return given[0].ravel().tolist(), np.asarray(found, dtype=object).ravel().tolist()


CASES = [(plot, name) for plot, (_, not_for) in PLOTS.items() for name in MAKE if name not in not_for]


@pytest.mark.parametrize(("plot", "name"), CASES)
def test_given_axes_are_drawn_on_and_returned_and_no_figure_is_made(plot, name, fitted):
    given, found = draw(plot, fitted[name], DATA[name])
    assert given == found and not plt.get_fignums()
    assert all(ax.has_data() for ax in found if ax.axison or ax.get_images())
    given[0].figure.canvas.draw()


@pytest.mark.parametrize(("plot", "name"), [(p, n) for p, (_, not_for) in PLOTS.items() for n in not_for])
def test_a_plot_that_is_not_for_a_model_says_so(plot, name, fitted):
    with pytest.raises(ValueError, match=PLOTS[plot][1][name]):
        draw(plot, fitted[name], DATA[name])
    assert not plt.get_fignums()


def words(figure):
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


@pytest.mark.parametrize(("plot", "name"), [(p, n) for p, n in CASES if n in ("NMF", "NTF", "NTD", "SULF")])
def test_dark_styles_have_no_dark_artist_on_black(plot, name, fitted):
    with plt.style.context("dark_background"):
        given, _ = draw(plot, fitted[name], DATA[name])
    figure = given[0].figure
    figure.canvas.draw()
    lines = [line for ax in figure.axes for line in ax.get_lines()]
    colors = [text.get_color() for text in words(figure)] + [line.get_color() for line in lines]
    colors += [bar.get_facecolor() for ax in figure.axes for bar in ax.patches]
    assert all(luminance(color) > 0.1 for color in colors)  # a contrast of 3 to black


def luminance(color):
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in to_rgb(color[:3] if isinstance(color, tuple) else color)
    ]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("plot", list(PLOTS))
def test_without_axes_there_is_one_new_figure(plot, fitted):
    calls = {
        "components": lambda m, X: components_plot(m),
        "comparison": lambda m, X: component_comparison_plot([m, m]),
        "images": lambda m, X: images_plot(m),
        "scree": lambda m, X: scree_plot(m, X),
        "optimisation": lambda m, X: optimisation_diagnostic_plot(m),
        "histogram": histogram_of_residuals,
        "outlier": outlier_plot,
        "core": core_element_plot,
        "variation": percentage_variation_plot,
    }
    found = np.asarray(calls[plot](fitted["NTF"], TENSOR), dtype=object).ravel()
    assert len(plt.get_fignums()) == 1 and all(ax.figure is plt.gcf() for ax in found)
    plt.close()


@pytest.mark.parametrize("k", [2, 60])
def test_few_and_many_components_are_drawn(k):
    X = np.random.default_rng(1).random((30, 8, 9))
    (model,) = batch_fit([NTF(k, max_iter=3, tol=0, random_state=0)], X)
    for ax in (
        images_plot(model),
        percentage_variation_plot(model),
        core_element_plot(model, X),
        components_plot(model)[-1],
        outlier_plot(model, X),
    ):
        figure = np.asarray(ax, dtype=object).ravel()[0].figure
        assert max(figure.get_size_inches()) <= 60
        figure.canvas.draw()
        plt.close(figure)


def test_results_are_taken_as_models_are():
    found = select_rank(NMF(2, **short), MATRIX, (1, 2, 3), criterion="stability", n_init=2, random_state=0)
    assert scree_plot(found, ax=Figure().subplots()).get_lines()[0].get_xdata().tolist() == [1, 2, 3]
    assert len(optimisation_diagnostic_plot(found, ax=Figure().subplots()).get_legend().get_texts()) == 3
    both = consensus(NMF(2, init="random", n_init=4, **short).fit(MATRIX), MATRIX)
    assert images_plot(both, image_shape=(3, 4), ax=Figure().subplots()).get_images()
    assert percentage_variation_plot(both, MATRIX, ax=Figure().subplots()).patches
    with pytest.raises(TypeError, match="found is NMF; give what select_rank returned"):
        selection_plot(NMF(2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: components_plot(object()), TypeError, "model is object; give a fitted factorization"),
        (lambda m: components_plot(NMF(2)), ValueError, "not fitted"),
        (lambda m: components_plot(m, mode="genes"), ValueError, r"mode='genes' is not known; NMF has 0 \('samples'\)"),
        (lambda m: components_plot(m, components=[2]), ValueError, "NMF has those from 0 to 1"),
        (lambda m: components_plot(m, kind="pie"), ValueError, "kind='pie' is not known"),
        (
            lambda m: components_plot(m, names=["a"] * D),
            ValueError,
            r"names must have an entry \(or None\) for each mode",
        ),
        (
            lambda m: components_plot(m, names=(None, ["a"])),
            ValueError,
            r"names of mode 1 \('features'\) are 1; it has 12",
        ),
        (lambda m: components_plot(m, mode_names=["a"]), ValueError, "mode_names has 1 names; NMF has 2 modes"),
        (lambda m: components_plot(m, axes=Figure().subplots(1, 3)), ValueError, "axes must be 2 matplotlib Axes"),
        (lambda m: components_plot(m, kind="graph"), ValueError, "kind='graph' needs positions"),
        (lambda m: images_plot(m), ValueError, "image_shape is None, and NMF has no images"),
        (lambda m: images_plot(m, image_shape=(5, 5)), ValueError, "does not have the 12 rows of 'features'"),
        (lambda m: images_plot(m, image_shape=(3, 4), ax=3), TypeError, "ax must be matplotlib Axes, got int"),
        (lambda m: histogram_of_residuals(m, MATRIX[:5]), ValueError, "X has 5 samples, and NMF was fitted to 24"),
        (lambda m: scree_plot(m, metric="fit"), ValueError, "metric='fit' needs the data"),
        (lambda m: percentage_variation_plot(m, method="data"), ValueError, "X is None; method='data' needs the data"),
        (lambda m: outlier_plot(NMF.from_components(np.eye(3)), np.eye(3)), ValueError, "has no embedding_"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name_and_no_figure_is_left(call, error, message, fitted):
    with pytest.raises(error, match=message):
        call(fitted["NMF"])
    assert not plt.get_fignums()


def test_components_count_from_one_in_every_picture():
    """What people read counts from 1, as files do; indices of Python count from 0."""
    rng = np.random.default_rng(0)
    factors = [rng.random((d, 3)) for d in (8, 6)]
    cube = [rng.random((d, 14)) for d in (8, 6, 5)]
    new = lambda *shape: Figure().subplots(*shape, squeeze=False)
    titles = lambda axes: [ax.get_title() for ax in np.ravel(axes)]
    assert titles(components_plot(factors, axes=new(1, 3))) == ["component 1", "component 2", "component 3"]
    assert titles(components_plot(factors, components=[2], axes=new(1, 1))) == ["component 3"]
    rows = components_plot([F[:, :3] for F in cube], axes=new(3, 3))
    assert [ax.get_ylabel() for ax in rows[:, 0]] == ["1", "2", "3"]
    ticks = [label.get_text() for label in components_plot(cube, axes=new(1, 3))[0].get_xticklabels()]
    assert ticks[0] == "1"
    assert [t.get_text() for t in images_plot(factors, image_shape=(2, 3), ax=new(1, 1)[0, 0]).texts] == ["1", "2", "3"]
    compared = partial(component_comparison_plot, [factors, factors])
    assert titles(compared(axes=new(1, 3))) == ["1: 1.00", "2: 1.00", "3: 1.00"]
    mosaic = compared(kind="image", image_shape=(2, 3), axes=new(2, 1))
    assert [text.get_text() for text in mosaic[0].texts] == ["1", "2", "3"]
    assert list(compared(kind="similarity", axes=new(1, 1))[0].get_images()[0].get_extent()) == [0.5, 3.5, 3.5, 0.5]
    bars = percentage_variation_plot(factors, method="model", ax=new(1, 1)[0, 0])
    assert [round(bar.get_x() + bar.get_width() / 2) for bar in bars.patches] == [1, 2, 3]
    three = [F[:, :3] for F in cube]
    dots = core_element_plot(three, np.einsum("ik,jk,lk->ijl", *three), ax=new(1, 1)[0, 0]).get_lines()[0]
    assert dots.get_xdata().tolist() == [1, 2, 3]
