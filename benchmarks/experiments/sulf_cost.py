"""What one iteration of SULF costs against the multiplicative NMF iterations of its views together.

`python -m benchmarks.experiments.sulf_cost` prints milliseconds and their ratio, for bare sweeps without objectives,
all on the same data, taken in turn; the fastest of several rounds counts. NMF goes one iteration of every view at a
time, as SULF has to ("together"), and view after view, so that a small view never leaves the cache ("one by one").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from nnfactor.core import L2, L21, Fit, as_data, multiplicative, step
from nnfactor.core.rules.closed_form import least_squares, simplex
from nnfactor.core.terms.multiview import Labels, Views

from ..timing.clock import Clock, time_rounds

# those of Jiang et al. 2014 and of a common small set
SHAPES = {  # samples, features of the views, components, classes, labelled share
    "mfeat, 10 %": (2000, (76, 216, 240, 47, 6), 50, 10, 0.1),
    "mfeat, 30 %": (2000, (76, 216, 240, 47, 6), 50, 10, 0.3),
    "NUS-WIDE, 10 %": (3100, (1000, 1000, 1000), 200, 31, 0.1),
    "NUS-WIDE, 50 %": (3100, (1000, 1000, 1000), 200, 31, 0.5),
}


def costs(
    n: int, widths: tuple[int, ...], k: int, classes: int, share: float, rounds: int = 15, device: str = "cpu"
) -> list[float]:
    """Seconds of an iteration, the fastest of `rounds`: SULF, NMF of all views together, NMF of them one by one."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.rand(*shape, generator=generator).to(device)
    views, names = [as_data(draw(n, m)) for m in widths], [f"U{p + 1}" for p in range(len(widths))]
    factors = {"V": draw(k, n).mT, **{U: draw(k, m).mT for U, m in zip(names, widths, strict=True)}}
    factors |= {"pi": torch.full((1, len(widths)), 1 / len(widths), device=device), "W": draw(classes, k).mT}
    targets = torch.eye(classes, device=device)[torch.arange(n) % classes]
    labels = Labels(targets, torch.randperm(n, generator=generator).to(device) < share * n)
    fits = tuple(Fit(X, ("V", U)) for X, U in zip(views, names, strict=True))
    rules = {"W": least_squares, **dict.fromkeys([*names, "V"], multiplicative), "pi": simplex}
    sulf = step([Views(fits), labels, L21("W", 0.01), L2("pi", 1.0)], rules)
    alone = [
        step([Fit(X, ("V", U))], dict.fromkeys([U, "V"], multiplicative)) for X, U in zip(views, names, strict=True)
    ]
    works: dict[str, Callable[[], Any]] = {
        "SULF": partial(_sweep, [sulf], factors),
        "together": partial(_sweep, alone, factors),
        "one by one": lambda: [_sweep([each], factors) for each in alone],
    }
    times = list(time_rounds(works, rounds, Clock.on(torch.device(device))))
    return [min(t[name] for t in times) / SWEEPS for name in works]


SWEEPS = 10


def _sweep(sweeps: list[Callable], factors: dict[str, torch.Tensor]) -> list[Any]:
    """Run iterations of all of them, each on a state of its own."""
    states: list[Any] = [{"factors": factors} for _ in sweeps]
    for _ in range(SWEEPS):
        states = [sweep(state) for sweep, state in zip(sweeps, states, strict=True)]
    return states


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{device}, {torch.get_num_threads()} threads, torch {torch.__version__}, float32")
    with torch.no_grad():
        for name, shape in SHAPES.items():
            sulf, together, apart = costs(*shape, device=device)
            print(
                f"{name:16s} SULF {1e3 * sulf:8.2f} ms   NMF of all views together {1e3 * together:8.2f} ms, ratio "
                f"{sulf / together:.2f}   one by one {1e3 * apart:8.2f} ms, ratio {sulf / apart:.2f}"
            )
