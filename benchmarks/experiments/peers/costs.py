"""What an iteration costs against the products that it cannot do without, and how much memory a run takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from nnfactor.core import Fit, as_data, multiplicative, step
from nnfactor.core.factors import as_factor, khatri_rao

from ...timing.clock import Clock, Lane, Spread, pair_ratios, per_iteration, race
from ...timing.memory import peak_growth
from .methods import Factors, Method, build, on_device
from .problems import SPARSE, Spec, starts

TURNS = 9


@dataclass(frozen=True)
class Costs:
    """Ratios of one problem; `note` says of what to what, seconds are the denominators."""

    title: str
    ratios: dict[str, Spread]
    seconds: float
    memory: float | None = None  # peak over data and factors


def data_products(X: Any, start: Factors, device: Any) -> Callable[[], Any]:
    """Make a call of the two products of an iteration with the data (array or CSR), at the start."""
    data = as_data(on_device(X, device))
    Fs = [as_factor(torch.as_tensor(F).to(device)) for F in start]
    left, right = (as_factor(khatri_rao(group)) for group in (Fs[: data.cut], Fs[data.cut :]))

    def work() -> None:
        data.times(right)
        data.times_transposed(left)

    return work


def time_products(X: Any, start: Factors, device: Any, clock: Clock) -> Spread:
    """Time `data_products`."""
    work = data_products(X, start, device)
    work()
    return Spread.of([clock.time(work)[0] for _ in range(TURNS)])


def multiplicative_sweep(X: np.ndarray, spec: Spec, start: Factors, device: Any, clock: Clock) -> Costs:
    """Compare a multiplicative sweep with its two products with the data, turn by turn."""
    modes = ("V", *(f"U{b}" for b in range(1, X.ndim)))
    factors = {n: as_factor(torch.as_tensor(F).to(device)) for n, F in zip(modes, start, strict=True)}
    sweep = step([Fit(as_data(on_device(X, device)), modes)], dict.fromkeys([*modes[1:], "V"], multiplicative))
    products = data_products(X, start, device)
    lanes = [
        Lane("sweep", torch.no_grad()(sweep), {"factors": factors}, 3 * TURNS),
        Lane("products", _keep_state(products), {}, 3 * TURNS),
    ]
    race(lanes, range(0, 3 * TURNS + 1, 3), clock)
    ratio = pair_ratios(lanes[0].stretches, lanes[1].stretches)
    return Costs(spec.title, {"multiplicative": ratio}, per_iteration(lanes[1].stretches).median)


def sparse_iterations(name: str, device: Any, clock: Clock, seed: int) -> Costs:
    """Compare iterations of two solvers with their sparse products and Grams; measure the memory of a run."""
    spec = SPARSE[name]
    X = spec.make(None, seed).astype(np.float32)
    start = starts(X.shape, spec.n_components, X.mean(), 1, seed)[0]
    methods = {n: build(n, X, spec, clock, device) for n in ("ours_mu", "ours")}
    products, grams = data_products(X, start, device), _grams(start, device)
    rows: dict[str, list[float]] = {n: [] for n in methods}
    least = []
    for turn in range(TURNS):
        with torch.no_grad():
            least.append(clock.time(lambda: [(products(), grams()) for _ in range(5)])[0] / 5)
        for n, m in methods.items():
            more = m.fit(start, 12).seconds - m.fit(start, 2).seconds  # without what a call costs beside iterations
            rows[n].append(more / 10 / least[-1])
        if turn == 0:
            rows, least = {n: [] for n in methods}, []  # first calls
    bytes_data = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    growth = peak_growth(lambda: methods["ours"].fit(start, 3), device)
    whole = bytes_data + sum(F.nbytes for F in start)
    memory = None if growth is None else (growth + bytes_data) / whole
    return Costs(spec.title, {n: Spread.of(r) for n, r in rows.items()}, float(np.median(least)), memory)


def memory(methods: Sequence[Method], start: Factors, device: Any) -> dict[str, int | None]:
    """Bytes that three iterations need on top of the data and the start."""
    return {m.name: peak_growth(partial(m.fit, start, 3), device) for m in methods}


def _grams(start: Factors, device: Any) -> Callable[[], Any]:
    """Per factor a Gram and a product with one: what every rule needs beside the data products."""
    Fs = [as_factor(torch.as_tensor(F).to(device)) for F in start]

    def work() -> None:
        for F in Fs:
            G = F.mT @ F
            G @ F.mT

    return work


def _keep_state(work: Callable[[], Any]) -> Callable[[Any], Any]:
    def same(state: Any) -> Any:
        with torch.no_grad():
            work()
        return state

    return same
