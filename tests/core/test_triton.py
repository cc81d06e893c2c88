"""Triton kernels against torch: under Triton's interpreter where there is no GPU, and what decides that they are used."""

import logging
import os

import pytest
import torch
from test_compiled import TOLERANCE, problem
from torch._subclasses.fake_tensor import FakeTensorMode

from nnfactor.core import compiled
from nnfactor.core.block import Block, Quad
from nnfactor.core.compiled import compiled_loops, without_compiled_loops
from nnfactor.core.factors import as_factor
from nnfactor.core.gpu import MOST_RANK, sweeps_by_triton
from nnfactor.core.rules import hals as rule
from nnfactor.core.rules.constraints import Box
from nnfactor.core.rules.hals import hals

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
interpreted = os.environ.get("TRITON_INTERPRET") == "1"
needs_kernels = (
    pytest.mark.gpu if DEVICE == "cuda" else pytest.mark.skipif(not interpreted, reason="neither GPU nor interpreter")
)
SHAPES = [(1, 1), (3, 2), (70, 5), (33, 17)]  # rows, columns: more than a tile, ranks beside powers of two


@pytest.fixture
def kernels(monkeypatch):
    """Sweeps by Triton, whatever the device."""
    from nnfactor.core.compiled import triton_columns

    monkeypatch.setattr(rule, "compiled_loops", lambda *_: triton_columns if compiled._switch["on"] else None)
    return triton_columns


def there(block):
    move = lambda t: None if t is None else t.to(DEVICE)
    return Block(
        tuple(Quad(move(q.column_matrix), q.row_matrix, q.sign) for q in block.quads),
        as_factor(move(block.linear_minus)),
        row_grams=move(block.row_grams),
    )


def assert_same(F, block, sweeps, within=None):
    F, block = as_factor(F.to(DEVICE)), there(block)
    before = F.clone()
    swept = hals(F, block, sweeps, within)
    assert torch.equal(F, before)
    with without_compiled_loops():
        plain = hals(F, block, sweeps, within)
    assert swept.dtype == F.dtype and swept.shape == plain.shape and swept.stride() == plain.stride()
    largest = plain.abs().max().clamp(min=1e-3)
    assert (swept - plain).abs().max() <= TOLERANCE[F.dtype] * largest * F.shape[-1] ** 0.5
    assert ((swept == 0) == (plain == 0)).double().mean() > 0.99
    return swept


@needs_kernels
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_one_problem(kernels, n, k, dtype):
    assert_same(*problem(n, k, dtype), sweeps=1 if k > 5 else 2)


@needs_kernels
def test_a_problem_does_not_depend_on_its_batch(kernels):
    F, block = problem(40, 3, torch.float32, (2,))
    together = assert_same(F, block, 2)
    for b in range(2):
        gram = block.quads[0].column_matrix[b].to(DEVICE)
        alone = hals(as_factor(F[b].to(DEVICE)), Block((Quad(gram),), block.linear_minus[b].to(DEVICE)), 2)
        assert torch.equal(alone, together[b])


@needs_kernels
@pytest.mark.parametrize("weights", ["columns", "rows"])
def test_curvatures_of_weights(kernels, weights):
    F, block = problem(36, 4, torch.float64)
    columns = torch.linspace(0, 2, 4, dtype=torch.float64, device=DEVICE)[None]
    rows = None if weights == "columns" else torch.linspace(0, 1, 36, dtype=torch.float64, device=DEVICE)[:, None]
    assert_same(F, Block((*block.quads, Quad(columns, rows)), block.linear_minus), 2)


@needs_kernels
def test_a_column_without_curvature_stays(kernels):
    F, block = problem(20, 3, torch.float32)
    G = block.quads[0].column_matrix.clone()
    G[1], G[:, 1] = 0, 0
    swept = assert_same(F, Block((Quad(G),), block.linear_minus), 2)
    assert torch.equal(swept[:, 1].cpu(), F[:, 1])


@needs_kernels
def test_a_problem_that_is_nan_stays_so(kernels):
    F, block = problem(5, 2, torch.float32, (2,))
    block.linear_minus[0, 0, 0] = torch.nan
    swept = hals(F.to(DEVICE), there(block))
    assert swept[0].isnan().any() and not swept[1].isnan().any()


