"""Products in TF32 at first: when a run goes over to float32, what it forgets then, and whose settings remain."""

import numpy as np
import pytest
import torch

from nnfactor.core import Fit, hals, her, run, tf32_first
from nnfactor.core.precision import SLOW, ProductPrecision, begins_in_tf32
from nnfactor.core.solve import run as solve

MATMUL = torch.backends.cuda.matmul
NEW = hasattr(MATMUL, "fp32_precision")


def setting():
    return MATMUL.fp32_precision if NEW else MATMUL.allow_tf32


def in_tf32():
    return setting() == ("tf32" if NEW else True)


@pytest.fixture
def on_a_card(monkeypatch):
    """As on CUDA: torch keeps the setting on machines without a card as well."""
    monkeypatch.setattr(solve, "begins_in_tf32", lambda device, dtype: begins_in_tf32("cuda", dtype))


def fit(dtype=torch.float32, batch=(), **options):
    draw = torch.Generator().manual_seed(0)
    rand = lambda *shape: torch.rand(*shape, generator=draw, dtype=dtype)
    X = rand(40, 4) @ rand(4, 30) + 0.1 * rand(40, 30)
    used = []

    def watched(F, block):
        used.append(in_tf32())
        return hals(F, block)

    start = {"V": rand(*batch, 40, 4), "U1": rand(*batch, 30, 4)}
    rules = {"U1": watched, "V": watched}
    return run([Fit(X, ("V", "U1"))], rules, start, method=her, max_iter=2000, tol=3e-5, **options), used


def test_a_run_begins_in_tf32_and_ends_in_float32(on_a_card):
    before = setting()
    plain, used = fit()
    assert not any(used)
    with tf32_first():
        result, used = fit()
    assert setting() == before
    assert used[0] and not used[-1]
    assert used == sorted(used, reverse=True)  # goes over once
    assert result.converged.all()
    np.testing.assert_allclose(result.objective, plain.objective, rtol=2e-3)
    assert not in_tf32()


def test_no_problem_of_a_batch_stops_in_tf32(on_a_card):
    with tf32_first():
        result, used = fit(batch=(3,))
    assert result.converged.all() and used[0] and not used[-1]
    assert (result.n_iter >= len([u for u in used if u]) / 2).all()


def test_nothing_changes_elsewhere(monkeypatch):
    with tf32_first():
        assert begins_in_tf32("cuda", torch.float32)
        assert not begins_in_tf32("cuda", torch.float64)
        _, used = fit()  # on the CPU
    assert not any(used)
    assert not begins_in_tf32("cuda", torch.float32)


def test_settings_are_restored_after_an_error(on_a_card):
    before = setting()

    def stop(progress):
        raise KeyError("stop")

    with pytest.raises(KeyError), tf32_first():
        fit(callback=stop)
    assert setting() == before


def test_it_goes_over_when_one_objective_falls_slowly_or_is_no_number():
    falls = np.array([1.0, 1.0]), np.array([0.5, 1 - 2 * SLOW])
    with ProductPrecision(True) as precision:
        assert not precision.refine(*falls) and in_tf32()
        assert precision.refine(np.array([1.0, 1.0]), np.array([0.5, 1 - SLOW / 2])) and not in_tf32()
        assert not precision.refine(*falls)  # never back
    with ProductPrecision(True) as precision:
        assert precision.refine(np.array([1.0]), np.array([np.nan]))
    with ProductPrecision(False) as precision:
        assert not precision.refine(np.array([1.0]), np.array([1.0]))


@pytest.mark.gpu
def test_a_fit_on_a_device_reaches_the_objective_of_float32():
    from nnfactor import NMF

    draw = torch.Generator("cuda").manual_seed(0)
    rand = lambda *shape: torch.rand(*shape, generator=draw, device="cuda")
    X = rand(2000, 20) @ rand(20, 1000) + 0.1 * rand(2000, 1000)
    fit = lambda: NMF(20, init="random", random_state=0, max_iter=3000).fit(X)
    plain, before = fit(), setting()
    with tf32_first():
        first = fit()
    assert setting() == before and first.converged_
    assert float(first.loss_) == pytest.approx(float(plain.loss_), rel=0.01)
