"""Choosing the number of components where some are known: they stay, and the rank counts all of them."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nnfactor import NMF, NTF, select_rank
from nnfactor.cli import main

BANDS = np.linspace(0, 1, 40)
SPECTRA = np.stack([np.exp(-(((BANDS - c) / 0.1) ** 2)) for c in (0.2, 0.5, 0.8, 0.35)], axis=1)
RNG = np.random.default_rng(0)
CLEAN = RNG.dirichlet(np.ones(4), 60) @ SPECTRA.T
X = CLEAN * RNG.gamma(400, 1 / 400, CLEAN.shape)
COUNTS = RNG.poisson(40 * CLEAN).astype(np.float64)
KNOWN = SPECTRA[:, :2]
KW = {"n_init": 2, "random_state": 0}


@pytest.mark.parametrize(
    "known",
    [
        KNOWN,
        np.where(np.arange(3) < 2, SPECTRA[:, :3], np.nan),
        np.pad(KNOWN, ((0, 0), (0, 5)), constant_values=np.nan),
        torch.from_numpy(KNOWN),
    ],
    ids=["as many columns", "one free", "five free", "torch"],
)
def test_known_components_stay_at_every_rank(known):
    found = select_rank(NMF(known.shape[1], fixed={"U1": known}), X, range(2, 6), **KW)
    assert found.rank == 4 and found.criterion == "speckled"
    for k, model in found.models.items():
        assert model.components_.shape == (k, 40)
        np.testing.assert_array_equal(model.factors_[0][:, :2], KNOWN)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, lambda A: torch.from_numpy(A)])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_counts_with_known_components_have_their_rank(kind, loss):
    assert select_rank(NMF(2, loss=loss, fixed={"U1": KNOWN}), kind(COUNTS), range(2, 6), **KW).rank == 4


def test_tensors_take_known_components():
    rng = np.random.default_rng(1)
    factors = [(rng.random((d, 3)) < 0.4) * rng.uniform(0.5, 1.5, (d, 3)) for d in (30, 20, 15)]
    cube = np.einsum("ia,ja,ka->ijk", *factors) * rng.gamma(8, 1 / 8, (30, 20, 15))
    found = select_rank(NTF(1, fixed={"U2": factors[2][:, :1]}), cube, range(1, 5), **KW)
    assert found.rank == 3
    np.testing.assert_array_equal(found.model.factors_[1][:, :1], factors[2][:, :1])


def test_stability_takes_known_components():
    found = select_rank(NMF(2, fixed={"U1": KNOWN}), X, range(2, 6), "stability", n_init=5, random_state=0)
    assert found.rank == 4


def test_known_samples_are_scaled_with_their_rows():
    """Rows of the data are weighed for a choice of a rank, and what is known of them must be, too."""
    V = np.random.default_rng(2).dirichlet(np.ones(4), 60) * np.geomspace(1, 100, 60)[:, None]
    data = V @ SPECTRA.T * np.random.default_rng(3).gamma(400, 1 / 400, (60, 40))
    found = select_rank(NMF(2, fixed={"V": V[:, :2]}), data, range(2, 6), **KW)
    assert found.rank == 4
    np.testing.assert_array_equal(found.model.embedding_[:, :2], V[:, :2])


def test_ranks_below_the_known_components_are_refused():
    with pytest.raises(ValueError, match="ranks begin with 1, but fixed= holds 2 components"):
        select_rank(NMF(2, fixed={"U1": KNOWN}), X, range(1, 4))
    with pytest.raises(ValueError, match=r"fixed\['U1'\] holds 2 components, more than n_components=1"):
        NMF(1, fixed={"U1": KNOWN}).fit(X)


def test_the_command_line_takes_known_components(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    np.save("known.npy", KNOWN)
    words = ["--fixed", "{'U1': '@known.npy'}", "--seed", "0", "--n-init", "2", "--no-plots", "-q"]
    assert main(["select-rank", "-k", "2:5", "X.npy", *words]) == 0
    table = (tmp_path / "X_NMF" / "all_solutions_stat.tsv").read_text().splitlines()
    assert [line.split("\t")[-1] for line in table[1:]] == ["False", "False", "True", "False"]
    assert main(["select-rank", "-k", "1:5", "X.npy", *words]) == 2
    assert "holds 2 components" in capsys.readouterr().err
