"""scikit-learn checks that an estimator must fail, each with its reason. A check that passes after all is an error."""

MARKER = {"check_classifiers_classes": "uses -1 as a class, which marks unlabelled samples here"}

SEMI_SUPERVISED = (
    "CoTraining",
    "HarmonicFunction",
    "LabelledOnly",
    "LapRLSC",
    "LocalGlobalConsistency",
    "N2S2L",
    "NGE",
    "SRC",
    "SRLSC",
    "SULF",
)

EXPECTED: dict[str, dict[str, str]] = dict.fromkeys(SEMI_SUPERVISED, MARKER) | {
    "PairwiseCoRegularizedSpectral": {
        "check_non_transformer_estimators_n_iter": "asks for a round, and one view has none to agree with: n_iter_ is 0"
    },
}


def expected_failures(estimator):
    """What `parametrize_with_checks` asks for."""
    return EXPECTED.get(type(estimator).__name__, {})
