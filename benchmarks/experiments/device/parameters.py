"""What a run on a device can be asked for."""

from __future__ import annotations

from dataclasses import dataclass

from ...harness.words import check_names, check_positive

SECONDS = {  # what a part may take; it ends with the case that is being measured
    "roofs": 20.0,
    "tests": 180.0,
    "sweep": 70.0,
    "iterations": 90.0,
    "sparse": 60.0,
    "restarts": 90.0,
    "tf32": 60.0,
}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    parts : names in `SECONDS`, in the order in which they run
    ranks : of sweeps
    densities : stored per cent of sparse data
    restarts : how many run as one batch
    shrink : what the sizes of all data are divided by
    iterations : of a timed fit
    repeats : of a timed call; medians count
    tests : files or folders with tests marked `gpu`
    """

    parts: tuple[str, ...] = tuple(SECONDS)
    ranks: tuple[int, ...] = (20, 50, 128)
    densities: tuple[int, ...] = (1, 5, 16)
    restarts: tuple[int, ...] = (100, 1000)
    shrink: int = 1
    iterations: int = 40
    repeats: int = 3
    tests: tuple[str, ...] = ("tests",)

    def __post_init__(self) -> None:
        check_names("part", self.parts, SECONDS)
        check_positive(self, "ranks", "densities", "restarts", "shrink", "iterations", "repeats")
