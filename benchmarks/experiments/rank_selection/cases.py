"""Data whose expectation has a known rank, with noise that keeps it. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SNR = (1.0, 2.0, 5.0, 10.0)  # sum of squares of the expectation over that of the noise

RANKS = range(3, 13)


@dataclass(frozen=True)
class Kind:
    """A kind of data: the loss that is minimised, the noise, and the shape."""

    loss: Any  # as NMF takes it
    noise: str
    shape: tuple[int, ...]


KINDS = {
    "matrix, Frobenius": Kind("frobenius", "gamma", (400, 300)),
    "matrix, Kullback-Leibler": Kind("kullback-leibler", "poisson", (150, 100)),
    "tensor, Frobenius": Kind("frobenius", "poisson", (60, 50, 40)),
}


def make_case(kind: Kind, number: int, seed: int) -> tuple[Any, int, float]:
    """Make the data of a case, their rank, and the signal-to-noise ratio.

    Factors have three entries in ten, between 0.5 and 1.5. "poisson": counts of that expectation, whose level gives
    the ratio; "gamma": times independent numbers of mean 1.
    """
    random = np.random.default_rng([seed, number])
    k, snr = RANKS[number % len(RANKS)], SNR[(number + number // len(RANKS)) % len(SNR)]
    factors = [(random.random((d, k)) < 0.3) * random.uniform(0.5, 1.5, (d, k)) for d in kind.shape]
    letters = "abcdefg"[: len(factors)]
    Y = np.einsum(",".join(f"{letter}r" for letter in letters) + "->" + letters, *factors)
    if kind.noise == "gamma":
        return Y * random.gamma(snr, 1 / snr, Y.shape), k, snr
    return random.poisson(snr * Y.sum() / np.square(Y).sum() * Y).astype(np.float64), k, snr


def make_noise(kind: Kind, number: int, seed: int) -> Any:
    """Make noise without components: every entry has the same expectation."""
    random = np.random.default_rng([seed, number, 1])
    if kind.noise == "gamma":
        return random.gamma(1.0, 1.0, kind.shape)
    return random.poisson(1.0, kind.shape).astype(np.float64)
