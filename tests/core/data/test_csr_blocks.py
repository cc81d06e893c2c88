"""The transpose of sparse data in blocks of samples, and products a few columns at a time."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nnfactor import NMF
from nnfactor.core.data import csr, csr_blocks
from nnfactor.core.data.csr import CSR
from nnfactor.core.data.csr_blocks import TransposeBlocks
from nnfactor.core.data.sparse import Sparse

CPU = torch.device("cpu")


def counts(n=90, m=14, density=0.3, dtype=np.float64, empty=slice(40, 60)):
    """Sparse counts; some samples in a row have no entry."""
    X = sp.random_array((n, m), density=density, rng=np.random.default_rng(0), dtype=dtype, format="lil")
    X[empty] = 0
    return sp.csr_array(X.tocsr())


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(csr_blocks, "FEW", 10)
    monkeypatch.setattr(csr_blocks, "SAMPLES", 7)
    monkeypatch.setattr(csr_blocks, "ENTRIES", 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 5, 300])
def test_blocks_multiply_as_the_whole_transpose(small_blocks, monkeypatch, dtype, width):
    monkeypatch.setattr(csr, "NEAR", 500)
    monkeypatch.setattr(csr, "NARROW", 2)
    X = counts()
    blocks = TransposeBlocks.of(X, CPU, dtype)
    assert len(blocks.blocks) == 13 and sum(len(part.values) for _, part in blocks) == X.nnz
    rows = torch.rand(90, width, dtype=dtype)
    expected = X.T @ rows.numpy().astype(np.float64)
    np.testing.assert_allclose(blocks.product(rows), expected, rtol=64 * torch.finfo(dtype).eps)


def test_one_block_of_few_samples_and_of_none(small_blocks):
    assert len(TransposeBlocks.of(counts(10), CPU, torch.float64).blocks) == 1
    none = TransposeBlocks.of(sp.csr_array((0, 4)), CPU, torch.float64)
    assert none.product(torch.ones(0, 3, dtype=torch.float64)).tolist() == [[0.0] * 3] * 4


def test_blocks_of_sparser_data_have_more_samples(monkeypatch):
    monkeypatch.setattr(csr_blocks, "FEW", 10)
    monkeypatch.setattr(csr_blocks, "SAMPLES", 7)
    X = counts(density=0.3)
    (first, _), *_ = TransposeBlocks.of(X, CPU, torch.float64)
    assert first.stop * X.nnz / np.prod(X.shape) == pytest.approx(csr_blocks.ENTRIES, abs=1)


@pytest.mark.parametrize("width", [1, 3, 11])
def test_products_some_columns_at_a_time(monkeypatch, width):
    X, rows = CSR.from_scipy(counts(), CPU, torch.float64), torch.rand(14, 11, dtype=torch.float64)
    once, asked = X.product(rows), []
    multiply = torch.addmm
    monkeypatch.setattr(
        torch, "addmm", lambda *given, **more: asked.append(given[2].shape[1]) or multiply(*given, **more)
    )
    monkeypatch.setattr(csr, "NEAR", 14 * 8 * width)
    monkeypatch.setattr(csr, "NARROW", 1)
    assert torch.allclose(X.product(rows), once, rtol=1e-14, atol=0)
    assert sum(asked) == 11 and max(asked) <= width
    total = torch.ones(90, 11, dtype=torch.float64)
    assert X.add_product(rows, total) is total
    assert torch.allclose(total, once + 1, rtol=1e-14, atol=0)


def test_gradients_go_through_blocks(small_blocks):
    data, F = Sparse(counts(), CPU, torch.float64), torch.rand(90, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(14, 3, dtype=torch.float64)
    (data.times_transposed(F) * weights).sum().backward()
    np.testing.assert_allclose(F.grad, counts() @ weights.numpy(), rtol=1e-13)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler", 1.5])
@pytest.mark.parametrize("n_init", [1, 3])
def test_fits_do_not_depend_on_the_blocks(monkeypatch, loss, n_init):
    X, settings = counts(), {"loss": loss, "init": "random", "n_init": n_init, "random_state": 0, "max_iter": 10}
    whole = NMF(3, tol=0, **settings).fit(X)
    monkeypatch.setattr(csr_blocks, "FEW", 10)
    monkeypatch.setattr(csr_blocks, "SAMPLES", 7)
    monkeypatch.setattr(csr_blocks, "ENTRIES", 1)
    cut = NMF(3, tol=0, **settings).fit(X)
    np.testing.assert_allclose(cut.components_, whole.components_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(cut.loss_, whole.loss_, rtol=1e-10)
