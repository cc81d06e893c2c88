"""scikit-learn checks that an estimator must fail, each with its reason. A check that passes after all is an error."""

MARKER = {"check_classifiers_classes": "uses -1 as a class, which marks unlabelled samples here"}

EXPECTED: dict[str, dict[str, str]] = {"SULF": MARKER}


def expected_failures(estimator):
    """What `parametrize_with_checks` asks for."""
    return EXPECTED.get(type(estimator).__name__, {})
