"""The bars of the NGE comparison with what was measured. Plain numbers, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...harness.results import Bar
from .numbers import Outcome
from .parameters import BARS


def judge_bars(outcomes: Sequence[Outcome], skipped: dict[str, str], bars: Mapping[str, float]) -> list[Bar]:
    """Judge the bars that concern what was run, and those of the real ORL also when it was not."""
    found = [*_iteration_costs(outcomes, bars), *_times_to_objective(outcomes, bars)]
    if "orl" in skipped and "auto_time" in bars:
        found.append(Bar.at_most("the same on the real ORL", "orl", bars["auto_time"], None, skipped["orl"]))
    return found


def _iteration_costs(outcomes: Sequence[Outcome], bars: Mapping[str, float]) -> Iterator[Bar]:
    """Time per iteration, at the paper's shapes, images as vectors."""
    for name, to, bar, label in (
        ("multiplicative", "products", "products", ", exact basis rule"),
        ("printed", "products", "products", ", as printed"),
        ("cg", "multiplicative", "cg_iteration", ""),
    ):
        for o in (o for o in outcomes if o.paper and o.order == 2 and bar in bars):
            ratio = o.ratio(name, to)
            if ratio is not None:
                note = f"{ratio.min:.3g} to {ratio.max:.3g} in {ratio.count} turns"
                yield Bar.at_most(BARS[bar] + label, describe_setting(o), bars[bar], ratio.median, note)


def _times_to_objective(outcomes: Sequence[Outcome], bars: Mapping[str, float]) -> Iterator[Bar]:
    """Time to the printed rule's last objective as a fraction of its own, on ORL or on data of its shape."""
    orl = [o for o in outcomes if o.problem in ("orl", "orl_shape") and o.order == 2]
    for name, bar, alphas in (("cg", "cg_time", (100, 1000)), ("auto", "auto_time", (10, 100, 1000))):
        for o in (o for o in orl if {name, "printed"} <= o.methods.keys() and o.alpha in alphas and bar in bars):
            note = "" if o.problem == "orl" else "generated data of that shape; the bar is meant for the real ORL"
            claim = f"time to the objective of {o.iterations} printed iterations, {BARS[bar]}"
            at, measured = describe_setting(o), o.fraction(name)
            if measured is None:
                yield Bar(claim, at, f"at most {bars[bar]:.3g}", None, "not met", note or "never got there")
            else:
                yield Bar.at_most(claim, at, bars[bar], measured, note)


def describe_setting(o: Outcome) -> str:
    """Describe the setting in words."""
    return f"{o.title}, {o.order}-D, alpha = {o.alpha:g}"
