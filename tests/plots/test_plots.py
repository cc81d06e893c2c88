"""What is drawn: the data of the artists, their labels, titles and ticks."""

import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from nnfactor import NMF, NTD, NTF, PARAFAC2, GraphNMF, consensus, select_rank
from nnfactor.graphs import grid_graph
from nnfactor.metrics import core_consistency, percentage_variation
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
from nnfactor.plots.panels import CHANNELS, GROUPS, choose_kind
from nnfactor.plots.read import Mode
from nnfactor.plots.residuals import leverages

matplotlib.use("agg")


def rng(seed=0):
    return np.random.default_rng(seed)


def axes(n=1, columns=None):
    return Figure(figsize=(6, 4)).subplots(-(-n // (columns or n)), columns or n, squeeze=False).ravel()[:n]


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def heights(ax):
    return np.array([bar.get_height() for bar in ax.patches])


def factors(k=3, shape=(20, 8), seed=0):
    return [rng(seed + i).random((d, k)) for i, d in enumerate(shape)]


GENES = [f"gene {i}" for i in range(8)]


# components


def test_lines_are_the_columns_of_the_factor_in_one_panel_each():
    V, U = factors(shape=(20, 30))
    shown = components_plot([V, U], axes=axes(3))
    assert [ax.get_title() for ax in shown] == ["component 1", "component 2", "component 3"]
    assert all((ax.get_lines()[0].get_ydata() == U[:, j]).all() for j, ax in enumerate(shown))
    assert shown[0].get_ylim()[0] == 0


def test_names_that_are_rising_numbers_are_the_axis_of_curves():
    V, U = factors(shape=(20, 30))
    wavelengths = np.linspace(400, 700, 30).round(1)
    ax = components_plot([V, U], names=(None, wavelengths), mode_names=("pixels", "nm"), axes=axes(3))[0]
    assert (ax.get_lines()[0].get_xdata() == wavelengths).all() and ax.get_xlabel() == "nm"


def test_bars_are_the_largest_entries_with_their_names_on_top():
    V, U = factors()
    ax = components_plot([V, U], names={"features": GENES}, n_top=3, axes=axes(3))[1]
    top = np.argsort(-U[:, 1])[:3]
    assert labels(ax.get_yticklabels()) == [GENES[i] for i in top]
    assert np.allclose([bar.get_width() for bar in ax.patches], U[top, 1])
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the largest on top


def test_names_of_a_data_frame_are_used():
    X = pd.DataFrame(rng().random((30, 8)), columns=GENES)
    ax = components_plot(NMF(2, random_state=0).fit(X), axes=axes(2))[0]
    assert set(labels(ax.get_yticklabels())) <= set(GENES)


@pytest.mark.parametrize("k", [2, 60])
def test_mutation_channels_are_shares_in_their_groups_whatever_their_order(k):
    V, U = factors(k, (10, 96))
    order = rng(5).permutation(96)
    names = [CHANNELS[i] for i in order]
    shown = components_plot([V, U[order]], names=(None, names), axes=axes(k, 6))
    assert len(shown) == k
    assert np.allclose(heights(shown[1]), U[:, 1] / U[:, 1].sum())
    assert labels(shown[0].texts) == list(GROUPS)
    colors = [bar.get_facecolor() for bar in shown[0].patches]
    assert [len(set(colors[16 * g : 16 * g + 16])) for g in range(6)] == [1] * 6 and len(set(colors)) == 6


def test_mutation_channels_on_request_need_no_names():
    shown = components_plot(factors(2, (10, 96)), kind="mutations", axes=axes(2))
    assert len(shown[0].patches) == 96
    with pytest.raises(ValueError, match="kind='mutations' draws the 96 channels; 'features' has 8 rows"):
        components_plot(factors(), kind="mutations")


@pytest.mark.parametrize("k", [2, 12, 60])
def test_modes_of_a_tensor_are_columns_or_heat_maps_of_many_components(k):
    model = factors(k, (40, 6, 7))
    if k <= 12:
        shown = components_plot(model, axes=axes(3 * k, 3))
        assert shown.shape == (k, 3) and [ax.get_title() for ax in shown[0]] == ["samples", "mode 1", "mode 2"]
        assert np.allclose(heights(shown[1, 2]), model[2][:, 1])
        assert (shown[1, 0].get_lines()[0].get_ydata() == model[0][:, 1]).all()
    else:
        shown = components_plot(model, axes=axes(3))
        images = [np.asarray(ax.get_images()[0].get_array()) for ax in shown]
        assert all(np.allclose(A, F / F.max(0)) for A, F in zip(images, model, strict=True))


@pytest.mark.parametrize("k", [2, 60])
def test_a_mosaic_has_every_image_and_its_number(k):
    V, U = factors(k, (20, 12))
    ax = images_plot([V, U], image_shape=(3, 4), ax=axes()[0])
    assert labels(ax.texts) == [str(j) for j in range(1, k + 1)]
    image = np.asarray(ax.get_images()[0].get_array().filled(np.nan))
    assert np.isfinite(image).sum() == 12 * k
    corners = [(round(y + 0.5), round(x + 0.5)) for x, y in (text.get_position() for text in ax.texts)]
    for j, (y, x) in enumerate(corners):
        assert np.allclose(image[y : y + 3, x : x + 4].ravel(), U[:, j] / U[:, j].max())


def test_colour_images_and_values_of_any_sign():
    V, U = factors(2, (20, 12))
    assert images_plot([V, U], image_shape=(2, 2, 3), ax=axes()[0]).get_images()[0].get_array().shape[-1] == 4
    image = images_plot([V, U - 0.5], image_shape=(3, 4), ax=axes()[0]).get_images()[0]
    assert image.get_cmap().name == "RdBu_r" and image.norm.vmin == -image.norm.vmax


def test_images_of_a_tensor_are_products_of_rows_and_columns():
    V, A, B = factors(2, (10, 3, 4))
    image = images_plot([V, A, B], ax=axes()[0], n_columns=1, labels=False).get_images()[0].get_array().filled(np.nan)
    expected = np.outer(A[:, 0], B[:, 0])
    assert np.allclose(image[1:4], expected / expected.max())


def test_images_of_a_tucker_model_have_its_core():
    X = rng().random((12, 4, 5))
    model = NTD((3, 2, 2), max_iter=20, tol=0, random_state=0).fit(X)
    ax = images_plot(model, ax=axes()[0], n_columns=1, labels=False)
    image = ax.get_images()[0].get_array().filled(np.nan)
    expected = model.factors_[0] @ model.core_[0] @ model.factors_[1].T
    assert len(image) == 3 * 5 and np.allclose(image[1:5], expected / expected.max())


def test_coefficients_are_maps_and_graphs():
    model = GraphNMF(2, graph=grid_graph((4, 5)), max_iter=20, tol=0, random_state=0).fit(rng().random((20, 7)))
    image = images_plot(model, mode=0, image_shape=(4, 5), labels=False, n_columns=1, ax=axes()[0]).get_images()[0]
    V = model.embedding_[:, 0].reshape(4, 5)
    assert np.allclose(image.get_array().filled(np.nan)[1:5], V / V.max())
    y, x = np.mgrid[:4, :5]
    ax = components_plot(model, mode="samples", positions=np.stack([x.ravel(), y.ravel()], 1), axes=axes(2))[1]
    lines, points = sorted(ax.collections, key=lambda c: not isinstance(c, LineCollection))
    assert len(lines.get_segments()) == 4 * 4 + 3 * 5
    assert np.allclose(points.get_array(), model.embedding_[:, 1])


def test_a_consensus_has_its_spread():
    X = rng().random((30, 40))
    found = consensus(NMF(2, init="random", n_init=5, max_iter=30, tol=0, random_state=0).fit(X))
    ax = components_plot(found, axes=axes(2))[0]
    assert (ax.get_lines()[0].get_ydata() == found.factors[0][:, 0]).all()
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert np.isclose(band.max(), (found.factors[0] + found.spread[0])[:, 0].max())


def test_slices_that_evolve_have_a_curve_each():
    slices = [rng(i).random((5 + i, 6)) for i in range(4)]
    model = PARAFAC2(2, max_iter=10, tol=0, random_state=0).fit(slices)
    shown = components_plot(model, axes=axes(6, 3))
    assert [ax.get_title() for ax in shown[0]] == ["slices", "rows of slices", "columns"]
    curves = [line.get_ydata() for line in shown[1, 1].get_lines()]
    assert all((a == B[:, 1]).all() for a, B in zip(curves, model.evolving_, strict=True))


def test_components_have_the_names_that_are_given():
    V, U = factors()
    shown = components_plot([V, U], names={"features": GENES, "components": ["sky", "sea", "$land"]}, axes=axes(3))
    assert [ax.get_title() for ax in shown] == ["sky", "sea", r"\$land"]
    assert labels(images_plot([V, U], image_shape=(2, 4), labels=("a", "b", "c"), ax=axes()[0]).texts) == [
        "a",
        "b",
        "c",
    ]
    (heat,) = components_plot([V, U], kind="heatmap", names={"components": ["sky", "sea", "land"]}, axes=axes())
    assert labels(heat.get_xticklabels()) == ["sky", "sea", "land"]
    with pytest.raises(ValueError, match="names of components are 2; the model has 3"):
        components_plot([V, U], names={"components": ["a", "b"]})


# several models


def test_matched_components_lie_over_each_other():
    V, U = factors(3, (20, 30))
    order = [2, 0, 1]
    shown = component_comparison_plot({"a": [V, U], "b": [V[:, order], 5 * U[:, order]]}, axes=axes(3))
    for j, ax in enumerate(shown):
        first, second = (line.get_ydata() for line in ax.get_lines())
        assert np.allclose(first, second) and np.allclose(first, U[:, j] / np.linalg.norm(U[:, j]))
        assert ax.get_title() == f"{j + 1}: 1.00"
        assert ax.get_ylim()[1] > second.max()


def test_names_are_compared_by_points_and_many_components_by_their_similarities():
    V, U = factors()
    ax = component_comparison_plot([[V, U], [V, U]], names=(None, GENES), n_top=4, axes=axes(3))[0]
    assert labels(ax.get_yticklabels()) == [GENES[i] for i in np.argsort(-U[:, 0])[:4]]
    many = factors(20, (30, 25, 26))
    order = rng().permutation(20)
    (ax,) = component_comparison_plot([many, [F[:, order] for F in many]], axes=axes(1))
    assert np.allclose(np.diag(np.asarray(ax.get_images()[0].get_array())), 1)


def test_models_that_cannot_be_compared_are_refused():
    V, U = factors()
    with pytest.raises(ValueError, match="give two or more"):
        component_comparison_plot([[V, U]])
    with pytest.raises(ValueError, match="modes of different lengths"):
        component_comparison_plot([[V, U], [V, U[:5]]])


# ranks and fits


def test_a_scree_has_the_share_that_each_rank_explains():
    X = rng().random((30, 8))
    models = [NMF(k, random_state=0).fit(X) for k in (3, 1, 2)]
    ax = scree_plot(models, X, ax=axes()[0])
    line = ax.get_lines()[0]
    share = lambda m: 100 - 100 * m.reconstruction_err_**2 / (X**2).sum()
    assert line.get_xdata().tolist() == [1, 2, 3]
    assert np.allclose(line.get_ydata(), [share(models[i]) for i in (1, 2, 0)])
    ax = scree_plot(models, ax=axes()[0], metric="loss")
    assert ax.get_ylabel() == "loss" and np.isclose(ax.get_lines()[0].get_ydata()[0], models[1].loss_)


@pytest.fixture(scope="module")
def found():
    X = rng().dirichlet(np.ones(3), 60) @ rng(1).random((3, 30)) + 0.01 * rng(2).random((60, 30))
    return select_rank(NMF(2, max_iter=200), X, range(1, 6), random_state=0)


def test_a_selection_has_its_losses_errors_line_and_rank(found):
    criterion, restarts = selection_plot(found, axes=axes(2))
    (bars,) = criterion.containers
    assert np.allclose(bars[0].get_ydata(), found.table["held_out"])
    low, high = np.array([s[:, 1] for s in bars[2][0].get_segments()]).T
    assert np.allclose((high - low) / 2, found.table["held_out_se"])
    named = {line.get_label(): line for line in criterion.get_lines()}
    below = np.asarray(found.table["held_out"]) <= named["least + one standard error"].get_ydata() + 1e-12
    assert np.asarray(found.table["rank"])[below][0] == found.rank  # the rule, as it is drawn
    assert named[f"suggested: {found.rank}"].get_xdata()[0] == found.rank
    assert str(found.rank) in criterion.get_title()
    assert np.allclose(restarts.get_lines()[0].get_ydata()[1:], found.table["restarts_mean"][1:])
    assert selection_plot(found, axes=axes()[0]).shape == (1,)


def test_stability_and_core_consistency_have_what_a_rank_must_reach():
    X = rng().random((40, 12))
    found = select_rank(NMF(2, max_iter=30), X, (2, 3), criterion="stability", n_init=3, random_state=0)
    ax = selection_plot(found, axes=axes(2))[0]
    levels = sorted(line.get_ydata()[0] for line in ax.get_lines() if line.get_linestyle() == "--")
    assert levels == [0.2, 0.8]
    tensor = select_rank(
        NTF(2, max_iter=30), rng().random((10, 5, 6)), (1, 2), criterion="core_consistency", random_state=0
    )
    assert selection_plot(tensor, axes=axes(2))[0].get_ylabel() == "core consistency (%)"


def test_a_history_ends_where_the_fit_did_and_restarts_are_dots():
    model = NMF(3, init="random", n_init=4, random_state=0).fit(rng().random((30, 8)))
    ax = optimisation_diagnostic_plot(model, ax=axes()[0])
    curve, dots, end = ax.get_lines()
    assert (curve.get_ydata() == model.history_["objective"]).all()
    assert (dots.get_ydata() == model.restarts_["loss"]).all() and (dots.get_xdata() == model.restarts_["n_iter"]).all()
    assert end.get_xdata()[0] == model.history_["iteration"][-1]
    assert "4 restarts" in ax.get_title()
    with pytest.raises(ValueError, match="no history_"):
        optimisation_diagnostic_plot(NMF.from_components(np.eye(3)))


# residuals


@pytest.mark.parametrize("kind", ["array", "frame", "sparse", "masked"])
def test_residuals_are_those_of_all_entries_that_are_not_hidden(kind):
    X = rng().random((30, 8)) * (rng(1).random((30, 8)) < 0.7)
    model = NMF(2, random_state=0).fit(X)
    given = {"array": X, "frame": pd.DataFrame(X), "sparse": sp.csr_array(X), "masked": np.ma.masked_less(X, 0.1)}[kind]
    expected = X - model.embedding_ @ model.components_
    expected = expected[X >= 0.1] if kind == "masked" else expected.ravel()
    ax = histogram_of_residuals(model, given, standardised=False, bins=7, ax=axes()[0])
    density, edges = np.histogram(expected, 7, density=True)
    assert np.allclose(heights(ax), density) and np.isclose(ax.patches[0].get_x(), edges[0])


def test_outliers_are_named_by_leverage_and_residual():
    V, U = factors(2, (40, 8))
    X = V @ U.T
    X[5], X[9] = rng(3).random(8) * 3, 30 * U[:, 0]
    model = NMF(2, random_state=0).fit(X)
    names = [f"sample {i}" for i in range(40)]
    ax = outlier_plot(model, X, names=(names, None), n_labels=2, ax=axes()[0])
    points = ax.get_lines()[0]
    residual = X - model.embedding_ @ model.components_
    assert np.allclose(points.get_ydata(), (residual**2).sum(1))
    assert np.allclose(points.get_xdata(), np.diag(model.embedding_ @ np.linalg.pinv(model.embedding_)))
    assert set(labels(ax.texts)) == {"sample 5", "sample 9"}


def test_outliers_of_any_mode_of_a_tensor():
    X = rng().random((10, 4, 5))
    model = NTF(2, max_iter=20, tol=0, random_state=0).fit(X)
    ax = outlier_plot(model, X, mode=2, ax=axes()[0])
    residual = X - model.inverse_transform(model.embedding_)
    assert np.allclose(ax.get_lines()[0].get_ydata(), (residual**2).sum((0, 1)))
    assert ax.get_xlabel() == "leverage of mode 2"


def test_leverages_add_up_to_the_rank():
    F = factors(3, (20,))[0]
    assert np.isclose(leverages(F).sum(), 3) and np.isclose(leverages(np.hstack([F, F])).sum(), 3)


# shares and cores


def test_shares_are_those_of_the_metric():
    X = rng().random((30, 8))
    model = NMF(3, random_state=0).fit(X)
    assert np.allclose(heights(percentage_variation_plot(model, X, ax=axes()[0])), percentage_variation(model, X))
    assert np.isclose(heights(percentage_variation_plot(model, ax=axes()[0])).sum(), 100)
    both = percentage_variation_plot(model, X, method="both", ax=axes()[0])
    assert len(both.patches) == 6 and labels(both.get_legend().get_texts()) == [
        "share of the data",
        "share of the model",
    ]


def test_shares_of_slices_are_those_of_what_they_add_up_to():
    slices = [rng(i).random((5 + i, 6)) for i in range(4)]
    model = PARAFAC2(2, max_iter=10, tol=0, random_state=0).fit(slices)
    parts = [
        sum(
            np.sum((np.outer(B[:, j] * a[j], model.components_[j])) ** 2)
            for a, B in zip(model.embedding_, model.evolving_, strict=True)
        )
        for j in range(2)
    ]
    assert np.allclose(
        heights(percentage_variation_plot(model, slices, ax=axes()[0])),
        100 * np.array(parts) / sum((A**2).sum() for A in slices),
    )


@pytest.mark.parametrize("k", [2, 12])
def test_a_core_has_its_superdiagonal_first_and_the_others_by_size(k):
    truth = factors(k, (20, 14, 13))
    X = np.einsum("ik,jk,lk->ijl", *truth)
    ax = core_element_plot(truth, X, ax=axes()[0])
    diagonal, others = ax.get_lines()[:2]
    assert np.allclose(diagonal.get_ydata(), 1) and np.allclose(others.get_ydata(), 0, atol=1e-8)
    assert ax.get_title() == "core consistency 100.0 %"
    sparse = core_element_plot(truth, sp.coo_array(X), ax=axes()[0])
    assert np.allclose(sparse.get_lines()[0].get_ydata(), 1)
    noisy = X + rng(8).random(X.shape)
    ax = core_element_plot(truth, noisy, ax=axes()[0])
    assert ax.get_title() == f"core consistency {core_consistency(truth, noisy):.1f} %"
    sizes = np.abs(ax.get_lines()[1].get_ydata())
    assert (np.diff(sizes) <= 0).all() and len(sizes) == k**3 - k


def test_a_tucker_core_is_its_own_by_size():
    model = NTD((3, 2, 2), max_iter=20, tol=0, random_state=0).fit(rng().random((12, 4, 5)))
    ax = core_element_plot(model, ax=axes()[0])
    assert np.allclose(ax.get_lines()[0].get_ydata(), np.sort(model.core_.ravel())[::-1])
    largest = np.unravel_index(model.core_.argmax(), model.core_.shape)
    assert ax.texts[0].get_text() == f"({', '.join(map(str, largest))})"


def test_without_matplotlib_the_message_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("nnfactor.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'nnfactor\[plot\]'"):
        import nnfactor.plots  # noqa: F401


def test_numbers_of_an_axis_are_an_order_and_other_words_are_names():
    rows = lambda form, n=30: Mode("features", np.ones((n, 2)), tuple(form.format(i) for i in range(n)))
    for form in ("{}", "band{}", "{} nm", "{}.5", "t_{}", "{}Hz", "Channel {}", "{} cm-1"):
        assert choose_kind(rows(form), True) == "lines" and rows(form).ticks[1] - rows(form).ticks[0] == 1
    for form in ("ENSG0000{}", "gene{}", "pixel0_{}", "cell_{}", "V{}", "{}p13 of chromosome"):
        assert choose_kind(rows(form), True) == "bars"
