"""Longer steps of the multiplicative rule: never a rise, zeros stay, other divergences unchanged."""

from functools import partial

import numpy as np
import pytest
import torch

from nnfactor.core import L1, L2, BetaFit, as_data, block_of, multiplicative, run


def planted(n, m, k, seed, zeros=0.3):
    rng = np.random.default_rng(seed)
    X = rng.poisson(3 * rng.gamma(0.5, size=(n, k)) @ rng.gamma(0.5, size=(k, m))) * (rng.random((n, m)) > zeros)
    start = {"V": rng.random((n, k)) ** 3, "U1": rng.random((m, k)) ** 3}
    start["V"][rng.random((n, k)) < 0.1] = 0
    return torch.from_numpy(X.astype(float)), {name: torch.from_numpy(F) for name, F in start.items()}


@pytest.mark.parametrize("step", [1.0, 1.3, 1.9, 2.0])
@pytest.mark.parametrize("penalties", [(), (L1("V", 0.5),), (L2("U1", 0.3), L1("V", 0.1))], ids=str)
def test_the_objective_never_rises(step, penalties):
    for seed in range(5):
        X, start = planted(20, 14, 4, seed)
        terms, rule = [BetaFit(X, ("V", "U1"), 1.0), *penalties], partial(multiplicative, step=step)
        result = run(terms, {"U1": rule, "V": rule}, start, max_iter=60, tol=0, record_all=True)
        objective = result.history()["objective"]
        assert np.diff(objective).max() <= 1e-12 * objective[0]
        assert all((F[start[name] == 0] == 0).all() for name, F in result.factors.items())


def test_no_ratio_leaves_the_majoriser():
    ratio = torch.logspace(-30, 30, 2001, dtype=torch.float64)
    F = torch.ones(2001, 1, dtype=torch.float64)
    block = block_of([BetaFit(torch.ones(2001, 1, dtype=torch.float64), ("V", "U1"), 1.0)], {"V": F, "U1": F[:1]}, "V")
    block = type(block)(linear_minus=ratio[:, None], linear_plus=F[:1], quadratic=False, powers=block.powers)
    for step in np.linspace(1, 2, 11):
        g = multiplicative(F, block, step=step)[:, 0]
        assert (g - 1 - ratio * g.log() <= 1e-12 * (1 + ratio)).all()
        assert step == 1 or ((g - 1).abs() >= (ratio - 1).abs() - 1e-12).all()


def test_longer_steps_take_fewer_iterations():
    gains = []
    for seed in range(6):
        X, start = planted(40, 30, 3, seed, zeros=0.0)
        counts = []
        for step in (1.0, 1.9):
            rule = partial(multiplicative, step=step)
            result = run(
                [BetaFit(X, ("V", "U1"))], {"U1": rule, "V": rule}, start, max_iter=400, tol=0, record_all=True
            )
            counts.append(result.history()["objective"])
        target = 1.005 * max(values[-1] for values in counts)
        gains.append(np.divide(*(np.flatnonzero(values <= target)[0] for values in counts)))
    assert np.median(gains) > 1.4


def test_other_blocks_take_steps_of_one():
    X, start = planted(12, 9, 3, 0)
    for terms in ([BetaFit(X, ("V", "U1"), 1.5)], [BetaFit(X, ("V", "U1"), 1.0), L2("V", 0.3)]):
        block = block_of(terms, start, "V")
        assert torch.equal(multiplicative(start["V"], block, step=1.9), multiplicative(start["V"], block))
    data = as_data(X)
    block = block_of([BetaFit(data, ("V", "U1"), 1.0)], start, "V")
    assert torch.equal(multiplicative(start["V"], block, power=0.5, step=1.9), multiplicative(start["V"], block, 0.5))
