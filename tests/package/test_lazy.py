"""`import nnfactor` is quick: what a program does not use is not imported."""

import subprocess
import sys

import pytest

import nnfactor
from nnfactor import models


def test_every_public_name_is_there_and_only_those():
    assert set(nnfactor.MODELS) == set(models.__all__)
    assert set(nnfactor.__all__) == {*nnfactor.PLACES, "__version__"} and len(nnfactor.__all__) == len(
        set(nnfactor.__all__)
    )
    assert all(getattr(nnfactor, name) is not None and name in dir(nnfactor) for name in nnfactor.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'NMFF'"):
        _ = nnfactor.NMFF


def test_the_import_alone_does_not_import_torch():
    code = (
        "import sys, nnfactor; assert nnfactor.__version__; assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
