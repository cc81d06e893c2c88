"""Ranks of data in blocks: the losses of arrays in memory."""

import numpy as np
import pytest
import scipy.sparse as sp

from nnfactor import NMF, NTF, Chunked, select_rank
from nnfactor.core.data.chunked.blocks import Blocks

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
rng = np.random.default_rng(0)
X = rng.random((60, 3)) ** 2 @ rng.random((3, 20)) ** 2 + 0.05 * rng.random((60, 20))


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_blocks_of_rows_and_columns_are_held_out(loss, storage, monkeypatch):
    choose = lambda data: select_rank(
        NMF(2, loss=loss, max_iter=50), data, [2, 3, 4], "bicross", n_init=1, random_state=0
    )
    whole, rows, fill = choose(storage(X)), [], Blocks._fill
    monkeypatch.setattr(
        Blocks, "_fill", lambda self, job: (rows.append(job[0].stop - job[0].start), fill(self, job))[1]
    )
    mine = choose(Chunked(storage(X), n_rows=13))
    assert mine.rank == whole.rank
    np.testing.assert_allclose(mine.losses, whole.losses, rtol=1e-6)
    assert max(rows, default=0) <= 13


def test_what_needs_single_entries_is_refused_by_name():
    for model, told in ((NMF(2), {"criterion": "speckled"}), (NMF(2, missing="nan"), {"criterion": "bicross"})):
        with pytest.raises(ValueError, match=r"X is Chunked, and .* only whole rows and columns"):
            select_rank(model, Chunked(X, n_rows=13), [1, 2], **told)
    with pytest.raises(ValueError, match="X is Chunked, and X has 3 modes"):
        select_rank(NTF(2), Chunked(X.reshape(60, 4, 5), n_rows=13), [1, 2], "bicross")
    halves = select_rank(NMF(2, max_iter=20), Chunked(X, n_rows=13), [2, 3], "stability", n_init=2, random_state=0)
    assert halves.criterion == "stability"
