"""Generated data of known rank, and the loop around scikit-learn that does the same."""

import numpy as np
import pytest

from benchmarks.experiments.rank_selection.cases import KINDS, RANKS, Kind, make_case, make_noise
from benchmarks.experiments.rank_selection.experiment import loop_scikit_learn


@pytest.mark.parametrize("name", KINDS)
def test_cases_have_the_noise_that_they_say(name):
    for number in (0, 5, 13):
        X, k, _ = make_case(KINDS[name], number, 0)
        assert k in RANKS and X.shape in KINDS[name].shapes and (X >= 0).all()
    again = make_case(KINDS[name], 13, 0)[0]
    assert np.array_equal(X, again)


@pytest.mark.parametrize("noise", ["gamma", "poisson"])
def test_noise_keeps_the_expectation(noise):
    kind = Kind("frobenius", noise, ((300, 200),))
    low, k, _ = make_case(kind, 0, 0)
    factors = np.linalg.svd(low, compute_uv=False)
    assert k == 3 and factors[2] > 1.2 * factors[3]
    assert abs(make_noise(kind, 0, 0).mean() - 1) < 0.02


def test_the_loop_around_scikit_learn_finds_a_clear_rank():
    X, k, _ = make_case(Kind("frobenius", "gamma", ((80, 60),)), 3 + 10 * 0, 0)
    found, seconds = loop_scikit_learn(X, range(k - 1, k + 2), "frobenius", 0)
    assert found in range(k - 1, k + 2) and seconds > 0
