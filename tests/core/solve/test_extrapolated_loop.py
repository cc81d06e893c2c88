"""Sweeps with momentum that are compiled as a whole, for small dense problems, against those of torch."""

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from nnfactor.core import BetaFit, Fit, as_data, bmme, hals, her, iterate, multiplicative, run
from nnfactor.core.compiled import without_compiled_loops
from nnfactor.core.data.stacked import Stacked
from nnfactor.core.solve.momentum import one_loop

pytest.importorskip("numba")
SHAPES = [((60, 14), 3), ((14, 300), 4), ((130, 129), 9), ((9, 50), 1)]
SHAPES += [((12, 9, 7), 3), ((5, 40, 30), 4), ((6, 5, 4, 7), 2)]
TOLERANCE = {torch.float32: 5e-3, torch.float64: 1e-9}  # of the largest entry, after `SWEEPS`
SWEEPS = 40


def problem(shape, k, dtype=torch.float64, batch=(), seed=0):
    """Data near a planted model, and a start."""
    draw = torch.Generator().manual_seed(seed)
    rand = lambda *size: torch.rand(*size, generator=draw, dtype=torch.float64)
    X = 0.1 * rand(*shape)
    for _ in range(k):
        part = torch.ones((), dtype=torch.float64)
        for d in shape:
            part = part.unsqueeze(-1) * rand(d)
        X = X + part
    names = ("V", *(f"U{b}" for b in range(1, len(shape))))
    return X.to(dtype), {name: rand(*batch, k, d).to(dtype).mT for name, d in zip(names, shape, strict=True)}


KL = partial(BetaFit, beta=1)
METHODS = {"frobenius": (her, Fit), "kullback-leibler": (partial(bmme, step=1.3), KL), "step 1": (bmme, KL)}


def rules_of(names, last="V", loss="frobenius"):
    rule = lambda name: partial(hals, sweeps=2 if name == last else 3) if loss == "frobenius" else multiplicative
    return {name: rule(name) for name in (*(n for n in names if n != last), last)}


def count_products(data):
    """Count what torch asks of data in sweeps, in the list that is returned."""
    made = []
    for name in ("times", "times_transposed", "ratio_products"):
        product = getattr(data, name)
        setattr(data, name, lambda *given, product=product: made.append(1) or product(*given))
    return made


def fit_both(X, start, last="V", loss="frobenius", record_all=True):
    """Run both; the compiled loop leaves torch the product of the objective at the start."""
    data, (method, term) = as_data(X), METHODS[loss]
    rules = rules_of(start, last, loss)
    settings = {"method": method, "max_iter": SWEEPS, "tol": 0, "record_all": record_all}
    fit = lambda: run([term(data, tuple(start))], rules, start, **settings)
    made = count_products(data)
    compiled = fit()
    assert len(made) == (loss == "frobenius")
    with without_compiled_loops():
        plain = fit()
    assert len(made) > SWEEPS
    return compiled, plain


