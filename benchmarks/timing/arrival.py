"""When a falling curve arrives at a target."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def arrive(points: Sequence[tuple[float, float]], target: float) -> float | None:
    """Find the first abscissa at or below a target, None if there is none.

    Between two points a straight line: on a convex falling curve it lies above, so that no method gains by it.

    >>> arrive([(0, 9.0), (1, 5.0), (3, 3.0)], 4.0)
    2.0
    """
    if points and points[0][1] <= target:
        return points[0][0]
    for (a, before), (b, now) in pairwise(points):
        if now <= target:
            return a + (b - a) * (before - target) / (before - now)
    return None
