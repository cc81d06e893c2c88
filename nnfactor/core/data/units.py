"""Units that data are divided by so that squares and powers stay within the floating-point range."""

from __future__ import annotations

import math


def power_of_two(size: float, reach: float = 0, lowest: int = -1000) -> float:
    """Find the largest power of two up to `size`; 1 where `size` is 0 or within `2^-reach .. 2^reach`.

    Division by it is exact. It is not below `2^lowest`, so that its inverse is finite too.

    >>> power_of_two(5.0), power_of_two(5.0, reach=3), power_of_two(0.0)
    (4.0, 1.0, 1.0)
    """
    if size == 0 or 2.0**-reach <= size <= 2.0**reach:
        return 1.0
    return math.ldexp(1.0, max(math.frexp(size)[1] - 1, lowest))
