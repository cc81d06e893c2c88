"""Data whose expectation has a known rank, with noise that keeps it. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SNR = (1.0, 2.0, 5.0, 10.0)  # sum of squares of the expectation over that of the noise

RANKS = range(3, 13)


@dataclass(frozen=True)
class Kind:
    """A kind of data: the loss that is minimised, the noise, and the shapes, which the cases take in turn."""

    loss: Any  # as NMF takes it
    noise: str
    shapes: tuple[tuple[int, ...], ...]

    @property
    def is_tensor(self) -> bool:
        """Whether the data have more than two modes."""
        return len(self.shapes[0]) > 2


MATRICES = ((120, 80), (300, 200), (1000, 60))

KINDS = {
    "matrix, Frobenius": Kind("frobenius", "gamma", MATRICES),
    "matrix, Kullback-Leibler": Kind("kullback-leibler", "poisson", MATRICES),
    "tensor, Frobenius": Kind("frobenius", "poisson", ((30, 25, 20), (60, 50, 10), (60, 50, 40))),
}


def make_case(kind: Kind, number: int, seed: int) -> tuple[Any, int, float]:
    """Make the data of a case, their rank, and the signal-to-noise ratio.

    Factors have three entries in ten, and three in each column at least, between 0.5 and 1.5. "poisson": counts of that
    expectation, whose level gives the ratio; "gamma": times independent numbers of mean 1.
    """
    random = np.random.default_rng([seed, number])
    k, snr = RANKS[number % len(RANKS)], SNR[(number + number // len(RANKS)) % len(SNR)]
    factors = [_draw_factor(random, d, k) for d in kind.shapes[number % len(kind.shapes)]]
    letters = "abcdefg"[: len(factors)]
    Y = np.einsum(",".join(f"{letter}r" for letter in letters) + "->" + letters, *factors)
    if kind.noise == "gamma":
        return Y * random.gamma(snr, 1 / snr, Y.shape), k, snr
    return random.poisson(snr * Y.sum() / np.square(Y).sum() * Y).astype(np.float64), k, snr


def _draw_factor(random: np.random.Generator, d: int, k: int) -> Any:
    on = random.random((d, k)) < 0.3
    for j in range(k):
        while on[:, j].sum() < min(3, d):
            on[random.integers(d), j] = True
    return on * random.uniform(0.5, 1.5, (d, k))


def make_noise(kind: Kind, number: int, seed: int) -> Any:
    """Make noise without components: every entry has the same expectation."""
    random, shape = np.random.default_rng([seed, number, 1]), kind.shapes[number % len(kind.shapes)]
    if kind.noise == "gamma":
        return random.gamma(1.0, 1.0, shape)
    return random.poisson(1.0, shape).astype(np.float64)
