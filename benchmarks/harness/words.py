"""Wording that several modules share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from .errors import ConfigError


def check_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ConfigError for the first name in `parameters.<what>s` that is not known."""
    known = list(known)
    for name in names:
        if name not in known:
            raise ConfigError(unknown(f"parameters.{what}s", name, known, what=what))


def check_positive(parameters: Any, *names: str) -> None:
    """Raise a ValueError unless these numbers, and all of those that are several, are at least 1."""
    for name in names:
        value = getattr(parameters, name)
        if min(value if isinstance(value, tuple) else [value], default=1) < 1:
            raise ValueError(f"{name} must be at least 1, got {list(value) if isinstance(value, tuple) else value}")


def unknown(path: str, name: str, known: Iterable[str], what: str = "name") -> str:
    """`path: unknown kind 'nge'; did you mean 'nge_speed'?`, or the list of what there is."""
    return f"{path}: unknown {what} {name!r}; {suggestion(name, known)}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or what there is."""
    known = list(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there is {', '.join(map(repr, known)) or 'nothing'}"
