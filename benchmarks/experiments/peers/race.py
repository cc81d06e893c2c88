"""Running methods from the same start up a ladder of iteration counts, in turn, until nothing more is gained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from .methods import Factors, Method, Timed
from .numbers import Trail

SHORT, REPEATS = 0.05, 3  # calls shorter than this (seconds) are timed so often, and the median counts

WARM_UP = 12  # iterations of our first call: it compiles or loads every loop, also those that wait for a reading, at 10


@dataclass(frozen=True)
class Limits:
    """When a climb ends.

    Attributes
    ----------
    seconds : float
        Of one run from the start. A method that is run from scratch to every rung gets as long a run as one that goes
        on, or it would end earlier and ease the common errors; all its calls together take several times that.
    max_iter : int
    settle : float
        The relative gain of the error over the last half of the iterations that is no gain any more.
    growth : float
        Of the ladder, beyond its first rungs.
    """

    seconds: float
    max_iter: int
    settle: float
    growth: float


def rungs(max_iter: int, growth: float) -> list[int]:
    """List iteration counts: 1 to 6 one by one, then by a factor.

    >>> rungs(40, 1.5)
    [1, 2, 3, 4, 5, 6, 9, 14, 21, 32, 40]
    """
    ladder = [n for n in range(1, 7) if n <= max_iter]
    while ladder[-1] < max_iter:
        ladder.append(min(max_iter, max(ladder[-1] + 1, round(ladder[-1] * growth))))
    return ladder


@dataclass
class Climb:
    """One method on its way up from one start."""

    method: Method
    start: Factors
    error: Callable[[Factors], float]
    limits: Limits
    overhead: float = 0.0
    points: list[tuple[int, float, float]] = field(default_factory=list)
    end: str = ""
    _at: Factors = field(default_factory=list)

    def __post_init__(self) -> None:
        self._at = self.start
        self.points.append((0, 0.0, self.error(self.start)))

    def to(self, count: int) -> None:
        """Go to the next rung: the rest of the way where a method goes on from factors, else all of it once more."""
        before, seconds, _ = self.points[-1]
        went = self._walk(count - before if self.method.continues else count)
        done = went.iterations + (before if self.method.continues else 0)
        at = went.seconds + (seconds - (self.overhead if before else 0.0) if self.method.continues else 0.0)
        self._at = went.factors
        self.points.append((done, max(at, seconds), self.error(went.factors)))
        self.end = "stopped by itself" if done < count else self._end(count)

    def _walk(self, count: int) -> Timed:
        start = self._at if self.method.continues else self.start
        calls = [self.method.fit(start, count)]
        while len(calls) < REPEATS and calls[0].seconds < SHORT:
            calls.append(self.method.fit(start, count))
        return Timed(median(c.seconds for c in calls), calls[0].factors, calls[0].iterations)

    def _end(self, count: int) -> str:
        now = self.points[-1][2]
        earlier = [e for n, _, e in self.points if n <= count / 2]
        if count >= 20 and earlier[-1] - now <= self.limits.settle * now:
            return "settled"
        if self.points[-1][1] > self.limits.seconds:
            return "time"
        return "iterations" if count >= self.limits.max_iter else ""


def climb(
    methods: Sequence[Method], start: Factors, error: Callable[[Factors], float], limits: Limits, turn: int = 0
) -> dict[str, Trail]:
    """Every method from one start, rung by rung in turn; the first calls are discarded."""
    climbs = [Climb(m, start, error, limits, overhead(m, start)) for m in methods]
    for rung, count in enumerate(rungs(limits.max_iter, limits.growth)):
        first = (turn + rung) % len(climbs)
        for c in (*climbs[first:], *climbs[:first]):
            if not c.end:
                c.to(count)
    return {c.method.name: Trail(tuple(c.points), c.end) for c in climbs}


def overhead(method: Method, start: Factors) -> float:
    """Measure what a call costs beside its iterations, from calls of one and of three, after one that is discarded.

    The discarded one compiles what is compiled, and loads what is loaded, when it is first used.
    """
    method.fit(start, 1 if method.continues else WARM_UP)
    if not method.continues:
        return 0.0
    one, three = (median(method.fit(start, n).seconds for _ in range(REPEATS)) for n in (1, 3))
    return max(0.0, one - (three - one) / 2)
