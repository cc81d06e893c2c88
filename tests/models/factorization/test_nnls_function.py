"""`nnls` is scipy's, for all samples at once, in the caller's kind."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import nnls as lawson_hanson

from nnfactor import nnls


def problem(dtype=np.float64):
    rng = np.random.default_rng(0)
    return rng.random((30, 12)).astype(dtype), rng.random((4, 12)).astype(dtype)


def test_it_is_the_minimiser_of_every_row():
    X, H = problem()
    expected = np.stack([lawson_hanson(H.T, x)[0] for x in X])
    np.testing.assert_allclose(nnls(X, H), expected, atol=1e-10)
    np.testing.assert_allclose(nnls(sp.csr_array(X), sp.csr_array(H)), expected, atol=1e-10)
    answer = nnls(torch.from_numpy(X), torch.from_numpy(H))
    assert isinstance(answer, torch.Tensor)
    np.testing.assert_allclose(answer.numpy(), expected, atol=1e-10)


def test_float32_stays():
    assert nnls(*problem(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, H: (X, H[:, 1:]), "12 features"),
        (lambda X, H: (X, -H), "components"),
        (lambda X, H: (X, H[0]), "components"),
        (lambda X, H: (np.full_like(X, np.nan), H), "NaN"),
        (lambda X, H: (pd.DataFrame(X).add_prefix("a"), pd.DataFrame(H).add_prefix("b")), "feature names"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        nnls(*change(*problem()))
