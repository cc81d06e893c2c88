"""Many restarts: one batch, against a loop of scikit-learn's and against a loop of our own, from the same starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nnfactor import NMF
from nnfactor.core import as_data
from nnfactor.core.solve import init

from ...timing.clock import Clock
from .methods import TINY, build, objective, on_device, quiet
from .numbers import Reached, Trail
from .problems import RESTARTS
from .race import WARM_UP, rungs

ROUNDING = 1 + 1e-6  # of an objective in float32: runs that end in one optimum differ by that, on no merit of theirs


@dataclass(frozen=True)
class Restarts:
    """How long a batch takes to the median and to the best objective that scikit-learn's loop ends with, but rounding.

    Attributes
    ----------
    loop_seconds, loop_iterations : float
        Of scikit-learn's `cd` at its default tolerance, all restarts; None where it did not run.
    batch : dict of Reached or None
        "median" and "best": when our batch is there.
    own_seconds : float
        A loop of our own runs, each as long as the batch needs to the median.
    batch_seconds : float
        The batch over that many iterations.
    """

    problem: str
    title: str
    count: int
    loop_seconds: float | None
    loop_iterations: float | None
    targets: dict[str, float]
    batch: dict[str, Reached | None]
    own_seconds: float
    batch_seconds: float

    def speedup(self, target: str) -> float | None:
        """Divide the loop's time by the batch's: None without a loop, 0 where the batch never arrives."""
        if not self.loop_seconds:
            return None
        there = self.batch.get(target)
        return self.loop_seconds / there.seconds if there else 0.0

    @property
    def own_speedup(self) -> float:
        """Our own loop's time over the batch's, the same iterations."""
        return self.own_seconds / self.batch_seconds


def run_restarts(name: str, count: int, device: Any, clock: Clock, seed: int, skip_rival: bool) -> Restarts:
    """Everything on one problem."""
    spec = RESTARTS[name]
    X = spec.make(None, seed).astype(np.float32)
    batch = _Batch(on_device(X, device), spec.n_components, count, clock, seed)
    starts = batch.starts()
    squared = objective(X, spec.loss)
    loop = None if skip_rival else _loop(X, spec.n_components, starts, clock)
    ends = np.array([squared(F) for F in (loop[2] if loop else [s for s in starts])])
    if loop is None:  # no rival: where 100 of our own iterations end
        ends = batch.run(100)[1]
    targets = {"median": float(np.median(ends)) * ROUNDING, "best": float(ends.min()) * ROUNDING}
    trails = batch.climb(targets)
    there = {t: trail.reach(targets[t]) for t, trail in trails.items()}
    reached = there["median"]
    n = max(1, int(np.ceil(reached.iterations))) if reached else 100
    method = build("ours", X, spec, clock, device)
    method.fit(starts[0], WARM_UP)
    own = sum(method.fit(s, n).seconds for s in starts)
    seconds, _ = batch.run(n)
    return Restarts(
        name, spec.title, count, loop and loop[0], loop and float(np.mean(loop[1])), targets, there, own, seconds
    )


@dataclass
class _Batch:
    """`NMF(n_init=count)` on some data."""

    X: Any
    k: int
    count: int
    clock: Clock
    seed: int

    def starts(self) -> list[list[np.ndarray]]:
        """Draw the estimator's starts, from the seeds that it publishes."""
        data = as_data(self.X)
        model = self._fit(1, lambda progress: None)
        drawn = [init.random(data, self.k, s) for s in model.fit_info_["seeds"]]
        return [[np.ascontiguousarray(F.cpu().numpy()) for F in Fs] for Fs in drawn]

    def run(self, iterations: int) -> tuple[float, np.ndarray]:
        """Seconds up to the last reading, and the objectives."""
        read: list[float] = []
        began = self.clock.read()
        model = self._fit(iterations, lambda progress: read.append(self.clock.read()))
        loss = model.restarts_["loss"]
        return read[-1] - began, np.asarray(loss.cpu() if isinstance(loss, torch.Tensor) else loss, dtype=float)

    def climb(self, targets: dict[str, float], max_iter: int = 1000) -> dict[str, Trail]:
        """Record the median and the best objective, up a ladder of iteration counts, until both are there."""
        self.run(WARM_UP)
        points: dict[str, list[tuple[int, float, float]]] = {"median": [], "best": []}
        for n in rungs(max_iter, 1.25):
            seconds, loss = self.run(n)
            now = {"median": float(np.median(loss)), "best": float(loss.min())}
            for t, value in now.items():
                points[t].append((n, seconds, value))
            if all(now[t] <= targets[t] for t in targets):
                break
        return {t: Trail(((0, 0.0, np.inf), *p), "") if len(p) < 2 else Trail(tuple(p), "") for t, p in points.items()}

    def _fit(self, iterations: int, callback: Any) -> NMF:
        with quiet():
            return NMF(
                self.k,
                init="random",
                n_init=self.count,
                max_iter=iterations,
                tol=TINY,
                random_state=self.seed,
                callback=callback,
            ).fit(self.X)


def _loop(X: np.ndarray, k: int, starts: list[list[np.ndarray]], clock: Clock) -> tuple[float, list[int], list[Any]]:
    """scikit-learn's `cd` from every start at its default tolerance and limit: seconds, iterations, factors."""
    from sklearn.decomposition import non_negative_factorization as factorize

    def one(V: np.ndarray, U: np.ndarray, **limits: Any) -> tuple[float, Any]:
        W, H = V.copy(), np.array(U.T, order="C")
        return clock.time(lambda: factorize(X, W, H, n_components=k, init="custom", solver="cd", **limits))

    with quiet():
        one(*starts[0], max_iter=2)
        ends = [one(V, U) for V, U in starts]
    return sum(s for s, _ in ends), [n for _, (_, _, n) in ends], [[W, H.T] for _, (W, H, _) in ends]
