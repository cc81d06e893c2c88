"""scikit-learn checks that an estimator must fail, each with its reason. A check that passes after all is an error."""

EXPECTED: dict[str, dict[str, str]] = {}


def expected_failures(estimator):
    """What `parametrize_with_checks` asks for."""
    return EXPECTED.get(type(estimator).__name__, {})
