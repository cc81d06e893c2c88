"""scikit-learn's own checks, over every estimator that takes one array."""

from inspect import signature

import pytest
from estimators import MATRIX
from expected_failures import expected_failures
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from nnfactor import (
    DPCA,
    MFA,
    SMFA,
    SRC,
    SRLSC,
    CoTraining,
    HarmonicFunction,
    LabelledOnly,
    LapRLSC,
    LocalGlobalConsistency,
    PairwiseCoRegularizedSpectral,
)

INSTANCES = [
    *(make(max_iter=60) for make in MATRIX.values()),
    SRLSC(),
    LapRLSC(),
    SRC(),
    HarmonicFunction(),
    LocalGlobalConsistency(),
    CoTraining(),
    LabelledOnly(KNeighborsClassifier(1)),
    PairwiseCoRegularizedSpectral(2),
    DPCA(),
    MFA(2),
    SMFA(2),
]

STRICT = {"xfail_strict": True} if "xfail_strict" in signature(parametrize_with_checks).parameters else {}  # 1.7


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:SRC. no label reaches")
@parametrize_with_checks(INSTANCES, expected_failed_checks=expected_failures, **STRICT)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