def assert_same(compiled, plain, tol):
    for name, F in plain.factors.items():
        assert (
            compiled.factors[name].mT.is_contiguous() == F.mT.is_contiguous()
            and compiled.factors[name].dtype == F.dtype
        )
        assert (compiled.factors[name] - F).abs().max() <= tol * F.abs().max()
    assert len(compiled.rows) == len(plain.rows)
    for (i, _, problems, values), (j, _, others, expected) in zip(compiled.rows, plain.rows, strict=True):
        assert i == j and (problems == others).all()
        np.testing.assert_allclose(values, expected, rtol=tol)
    seconds = [row[1] for row in compiled.rows]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("loss", METHODS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(("shape", "k"), SHAPES)
def test_sweeps_are_those_of_torch(shape, k, batch, dtype, loss):
    assert_same(*fit_both(*problem(shape, k, dtype, batch), loss=loss), TOLERANCE[dtype])


@pytest.mark.parametrize("loss", METHODS)
@pytest.mark.parametrize("last", ["V", "U1", "U2"])
def test_any_factor_is_the_last(last, loss):
    assert_same(*fit_both(*problem((30, 8, 12), 3), last, loss), TOLERANCE[torch.float64])


@pytest.mark.parametrize("loss", METHODS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_columns_of_the_data_may_be_contiguous(batch, loss):
    X, start = problem((30, 40), 3, batch=batch)
    assert_same(*fit_both(X.T.contiguous().T, start, loss=loss), TOLERANCE[torch.float64])


@pytest.mark.parametrize("loss", METHODS)
def test_every_problem_may_have_its_own_data(loss):
    first, second = (as_data(problem((40, 20), 3, seed=s)[0]) for s in range(2))
    _, start = problem((40, 20), 3, batch=(3,))
    assert_same(*fit_both(Stacked.of([first, first, second]), start, loss=loss), TOLERANCE[torch.float64])


@pytest.mark.parametrize("record_all", [False, True])
def test_divergences_are_summed_where_they_are_asked_for(record_all):
    """Each costs a pass over the data: by default only readings have a row."""
    compiled, plain = fit_both(*problem((30, 40), 3), loss="kullback-leibler", record_all=record_all)
    assert_same(compiled, plain, TOLERANCE[torch.float64])
    assert len(compiled.rows) == 1 + (SWEEPS if record_all else SWEEPS // 10)


def test_counts_with_zeros_and_a_model_that_dies():
    """Zeros of the data, of a row and of the start; the ratio 0/0 counts as 1, and what is tiny is cut to 0."""
    X, start = problem((30, 40), 3)
    X = torch.poisson(X, generator=torch.Generator().manual_seed(0))
    X[3], X[:, 5] = 0, 0
    start["U1"][7] = 0
    start["V"][:, 2] = 0
    compiled, plain = fit_both(X, start, loss="kullback-leibler")
    assert_same(compiled, plain, TOLERANCE[torch.float64])
    assert all(torch.equal(compiled.factors[n] == 0, F == 0) for n, F in plain.factors.items())


def test_sweeps_are_discarded_alike():
    """Columns far apart in length, and so much momentum that the objective would rise."""
    X, start = problem((30, 40), 3)
    start = {"V": start["V"] * torch.tensor([1e6, 1e-7, 1.0]), "U1": start["U1"] * torch.tensor([1.0, 1e7, 1e-4])}
    ends = []
    for compiled in (True, False):
        sweep = her([Fit(X, tuple(start))], rules_of(start))
        state = sweep({"factors": start})
        state["memory"]["reach"].fill_(30.0)
        with without_compiled_loops() if not compiled else torch.no_grad():
            ends.append(list(islice(iterate(sweep, state), 25)))
    kept = [[bool(state["kept"]) for state in states] for states in ends]
    assert kept[0] == kept[1] and 0 < sum(kept[0]) < len(kept[0])
    for mine, its in zip(*ends, strict=True):
        for name, number in its["memory"].items():
            if isinstance(number, torch.Tensor):
                torch.testing.assert_close(mine["memory"][name], number, rtol=1e-8, atol=0)
        torch.testing.assert_close(mine["objective"], its["objective"], rtol=1e-8, atol=0)


@pytest.mark.parametrize("loss", METHODS)
def test_a_bad_problem_leaves_the_others_alone(loss):
    X, start = problem((20, 15), 2, batch=(3,))
    start["U1"][1, 3, 0] = torch.nan
    compiled, plain = fit_both(X, start, loss=loss)
    assert np.isinf(compiled.objective[1]) and np.isinf(plain.objective[1])
    for p in (0, 2):
        alone, _ = fit_both(X, {name: F[p] for name, F in start.items()}, loss=loss)
        np.testing.assert_array_equal(compiled.objective[p], alone.objective[0])
        for name, F in alone.factors.items():
            assert torch.equal(compiled.factors[name][p], F)


@pytest.mark.parametrize("loss", METHODS)
def test_neither_threads_nor_how_many_sweeps_at_once_change_a_bit(loss):
    X, start = problem((60, 30), 4, batch=(8,))
    (method, term), rules = METHODS[loss], rules_of(start, loss=loss)
    fit = lambda **how: run([term(X, tuple(start))], rules, start, method=method, max_iter=60, tol=0, **how)
    threads, ends = torch.get_num_threads(), []
    try:
        for count, every in ((1, 10), (3, 10), (1, 1), (1, 60)):
            torch.set_num_threads(count)
            ends.append(fit(every=every))
    finally:
        torch.set_num_threads(threads)
    for end in ends[1:]:
        assert all(torch.equal(F, ends[0].factors[name]) for name, F in end.factors.items())
        np.testing.assert_array_equal(end.objective, ends[0].objective)


@pytest.mark.parametrize("change", ["large", "strided", "bounds"])
def test_what_the_loop_does_not_take_is_left_to_torch(change, monkeypatch):
    X, start = problem((20, 30), 3)
    if change == "large":
        monkeypatch.setattr(one_loop, "SMALL", 1.0)
    if change == "strided":
        X = problem((20, 60), 3)[0][:, :30]
    rules = rules_of(start)
    if change == "bounds":
        rules["V"] = partial(hals, sweeps=2, within=None)
    data = as_data(X)
    made = count_products(data)
    run([Fit(data, tuple(start))], rules, start, method=her, max_iter=5, tol=0)
    assert len(made) > 5


def test_threads_of_a_blas_are_as_before_whoever_ends_first():
    from threadpoolctl import threadpool_info

    from nnfactor.core.compiled.threads import one_thread_of_blas

    count = lambda: [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    with one_thread_of_blas():
        pass
    before, first, second = count(), one_thread_of_blas(), one_thread_of_blas()
    first.__enter__()
    second.__enter__()
    assert set(count()) <= {1}
    first.__exit__(None, None, None)
    assert set(count()) <= {1}
    second.__exit__(None, None, None)
    assert count() == before
