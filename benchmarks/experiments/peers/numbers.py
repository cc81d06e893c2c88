"""What one problem of the comparison yields, and what follows from it. Plain numbers, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ...timing.arrival import arrive
from ...timing.clock import Spread
from .parameters import JUDGED, LABELS


@dataclass(frozen=True)
class Reached:
    """When a target was reached, between two rungs by a straight line."""

    iterations: float
    seconds: float


@dataclass(frozen=True)
class Trail:
    """One method from one start.

    Attributes
    ----------
    points : tuple of (iterations, seconds, error)
        The error is the residual's norm, or the divergence.
    end : str
        Why it ended: "settled", "time", "iterations" or "stopped by itself".
    """

    points: tuple[tuple[int, float, float], ...]
    end: str

    @property
    def best(self) -> float:
        """The lowest error."""
        return min(e for _, _, e in self.points)

    @property
    def seconds(self) -> float:
        """Per iteration, over the whole way but its first iteration."""
        (a, s, _), (b, t, _) = self.points[min(1, len(self.points) - 2)], self.points[-1]
        return (t - s) / max(1, b - a)

    def reach(self, target: float) -> Reached | None:
        """Find the first arrival at or below a target, None if there was none.

        >>> Trail(((0, 0.0, 9.0), (1, 0.1, 5.0), (3, 0.3, 3.0)), "time").reach(4.0)
        Reached(iterations=2.0, seconds=0.2)
        """
        iterations, seconds = (arrive([(p[at], p[2]) for p in self.points], target) for at in (0, 1))
        return None if iterations is None or seconds is None else Reached(float(iterations), seconds)


@dataclass(frozen=True)
class Outcome:
    """One problem.

    Attributes
    ----------
    trails : dict of tuple of Trail
        By method, one per start; methods that no bar speaks about may have fewer.
    labels : dict
        What distinguishes a method here.
    products : Spread
        Seconds of the data products that one iteration cannot do without.
    roofline : float or None
        Seconds that those products would take at the measured copy bandwidth and GEMM rate.
    memory : dict of int or None
        Bytes that three iterations need beyond `resident`, the bytes of data and factors.
    skipped : dict
        Why other methods did not run.
    """

    problem: str
    title: str
    group: str
    shape: tuple[int, ...]
    n_components: int
    entries: int
    trails: Mapping[str, tuple[Trail, ...]]
    labels: Mapping[str, str]
    products: Spread
    roofline: float | None
    memory: Mapping[str, int | None]
    resident: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> str:
        """The rival whose last error, or ours if it is worse, the targets are multiples of."""
        return JUDGED[self.group][0]

    @property
    def rivals(self) -> list[str]:
        """Those that bars speak about and that ran from every start."""
        return [n for n in JUDGED[self.group] if len(self.trails.get(n, ())) == len(self.trails["ours"])]

    def targets(self, factor: float) -> list[float]:
        """Per start: the factor times the worse of the two errors that `ours` and the named rival end with."""
        two = [self.trails[name] for name in ("ours", self.named) if name in self.trails]
        return [factor * max(t.best for t in trails) for trails in zip(*two, strict=True)]

    def arrivals(self, name: str, factor: float) -> list[Reached | None]:
        """Start by start."""
        return [t.reach(e) for t, e in zip(self.trails.get(name, ()), self.targets(factor), strict=False)]

    def best(self, factor: float, among: Sequence[str] = ()) -> list[tuple[str, Reached]]:
        """Start by start: the rival that arrives first, and when; of all, or among some that the named one is one of.

        Nothing where the named one did not run.

        >>> there = Trail(((0, 0.0, 9.0), (4, 0.4, 1.0)), "")
        >>> fast = Trail(((0, 0.0, 9.0), (2, 0.1, 1.0)), "")
        >>> trails = {"ours": (there,), "sklearn_cd": (there,), "torchnmf": (fast,)}
        >>> o = Outcome("", "", "frobenius", (2, 2), 1, 4, trails, {}, Spread(1.0, 1.0, 1.0, 1), None, {}, 0)
        >>> [name for name, _ in o.best(1.02)]
        ['torchnmf']
        """
        if self.named not in self.rivals:
            return []
        rivals = [n for n in self.rivals if n in among or not among]
        of_starts = zip(*([(n, r) for r in self.arrivals(n, factor)] for n in rivals), strict=True)
        there = [[(n, r) for n, r in one if r] for one in of_starts]  # the named one always arrives at its own target
        return [min(one, key=lambda pair: pair[1].seconds) for one in there]

    def speedups(self, factor: float, name: str = "", among: Sequence[str] = ()) -> list[float]:
        """Time of the first rival to arrive (or of another method) over ours, of the starts from which both arrive."""
        theirs = self.arrivals(name, factor) if name else [r for _, r in self.best(factor, among)]
        both = zip(theirs, self.arrivals("ours", factor), strict=False)
        return [a.seconds / b.seconds for a, b in both if a and b and b.seconds > 0]

    def count_missed(self, name: str, factor: float) -> int:
        """How many starts never arrive."""
        return sum(r is None for r in self.arrivals(name, factor))

    def pace(self, name: str) -> float | None:
        """Median seconds per iteration."""
        return median(t.seconds for t in self.trails[name]) if self.trails.get(name) else None

    def bound(self, factor: float) -> str:
        """Say who was the fastest rival, and what the time to a target is made of for it and for us."""
        parts = []
        counts: dict[str, list[float]] = {"ours": [r.iterations for r in self.arrivals("ours", factor) if r]}
        for name, reached in self.best(factor):
            counts.setdefault(name, []).append(reached.iterations)
        for name, iterations in counts.items():
            pace = self.pace(name)
            if iterations and pace:
                starts = f" from {plural(len(iterations), 'start')}" if len(counts) > 2 and name != "ours" else ""
                who = "ours" if name == "ours" else f"best was {LABELS[name]}{starts}:"
                parts.append(f"{who} {median(iterations):.3g} iterations of {1e3 * pace:.3g} ms")
        return f"{', '.join(parts)}; the data products of one take {1e3 * self.products.median:.3g} ms"


@dataclass(frozen=True)
class Everything:
    """All that was measured."""

    outcomes: list[Any]
    sweeps: list[Any]
    restarts: list[Any]
    sparse: list[Any]
    rates: Any
    skipped: dict[str, str]


def plural(count: int, noun: str) -> str:
    """Write a count with its noun.

    >>> plural(1, "set"), plural(3, "set")
    ('1 set', '3 sets')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def spread(values: Sequence[float]) -> str:
    """Least to largest, for a table."""
    return f"{min(values):.3g} to {max(values):.3g}" if values else "-"
