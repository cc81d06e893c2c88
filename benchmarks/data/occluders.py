"""Patches with the shading of real objects, made here: what covers a part of a test image. NumPy only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SHADE = 0.3  # of the ground around an object


def occlude(images: Array, patch: int, kind: str, seed: int, full: int = 64) -> Array:
    """Cover images (n, h, w) in [0, 1], each with a square patch at a place of its own.

    Parameters
    ----------
    patch : side of the square in an image of `full` pixels; scaled to the height of these
    kind : a name in `OBJECTS`, or "any" for a random one on each image
    seed : of the places (and the kinds): the same images give the same places at every size of patch
    """
    n, h, w = images.shape
    side = round(patch * h / full)
    if side < 1:
        return images
    rng = np.random.default_rng(seed)
    places, drawn = rng.random((n, 2)), rng.integers(len(OBJECTS), size=(n,))
    objects = list(OBJECTS.values()) if kind == "any" else [OBJECTS[kind]] * len(OBJECTS)
    covers = [make(side) for make in objects]
    found = images.copy()
    for image, (down, across), which in zip(found, places, drawn, strict=True):
        top, left = int(down * (h - side + 1)), int(across * (w - side + 1))
        image[top : top + side, left : left + side] = covers[which]
    return found


def bank(side: int) -> Array:
    """Draw a piggy bank: a bright ball with a highlight, a dark slot on top, an ear, an eye and a snout."""
    y, x = _grid(side)
    body, light = _ball(y, x, 0.05, 0.0, 0.8, 0.9)
    found = np.where(body, 0.45 + 0.45 * light, SHADE)
    found = _spot(found, y, x, (-0.62, 0.0), (0.06, 0.3), 0.1)
    found = _spot(found, y, x, (-0.55, -0.5), (0.22, 0.14), 0.5)
    found = _spot(found, y, x, (-0.15, -0.45), (0.09, 0.09), 0.05)
    return _spot(found, y, x, (0.15, -0.65), (0.2, 0.16), 0.6)


def strawberry(side: int) -> Array:
    """Draw a strawberry: dark and pointed below, with rows of bright seeds and a crown of leaves."""
    y, x = _grid(side)
    width = 0.85 * np.sqrt(np.clip((1 - y) * (y + 1.2) / 1.21, 0, None))
    body = (np.abs(x) < width) & (y > -0.75)
    seeds = (np.cos(9 * np.pi * (x + 0.11 * np.round(4 * y)) / 2) > 0.8) & (np.cos(8 * np.pi * y / 2) > 0.6)
    found = np.where(body, 0.25 + 0.2 * np.exp(-4 * ((x + 0.3) ** 2 + (y + 0.3) ** 2)), 0.75)
    found = np.where(body & seeds, 0.7, found)
    return np.where((y < -0.55 + 0.2 * np.cos(6 * np.pi * x)) & (np.abs(x) < 0.7), 0.5, found)


def can(side: int) -> Array:
    """Draw a pop can: an upright cylinder with bright rims, a broad band and stripes of letters on it."""
    y, x = _grid(side)
    body = np.abs(x) < 0.75
    round_ = np.sqrt(np.clip(1 - (x / 0.75) ** 2, 0, None))
    paint = np.where(np.abs(y) > 0.85, 0.95, np.where(np.abs(y - 0.25 * x) < 0.3, 0.9, 0.35))
    letters = (np.abs(y - 0.25 * x) < 0.15) & (np.cos(7 * np.pi * x) > 0.2)
    return np.where(body, np.where(letters, 0.2, paint) * (0.35 + 0.65 * round_), SHADE)


def _grid(side: int) -> tuple[Array, Array]:
    """Down and across, -1 to 1."""
    line = (2 * np.arange(side) + 1) / side - 1
    return line[:, None] + 0 * line, line + 0 * line[:, None]


def _ball(y: Array, x: Array, down: float, across: float, height: float, width: float) -> tuple[Array, Array]:
    """Where an ellipsoid is, and how bright under a lamp from the upper left."""
    v, u = (y - down) / height, (x - across) / width
    depth = np.sqrt(np.clip(1 - v**2 - u**2, 0, None))
    return np.asarray(depth > 0), np.clip(-0.5 * v - 0.4 * u + 0.77 * depth, 0, 1)


def _spot(image: Array, y: Array, x: Array, at: tuple[float, float], size: tuple[float, float], grey: float) -> Array:
    inside = ((y - at[0]) / size[0]) ** 2 + ((x - at[1]) / size[1]) ** 2 < 1
    return np.where(inside, grey, image)


OBJECTS: dict[str, Callable[[int], Array]] = {"bank": bank, "strawberry": strawberry, "can": can}
