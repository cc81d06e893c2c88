"""The bars of the comparison with other packages, what was measured, and what bounds it. Plain numbers, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .numbers import Outcome
from .problems import FROBENIUS, KL, NTF

MATRIX_ALL, MATRIX_EACH = 4.0, 1.5

TENSOR = {"ntf_faces": 5.0, "ntf_cube": 5.0, "il2": 2.0, "indian_pines": 2.0}

DIVERGENCE = {"digits_kl": 4.0, "poisson": 2.0, "counts": 1.0}

RESTART_LOOP, RESTART_OWN = 2.5, 3.0

SWEEP, SPARSE_MU, SPARSE_DEFAULT, SPARSE_MEMORY = 1.7, 1.3, 3.0, 3.0

MEMORY_NOTE = (
    "beside data and factors: the transpose, the products with the data, every factor three times for momentum "
    "(compared, before, ahead) and once more while it is made, in float64 for the final objective"
)


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes
    ----------
    claim, where : str
    bar : str
        With its direction: "at least 4".
    measured : float or None
    verdict : str
        "met", "not met" or "not run".
    note : str
        The spread, and what bounds it.
    """

    claim: str
    where: str
    bar: str
    measured: float | None
    verdict: str
    note: str = ""


def checks(found: Any) -> list[Bar]:
    """All bars that concern what was run."""
    outcomes: Sequence[Outcome] = found.outcomes
    return [*_matrices(outcomes), *_divergences(outcomes), *_tensors(outcomes, found.sweeps), *_rest(found)]


def _matrices(outcomes: Sequence[Outcome]) -> Iterator[Bar]:
    of_bars = [o for o in outcomes if o.group == FROBENIUS]
    claim = "NMF against scikit-learn cd, time to 1.005"
    pooled = [s for o in of_bars for s in o.speedups(1.005)]
    if of_bars:
        yield _at_least(claim, "median over all", MATRIX_ALL, pooled, _medians(of_bars))
    for o in of_bars:
        yield _at_least(claim, o.title, MATRIX_EACH, o.speedups(1.005), _why(o, 1.005))


def _divergences(outcomes: Sequence[Outcome]) -> Iterator[Bar]:
    for o in (o for o in outcomes if o.problem in DIVERGENCE):
        for factor in (1.02, 1.005):
            claim = f"KL-NMF against scikit-learn mu, time to {factor}"
            yield _at_least(claim, o.title, DIVERGENCE[o.problem], o.speedups(factor), _why(o, factor))


def _tensors(outcomes: Sequence[Outcome], sweeps: Sequence[Any]) -> Iterator[Bar]:
    for o in (o for o in outcomes if o.problem in TENSOR):
        claim = "NTF against TensorLy HALS, time to 1.005"
        yield _at_least(claim, o.title, TENSOR[o.problem], o.speedups(1.005), _why(o, 1.005))
    titles = {o.title for o in outcomes if o.problem == "ntf_faces"}
    for c in (c for c in sweeps if c.title in titles):
        claim = "multiplicative sweep over its two products"
        yield _at_most(claim, c.title, SWEEP, c.ratios["multiplicative"], c.seconds)


def _rest(found: Any) -> Iterator[Bar]:
    for r in found.restarts:
        for target in ("median", "best"):
            claim = f"{r.count} restarts against a scikit-learn cd loop, time to its {target} objective"
            yield _single(claim, r.title, RESTART_LOOP, r.speedup(target), _restart_note(r, target))
        claim = f"{r.count} restarts as a batch against a loop of our own"
        note = f"{r.own_seconds:.3g} s against {r.batch_seconds:.3g} s, the same iterations"
        yield _single(claim, r.title, RESTART_OWN, r.own_speedup, note)
    for c in found.sparse:
        for name, label, bar in (("ours_mu", "multiplicative", SPARSE_MU), ("ours", "default", SPARSE_DEFAULT)):
            claim = f"{label} iteration over its sparse products and Grams"
            yield _at_most(claim, c.title, bar, c.ratios[name], c.seconds)
        claim = "peak memory over data and factors"
        verdict = "not run" if c.memory is None else "met" if c.memory < SPARSE_MEMORY else "not met"
        yield Bar(claim, c.title, f"under {SPARSE_MEMORY:g}", c.memory, verdict, MEMORY_NOTE)


def _at_least(claim: str, where: str, bar: float, ratios: Sequence[float], note: str) -> Bar:
    if not ratios:
        return Bar(claim, where, f"at least {bar:g}", None, "not run", note)
    seen = f"{min(ratios):.3g} to {max(ratios):.3g} over {len(ratios)} starts. "
    return _single(claim, where, bar, median(ratios), seen + note)


def _single(claim: str, where: str, bar: float, measured: float | None, note: str) -> Bar:
    verdict = "not run" if measured is None else "met" if measured >= bar else "not met"
    return Bar(claim, where, f"at least {bar:g}", measured, verdict, note)


def _at_most(claim: str, where: str, bar: float, ratio: Any, seconds: float) -> Bar:
    note = f"{ratio.min:.3g} to {ratio.max:.3g} in {ratio.count} turns; the products take {1e3 * seconds:.3g} ms"
    return Bar(claim, where, f"at most {bar:g}", ratio.median, "met" if ratio.median <= bar else "not met", note)


def _why(o: Outcome, factor: float) -> str:
    if o.rival not in o.trails:
        return o.skipped.get(o.rival, f"{o.rival} not asked for")
    missed = {name: o.missed(name, factor) for name in ("ours", o.rival)}
    never = ", ".join(f"{count} starts of {name} never arrive" for name, count in missed.items() if count)
    return o.bound(factor) + (f"; {never}" if never else "")


def _medians(outcomes: Sequence[Outcome]) -> str:
    each = [(o.problem, o.speedups(1.005)) for o in outcomes]
    return "medians: " + ", ".join(f"{name} {median(s):.3g}" for name, s in each if s)


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


GROUPS = {FROBENIUS: "NMF, Frobenius", KL: "NMF, Kullback-Leibler", NTF: "Nonnegative CP"}
