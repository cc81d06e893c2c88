"""Missing entries and weights of data in blocks: the numbers of arrays in memory, and never more than a block at once."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nnfactor import NMF, NTF, Chunked
from nnfactor.core.data import hidden as rules_of_hiding
from nnfactor.core.data.chunked.hidden import WeightedBlocks
from nnfactor.core.data.weighted import WeightedDense

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

rng = np.random.default_rng(0)
FULL = rng.random((60, 4)) @ rng.random((4, 12)) + 0.1
WITH_NAN = np.where(rng.random(FULL.shape) < 0.2, np.nan, FULL)
WEIGHTS = rng.integers(0, 4, FULL.shape).astype(float)
SPARSE = sp.csr_array(np.where(rng.random(FULL.shape) < 0.8, FULL, 0))
HOLES = SPARSE.copy()
HOLES.data[::7] = np.nan
LOSSES = ("frobenius", "kullback-leibler", "itakura-saito")

CASES = {
    "nan": (WITH_NAN, None, "nan"),
    "weights": (FULL, WEIGHTS, None),
    "nan and weights": (WITH_NAN, WEIGHTS, "nan"),
    "sparse with nan": (HOLES, None, "nan"),
    "unstored": (SPARSE, None, "unstored"),
    "sparse weights": (FULL, sp.csr_array(WEIGHTS), None),
    "sparse with weights": (SPARSE, WEIGHTS, None),
}


def blocks(X, n_rows=13):
    return None if X is None else Chunked(X, n_rows=n_rows)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_arrays(case, loss):
    X, weights, missing = CASES[case]
    if loss == "itakura-saito" and case in ("sparse with nan", "sparse with weights"):
        return  # a zero costs infinity
    make = lambda: NMF(3, loss=loss, missing=missing, random_state=0, max_iter=20, tol=0)
    mine, its = make().fit(blocks(X), weights=blocks(weights)), make().fit(X, weights=weights)
    for name in ("embedding_", "components_"):
        np.testing.assert_allclose(getattr(mine, name), getattr(its, name), rtol=1e-8, atol=1e-10)
    assert mine.loss_ == pytest.approx(its.loss_, rel=1e-10)
    assert mine.reconstruction_err_ == pytest.approx(its.reconstruction_err_, rel=1e-10)
    found = mine.transform(blocks(X), weights=blocks(weights))
    np.testing.assert_allclose(found, its.transform(X, weights=weights), rtol=1e-6, atol=1e-8)


def test_tensors_mini_batches_starts_and_other_precisions():
    T = WITH_NAN.reshape(60, 3, 4)
    told = {"missing": "nan", "random_state": 0, "max_iter": 10, "tol": 0}
    for make in (
        lambda: NTF(2, **told),
        lambda: NMF(3, init="nndsvda", **told),
        lambda: NMF(3, batch_size=20, **told),
        lambda: NMF(3, n_init=3, **told),
        lambda: NMF(3, dtype="float32", **told),
    ):
        X = T if isinstance(make(), NTF) else WITH_NAN
        mine, its = make().fit(Chunked(X, n_rows=13)), make().fit(X)
        tol = 1e-3 if its.embedding_.dtype == np.float32 else 1e-7
        np.testing.assert_allclose(mine.embedding_, its.embedding_, rtol=tol, atol=tol)


def test_restarts_of_data_that_are_mostly_hidden():
    X = np.where((np.add.outer(np.arange(60), np.arange(12)) % 4) == 0, FULL, np.nan)
    make = lambda: NMF(3, missing="nan", n_init=3, random_state=0, max_iter=10, tol=0)
    mine, its = make().fit(blocks(X)), make().fit(X)
    np.testing.assert_allclose(mine.embedding_, its.embedding_, rtol=1e-7, atol=1e-10)


@pytest.mark.filterwarnings("ignore:NMF. .* samples without any observed entry")
def test_a_block_of_which_nothing_counts_holds_no_zero():
    X, W = WITH_NAN.copy(), WEIGHTS + 1
    X[13:26], W[13:26] = np.nan, 0
    make = lambda missing: NMF(3, loss="itakura-saito", missing=missing, random_state=0, max_iter=10, tol=0)
    for given, weights, missing in ((X, None, "nan"), (FULL, W, None)):
        mine = make(missing).fit(blocks(given), weights=blocks(weights))
        its = make(missing).fit(given, weights=weights)
        np.testing.assert_allclose(mine.embedding_, its.embedding_, rtol=1e-7, atol=1e-10)
        hidden, none = (np.full((3, 12), np.nan), None) if missing else (FULL[:3], 0 * W[:3])
        assert not its.transform(hidden, weights=none).any()
    data = blocks(X).hidden("nan", None, False)
    assert min(float(part.min()) for part in data.entries()) == data.smallest() == np.nanmin(X)


@pytest.mark.parametrize("case", ["sparse with nan", "unstored"])
def test_entries_of_any_size_are_counted(case):
    X, _, missing = CASES[case]
    large = (X * 1e25).astype(np.float32)
    make = lambda: NMF(3, missing=missing, random_state=0, max_iter=10, tol=0)
    mine, its = make().fit(blocks(large)), make().fit(large)
    np.testing.assert_allclose(mine.embedding_, its.embedding_, rtol=0, atol=1e-3 * its.embedding_.max())


def test_few_hidden_entries_take_the_steps_of_complete_data(monkeypatch):
    monkeypatch.setattr(rules_of_hiding, "SMALL", 100)
    X = FULL.copy()
    X[::9, 3] = np.nan
    make = lambda: NMF(3, missing="nan", random_state=0, max_iter=20, tol=0)
    mine, its = make().fit(blocks(X)), make().fit(X)
    np.testing.assert_allclose(mine.embedding_, its.embedding_, rtol=1e-8, atol=1e-10)


def test_data_without_a_hidden_entry_are_plain():
    data = Chunked(FULL, n_rows=13)
    assert data.hidden("nan", None, True) is data
    assert isinstance(data.hidden("nan", WEIGHTS, True), WeightedBlocks)


def test_what_hidden_entries_hold_has_no_influence_and_nothing_is_held_but_a_block(monkeypatch):
    X, W, rows, made = FULL.copy(), WEIGHTS.copy(), [], WeightedDense.__init__
    X[W == 0] = 1e300
    spy = lambda self, X, *args, **kw: (rows.append(len(X)), made(self, X, *args, **kw))[1]
    monkeypatch.setattr(WeightedDense, "__init__", spy)
    make = lambda: NMF(3, random_state=0, max_iter=10, tol=0)
    mine = make().fit(blocks(X), weights=blocks(W))
    assert max(rows) == 13
    np.testing.assert_allclose(mine.embedding_, make().fit(FULL, weights=W).embedding_, rtol=1e-8)


def test_grams_of_every_row_are_held_within_the_limit_only():
    X = np.where(rng.random(FULL.shape) < 0.3, FULL, np.nan)
    data = lambda most: Chunked(X, most, n_rows=13).hidden("nan", None, True)
    assert data(10**6).has_few(3) and not data(3 * 13 * 12 * 8).has_few(40)
    assert not data(4000).has_few(3)  # 60 x 3 x 3 numbers are more


def test_checkpoints_know_what_is_hidden(tmp_path):
    make = lambda: NMF(2, missing="nan", random_state=0, max_iter=5, tol=0)
    make().fit(blocks(WITH_NAN), checkpoint=tmp_path / "fit")
    make().fit(blocks(WITH_NAN, 20), checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="other"):
        make().fit(blocks(np.nan_to_num(WITH_NAN, nan=0.5)), checkpoint=tmp_path / "fit")


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"weights has shape \(60, 3\); it must be that of X, \(60, 12\)"):
        NMF(2).fit(blocks(FULL), weights=WEIGHTS[:, :3])
    with pytest.raises(ValueError, match="missing='unstored' is for sparse X"):
        NMF(2, missing="unstored").fit(blocks(FULL))
    with pytest.raises(ValueError, match="no entry that counts"):
        NMF(2).fit(blocks(FULL), weights=0 * WEIGHTS)
    with pytest.raises(ValueError, match=r"Input X contains NaN or infinity in rows 0 to 12"):
        NMF(2).fit(blocks(WITH_NAN), weights=WEIGHTS + 1)
    with pytest.raises(ValueError, match="weights"):
        NMF(2).fit(blocks(FULL), weights=-WEIGHTS)
    assert (
        NMF(2, missing="nan", random_state=0).fit(blocks(WITH_NAN)).transform(blocks(np.full((5, 12), np.nan))).tolist()
        == [[0, 0]] * 5
    )
    assert (
        torch.is_tensor(next(blocks(FULL).entries())) and pickle.loads(pickle.dumps(blocks(FULL))).shape == FULL.shape
    )
