"""The bars of the comparison with other packages, what was measured, what bounds it, and a line for every race."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median
from typing import Any

from ...harness.results import Bar
from .numbers import Everything, Outcome, plural
from .parameters import LABELS, NAMED
from .problems import FROBENIUS, KL, NTF

MEMORY_NOTE = (
    "beside data and factors: the transpose, the products with the data, every factor three times for momentum "
    "(compared, before, ahead) and once more while it is made, in float64 for the final objective"
)

SPEEDUPS = {  # group -> what is compared, and the factors of the targets
    FROBENIUS: ("NMF", (1.005,)),
    KL: ("KL-NMF", (1.02, 1.005)),
    NTF: ("NTF", (1.005,)),
}
FASTEST = "against the fastest rival"

MEANS = {FROBENIUS: "nmf", NTF: "ntf"}  # groups whose bars are those of all their problems


@dataclass(frozen=True)
class Summary:
    """A race over several sets.

    Attributes
    ----------
    race : str
        Against whom, and to what.
    mean : float
        Geometric mean over the sets; of a set it is the median over its starts.
    worst : float
    where : str
        The set with the worst ratio.
    count : int
        How many sets.
    """

    race: str
    mean: float
    worst: float
    where: str
    count: int

    def __str__(self) -> str:
        sets = plural(self.count, "set")
        return f"{self.race}: geometric mean {self.mean:.3g} on {sets}, worst {self.worst:.3g} ({self.where})"


def judge_bars(found: Everything, bars: Mapping[str, float]) -> list[Bar]:
    """Judge all bars that concern what was run."""
    return [*_speedups(found.outcomes, bars), *_restarts(found, bars), *_costs(found, bars)]


def _speedups(outcomes: Sequence[Outcome], bars: Mapping[str, float]) -> Iterator[Bar]:
    """Time to common errors: the mean over the problems of a group, and problem by problem."""
    for group, key in MEANS.items():
        of_group = [o for o in outcomes if o.group == group]
        for claim, of in _speedup_races(group) if of_group and f"{key}_mean" in bars else ():
            each = {o.problem: median(s) for o in of_group if (s := of(o))}
            mean = geometric_mean(each.values()) if each else None
            note = f"{len(each)} sets, medians: {', '.join(f'{name} {ratio:.3g}' for name, ratio in each.items())}"
            yield Bar.at_least(claim, "geometric mean", bars[f"{key}_mean"], mean, note)
    for o in outcomes:
        bar = f"{MEANS[o.group]}_each" if o.group in MEANS else o.problem
        what, factors = SPEEDUPS[o.group]
        for factor in factors if bar in bars else ():
            claim = f"{what} {FASTEST}, time to {factor}"
            yield _median_at_least(claim, o.title, bars[bar], o.speedups(factor), _why(o, factor))


def _speedup_races(group: str) -> Iterator[tuple[str, Callable[[Outcome], list[float]]]]:
    """Give the races of a group, against the fastest rival and against the best known package, and their ratios."""
    what, factors = SPEEDUPS[group]
    package, methods = NAMED[group]
    for factor in factors:
        yield f"{what} {FASTEST}, time to {factor}", partial(Outcome.speedups, factor=factor)
        yield f"{what} against {package}, time to {factor}", partial(Outcome.speedups, factor=factor, among=methods)


def summarise(found: Everything) -> list[Summary]:
    """Summarise the races that were run; the other parts have bars of their own."""
    mean = lambda ratios: geometric_mean(ratios) if min(ratios) > 0 else 0.0  # 0: somewhere ours never arrives
    return [Summary(race, mean(r.values()), *_worst(r), len(r)) for race, r in _races(found) if r]


def _races(found: Everything) -> Iterator[tuple[str, dict[str, float]]]:
    """Give the ratios of every race, by the title of the set."""
    for group in SPEEDUPS:
        for claim, of in _speedup_races(group):
            yield claim, {o.title: median(s) for o in found.outcomes if o.group == group and (s := of(o))}
    loop = {r.title: ratio for r in found.restarts if (ratio := r.speedup("median")) is not None}
    yield "restarts against a scikit-learn cd loop, time to its median objective", loop
    yield "restarts as a batch against a loop of our own", {r.title: r.own_speedup for r in found.restarts}


def _worst(ratios: Mapping[str, float]) -> tuple[float, str]:
    title = min(ratios, key=lambda name: ratios[name])
    return ratios[title], title


def _restarts(found: Everything, bars: Mapping[str, float]) -> Iterator[Bar]:
    for r in found.restarts:
        for target in ("median", "best") if "restarts_loop" in bars else ():
            claim = f"{r.count} restarts against a scikit-learn cd loop, time to its {target} objective"
            yield Bar.at_least(claim, r.title, bars["restarts_loop"], r.speedup(target), _restart_note(r, target))
        if "restarts_own" in bars:
            claim = f"{r.count} restarts as a batch against a loop of our own"
            note = f"{r.own_seconds:.3g} s against {r.batch_seconds:.3g} s, the same iterations"
            yield Bar.at_least(claim, r.title, bars["restarts_own"], r.own_speedup, note)


def _costs(found: Everything, bars: Mapping[str, float]) -> Iterator[Bar]:
    """One iteration over the products that it cannot do without, and the memory of a run."""
    faces = {o.title for o in found.outcomes if o.problem == "ntf_faces"}
    for c in (c for c in found.sweeps if c.title in faces and "sweep" in bars):
        yield _ratio_at_most("multiplicative sweep over its two products", c, bars["sweep"], "multiplicative")
    for c in found.sparse:
        for name, label, bar in (("ours_mu", "multiplicative", "sparse_mu"), ("ours", "default", "sparse_default")):
            if bar in bars:
                yield _ratio_at_most(f"{label} iteration over its sparse products and Grams", c, bars[bar], name)
        if "sparse_memory" in bars:
            claim = "peak memory over data and factors"
            yield Bar.at_most(claim, c.title, bars["sparse_memory"], c.memory, MEMORY_NOTE)


def _median_at_least(claim: str, where: str, bar: float, ratios: Sequence[float], note: str) -> Bar:
    if not ratios:
        return Bar.at_least(claim, where, bar, None, note)
    seen = f"{min(ratios):.3g} to {max(ratios):.3g} over {len(ratios)} starts. "
    return Bar.at_least(claim, where, bar, median(ratios), seen + note)


def _ratio_at_most(claim: str, cost: Any, bar: float, name: str) -> Bar:
    ratio = cost.ratios[name]
    turns = f"{ratio.min:.3g} to {ratio.max:.3g} in {ratio.count} turns"
    return Bar.at_most(claim, cost.title, bar, ratio.median, f"{turns}; the products take {1e3 * cost.seconds:.3g} ms")


def _why(o: Outcome, factor: float) -> str:
    if o.named not in o.trails:
        return o.skipped.get(o.named, f"{o.named} not asked for")
    count_missed = {name: o.count_missed(name, factor) for name in o.rivals}
    never = ", ".join(f"{LABELS[name]} from {plural(count, 'start')}" for name, count in count_missed.items() if count)
    return o.bound(factor) + (f"; never there: {never}" if never else "")


def _restart_note(r: Any, target: str) -> str:
    there = r.batch[target]
    if r.loop_seconds is None:
        return "scikit-learn not run here"
    if there is None:
        return f"the loop takes {r.loop_seconds:.3g} s; the batch never gets there in 1000 iterations"
    return (
        f"the loop takes {r.loop_seconds:.3g} s at {r.loop_iterations:.0f} iterations each, the batch "
        f"{there.seconds:.3g} s at {there.iterations:.0f}"
    )
