"""Arguments that are refused, in one wording: the name, what would work, what was given."""

import numbers
from collections.abc import Sequence
from math import inf
from typing import Any


def one_of(name: str, value: Any, known: Sequence[Any], also: str = "") -> None:
    """Refuse a value that is not among the known ones, and list them."""
    if not any(value is k or (isinstance(value, type(k)) and value == k) for k in known):
        listed = ", ".join(repr(k) for k in known) + (f" or {also}" if also else "")
        raise ValueError(f"{name}={value!r} is not known; use {listed}")


def whole(name: str, value: Any, least: int = 1, also: str = "") -> None:
    """Refuse what is not an integer >= least; `also` is what the caller lets through besides, such as "None or "."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be {also}a whole number >= {least}, got {value!r}")


def nonnegative(name: str, value: Any, note: str = "") -> None:
    """Refuse what is not a finite number >= 0."""
    if not _real(value) or not 0 <= float(value) < inf:
        raise ValueError(f"{name} must be a finite number >= 0{note}, got {value!r}")


def positive(name: str, value: Any, also: str = "") -> None:
    """Refuse what is not a finite number > 0; `also` is what the caller lets through besides."""
    if not _real(value) or not 0 < float(value) < inf:
        raise ValueError(f"{name} must be {also}a finite number > 0, got {value!r}")


def _real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
