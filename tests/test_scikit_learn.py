"""scikit-learn's own checks, over every estimator that takes one array."""

import pytest
from estimators import MATRIX
from expected_failures import expected_failures
from sklearn.utils.estimator_checks import parametrize_with_checks

from nnfactor import SRC, SRLSC, HarmonicFunction, LapRLSC, LocalGlobalConsistency

INSTANCES = [
    *(make(max_iter=60) for make in MATRIX.values()),
    SRLSC(),
    LapRLSC(),
    SRC(),
    HarmonicFunction(),
    LocalGlobalConsistency(),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(INSTANCES, expected_failed_checks=expected_failures, xfail_strict=True)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
