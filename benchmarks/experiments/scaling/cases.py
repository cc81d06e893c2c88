"""The problems whose size is varied, and their times per iteration."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from nnfactor import NGE, NMF, NTF

from ...harness.kinds import Context
from ...timing import roofline
from ...timing.clock import Clock, Spread
from ..peers.methods import TINY, on_device
from .parameters import Parameters

Fit = Callable[[int], float]


@dataclass(frozen=True)
class Point:
    """One size: seconds per iteration, without what a call costs beside them; and the least that the roofline allows.

    `least` counts the two products of an iteration with the data.
    """

    size: float
    time: Spread
    least: float


@dataclass(frozen=True)
class Curve:
    """One size varied with one solver."""

    vary: str
    solver: str
    points: tuple[Point, ...]

    @property
    def slope(self) -> float:
        """Of the least-squares line through the logarithms of the medians."""
        x = np.log([p.size for p in self.points])
        y = np.log([p.time.median for p in self.points])
        return float(np.polyfit(x, y, 1)[0])

    @property
    def roofline_share(self) -> float:
        """The median over the sizes of the roofline's least time over the measured one."""
        return median(p.least / p.time.median for p in self.points)

    @property
    def last_slope(self) -> float:
        """Between the two largest sizes, where constant costs weigh least."""
        a, b = self.points[-2:]
        return float(np.log(b.time.median / a.time.median) / np.log(b.size / a.size))


@dataclass(frozen=True)
class Case:
    """A fit of a size: what varies, how large it is, and a function from iterations to seconds."""

    size: float
    fit: Fit
    entries: int
    shape: tuple[int, ...]
    k: int
    sparse: bool = False


def measure(p: Parameters, context: Context) -> list[Curve]:
    """All curves; the points of one take turns, so that drift of the machine hits all alike."""
    device = context.device
    clock = Clock.on(device, context.settings.threads)
    curves = []
    with threadpool_limits(context.settings.threads):
        rates = roofline.measure(device, context.dtype)
        for vary in p.vary:
            context.say(f"varying {vary}")
            for solver in p.solvers:
                cases = list(_cases(vary, solver, p, context, clock))
                times = _in_turn(cases, p)
                size = context.dtype.itemsize
                least = [roofline.two_products(rates, c.entries, c.shape, c.k, c.sparse, size) for c in cases]
                points = (Point(c.size, t, s) for c, t, s in zip(cases, times, least, strict=True))
                curves.append(Curve(vary, solver, tuple(points)))
    return curves


def _in_turn(cases: list[Case], p: Parameters) -> list[Spread]:
    """Seconds per iteration of every case; the first round is discarded."""
    seen: list[list[float]] = [[] for _ in cases]
    for turn in range(p.repeats + 1):
        for times, case in zip(seen, cases, strict=True):
            few, many = case.fit(1), case.fit(1 + p.iterations)
            if turn:
                times.append(max(many - few, 1e-9) / p.iterations)  # noise alone could be negative
    return [Spread.of(times) for times in seen]


def _cases(vary: str, solver: str, p: Parameters, context: Context, clock: Clock) -> Iterator[Case]:
    rng = np.random.default_rng(context.settings.seed)
    kinds = {"order": _order, "nonzeros": _nonzeros, "edges": _edges}
    make = kinds.get(vary, _matrix)
    for i in range(p.points):
        yield make(vary, i, solver, p, _Timer(context, clock), rng)


@dataclass(frozen=True)
class _Timer:
    """Fits models on data of the run's type and device, and reads the clock at their last reading."""

    context: Context
    clock: Clock

    def of(self, X: Any, make: Callable[..., Any], y: Any = None) -> Fit:
        X = X.astype(self.context.settings.dtype)
        there = on_device(X, self.context.device)

        def fit(iterations: int) -> float:
            read: list[float] = []
            told = {"max_iter": iterations, "tol": TINY, "init": "random", "random_state": 0}
            model = make(callback=lambda progress: read.append(self.clock.read()), **told)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(there, y)
            return read[-1] - read[0]

        return fit


def _matrix(vary: str, i: int, solver: Any, p: Parameters, timer: _Timer, rng: np.random.Generator) -> Case:
    """Dense matrices: samples, features, components or restarts."""
    grown = lambda name, start: start * 2**i if vary == name else start
    n, m, k = grown("samples", p.samples), grown("features", p.features), grown("rank", p.n_components)
    runs = grown("restarts", 1)
    fit = timer.of(rng.random((n, m)), lambda **told: NMF(k, solver=solver, n_init=runs, **told))
    size = {"samples": n, "features": m, "rank": k, "restarts": runs}[vary]
    return Case(size, fit, n * m, (n, m), k * runs)


def _order(vary: str, i: int, solver: Any, p: Parameters, timer: _Timer, rng: np.random.Generator) -> Case:
    """Tensors of order 2, 3, ... with about as many entries as the matrix of samples x features."""
    order = i + 2
    shape = (max(2, round((p.samples * p.features) ** (1 / order))),) * order
    X = rng.random(shape)
    return Case(
        order, timer.of(X, lambda **told: NTF(p.n_components, solver=solver, **told)), X.size, shape, p.n_components
    )


def _nonzeros(vary: str, i: int, solver: Any, p: Parameters, timer: _Timer, rng: np.random.Generator) -> Case:
    """Sparse matrices ten times as wide and high, from 0.2 % on."""
    shape = (10 * p.samples, 10 * p.features)
    X = sp.random_array(shape, density=min(1.0, 0.002 * 2**i), format="csr", rng=rng)
    fit = timer.of(X, lambda **told: NMF(p.n_components, solver=solver, **told))
    return Case(X.nnz, fit, X.nnz, shape, p.n_components, sparse=True)


def _edges(vary: str, i: int, solver: Any, p: Parameters, timer: _Timer, rng: np.random.Generator) -> Case:
    """NGE on ring-like graphs with ever more neighbours, ten times the samples."""
    n, reach = 10 * p.samples, 2 ** (i + 1)
    graphs = tuple(_ring(n, reach, rng) for _ in range(2))
    q = max(1, p.n_components // 2)
    X = rng.random((n, p.features))
    fit = timer.of(X, lambda **told: NGE(p.n_components, n_discriminative=q, graph=graphs, solver=solver, **told))
    return Case(sum(g.nnz for g in graphs) / 2, fit, X.size, X.shape, p.n_components)


def _ring(n: int, reach: int, rng: np.random.Generator) -> sp.csr_array:
    """Everybody linked to the `reach` next ones of a random order."""
    at = rng.permutation(n)
    i = np.repeat(np.arange(n), reach)
    j = (i + np.tile(np.arange(1, reach + 1), n)) % n
    A = sp.csr_array((np.ones(n * reach), (at[i], at[j])), shape=(n, n))
    return sp.csr_array(A.maximum(A.T))
