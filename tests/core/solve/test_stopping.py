"""When a fit may stop: relative to the present objective, never after a rise, and in every precision."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from nnfactor import NGE, NMF, NTF
from nnfactor.core import Fit, hals, her, multiplicative, run
from nnfactor.core.terms.base import Term


@dataclass(frozen=True, eq=False)
class Script(Term):
    """A model whose objective is told beforehand, sweep by sweep; `size` is what its rounding is relative to."""

    told: tuple[float, ...]
    size: float = 0.0
    modes: tuple[str, ...] = ("F",)
    reads: list = field(default_factory=list)

    def block(self, factors, name):
        raise AssertionError("nothing to update")

    def value(self, factors):
        return torch.as_tensor(self.told, dtype=torch.float64)[factors["F"].long()].sum((-2, -1))

    def magnitude(self):
        return self.size

    def direct(self, factors):
        self.reads.append(len(self.reads))
        return self.value(factors)


def play(told, size=0.0, **limits):
    count = lambda *_: lambda state: {"factors": {"F": state["factors"]["F"] + 1}}
    limits = {"tol": 1e-3, "every": 1, "max_iter": len(told) - 1, "method": count, "warn": False} | limits
    return run([Script(tuple(told), size)], {}, {"F": torch.zeros(1, 1, dtype=torch.float64)}, **limits)


class TestRule:
    """On objectives that are told beforehand."""

    @pytest.mark.parametrize("start", [11.0, 1e3, 1e30])
    def test_the_start_does_not_matter(self, start):
        result = play([start, 10, 9.95, 9.9499, 9.9])
        assert result.n_iter == 3 and result.converged

    @pytest.mark.parametrize("unit", [1e-200, 1e200])
    def test_the_unit_does_not_matter(self, unit):
        assert play(np.array([20, 10, 9.95, 9.9499, 9.9]) * unit).n_iter == 3

    @pytest.mark.parametrize("rise", [1e-6, 1e-3, 1.0])
    def test_a_rise_is_no_stop(self, rise):
        result = play([20, 10, 10 + rise, 10 + 2 * rise])
        assert result.n_iter == 3 and not result.converged
        assert play([20, 10, 10 + rise, 9, 9, 8]).n_iter == 4

    def test_a_per_cent_is_no_stop(self):
        assert not play(20 * 0.99 ** np.arange(50.0)).converged

    def test_rounding_is_no_fall(self):
        falls, rises = [20, 1e-14, 0.5e-14, 0.1e-14], [20, 1e-14, 1.5e-14]
        assert not play(falls).converged and not play(rises).converged
        assert play(falls, size=1.0).n_iter == 2 and play(rises, size=1.0).converged
        assert not play([20, 1e-11, 0.5e-11, 0.1e-11], size=1.0).converged

    def test_a_discarded_sweep_is_no_stop(self):
        def refuse(*_):
            def sweep(state):
                F = state["factors"]["F"] + 1
                return {"factors": {"F": F}, "kept": F.ne(2).reshape(())}

            return sweep

        assert play([20, 10, 10, 9, 9, 9], method=refuse).n_iter == 4

    def test_only_nearly_exact_fits_are_read_directly(self):
        eps = torch.finfo(torch.float64).eps
        for size, tol, some in [(1.0, 1e-3, False), (2e-3 / eps, 1e-3, True), (2e-3 / eps, 1e-30, False)]:
            script = Script((20.0, 2.0, 1.0), size)
            sweep = lambda *_: lambda state: {"factors": {"F": state["factors"]["F"] + 1}}
            start = {"F": torch.zeros(1, 1, dtype=torch.float64)}
            run([script], {}, start, method=sweep, tol=tol, every=1, max_iter=2, warn=False)
            assert (len(script.reads) > 1) == some  # the end is always read directly


def planted(noise, baseline=0.0):
    rng = np.random.default_rng(2)
    S = rng.random((80, 4)) @ rng.random((4, 30))
    return baseline + S + noise * S.mean() * np.abs(rng.normal(size=S.shape))


def spectra():
    rng = np.random.default_rng(2)
    x = np.linspace(0, 1, 60)
    bump = lambda c, w: np.exp(-(((x - c) / w) ** 2))
    B = np.stack([bump(c, 0.15) for c in (0.3, 0.4, 0.5)], 1)
    C = np.stack([bump(c, 0.2) for c in (0.4, 0.5, 0.65)], 1)
    T = np.einsum("ir,jr,kr->ijk", rng.random((10, 3)) + 0.2, B, C)
    return T + 1e-3 * T.max() * np.abs(rng.normal(size=T.shape))


def counts():
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.5, 40, (21, 4)) @ rng.dirichlet(np.full(96, 0.2), 4)).astype(float)


KL = {"loss": "kullback-leibler", "init": "random"}
FITS = {
    **{f"baseline {b}": (NMF, 5, {"max_iter": 400}, lambda b=b: planted(0.05, b)) for b in (0, 10, 100)},
    **{
        f"baseline {b}, random": (NMF, 5, {"init": "random", "max_iter": 400}, lambda b=b: planted(0.05, b))
        for b in (0, 10)
    },
    **{f"noise {e}": (NMF, 4, {}, lambda e=e: planted(e)) for e in (1e-2, 1e-3, 1e-4)},
    "spectra": (NTF, 3, {}, spectra),
    **{f"counts, k = {k}": (NMF, k, KL, counts) for k in (2, 4, 6)},
    "a strong penalty": (NGE, 6, {"alpha": 1e4, "max_iter": 200}, lambda: planted(0.05)[:60]),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_says_converged_is_near_a_long_run(name):
    cls, k, options, make = FITS[name]
    X, y = make(), np.arange(60) % 3 if cls is NGE else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        told = cls(k, random_state=0, **options).fit(X, y)
    assert told.converged_ or told.n_iter_ == told.max_iter
    long = cls(k, random_state=0, **options | {"tol": 0, "max_iter": 2 * told.n_iter_}).fit(X, y)
    assert not told.converged_ or told.loss_ <= 1.02 * long.loss_
    assert told.converged_ or "max_iter" in options


@pytest.mark.parametrize("solver", ["hals", "multiplicative", "auto"])
def test_the_scale_of_the_start_does_not_matter(solver):
    X, rng = planted(0.05), np.random.default_rng(0)
    V, U = rng.random((80, 4)), rng.random((30, 4))
    near, far = (NMF(4, solver=solver, init=(V * s, U), max_iter=5000).fit(X) for s in (1.0, 2.0**10))
    assert near.converged_ and far.converged_
    if solver == "multiplicative":  # its first step takes the scale back
        assert near.n_iter_ == far.n_iter_ and far.loss_ == pytest.approx(near.loss_, rel=1e-9)
    for s, model in ((1.0, near), (2.0**10, far)):
        long = NMF(4, solver=solver, init=(V * s, U), tol=0, max_iter=2 * model.n_iter_).fit(X)
        assert model.loss_ <= 1.02 * long.loss_


@pytest.mark.parametrize(("solver", "dtype"), [("auto", "float64"), ("auto", "float32"), ("hals", "float32")])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_exact_data_end(solver, dtype, scale):
    X = planted(0.0) * scale
    model = NMF(4, solver=solver, dtype=dtype, random_state=0).fit(X)
    assert model.converged_ and model.reconstruction_err_ <= 1e-2 * np.linalg.norm(X)


@pytest.mark.parametrize("method", [her, None])
def test_a_float32_run_ends_though_its_reading_is_rounded(method):
    X = torch.from_numpy(planted(1e-3)).float()
    torch.manual_seed(0)
    start = {"V": torch.rand(80, 4), "U1": torch.rand(30, 4)}
    how = {} if method is None else {"method": method}
    result = run([Fit(X, ("V", "U1"))], {"U1": hals, "V": hals}, start, max_iter=20_000, **how)
    assert result.converged.all()


def test_a_batch_stops_where_its_problems_would():
    X = torch.from_numpy(planted(1e-2))
    torch.manual_seed(0)
    start = {"V": torch.rand(4, 80, 4, dtype=X.dtype), "U1": torch.rand(4, 30, 4, dtype=X.dtype)}
    start["V"] *= torch.tensor([1.0, 1e3, 1e-3, 1.0])[:, None, None]
    rules, terms = {"U1": multiplicative, "V": multiplicative}, [Fit(X, ("V", "U1"))]
    together = run(terms, rules, start, tol=1e-3, warn=False)
    alone = [run(terms, rules, {n: F[i] for n, F in start.items()}, tol=1e-3, warn=False).n_iter[0] for i in range(4)]
    assert together.n_iter.tolist() == alone and len(set(alone)) > 1


def test_default_limits():
    assert (NMF(2).max_iter, NMF(2).tol) == (2000, 3e-5)
