"""Choosing the number of components of models that use labels."""

import numpy as np
import pytest

from nnfactor import N2S2L, NGE, NMF, SULF, ConstrainedNMF, GraphNMF, select_rank
from nnfactor.cli import main
from nnfactor.selection.stability import draw_parts

RNG = np.random.default_rng(0)
CLASSES = np.arange(36) % 3
PARTS = (RNG.random((3, 12)) < 0.4) * RNG.uniform(0.5, 1.5, (3, 12)) + 0.05
X = (RNG.gamma(1, 1, (36, 3)) * 0.2 + 2 * np.eye(3)[CLASSES]) @ PARTS * RNG.gamma(200, 1 / 200, (36, 12))
SOME = np.where(np.arange(36) < 24, CLASSES, -1)
NAMES = [None if c < 0 else "abc"[c] for c in SOME]
KW = {"max_iter": 20, "tol": 0}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", [N2S2L, NGE, GraphNMF, ConstrainedNMF])
def test_labels_are_those_of_every_fit(model):
    found = select_rank(model(2, **KW), X, [2, 3], y=NAMES, n_init=2, random_state=0)
    assert found.criterion == ("stability" if model is ConstrainedNMF else "speckled")
    alone = model(3, n_init=2, random_state=found.models[3].random_state, **KW).fit(X, NAMES)
    np.testing.assert_allclose(found.models[3].components_, alone.components_, rtol=1e-6, atol=1e-9)
    if hasattr(alone, "classes_"):
        assert list(found.models[3].classes_) == ["a", "b", "c"]
    without = select_rank(GraphNMF(2, **KW), X, [2, 3], n_init=2, random_state=0)
    assert found.losses is None or (found.losses != without.losses).any()


def test_halves_keep_samples_of_every_class():
    codes = np.array([0, 1, *[-1] * 18])
    for at, _ in draw_parts(20, np.random.RandomState(0), 10, codes):
        assert set(codes[at]) == {-1, 0, 1} and len(at) == 11
    found = select_rank(N2S2L(2, **KW), X, [2, 3], "stability", y=SOME, n_init=2, random_state=0)
    assert np.isfinite(found.table["stability_mean"]).all()


def test_views_take_labels():
    found = select_rank(SULF(2, **KW), [X[:, :6], X[:, 6:]], [2, 3], y=SOME, n_init=2, random_state=0)
    assert set(found.model.transduction_ if found.rank else found.models[3].transduction_) <= {0, 1, 2}


@pytest.mark.parametrize("y", [CLASSES + 1, np.array(["a", "b", "c"])[CLASSES], SOME], ids=["numbers", "text", "some"])
def test_labels_in_place_of_ranks_are_told(y):
    with pytest.raises(ValueError, match=r"select_rank\(estimator, X, ranks, y=labels\)"):
        select_rank(NMF(2), X, y)


def test_more_components_than_a_matrix_determines_are_told(tmp_path, monkeypatch, capsys):
    with pytest.warns(UserWarning, match="n_components=7 is more than a matrix of 36 x 6 determines"):
        select_rank(NMF(2, max_iter=5), X[:, :6], [2, 7], "stability", n_init=2, random_state=0)
    select_rank(NMF(2, max_iter=5, init="random"), X[:, :6], [2, 7], "stability", n_init=2, random_state=0)
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X[:, :6])
    assert main(["fit", "X.npy", "-k", "2", "7", "--seed", "0", "--no-plots"]) == 0
    assert "nnfactor: warning: -k 7 is more than a matrix of 36 x 6 determines" in capsys.readouterr().err


def test_the_command_line_takes_labels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    np.savetxt("y.txt", SOME, fmt="%d")
    words = ["X.npy", "-k", "2:3", "--model", "N2S2L", "--seed", "0", "--n-init", "2", "--max-iter", "20"]
    assert main(["select-rank", *words, "--labels", "y.txt", "--no-plots", "-q"]) == 0
    kept = np.loadtxt("X_N2S2L/held_out.tsv", skiprows=1)
    found = select_rank(N2S2L(2, max_iter=20), X, [2, 3], y=SOME, n_init=2, random_state=0)
    np.testing.assert_allclose(kept, found.losses)
    assert (tmp_path / "X_N2S2L" / "all_solutions" / "k_02" / "predictions.tsv").exists()
    assert main(["select-rank", *words, "--name", "none", "-q"]) == 2
    assert "--labels" in capsys.readouterr().err
