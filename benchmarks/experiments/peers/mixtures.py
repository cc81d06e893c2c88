"""Generated data with the structure of some fields: spectra, gene expression, sound, moving pictures. NumPy only."""

from __future__ import annotations

import numpy as np


def spectra(shape: tuple[int, int], k: int, noise: float, seed: int) -> np.ndarray:
    """Mix spectra of a few broad peaks: rows are samples whose shares add up to 1, columns are bands.

    Normal noise of `noise` times the deviation is added; negative entries are cut at 0.
    """
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(k, 0.5), size=shape[0])
    pure = _peaks(rng, np.linspace(0, 1, shape[1]), k, peaks=6, widths=(0.01, 0.08))
    X = shares @ pure
    return np.maximum(X + noise * X.std() * rng.normal(size=shape), 0)


def expression(shape: tuple[int, int], k: int, seed: int) -> np.ndarray:
    """Draw expression of genes (columns) in samples (rows): k kinds of samples, log-normal levels and noise.

    A gene has a level of its own, over three orders of magnitude; every kind raises a tenth of the genes.
    """
    rng = np.random.default_rng(seed)
    level = np.exp(rng.normal(scale=1.5, size=shape[1]))
    raised = np.exp(rng.gamma(1.0, size=(k, shape[1])) * (rng.random((k, shape[1])) < 0.1))
    shares = rng.dirichlet(np.full(k, 0.3), size=shape[0])
    return (shares @ (level * raised)) * np.exp(0.3 * rng.normal(size=shape))


def spectrogram(shape: tuple[int, int], k: int, seed: int) -> np.ndarray:
    """Draw magnitudes of sound, frequency x time: k notes with their overtones, struck now and then and fading.

    Every magnitude is that of a complex normal number (Rayleigh), as the short-time transform of noise has them.
    """
    rng = np.random.default_rng(seed)
    at = np.arange(shape[0])[:, None]
    notes = np.zeros((shape[0], k))
    for i, pitch in enumerate(rng.uniform(0.01, 0.05, k) * shape[0]):
        overtones = pitch * np.arange(1, 16)
        notes[:, i] = (np.exp(-0.5 * ((at - overtones) / 1.5) ** 2) / np.arange(1, 16)).sum(1)
    struck = (rng.random((k, shape[1])) < 0.01) * rng.gamma(2.0, size=(k, shape[1]))
    sounding = np.zeros_like(struck)
    for t in range(shape[1]):
        sounding[:, t] = struck[:, t] + (0.97 * sounding[:, t - 1] if t else 0)
    return (notes @ sounding + 1e-3) * rng.rayleigh(0.8, size=shape)


def video(shape: tuple[int, int, int], k: int, seed: int) -> np.ndarray:
    """Film k bright spots that wander over a resting background: frame x row x column, with a little noise."""
    rng = np.random.default_rng(seed)
    frames, height, width = shape
    down, across = np.linspace(0, 1, height)[:, None], np.linspace(0, 1, width)[None, :]
    X = 0.2 + 0.1 * np.sin(5 * down) * np.cos(4 * across) + 0.02 * rng.normal(size=shape)
    for _ in range(k):
        speed, phase = rng.uniform(0.5, 3, 2), rng.uniform(0, 2 * np.pi, 2)
        time = 2 * np.pi * np.arange(frames) / frames
        y, x = (0.5 + 0.4 * np.sin(s * time + p) for s, p in zip(speed, phase, strict=True))
        rows = np.exp(-(((down[None, :, 0] - y[:, None]) / 0.08) ** 2))
        columns = np.exp(-(((across[None, 0] - x[:, None]) / 0.08) ** 2))
        X += 0.5 * rows[:, :, None] * columns[:, None, :]
    return np.maximum(X, 0)


def _peaks(rng: np.random.Generator, at: np.ndarray, count: int, peaks: int, widths: tuple[float, float]) -> np.ndarray:
    """Draw `count` curves, each a sum of Gaussian peaks."""
    middles, heights = rng.random((count, peaks, 1)), rng.gamma(1.0, size=(count, peaks, 1))
    return (heights * np.exp(-0.5 * ((at - middles) / rng.uniform(*widths, (count, peaks, 1))) ** 2)).sum(1)
