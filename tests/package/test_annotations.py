"""Every attribute that a docstring promises is known to type checkers."""

import inspect
import re

import pytest

import nnfactor

CLASSES = [name for name in nnfactor.MODELS if inspect.isclass(getattr(nnfactor, name))]


def promised(cls):
    """Names that end in `_` in the section on attributes, of the class and of those that it is made of."""
    for base in cls.__mro__:
        section = re.search(r"^Attributes\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", inspect.getdoc(base) or "", re.M | re.S)
        for line in section[1].splitlines() if section else ():
            head = re.match(r"([a-z]\w*(?:, [a-z]\w*)*) : ", line)
            yield from (name for name in (head[1].split(", ") if head else ()) if name.endswith("_"))


@pytest.mark.parametrize("name", CLASSES)
def test_promised_attributes_are_annotated(name):
    cls = getattr(nnfactor, name)
    own = [base for base in cls.__mro__ if base.__module__.startswith("nnfactor.")]
    known = {hint for base in own for hint in inspect.get_annotations(base)}
    known |= {found for base in own for found in re.findall(r"self\.(\w+_) = ", inspect.getsource(base))}
    known |= {"n_features_in_", "feature_names_in_"}  # of scikit-learn
    assert {found for found in promised(cls) if found not in known and not hasattr(cls, found)} == set()
