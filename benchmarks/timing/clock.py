"""Timing: what is measured, in which order, and what stays outside the clock.

Methods that are compared run as `Lane`s of one `race`: a few iterations of one, then of the next, round after round,
so that a machine that slows down or speeds up meanwhile hits them all alike. The first call of each is discarded
(lazy initialisation, first touch of memory). Whatever an observer computes runs between the timed stretches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

State = Any

T = TypeVar("T")

K = TypeVar("K")

Stretches = Sequence[tuple[int, float]]  # iterations and their seconds, turn by turn


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of `count` measurements."""

    median: float
    min: float
    max: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one number."""
        return cls(median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Clock:
    """Time of a call, the device's queue emptied before and after it.

    `now` is the wall clock, or the processor time of this process: with one thread on the CPU both are the same on an
    idle machine, and only the second is still right on a busy one.
    """

    synchronise: Callable[[], Any] = lambda: None
    now: Callable[[], float] = time.perf_counter

    @classmethod
    def on(cls, device: Any, threads: int | None = None) -> Clock:
        """For a torch device; processor time when told that there is one thread, on the CPU."""
        if device.type != "cuda":
            return cls(now=time.process_time if threads == 1 else time.perf_counter)
        import torch

        return cls(lambda: torch.cuda.synchronize(device))

    def read(self) -> float:
        """Read the time, everything that was started being finished."""
        self.synchronise()
        return self.now()

    def time(self, work: Callable[[], T]) -> tuple[float, T]:
        """Time a call; give the seconds and what it returned."""
        start = self.read()
        value = work()
        return self.read() - start, value


@dataclass
class Lane:
    """One method in a race.

    Attributes
    ----------
    name : str
    step : callable, state -> state
        One iteration.
    state : object
        Where it starts, then where it is.
    iterations : int
        How many it runs at most.
    stretches : list of (iterations, seconds)
        What was measured.
    """

    name: str
    step: Callable[[State], State]
    state: State
    iterations: int
    stretches: list[tuple[int, float]] = field(default_factory=list)

    def advance(self, count: int) -> None:
        """Run some iterations."""
        for _ in range(count):
            self.state = self.step(self.state)


def time_rounds(
    works: Mapping[K, Callable[[], Any]], rounds: int, clock: Clock, tick: Callable[[int], Any] = lambda steps: None
) -> Iterator[dict[K, float]]:
    """Time every work once a round, in alternating order; the first round is discarded."""
    for turn in range(rounds + 1):
        order = list(works) if turn % 2 else list(works)[::-1]
        seconds = {}
        for key in order:
            seconds[key], _ = clock.time(works[key])
            tick(1)
        if turn:
            yield seconds


def per_iteration(stretches: Stretches) -> Spread:
    """Measure seconds per iteration, over the stretches of full length."""
    longest = max(n for n, _ in stretches)
    return Spread.of([seconds / n for n, seconds in stretches if n == longest])


def pair_ratios(ours: Stretches, theirs: Stretches) -> Spread:
    """Take the ratios of times of the same turn, over the turns of full length: what slows a whole turn down cancels.

    Lanes of one race, which have their turns in common from the first on.

    >>> pair_ratios([(1, 9.0), (2, 2.0), (2, 8.0)], [(1, 1.0), (2, 1.0), (2, 4.0)])
    Spread(median=2.0, min=2.0, max=2.0, count=2)
    """
    both = [(n, a / b) for (n, a), (_, b) in zip(ours, theirs, strict=False)]
    longest = max(n for n, _ in both)
    return Spread.of([ratio for n, ratio in both if n == longest])


def race(
    lanes: Sequence[Lane],
    stops: Sequence[int],
    clock: Clock,
    look: Callable[[Lane, int], Any] = lambda lane, iteration: None,
    tick: Callable[[int], Any] = lambda steps: None,
) -> None:
    """Run every lane from stop to stop, in turn; whoever starts a round goes last in the next.

    `look(lane, iteration)` is called outside the clock with the lane at its start (iteration 0) and at every stop;
    `tick(iterations)` after every stretch.
    """
    for lane in lanes:
        lane.step(deepcopy(lane.state))  # a copy: what it remembers must not help the first measured call
        look(lane, 0)
    for turn, (a, b) in enumerate(pairwise(stops)):
        for lane in _rotate(lanes, turn):
            if b <= lane.iterations:
                seconds, _ = clock.time(partial(lane.advance, b - a))
                lane.stretches.append((b - a, seconds))
                look(lane, b)
                tick(b - a)


def stops(iterations: int, dense: int = 10, every: int = 5) -> list[int]:
    """0, 1, ... `dense`, then every `every`-th, and the last: early progress is fast, later it is not.

    >>> stops(22)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 22]
    """
    early = range(min(dense, iterations) + 1)
    return sorted({*early, *range(dense, iterations + 1, every), iterations})


def _rotate(items: Sequence[T], turn: int) -> Iterable[T]:
    at = turn % len(items)
    return [*items[at:], *items[:at]]
