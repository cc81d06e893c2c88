"""Face-like images that need no file. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def faces(shape: tuple[int, int], people: int, per_person: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Face-like images in [0, 1] with labels: what aligned portraits have in common, not what they look like.

    One oval that all share; per person a smooth low-frequency template and dark and bright parts (eyes, nose, mouth)
    at personal places and sizes; per image parts that move a little, a linear illumination gradient of random
    direction and strength, a gain, and pixel noise of standard deviation 0.03.
    """
    rng = np.random.default_rng(seed)
    down, across = np.meshgrid(*(np.linspace(-1, 1, s) for s in shape), indexing="ij")
    waves = _low_frequencies(shape, 6)
    oval = 0.45 * np.exp(-1.2 * across**2 - 0.6 * down**2)
    images = []
    for _ in range(people):
        template = oval + 0.15 + 0.35 * np.tensordot(rng.normal(size=len(waves)), waves, 1)
        parts = _PARTS + rng.normal(scale=(0.06, 0.06, 0.03, 0.02, 0.06), size=_PARTS.shape)
        for _ in range(per_person):
            moved = parts + rng.normal(scale=(0.02, 0.02, 0.01, 0.01, 0.03), size=parts.shape)
            light = rng.normal(scale=0.08, size=2)
            image = template + sum(_blob(down, across, *part) for part in moved)
            image = rng.uniform(0.85, 1.15) * image + light[0] * down + light[1] * across
            images.append(image + rng.normal(scale=0.03, size=shape))
    return np.clip(np.array(images), 0, 1), np.repeat(np.arange(people), per_person)


def _low_frequencies(shape: tuple[int, int], count: int) -> Array:
    """Make the lowest `count` x `count` cosines but the constant, weaker with frequency: (count^2 - 1, *shape)."""
    axes = [np.cos(np.pi * np.outer(np.arange(count), (np.arange(s) + 0.5) / s)) for s in shape]
    i, j = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    waves = np.einsum("ih,jw->ijhw", *axes) / (1 + i + j)[..., None, None] ** 2
    return waves.reshape(-1, *shape)[1:]


def _blob(down: Array, across: Array, y: float, x: float, height: float, width: float, gain: float) -> Array:
    return gain * np.exp(-(((down - y) / height) ** 2) - ((across - x) / width) ** 2)


# where the parts of a face are (down, across), their size and how much brighter than the skin they are
_PARTS = np.array(
    [
        (-0.25, -0.4, 0.12, 0.16, -0.35),
        (-0.25, 0.4, 0.12, 0.16, -0.35),
        (-0.45, -0.4, 0.07, 0.22, -0.2),
        (-0.45, 0.4, 0.07, 0.22, -0.2),
        (0.1, 0.0, 0.25, 0.10, 0.2),
        (0.5, 0.0, 0.1, 0.3, -0.3),
    ]
)
