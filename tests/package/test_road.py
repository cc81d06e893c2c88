"""How far data walk: moves between files of the package from `fit` to its first sweep."""

import sys
from pathlib import Path

import numpy as np
import pytest

import nnfactor
from nnfactor import NGE, NMF

PACKAGE = str(Path(nnfactor.__file__).parent)
X, Y = np.random.default_rng(0).random((100, 50)), np.arange(100) % 3


class Arrived(Exception):
    """The loop is about to begin."""


def visited(fit):
    """The files of the package in the order of their calls until the loop begins, neighbours that are equal once."""
    files = []

    def watch(frame, event, argument):
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(PACKAGE):
            return
        if frame.f_code.co_name == "run" and file.endswith("run.py"):
            raise Arrived
        if not files or files[-1] != file:
            files.append(file)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        with pytest.raises(Arrived):
            fit()
    finally:
        sys.setprofile(before)
    return files


@pytest.mark.parametrize(
    "fit, most",
    [(lambda: NMF(5, random_state=0).fit(X), 50), (lambda: NGE(5, random_state=0).fit(X, Y), 75)],
    ids=["NMF", "NGE"],
)
def test_the_road_is_short(fit, most):
    moves = len(visited(fit)) - 1
    assert moves <= most
