"""Nonnegative least squares: exact, and the same for a row whatever the other rows are."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls as lawson_hanson

from nnfactor import NMF
from nnfactor.core.solve.nnls import nnls

RNG = np.random.default_rng(3)
H = RNG.random((3, 8))
DEPENDENT = {
    "more bases than features": (RNG.random((40, 6)), RNG.random((30, 6))),
    "constant": (RNG.random((40, 5)), np.ones((4, 5))),
    "rank one": (RNG.random((40, 8)), np.outer(RNG.random(6), RNG.random(8))),
    "repeated and summed": (RNG.random((40, 8)), np.vstack([H, 2 * H[:1], H[0] + H[1]])),
    "with a zero": (RNG.random((40, 8)), np.vstack([H, 0 * H[:1], H[:1]])),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", DEPENDENT)
def test_dependent_bases_give_every_row_an_answer_of_its_own(case, dtype):
    X, bases = (A.astype(dtype) for A in DEPENDENT[case])
    model = NMF.from_components(bases)
    V = model.transform(X)
    rows = np.vstack([model.transform(x[None]) for x in X])
    among = model.transform(np.vstack([1e3 * X[::-1], X]))[len(X) :]
    eps = 1e-4 if dtype == np.float32 else 1e-5  # rounding of X over the raise of the diagonal, in units of V
    for other in (rows, among):
        assert np.abs(V - other).max() <= eps * V.max()
    exact = [lawson_hanson(bases.T.astype(float), x.astype(float))[1] for x in X]
    assert (np.linalg.norm(X - V @ bases, axis=1) - exact).max() <= (1e-6 if dtype == np.float32 else 1e-8)
    if case == "constant":  # the shortest of the minimisers: equal bases share
        assert np.abs(V - V.mean(1, keepdims=True)).max() <= 1e-5


def test_independent_bases_are_exact_to_rounding():
    for k, m in ((3, 8), (20, 60), (8, 8)):
        bases, X = RNG.random((k, m)) + np.eye(k, m), RNG.random((30, m))
        V = nnls(torch.from_numpy(bases @ bases.T), torch.from_numpy(X @ bases.T)).numpy()
        np.testing.assert_allclose(V, [lawson_hanson(bases.T, x)[0] for x in X], atol=1e-12)


def test_what_is_not_finite_does_not_raise():
    G = torch.full((2, 2), torch.inf, dtype=torch.float64)
    assert nnls(G, torch.ones(3, 2, dtype=torch.float64)).shape == (3, 2)
