"""Judging the claims of a config on the scores of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from ..harness.claims import Claim
from .scores import Scores


def judge(claim: Claim, scores: Scores) -> tuple[str, str]:
    """Check one claim: "met", "not met" or, if a method or all its settings are missing, "not run"; and the numbers.

    The numbers of a claim that is not met end with what its methods lack: by so much more everywhere it would be met.
    """
    settings = [s for s in scores.matching(claim.settings) if _complete(claim, scores, s)]
    if not settings:
        return "not run", ""
    sign = -1 if claim.smaller else 1
    margins = [_margin(claim, scores, [s], sign) for s in settings]
    passed = sum(m >= 0 for m in margins)
    if claim.by == "average":
        met = _margin(claim, scores, settings, sign) >= 0
        numbers = _numbers(claim, scores, settings)
    else:
        met = passed == len(settings) if claim.by == "every" else 2 * passed > len(settings)
        numbers = f"in {passed} of {len(settings)}; averages: {_numbers(claim, scores, settings)}"
    if not met:
        average = [_margin(claim, scores, settings, sign)]
        needed = {"average": average, "every": margins, "most": sorted(margins)[-(len(margins) // 2 + 1) :]}
        numbers += f"; lacks {-min(needed[claim.by]):.1f}"
    return "met" if met else "not met", numbers


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
    column = lambda c, m: f"{scores.average(c, m, settings):.1f}"
    text = ", ".join(f"{m} {column(claim.column, m)}" for m in (*claim.methods, *claim.ahead_of))
    if claim.within is not None:
        text += "; paper: " + ", ".join(f"{m} {column('paper', m)}" for m in claim.methods)
    return text