@needs_kernels
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_gram_for_each_row(kernels, batch):
    assert_same(*problem(35, 3, torch.float64, batch, rows=True), 2)


@needs_kernels
@pytest.mark.parametrize("rows", [None, True])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("bounds", ["numbers", "fixed", "one of each"])
def test_bounds_and_fixed_entries(kernels, rows, batch, bounds):
    F, block = problem(40, 3, torch.float64, batch, rows=rows)
    known = torch.rand(40, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(DEVICE)
    lower, upper = torch.where(known < 0.4, known, 0), torch.where(known < 0.4, known, torch.inf)
    box = {
        "numbers": Box(0.1, 0.4),
        "fixed": Box(as_factor(lower), as_factor(upper)),
        "one of each": Box(0.0, as_factor(upper)),
    }[bounds]
    swept = assert_same(F, block, 2, box)
    assert torch.equal(box(swept), swept)


@needs_kernels
def test_the_size_of_a_tile_changes_nothing(kernels):
    F, block = problem(70, 3, torch.float32, (1,))
    arrays = (F.mT.to(DEVICE), block.linear_minus.mT.to(DEVICE), block.quads[0].column_matrix.to(DEVICE), None, None, 1)
    assert torch.equal(kernels.minimise_columns(*arrays), kernels.minimise_columns(*arrays, 16))


def test_tiles_fit_into_registers():
    from nnfactor.core.compiled.triton_columns import tile_rows

    assert [tile_rows(k, 4) for k in (1, 20, 50, 100, MOST_RANK)] == [64, 32, 16, 16, 16]
    assert [tile_rows(k, 8) for k in (5, 20, MOST_RANK)] == [64, 16, 16]


def test_what_is_left_to_triton(monkeypatch):
    assert sweeps_by_triton("cuda", 50) and not sweeps_by_triton("cpu", 50)
    assert not sweeps_by_triton("cuda", MOST_RANK + 1)
    monkeypatch.setenv("NNFACTOR_TRITON", "0")
    assert not sweeps_by_triton("cuda", 50)


def test_kernels_are_operators_that_fake_tensors_see():
    with FakeTensorMode(), torch.no_grad():
        F, G = torch.empty(3, 6, 40, device="cuda").mT, torch.empty(3, 6, 6, device="cuda")
        loops = compiled_loops("columns", F, G)
        assert loops is not None and loops.__name__.endswith("triton_columns")
        swept = hals(F, Block((Quad(G),), torch.empty(3, 6, 40, device="cuda").mT), 2)
        assert swept.shape == F.shape and swept.stride() == F.stride() and swept.device == F.device
        assert compiled_loops("columns", torch.empty(1, MOST_RANK + 1, 4, device="cuda").mT) is None


def test_torch_does_it_where_kernels_fail(monkeypatch, caplog):
    from nnfactor.core.compiled import triton_columns

    def fail(device):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(triton_columns, "probe", fail)
    compiled._load_for_gpu.cache_clear()
    try:
        with caplog.at_level(logging.INFO, "nnfactor"):
            answers = [compiled._load_for_gpu("triton_columns", torch.device("cpu")) for _ in range(3)]
    finally:
        compiled._load_for_gpu.cache_clear()
    assert answers == [None] * 3
    assert sum("no compiler" in record.message for record in caplog.records) == 1  # told once


@pytest.mark.gpu
def test_a_fit_on_a_device_sweeps_by_triton(monkeypatch):
    from nnfactor import NMF
    from nnfactor.core.compiled import triton_columns

    used, sweep = [], triton_columns.minimise_columns
    monkeypatch.setattr(triton_columns, "minimise_columns", lambda *a: used.append(a[0].device.type) or sweep(*a))
    X = torch.rand(300, 200, device=DEVICE)
    fit = lambda: NMF(12, init="random", random_state=0, max_iter=30, tol=0).fit(X)
    loss = fit().loss_
    assert set(used) == {"cuda"}
    monkeypatch.setenv("NNFACTOR_TRITON", "0")
    used.clear()
    assert fit().loss_ == pytest.approx(loss, rel=1e-3) and not used


@pytest.mark.gpu
def test_the_probe_passes_on_a_device():
    from nnfactor.core.compiled import triton_columns

    triton_columns.probe(torch.device(DEVICE))
