"""Data on disk that a benchmark makes and reads."""

import numpy as np
import pytest

from benchmarks.experiments.larger_than_memory.work import read_once, write_data
from benchmarks.harness.errors import BenchmarkError
from nnfactor.io import read_data


def test_data_are_written_in_chunks_of_a_sixth_of_the_limit_and_read_once(tmp_path):
    pytest.importorskip("zarr")
    assert write_data(str(tmp_path), "big", 4, 100, 2, 0) > 0
    X = read_data(tmp_path / "big.zarr").values
    assert X.shape == (10_000, 100) and X.dtype == np.float32 and X.min() >= 0
    seconds, rate = read_once(str(tmp_path), 100, 2)
    assert rate == pytest.approx(4 / seconds, rel=0.01)
    with pytest.raises(BenchmarkError, match="has no room"):
        write_data(str(tmp_path), "other", 10**9, 100, 2, 0)
