"""Choosing the number of components: planted ranks, noise, what is refused, and every kind of data."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.metrics import silhouette_samples

from nnfactor import NMF, NTD, NTF, SULF, Coupled, GraphNMF, SemiNMF, select_rank
from nnfactor.penalties import L1
from nnfactor.selection.blocks import draw_blocks
from nnfactor.selection.held_out import GROWS, draw_speckles, noise_power, predict_block, predict_speckles
from nnfactor.selection.stability import match_restarts, silhouettes, summarize_groups


def planted(shape, k, seed, snr, counts):
    """Data whose expectation has rank k: of parts that overlap, with noise that is as strong as said."""
    rng = np.random.default_rng(seed)
    factors = [(rng.random((d, k)) < 0.3) * rng.uniform(0.5, 1.5, (d, k)) for d in shape]
    Y = np.einsum(*(x for mode, F in enumerate(factors) for x in (F, [mode, 9])), list(range(len(shape))))
    if not counts:
        return Y * rng.gamma(snr, 1 / snr, shape)
    return rng.poisson(Y * snr * Y.sum() / (Y**2).sum()).astype(float)


X = np.random.default_rng(0).random((40, 3)) ** 3 @ np.random.default_rng(1).random((3, 30)) ** 3
X = X * np.random.default_rng(2).gamma(100, 0.01, X.shape)


@pytest.mark.parametrize("k", [3, 5, 7])
def test_planted_ranks_of_matrices_are_found(k):
    assert select_rank(NMF(2), planted((120, 80), k, k, 8, counts=False), range(k - 1, k + 3), random_state=0).rank == k


@pytest.mark.parametrize("k", [3, 6])
def test_planted_ranks_of_counts_are_found(k):
    data = planted((80, 60), k, k, 2, counts=True)
    assert select_rank(NMF(2, loss="kl", max_iter=200), data, range(k - 1, k + 3), n_init=3, random_state=0).rank == k


@pytest.mark.parametrize("k", [3, 5])
def test_planted_ranks_of_tensors_are_found(k):
    data = planted((40, 30, 20), k, k, 8, counts=True)
    assert select_rank(NTF(2), data, range(k - 1, k + 3), random_state=0).rank == k


def test_how_noise_grows_is_seen():
    """Least squares judges the ranks of a tensor where its noise is even, or is all there is."""
    rng = np.random.default_rng(0)
    factors = [(rng.random((d, 4)) < 0.3) * rng.uniform(0.5, 1.5, (d, 4)) for d in (30, 25, 20)]
    Y = np.einsum("ar,br,cr->abc", *factors)
    level = Y.sum() / np.square(Y).sum()
    even = (Y + rng.normal(size=Y.shape) * np.sqrt(np.square(Y).mean())).clip(0)
    noises = {"counts": rng.poisson(level * Y), "shares": Y * rng.gamma(1, 1, Y.shape), "even": even}
    noises["alone"] = rng.poisson(1, Y.shape)
    fit = NTF(8, max_iter=200, random_state=0)
    found = {name: noise_power(A, np.ones(A.shape), fit.fit(A)) for name, A in noises.items()}
    assert {name for name, power in found.items() if power > GROWS} == {"counts", "shares"}
    assert found["even"] < 0.8
    hidden, weights = noises["shares"].copy(), np.ones(Y.shape)
    hidden[:5], hidden[5:9], weights[5:9] = np.nan, np.inf, 0
    assert noise_power(hidden, weights, fit.fit(noises["shares"])) == pytest.approx(found["shares"], rel=0.2)


@pytest.mark.parametrize("criterion", ["bicross", "speckled"])
@pytest.mark.parametrize("loss, draw", [("frobenius", "gamma"), ("kl", "poisson")])
def test_noise_has_no_clear_rank(criterion, loss, draw):
    noise = getattr(np.random.default_rng(0), draw)(1.0, size=(50, 30))
    found = select_rank(NMF(2, loss=loss, max_iter=100), noise, range(2, 5), criterion, random_state=0)
    assert found.rank is None and "no clear rank" in found.reason and list(found.models) == [2, 3, 4]
    with pytest.raises(ValueError, match="no clear rank"):
        found.model


def test_rank_one_is_found_where_it_is_asked_for():
    rng = np.random.default_rng(0)
    data = rng.poisson(np.outer(rng.uniform(1, 9, 40), rng.uniform(1, 9, 30))).astype(float)
    assert select_rank(NMF(2), data, range(1, 5), random_state=0).rank == 1
    found = select_rank(NMF(2), data, range(2, 5), random_state=0)
    assert found.rank is None and "better than one component" in found.reason


@pytest.mark.parametrize("criterion", ["bicross", "speckled"])
def test_blocks_and_speckles_agree_on_clean_data(criterion):
    data = X
    found = select_rank(NMF(2, max_iter=300), data, [1, 2, 3, 4], criterion, random_state=0)
    assert found.rank == 3 and found.model is found.models[3]
    assert repr(found) == f"RankSelection(rank=3, criterion='{criterion}', ranks=1..4)"


def test_stability_is_of_parts_of_the_samples():
    """Restarts of the same data agree at every rank here; parts of the samples only as far as there are components."""
    data = planted((60, 40), 3, 0, 3, counts=True)
    found = select_rank(NMF(2, max_iter=300), data, range(2, 7), "stability", n_init=8, random_state=0)
    assert found.rank == 3 and "mean silhouette" in found.reason
    assert (found.table["stability_mean"] <= found.table["restarts_mean"] + 0.02).all()
    again = select_rank(NMF(2, max_iter=300), data, range(2, 7), "stability", n_init=8, random_state=0)
    pd.testing.assert_frame_equal(found.table, again.table)


def test_models_with_something_for_each_sample_are_restarted_on_all_data():
    graph = np.eye(40, k=1) + np.eye(40, k=-1)
    found = select_rank(GraphNMF(2, graph=graph, max_iter=50), X, [2, 3], "stability", n_init=4, random_state=0)
    assert "restarts of all data" in found.reason and "stability_mean" not in found.table


def test_constant_and_zero_components_have_no_nan():
    rng = np.random.default_rng(0)
    matched = rng.random((5, 12, 3))
    matched[:, :, 0], matched[:, :, 1] = 1.0, 0.0
    assert np.isfinite(silhouettes(match_restarts([matched], np.arange(5.0)))).all()


def test_restarts_that_failed_are_left_out_of_stability():
    rng = np.random.default_rng(0)
    factors = rng.random((5, 12, 3))
    wanted = summarize_groups([factors[:4]], np.arange(4.0))
    factors[4] = np.nan
    assert summarize_groups([factors], np.array([0.0, 1, 2, 3, np.nan])) == wanted
    assert np.isnan(summarize_groups([factors[3:]], np.array([0.0, np.nan]))).all()


FEW = (np.random.default_rng(0).random((40, 3)) + 0.1) @ np.array(
    [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1.0]]
)  # columns


@pytest.mark.parametrize(
    "data, ranks, told",
    [
        (X, [2, 3], "largest that was tried: try more"),
        (FEW, [2, 3], "largest that bicross can judge here: for more use criterion='stability'"),
        (X, [2, 3, 4], "each of which holds out a block of rows and columns"),
    ],
)
def test_a_rank_at_the_end_says_what_to_try(data, ranks, told):
    found = select_rank(NMF(2), data, ranks, random_state=0)
    assert found.rank == 3 and found.reason.endswith(told)


def test_stability_is_undefined_for_one_component():
    found = select_rank(NMF(2), X, [1], "stability", random_state=0)
    assert found.rank is None and "undefined for one component" in found.reason
    assert np.isnan(found.table["stability_mean"][0])


def test_silhouettes_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    base = rng.random((12, 4))
    matched = [base + 0.3 * rng.random((5, 12, 4))]
    units = matched[0] / np.linalg.norm(matched[0], axis=1, keepdims=True)
    points, labels = np.moveaxis(units, 1, 2).reshape(20, 12), np.tile(np.arange(4), 5)
    far = np.clip(1 - points @ points.T, 0, None)
    np.fill_diagonal(far, 0)
    wanted = silhouette_samples(far, labels, metric="precomputed").reshape(5, 4).mean(0)
    np.testing.assert_allclose(silhouettes([units]), wanted, rtol=1e-10)


def test_restarts_are_matched_whatever_their_order():
    rng = np.random.default_rng(0)
    U = rng.random((10, 4)) ** 4
    orders = [rng.permutation(4) for _ in range(6)]
    factors = np.stack([U[:, order] * rng.random(4) for order in orders])
    (matched,) = match_restarts([factors], np.arange(6.0))
    np.testing.assert_allclose(matched, np.broadcast_to(matched[0], matched.shape), atol=1e-12)
    np.testing.assert_allclose(silhouettes([matched]), 1, atol=1e-6)


def test_core_consistency_finds_the_rank_of_a_trilinear_model():
    rng = np.random.default_rng(1)
    data = np.einsum("ir,jr,kr->ijk", *(rng.random((d, 3)) for d in (12, 10, 8))) + 0.01 * rng.random((12, 10, 8))
    found = select_rank(NTF(2, max_iter=500), data, range(1, 6), "core_consistency", random_state=0)
    assert found.rank == 3 and found.table["core_consistency"][2] > 90


def test_the_same_seed_makes_the_same_choice_and_leaves_the_estimator_alone():
    estimator = NMF(2, random_state=7)
    before = dict(vars(estimator))
    first, second = (select_rank(estimator, X, [2, 3, 4]) for _ in range(2))
    assert np.array_equal(first.losses, second.losses) and first.rank == second.rank == 3
    assert vars(estimator) == before


def test_the_table_has_a_row_for_each_rank():
    table = select_rank(NMF(2), X, [4, 2, 3, 3], random_state=0).table
    assert isinstance(table, pd.DataFrame) and list(table["rank"]) == [2, 3, 4]
    columns = ["rank", "loss", "error", "held_out", "held_out_se", "restarts_mean", "restarts_min"]
    assert list(table) == columns and np.isfinite(table.to_numpy()).all()


@pytest.mark.parametrize(
    "kind", [sp.csr_array, sp.coo_matrix, pd.DataFrame, torch.from_numpy, lambda A: torch.from_numpy(A).to_sparse()]
)
def test_every_kind_of_data_gives_the_same_choice(kind):
    data = np.round(30 * X)
    wanted = select_rank(NMF(2, loss="kl", max_iter=100), data, [2, 3, 4], random_state=0)
    found = select_rank(NMF(2, loss="kl", max_iter=100), kind(data), [2, 3, 4], random_state=0)
    assert found.rank == wanted.rank == 3
    np.testing.assert_allclose(found.losses, wanted.losses, rtol=0.05)


@pytest.mark.filterwarnings("ignore:.*without any observed entry")
@pytest.mark.parametrize("missing", ["nan", "unstored"])
def test_entries_of_sparse_data_are_hidden(missing):
    data = sp.csr_array(np.where(np.median(X) < X, X, 0) if missing == "unstored" else np.round(30 * X))
    found = select_rank(NMF(2, missing=missing, max_iter=100), data, [2, 3], "speckled", n_init=1, random_state=0)
    assert np.isfinite(found.losses).all()
    if missing == "nan":
        wanted = select_rank(NMF(2, max_iter=100), data.toarray(), [2, 3], "speckled", n_init=1, random_state=0)
        np.testing.assert_allclose(found.losses, wanted.losses, rtol=0.05)


def test_sparse_tensors_and_flattened_samples_are_folded():
    data = planted((30, 20, 15), 2, 0, 8, counts=True)
    wanted = select_rank(NTF(2), data, [1, 2, 3], random_state=0)
    for est, other in [
        (NTF(2), torch.from_numpy(data).to_sparse()),
        (NTF(2, sample_shape=(20, 15)), data.reshape(30, -1)),
    ]:
        found = select_rank(est, other, [1, 2, 3], random_state=0)
        assert found.rank == wanted.rank == 2


@pytest.mark.parametrize("criterion", ["bicross", "speckled"])
def test_hidden_entries_have_no_influence(criterion):
    rng = np.random.default_rng(3)
    hidden = rng.random(X.shape) < 0.1
    found = []
    for value in (np.nan, 1e5):
        data = np.where(hidden, value, X)
        weights = None if np.isnan(value) else (~hidden).astype(float)
        estimator = NMF(2, missing="nan" if weights is None else None)
        found.append(select_rank(estimator, data, [2, 3, 4], criterion, random_state=0, weights=weights))
    assert found[0].rank == found[1].rank == 3
    np.testing.assert_allclose(found[0].losses, found[1].losses, rtol=1e-6)


def by_hand(data, estimators):
    """One fold by hand: fit, two nonnegative least-squares problems, and the residual of the block."""
    random = np.random.RandomState(0)
    rows, columns = (np.array_split(random.permutation(d), 5)[0] for d in data.shape)
    keep, stay = (np.setdiff1d(np.arange(d), at) for d, at in zip(data.shape, (rows, columns), strict=True))
    wanted = [np.square(data[np.ix_(rows, columns)] - data[np.ix_(keep, stay)].mean()).mean()]
    for e in estimators:
        own = clone(e).fit(data[np.ix_(keep, stay)])
        V = np.array([nnls(own.factors_[0], x)[0] for x in data[np.ix_(rows, stay)]])
        U = np.array([nnls(own.embedding_, x)[0] for x in data[np.ix_(keep, columns)].T])
        wanted.append(np.square(data[np.ix_(rows, columns)] - V @ U.T).mean())
    return wanted, keep, stay


def first_fold(draw, predict, estimators, data):
    return predict(estimators, data, None, draw(estimators, data, None, np.random.RandomState(0))[0])


def test_losses_of_blocks_are_those_of_a_reference():
    estimators = [NMF(k, random_state=0, bounds={"V": (0, None)}) for k in (1, 2)]
    losses = first_fold(draw_blocks, predict_block, estimators, X)
    np.testing.assert_allclose(losses, by_hand(X, estimators)[0], rtol=1e-6)


def test_squared_distances_are_weighted_by_the_means_of_what_a_fold_sees():
    estimators = [NMF(k, random_state=0) for k in (1, 2)]
    losses = first_fold(draw_blocks, predict_block, estimators, X)
    _, keep, stay = by_hand(X, [])
    r, c = X[:, stay].mean(1), X[keep].mean(0)
    scaled = X * np.sqrt(np.outer(r.mean() / r, c.mean() / c))
    np.testing.assert_allclose(losses, by_hand(scaled, estimators)[0], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*without any observed entry", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", [NMF(2), NMF(2, loss="kl", max_iter=50), NMF(2, bounds={"V": (0, None)})])
@pytest.mark.parametrize("draw, predict", [(draw_blocks, predict_block), (draw_speckles, predict_speckles)])
def test_held_out_entries_do_not_reach_their_prediction(estimator, draw, predict):
    """The loss is quadratic, or linear less entropy, in entries that neither starts nor fits have seen."""
    random, losses = np.random.RandomState(0), []
    if draw is draw_blocks:
        at = np.ix_(*(np.array_split(random.permutation(d), 5)[0] for d in X.shape))
    else:
        order = random.choice(X.size, size=300, replace=False)
        at = np.unravel_index(np.array_split(order, 5)[0], X.shape)
    estimators = [clone(estimator).set_params(n_components=k, random_state=0) for k in (1, 3)]
    for add in (0, 1, 2):
        data = X.copy()
        data[at] += add
        entropy = np.mean(data[at] * np.log(data[at]) - data[at]) if estimator.loss == "kl" else 0
        losses.append(np.array(first_fold(draw, predict, estimators, data)) - entropy)
    second = losses[0] - 2 * losses[1] + losses[2]
    wanted = 2.0 if isinstance(estimator.bounds, dict) else 0.0 if estimator.loss == "kl" else second[0]
    np.testing.assert_allclose(second, wanted, atol=1e-7)
    assert estimator.loss == "kl" or second[0] > 0.1


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda: select_rank(NMF(2), X, []), "ranks is empty"),
        (lambda: select_rank(NMF(2), X, 3), "ranks must be whole numbers such as range"),
        (lambda: select_rank(NMF(2), X, [0, 1]), "ranks must be"),
        (lambda: select_rank(NMF(2), X, [2, 25]), r"is too small for n_components=25: .*; use ranks up to 24"),
        (lambda: select_rank(NMF(2), X, [2], "best"), "criterion"),
        (lambda: select_rank(NMF(2), X, [2], "core_consistency"), "does not go with NMF"),
        (lambda: select_rank(SemiNMF(2), X, [2], "bicross"), "'stability'"),
        (lambda: select_rank(NMF(2), X, [2], "stability", n_init=1), "one run has no stability"),
        (lambda: select_rank(NMF(2, fixed={"U1": X.T[:, :2]}), X, [2], "bicross"), "fixed= of all of X"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, told):
    with pytest.raises(ValueError, match=told):
        call()


@pytest.mark.parametrize("estimator", [GraphNMF(2, max_iter=50), SemiNMF(2)])
def test_other_factorizations_are_judged_by_stability(estimator):
    found = select_rank(estimator, X, [2, 3], "stability", n_init=4, random_state=0)
    assert list(found.table["rank"]) == [2, 3]


def test_folds_respect_small_dimensions():
    data = planted((30, 20, 2), 2, 0, 8, counts=True).swapaxes(0, 2)  # two samples
    found = select_rank(NTF(1), data, [1, 2], random_state=0)
    assert np.isfinite(found.losses).all() and found.losses.shape[1] == 4


@pytest.mark.parametrize("options", [{"alpha_H": 1e-4}, {"penalties": {"V": [L1(0.01)]}}, {"bounds": {"V": (0, 9)}}])
def test_penalties_and_bounds_hold_in_folds(options):
    found = select_rank(NMF(2, max_iter=300, **options), X, [2, 3, 4], random_state=0)
    assert found.rank == 3


@pytest.mark.parametrize("criterion", ["bicross", "speckled"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_data_have_no_clear_rank(criterion, value):
    found = select_rank(NMF(2), np.full((20, 15), value), [1, 2], criterion, n_init=2, random_state=0)
    assert found.rank is None and "no clear rank" in found.reason


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**600])
@pytest.mark.parametrize("criterion", ["bicross", "speckled", "stability"])
def test_the_rank_does_not_depend_on_the_unit(criterion, scale):
    for as_kind in (np.asarray, sp.csr_array, torch.from_numpy):
        usual, extreme = (
            select_rank(NMF(2), as_kind(data), [2, 3, 4], criterion, n_init=2, random_state=0)
            for data in (X, scale * X)
        )
        assert extreme.rank == usual.rank
        of = "stability_mean" if criterion == "stability" else "held_out"
        np.testing.assert_allclose(extreme.table[of], usual.table[of], rtol=1e-2)


@pytest.mark.parametrize("estimator", [SULF(2), Coupled(2, modes=[("sample", "a"), ("sample", "b")])])
def test_models_of_several_matrices_are_judged_by_restarts(estimator):
    found = select_rank(estimator.set_params(init="random"), [X, X[:, :9]], [1, 2], "stability", n_init=4)
    assert len(found.table) == 2 and np.isfinite(found.table["restarts_mean"][1])


def test_what_does_not_go_with_several_views_or_ranks_is_refused_by_name():
    with pytest.raises(ValueError, match="'speckled' does not go with SULF"):
        select_rank(SULF(2), [X, X], [1, 2], "speckled")
    with pytest.raises(ValueError, match="NTD has no single n_components"):
        select_rank(NTD(2), X.reshape(40, 6, 5), [1, 2], "stability")


def test_tensors_are_held_out_entry_by_entry():
    """The default criterion of tensors; a hidden entry that a component has alone is not predicted by any number."""
    random = np.random.default_rng(0)
    factors = [random.random((d, 3)) * (random.random((d, 3)) < 0.5) for d in (12, 10, 8)]
    cube = random.poisson(5 * np.einsum("ar,br,cr->abc", *factors)).astype(float)
    found = select_rank(NTF(2, max_iter=200), cube, range(2, 6), random_state=0, n_init=2)
    assert found.criterion == "speckled" and found.rank == 3
    assert np.asarray(found.table["held_out"]).max() < 5  # without the slight weight 18
    assert select_rank(NMF(2, max_iter=50), cube[:, :, 0] + 1, [1, 2], random_state=0).criterion == "bicross"
    tensor = select_rank(NTF(2, max_iter=200), torch.from_numpy(cube), range(2, 6), random_state=0, n_init=2)
    np.testing.assert_allclose(tensor.losses, found.losses, rtol=1e-6)
    weights = random.random(cube.shape) + 0.5
    weighted = select_rank(NTF(2, max_iter=100), cube, [2, 3], random_state=0, weights=weights, n_init=1)
    assert np.isfinite(weighted.losses).all() and (weighted.losses != found.losses[:, :4]).any()
