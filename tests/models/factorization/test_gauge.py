"""What NMF and NTF publish: bases of unit length, lengths in the sample factor, components by falling energy."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from estimators import blocks, product
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from nnfactor import NMF, NTF, batch_fit
from nnfactor.core.factors import sort_components
from nnfactor.core.solve.history.result import find_best
from nnfactor.core.terms.penalties import L1

X = blocks(20, 9, seed=4)
CUBE = blocks(20, 24, seed=5).reshape(20, 4, 6)
NORMS = {"l2": lambda F: np.linalg.norm(F, axis=-2), "l1": lambda F: F.sum(-2)}

FITS = {
    "momentum": lambda **kw: NMF(3, **kw).fit(X),
    "multiplicative": lambda **kw: NMF(3, solver="mu", **kw).fit(X),
    "projected": lambda **kw: NMF(3, solver="projected", **kw).fit(X),
    "Kullback-Leibler": lambda **kw: NMF(3, loss="kullback-leibler", **kw).fit(X),
    "beta": lambda **kw: NMF(3, loss=1.5, **kw).fit(X),
    "sparse": lambda **kw: NMF(3, **kw).fit(sp.csr_array(X * (np.median(X) < X))),
    "tensor": lambda **kw: NTF(3, **kw).fit(CUBE),
    "tensor, Kullback-Leibler": lambda **kw: NTF(3, loss=1, **kw).fit(CUBE),
    "mini-batches": lambda **kw: NMF(3, batch_size=7, **kw).fit(X),
    "in a batch": lambda **kw: batch_fit([NMF(5, **kw), NMF(3, **kw)], X)[1],
}


def settings(**more):
    return {"random_state": 0, "max_iter": 20, "tol": 0, **more}


@pytest.mark.parametrize("key", FITS)
@pytest.mark.parametrize("normalize", ["l2", "l1"])
def test_bases_have_norm_one_and_energies_fall(key, normalize):
    model, plain = (FITS[key](**settings(normalize=how)) for how in (normalize, None))
    for F in model.factors_:
        np.testing.assert_allclose(NORMS[normalize](F), 1, rtol=1e-12)
    lengths = [np.linalg.norm(F, axis=0) for F in (model.embedding_, *model.factors_)]
    energies = np.prod(lengths, axis=0)
    assert (np.diff(energies) <= 1e-12 * energies.max()).all()
    np.testing.assert_allclose(product(model), product(plain), rtol=1e-9, atol=1e-12)
    assert model.loss_ == pytest.approx(plain.loss_, rel=1e-9)
    assert len(model.factors_) > 1 or np.array_equal(model.components_, model.factors_[0].T)


def test_restarts_are_published_alike():
    model = NMF(3, **settings(n_init=4, keep_embeddings=True)).fit(X)
    shown = model.restarts_
    np.testing.assert_allclose(np.linalg.norm(shown["factors"][0], axis=-2), 1, rtol=1e-12)
    best = find_best(shown["loss"], torch.float64)
    np.testing.assert_allclose(shown["embeddings"][best], model.embedding_)
    np.testing.assert_allclose(shown["factors"][0][best], model.factors_[0])


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_a_warm_start_goes_on_at_the_same_objective(loss):
    model = NMF(3, loss=loss, **settings()).fit(X)
    on = NMF(3, loss=loss, init=(model.embedding_, *model.factors_), max_iter=1, tol=0).fit(X)
    assert on.history_["objective"][0] == pytest.approx(model.loss_, rel=1e-9)


def test_transform_speaks_of_the_published_bases():
    for normalize in ("l2", "l1", None):
        model = NMF(3, random_state=0, max_iter=3000, tol=1e-12, normalize=normalize).fit(X)
        np.testing.assert_allclose(model.transform(X), model.embedding_, atol=1e-3 * model.embedding_.max())


def test_dead_components_come_last_and_stay_zero():
    start = np.abs(np.random.default_rng(0).normal(size=(9, 3)))
    start[:, 0] = 0
    model = NMF(3, solver="mu", init=(np.ones((20, 3)), start), max_iter=5, tol=0).fit(X)
    assert (model.factors_[0][:, 2] == 0).all() and (model.factors_[0][:, :2].sum(0) > 0).all()


def test_equal_components_keep_their_order():
    ones = torch.ones(2, 4, 3)
    for F, sorted_one in zip((ones, ones), sort_components([ones, ones]), strict=True):
        assert torch.equal(F, sorted_one)


@dataclass(kw_only=True, eq=False, repr=False)
class Sparser(NMF):
    """NMF whose bases pay for their sums: lengths mean something."""

    def _model(self, inputs, learnt):
        model = super()._model(inputs, learnt)
        return replace(model, terms=[*model.terms, L1("V", 0.5)])


def test_lengths_that_a_term_penalises_are_left_alone():
    model = Sparser(3, solver="mu", **settings(max_iter=200)).fit(X)
    V, U = model.embedding_, model.factors_[0]
    assert np.linalg.norm(U, axis=0).min() > 1.5  # the penalty made V small
    assert model.loss_ == pytest.approx(((X - V @ U.T) ** 2).sum() + 0.5 * V.sum(), rel=1e-9)


def test_what_is_not_a_gauge_is_refused():
    with pytest.raises(ValueError, match="normalize"):
        NMF(3, normalize="max").fit(X)


def test_distances_between_coefficients_make_sense():
    """Nearest neighbours behind the default: with arbitrary lengths they are right in four of five cases only."""
    digits, y = load_digits(return_X_y=True)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    score = lambda **kw: cross_val_score(
        make_pipeline(NMF(20, random_state=0, **kw), KNeighborsClassifier(1)), digits, y, cv=folds
    ).mean()
    assert score() > 0.95 > 0.9 > score(normalize=None)


def test_a_component_with_a_zero_basis_has_no_coefficients():
    """As `transform` has none: what a fit left in such a column means nothing."""
    V, U = np.ones((6, 2)), np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    model = NMF(2, init=(1e6 * V, U), solver="mu", max_iter=3, tol=0).fit(V @ U.T)
    assert not model.factors_[0][:, 1].any() and not model.embedding_[:, 1].any() and model.embedding_[:, 0].all()
