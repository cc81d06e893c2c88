"""What one iteration of SULF costs against the multiplicative NMF iterations of its views together.

`python -m benchmarks.sulf_cost` prints milliseconds and their ratio, for bare sweeps without objectives (which cost NMF
more, and with them the ratio is lower); both run in one process on the same data, taken in turn, and the fastest of
several rounds counts. Shapes are those of paper 001's data sets and of common small ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from nnfactor.core import L2, L21, Fit, multiplicative, step
from nnfactor.core.views import Labels, Views, least_squares, simplex

SHAPES = {  # samples, features of the views, components, classes, labelled share
    "mfeat, 10 %": (2000, (76, 216, 240, 47, 6), 50, 10, 0.1),
    "mfeat, 30 %": (2000, (76, 216, 240, 47, 6), 50, 10, 0.3),
    "NUS-WIDE, 10 %": (3100, (1000, 1000, 1000), 200, 31, 0.1),
    "NUS-WIDE, 50 %": (3100, (1000, 1000, 1000), 200, 31, 0.5),
}


def costs(
    n: int, widths: tuple[int, ...], k: int, classes: int, share: float, rounds: int = 15, device: str = "cpu"
) -> tuple[float, float]:
    """Seconds of one SULF iteration and of one NMF iteration of every view, the fastest of `rounds`."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.rand(*shape, generator=generator).to(device)
    views, names = [draw(n, m) for m in widths], [f"U{p + 1}" for p in range(len(widths))]
    factors = {"V": draw(k, n).mT, **{U: draw(k, m).mT for U, m in zip(names, widths, strict=True)}}
    factors |= {"pi": torch.full((1, len(widths)), 1 / len(widths), device=device), "W": draw(classes, k).mT}
    targets = torch.eye(classes, device=device)[torch.arange(n) % classes]
    labels = Labels(targets, torch.arange(n, device=device) < share * n)
    fits = tuple(Fit(X, ("V", U)) for X, U in zip(views, names, strict=True))
    rules = {"W": least_squares, **dict.fromkeys([*names, "V"], multiplicative), "pi": simplex}
    sulf = step([Views(fits), labels, L21("W", 0.01), L2("pi", 1.0)], rules)
    alone = [
        step([Fit(X, ("V", U))], dict.fromkeys([U, "V"], multiplicative)) for X, U in zip(views, names, strict=True)
    ]
    together = partial(_sweeps, sulf, factors)
    apart = lambda: [_sweeps(sweep, factors) for sweep in alone]
    together(), apart()
    times = [(_seconds(together, device), _seconds(apart, device)) for _ in range(rounds)]
    return min(t for t, _ in times) / SWEEPS, min(t for _, t in times) / SWEEPS


SWEEPS = 10


def _sweeps(sweep: Callable, factors: dict[str, torch.Tensor]) -> None:
    state = {"factors": factors}
    for _ in range(SWEEPS):
        state = sweep(state)


def _seconds(f: Callable, device: str) -> float:
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    began = time.perf_counter()
    f()
    wait()
    return time.perf_counter() - began


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{device}, {torch.get_num_threads()} threads, torch {torch.__version__}, float32")
    with torch.no_grad():
        for name, shape in SHAPES.items():
            sulf, nmf = costs(*shape, device=device)
            print(
                f"{name:16s} SULF {1e3 * sulf:8.2f} ms   NMF of all views {1e3 * nmf:8.2f} ms   ratio {sulf / nmf:.2f}"
            )
