"""What one setting of the NGE comparison yields, and what follows from it. Plain numbers, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ...data.problems import Paper
from ...timing.arrival import arrive
from ...timing.clock import Spread, Stretches, pair_ratios, per_iteration

Curve = tuple[tuple[int, float], ...]

SHARED = {"inverses": "tight", "cholesky": "tight"}  # whose curve a method that is only timed shares


@dataclass(frozen=True)
class Measured:
    """One method: what the clock saw, and (iteration, objective) where it was looked at."""

    stretches: Stretches
    curve: Curve = ()

    @property
    def time(self) -> Spread:
        """Seconds per iteration."""
        return per_iteration(self.stretches)

    @property
    def seconds(self) -> float:
        """All measured time."""
        return sum(seconds for _, seconds in self.stretches)


@dataclass(frozen=True)
class Agreement:
    """A dense solver against tightly solved CG after some iterations: relative differences of V and the objective."""

    method: str
    iteration: int
    V: float
    objective: float


@dataclass(frozen=True)
class Outcome:
    """One setting.

    Attributes
    ----------
    products : Measured
        One iteration's dense products alone.
    methods : dict of Measured
    memory : dict of int or None
        Bytes that two iterations need beyond `resident`, the bytes of data and factors.
    agreement : tuple of Agreement
    """

    problem: str
    title: str
    paper: Paper | None
    order: int
    alpha: float
    shape: tuple[int, ...]
    k: int
    q: int
    iterations: int
    products: Measured
    methods: dict[str, Measured]
    memory: dict[str, int | None]
    resident: int
    agreement: tuple[Agreement, ...]

    def ratio(self, name: str, to: str) -> Spread | None:
        """Time per iteration of one method over another's (or the "products"), turn by turn; None if not run."""
        lanes = {**self.methods, "products": self.products}
        if name not in lanes or to not in lanes:
            return None
        return pair_ratios(lanes[name].stretches, lanes[to].stretches)

    def curve(self, name: str) -> Curve:
        """Give the method's own curve, or the one it shares; empty if that was not run."""
        shared = self.methods.get(SHARED.get(name, name))
        return shared.curve if shared else ()

    def targets(self) -> dict[str, float]:
        """Objectives to reach: the last one of the printed rule and of tightly solved M-matrix, and 1.01 x the best."""
        wanted = {}
        for name, label in (("printed", "printed rule"), ("tight", "M-matrix")):
            if name in self.methods:
                wanted[label] = self.curve(name)[-1][1]
        curves = [self.curve(name) for name in self.methods]
        return wanted | {"1.01 x best": 1.01 * min(c[-1][1] for c in curves if c)}

    def reach(self, name: str, target: float) -> int | None:
        """Count the iterations to a target, between two looks by a straight line, rounded up; None if never."""
        return first_below(self.curve(name), target)

    def fraction(self, name: str) -> float | None:
        """Time to the printed rule's last objective over the printed rule's own time; None if never or not run."""
        ratio = self.ratio(name, to="printed")
        if ratio is None:
            return None
        target = self.targets()["printed rule"]
        own, printed = self.reach(name, target), self.reach("printed", target)
        return None if own is None or not printed else own / printed * ratio.median

    def lead(self) -> int | None:
        """How many iterations, from the first on, the printed rule is below M-matrix NGE (looked-at ones)."""
        if not {"printed", "tight"} <= self.methods.keys():
            return None
        ahead = 0
        for (i, ours), (_, theirs) in zip(self.curve("printed")[1:], self.curve("tight")[1:], strict=True):
            if ours >= theirs:
                break
            ahead = i
        return ahead


def first_below(curve: Sequence[tuple[int, float]], target: float) -> int | None:
    """Find the first iteration at or below a target, rounded up between two looks.

    >>> first_below([(0, 10.0), (5, 5.0), (10, 4.0)], 7.1)
    3
    """
    at = arrive(curve, target)
    return None if at is None else ceil(at - 1e-9)
