"""What a study should show: the paper's numbers, claims about ours, and prose whose numbers are looked up.

A *setting* names a row of the paper's table: a problem, or `problem/variation`. Settings are picked by patterns as for
file names (`orl_*`), and averaged where a pattern has several. A *column* is

* "chosen": at the parameters that cross-validation on the training data chose, split by split;
* "best": at the parameters with the best mean on the test data, the papers' "best over parameters";
* "paper": what the paper prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .scores import Scores

COLUMNS = ("chosen", "best", "paper")


@dataclass(frozen=True)
class Paper:
    """A printed table.

    Attributes
    ----------
    source : str
        "Zhang and Liu 2009 (paper 004), Tables 1 and 2".
    values : setting -> method -> [mean] or [mean, standard deviation]
    metric : column of the rows that it is about
    """

    source: str
    values: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    metric: str = "accuracy"


@dataclass(frozen=True)
class Claim:
    """Something that should hold: `methods` ahead of others, or close to the paper, or above a number.

    Attributes
    ----------
    text : str
    methods : every one of them must pass
    ahead_of : methods that have to be below
    within : points that `methods` may be away from the paper's, below it
    at_least : what `methods` must reach; with `smaller`, what they may reach at most
    settings : patterns
    by : "average" of the settings, in "every" one, in "most"
    column : "chosen" or "best"
    origin : "paper" (what it says) or "target" (what we set ourselves)
    metric : column of the rows
    smaller : whether smaller is better
    """

    text: str
    methods: tuple[str, ...]
    ahead_of: tuple[str, ...] = ()
    within: float | None = None
    at_least: float | None = None
    settings: tuple[str, ...] = ("*",)
    by: str = "average"
    column: str = "chosen"
    origin: str = "paper"
    metric: str = "accuracy"
    smaller: bool = False

    def __post_init__(self) -> None:
        if self.by not in ("average", "every", "most"):
            raise ValueError(f"by must be 'average', 'every' or 'most', got {self.by!r}")
        if self.column not in COLUMNS[:2]:
            raise ValueError(f"column must be 'chosen' or 'best', got {self.column!r}")
        if self.origin not in ("paper", "target"):
            raise ValueError(f"origin must be 'paper' or 'target', got {self.origin!r}")
        if not self.ahead_of and self.within is None and self.at_least is None:
            raise ValueError("a claim needs ahead_of, within or at_least")


@dataclass(frozen=True)
class Verdict:
    """What the results say about a claim: "met", "not met" or "not run", and the numbers behind it."""

    claim: Claim
    verdict: str
    numbers: str = ""


def judge(claim: Claim, scores: Scores) -> Verdict:
    """Check one claim. "not run" if a method or all its settings are missing."""
    settings = [s for s in scores.matching(claim.settings) if _complete(claim, scores, s)]
    if not settings:
        return Verdict(claim, "not run")
    sign = -1 if claim.smaller else 1
    margins = [_margin(claim, scores, [s], sign) for s in settings]
    passed = sum(m >= 0 for m in margins)
    if claim.by == "average":
        met = _margin(claim, scores, settings, sign) >= 0
        numbers = _numbers(claim, scores, settings)
    else:
        met = passed == len(settings) if claim.by == "every" else 2 * passed > len(settings)
        numbers = f"in {passed} of {len(settings)}; averages: {_numbers(claim, scores, settings)}"
    return Verdict(claim, "met" if met else "not met", numbers)


def fill(prose: str, scores: Mapping[str, Scores], values: Mapping[str, Any]) -> str:
    """Prose with its placeholders looked up.

    `{chosen METHOD PATTERN}`, `{best METHOD PATTERN}`, `{paper METHOD PATTERN}`, each optionally with a metric as a
    fourth word; `{value NAME}` for a number that the study computes itself. Missing ones read "(not run)".
    """

    def look_up(match: re.Match[str]) -> str:
        which, *words = match.group(1).split()
        if which == "value" and len(words) == 1:
            return _plain(values.get(words[0]))
        if which not in COLUMNS or len(words) not in (2, 3):
            raise ValueError(
                f"findings: {match.group(0)} is not a placeholder; use {{chosen METHOD PATTERN}} and alike"
            )
        method, pattern, metric = [*words, "accuracy"][:3]
        return _plain(scores[metric].average(which, method, [pattern])) if metric in scores else _plain(None)

    return re.sub(r"\{([^{}]*)\}", look_up, prose.strip())


def _plain(value: Any) -> str:
    if value is None:
        return "(not run)"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _complete(claim: Claim, scores: Scores, setting: str) -> bool:
    ours = all(scores.value(claim.column, m, setting) is not None for m in (*claim.methods, *claim.ahead_of))
    return ours and (claim.within is None or all(scores.value("paper", m, setting) is not None for m in claim.methods))


def _margin(claim: Claim, scores: Scores, settings: Sequence[str], sign: int) -> float:
    """By how much the worst of the methods passes, on the average of some settings; below 0: it does not."""
    mean: Callable[[str, str], float] = lambda column, m: fmean(scores.value(column, m, s) for s in settings)
    margins = []
    for m in claim.methods:
        ours = mean(claim.column, m)
        # ahead means ahead: equal is not enough
        margins += [sign * (ours - mean(claim.column, other)) - 1e-9 for other in claim.ahead_of]
        margins += [] if claim.within is None else [sign * (ours - mean("paper", m)) + claim.within]
        margins += [] if claim.at_least is None else [sign * (ours - claim.at_least)]
    return min(margins)


def _numbers(claim: Claim, scores: Scores, settings: Sequence[str]) -> str:
    column = lambda c, m: _plain(scores.average(c, m, settings))
    text = ", ".join(f"{m} {column(claim.column, m)}" for m in (*claim.methods, *claim.ahead_of))
    if claim.within is not None:
        text += "; paper: " + ", ".join(f"{m} {column('paper', m)}" for m in claim.methods)
    return text
