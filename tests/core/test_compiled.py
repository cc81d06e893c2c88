"""Compiled loops against torch: the same sweeps, over shapes, precisions, memory orders, batches and threads."""

import numpy as np
import pytest
import torch

from nnfactor.core.block import Block, Quad
from nnfactor.core.compiled import compiled_loops, without_compiled_loops
from nnfactor.core.factors import as_factor
from nnfactor.core.graph.graph import Graph
from nnfactor.core.rules.constraints import Box
from nnfactor.core.rules.hals import hals

numba = pytest.importorskip("numba")
SHAPES = [(1, 1), (3, 2), (64, 20), (127, 5), (128, 16), (129, 33), (1000, 70), (300, 129)]  # rows, columns
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}  # of the largest entry


def problem(n, k, dtype, batch=(), seed=0, rows=None):
    """A factor and the block of a fit with a Gram of full rank; entries of the linear part have any sign."""
    draw = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=draw, dtype=torch.float64)
    A = rand(*batch, 3 * k + 5, k)
    G, planted = A.mT @ A / A.shape[-2], rand(*batch, n, k).sub(0.4).clamp(min=0)
    linear = planted @ G + 0.05 * (rand(*batch, n, k) - 0.5)
    own = () if rows is None else (k, k, n)
    if rows is not None:
        B = rand(*batch, n, 2 * k + 3, k)
        own_grams = (B.mT @ B).movedim(-3, -1).to(dtype)
    F = as_factor(rand(*batch, n, k).to(dtype))
    if own:
        return F, Block(linear_minus=as_factor(linear.to(dtype)), row_grams=own_grams)
    return F, Block((Quad(G.to(dtype)),), as_factor(linear.to(dtype)))


def assert_same(F, block, sweeps, within=None):
    before = F.clone()
    assert compiled_loops("columns", F) is not None
    compiled = hals(F, block, sweeps, within)
    assert torch.equal(F, before)
    with without_compiled_loops():
        assert compiled_loops("columns", F) is None
        plain = hals(F, block, sweeps, within)
    assert compiled.dtype == F.dtype and compiled.shape == plain.shape and compiled.stride() == plain.stride()
    largest = plain.abs().max().clamp(min=1e-3)
    assert (compiled - plain).abs().max() <= TOLERANCE[F.dtype] * largest * F.shape[-1] ** 0.5
    assert ((compiled == 0) == (plain == 0)).double().mean() > 0.99
    if within is not None:
        assert torch.equal(within(compiled), compiled)
        assert torch.equal(within(plain), plain)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("sweeps", [1, 3])
def test_one_problem(n, k, dtype, sweeps):
    assert_same(*problem(n, k, dtype), sweeps)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_row_major_factors(dtype):
    F, block = problem(150, 7, dtype)
    assert_same(F.contiguous(), Block(block.quads, block.linear_minus.contiguous()), 2)
    assert_same(F.contiguous(), block, 2)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [(1,), (3,), (2, 2)])
def test_a_problem_does_not_depend_on_its_batch(dtype, batch):
    F, block = problem(200, 9, dtype, batch)
    assert_same(F, block, 2)
    together = hals(F, block, 2)
    for at in np.ndindex(*batch):
        alone = hals(as_factor(F[at]), Block((Quad(block.quads[0].column_matrix[at]),), block.linear_minus[at]), 2)
        assert torch.equal(alone, together[at])


def test_a_gram_that_a_batch_shares():
    F, block = problem(90, 6, torch.float64, (4,))
    assert_same(F, Block((Quad(block.quads[0].column_matrix[0]),), block.linear_minus[1]), 2)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("weights", ["columns", "rows", "graph"])
def test_curvatures_of_weights_and_graphs(dtype, weights):
    F, block = problem(140, 8, dtype)
    columns = torch.linspace(0, 2, 8, dtype=dtype)[None]
    rows = {"columns": None, "rows": torch.linspace(0, 1, 140, dtype=dtype)[:, None]}.get(weights)
    if weights == "graph":
        S = torch.zeros(140, 140, dtype=dtype)
        S[torch.arange(139), torch.arange(1, 140)] = 1
        rows = Graph(S + S.T)
    signs = [Quad(columns, rows, -1), Quad(2.0 * columns, rows)] if weights == "columns" else [Quad(columns, rows)]
    assert_same(F, Block((*block.quads, *signs), block.linear_minus), 3)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_column_without_curvature_stays(dtype):
    F, block = problem(70, 5, dtype)
    G = block.quads[0].column_matrix.clone()
    G[2], G[:, 2] = 0, 0
    flat = Block((Quad(G),), block.linear_minus)
    assert_same(F, flat, 2)
    assert torch.equal(hals(F, flat, 2)[:, 2], F[:, 2])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_gram_for_each_row(dtype, batch):
    F, block = problem(130, 6, dtype, batch, rows=True)
    assert_same(F, block, 3)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [None, True])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("bounds", ["numbers", "fixed", "both"])
def test_bounds_and_fixed_entries(dtype, rows, batch, bounds):
    F, block = problem(140, 7, dtype, batch, rows=rows)
    known = torch.rand(140, 7, generator=torch.Generator().manual_seed(3)).to(dtype)
    lower = torch.where(known < 0.4, known, 0.05 if bounds == "both" else 0)
    upper = torch.where(known < 0.4, known, 0.5 if bounds == "both" else torch.inf)
    box = Box(0.1, 0.4) if bounds == "numbers" else Box(as_factor(lower), as_factor(upper))
    assert_same(F, block, 3, box)
    if bounds != "numbers":
        assert torch.equal(hals(F, block, 1, box)[..., known < 0.4], known[known < 0.4].expand(*batch, -1))


@pytest.mark.parametrize("within", [None, Box(0.1, 0.5)])
@pytest.mark.parametrize("rows", [None, True])
def test_what_is_not_a_number_stays_so(within, rows):
    F, block = problem(140, 7, torch.float32, rows=rows)
    F[3, 2] = torch.nan
    found = hals(F, block, 1, within)
    assert found[3].isnan().any() and not found[4:].isnan().any()


def test_the_number_of_threads_changes_nothing():
    F, block = problem(40_000, 24, torch.float32)
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            answers.append(hals(F, block, 4))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(answers[0], other) for other in answers[1:])


def test_torch_does_what_numba_cannot():
    F, _ = problem(20, 3, torch.float64)
    assert compiled_loops("columns", F.requires_grad_()) is None
    assert compiled_loops("columns", F.detach().half()) is None
    assert compiled_loops("columns", F.detach().to("meta")) is None
    assert compiled_loops("no such loops", F.detach()) is None
