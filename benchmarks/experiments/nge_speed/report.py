"""The NGE comparison as a report: tables, curves, sentences, and every number as a row. Plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...harness.kinds import Context
from ...harness.results import Figure, Line, Panel, Report, Row, Section, Table
from ...report.bars import bar_rows, bar_section
from ...timing.clock import Spread
from ...timing.memory import how
from .checks import compare_first_iterations, compare_with_paper, describe_setting, judge_bars
from .numbers import SHARED, Outcome
from .parameters import LABELS, Parameters

MEGABYTE = 2**20

FIG1 = (1, 2, 3, 5, 10, 20, 50, 100, 200)


def report(parameters: Parameters, outcomes: Sequence[Outcome], skipped: dict[str, str], context: Context) -> Report:
    """Everything a person should see, and every number."""
    bars = judge_bars(outcomes, skipped, context.bars)
    measures = how(context.device) if parameters.memory else "not measured"
    beside_paper = [_paper(outcomes), _fig1(outcomes)]
    sections = [
        bar_section(bars),
        *beside_paper,
        *(_setting(o) for o in outcomes),
        _method(parameters, measures, skipped),
    ]
    rows = [row for o in outcomes for row in _rows(o)] + bar_rows(bars)
    rows += [{"kind": "sentence", "text": text} for section in beside_paper for text in section.text]
    rows += [{"kind": "skipped", "problem": name, "note": why} for name, why in skipped.items()]
    return Report(sections, rows, bulky=("curve",), notes={"memory": measures})


def _paper(outcomes: Sequence[Outcome]) -> Section:
    shapes = [(o, o.paper) for o in outcomes if o.paper]
    head = (
        "setting",
        "paper NGE s",
        "paper 2D-NDTF s",
        "paper ratio",
        "printed ms",
        "inverses x",
        "Cholesky x",
        "CG x",
    )
    rows = []
    for o, paper in shapes:
        printed = 1e3 * o.methods["printed"].time.median if "printed" in o.methods else None
        ratios = [_median(o.ratio(name, "printed")) for name in ("inverses", "cholesky", "cg")]
        rows.append((describe_setting(o), paper.nge, paper.ndtf, paper.ratio, printed, *ratios))
    text = [compare_with_paper(o) for o, _ in shapes]
    table = Table("x: times the printed rule", head, rows)
    return Section("Time per iteration against the paper's Table 1", text, [table])


def _fig1(outcomes: Sequence[Outcome]) -> Section:
    text = ["Paper 002, Fig. 1: “2D-NDTF is a little better than NGE … when the iteration number is small”."]
    text += [s for o in outcomes if (s := compare_first_iterations(o))]
    rows, marks = [], [i for i in FIG1 if any(i <= o.iterations for o in outcomes)]
    for o in outcomes:
        for name in ("printed", "multiplicative", "tight"):
            seen = dict(o.curve(name)) if name in o.methods else {}
            if seen:
                rows.append((describe_setting(o), LABELS[name], *(seen.get(i) for i in marks)))
    table = Table("Objective after so many iterations", ("setting", "method", *map(str, marks)), rows)
    return Section("The first iterations", text, [table])


def _setting(o: Outcome) -> Section:
    n, *features = o.shape
    text = (
        f"{n} samples of {' x '.join(map(str, features))}, k = {o.k}, q = {o.q}. Data and factors are "
        f"{o.resident / MEGABYTE:.1f} MB; the dense products of one iteration alone take "
        f"{1e3 * o.products.time.median:.3g} ms ({1e3 * o.products.time.min:.3g} to {1e3 * o.products.time.max:.3g})."
    )
    return Section(describe_setting(o), [text], [_methods(o), _targets(o), _curves(o), _agreement(o)])


def _methods(o: Outcome) -> Table:
    head = (
        "method",
        "ms per iteration",
        "min to max",
        "x printed",
        "x exact multiplicative",
        "x dense products",
        "last objective",
        "memory on top, MB",
    )
    rows = []
    for name, m in o.methods.items():
        t, memory = m.time, o.memory.get(name)
        last = o.curve(name)[-1][1] if o.curve(name) else None
        rows.append(
            (
                LABELS[name],
                1e3 * t.median,
                f"{1e3 * t.min:.3g} to {1e3 * t.max:.3g}",
                *(_median(o.ratio(name, to)) for to in ("printed", "multiplicative", "products")),
                last,
                None if memory is None else memory / MEGABYTE,
            )
        )
    return Table(f"One iteration, and the objective after {o.iterations}", head, rows)


def _targets(o: Outcome) -> Table:
    head, rows = ["method"], []
    targets = o.targets()
    for label, value in targets.items():
        head += [f"iterations to {label} ({value:.5g})", "seconds"]
    for name in o.methods:
        reached = [o.reach(name, value) for value in targets.values()]
        numbers = [x for r in reached for x in (r.iterations, r.seconds)]
        rows.append((LABELS[name], *numbers, o.fraction(name)))
    return Table("Time to common objectives", (*head, "fraction of the printed rule's time"), rows)


def _curves(o: Outcome) -> Figure:
    lines = {name: o.curve(name) for name in o.methods if o.curve(name)}
    own = {name: c for name, c in lines.items() if name not in SHARED}
    by_iteration = [Line(LABELS[name], [i for i, _ in c[1:]], [v for _, v in c[1:]]) for name, c in own.items()]
    by_time = [
        Line(LABELS[name], [i * o.methods[name].time.median for i, _ in c[1:]], [v for _, v in c[1:]])
        for name, c in lines.items()
    ]
    target = o.targets().get("printed rule")
    rule = None if target is None else (target, "printed rule's last")
    panels = [
        Panel("iteration", "objective", by_iteration, rule=rule),
        Panel("seconds", "objective", by_time, rule=rule),
    ]
    return Figure("Objective against iteration and against time", panels)


def _agreement(o: Outcome) -> Table:
    rows = [(LABELS[a.method], a.iteration, f"{a.V:.1e}", f"{a.objective:.1e}") for a in o.agreement]
    head = ("solver", "iteration", "relative difference of V", "of the objective")
    return Table("Dense solvers against CG to 1e-10, float64, same start", head, rows)


def _method(parameters: Parameters, memory: str, skipped: Mapping[str, str]) -> Section:
    few, tol, every = parameters.solved_iterations, parameters.tight_tol, parameters.stretch
    text = [
        "All methods start from the same random factors and take turns, a few iterations at a time "
        f"({every} after the first ten), so that drift of the machine hits all alike. The first call of each is "
        "discarded. Times are medians over stretches of full length; curves against time use the median. Ratios are "
        "medians of the ratios within a turn, so that what slows a whole turn down cancels.",
        "Objectives are summed in float64 from the residual itself, outside the clock, at iterations 0 to 10 and then "
        f"at every {every}th; between two of them a straight line, rounded up to a whole iteration.",
        f"The two dense M-matrix solvers are timed on {few} iterations and share the curve of CG to a relative "
        f"residual of {tol:g} in the run's precision; the tables of differences show that they compute the same step.",
        "The dense products are timed in the same turns and in the memory order in which they are fastest.",
        f"Memory on top: two iterations from the start, beyond data and factors; {memory}.",
    ]
    text += [f"Skipped: {name}: {why}." for name, why in skipped.items()]
    return Section("How this was measured", text)


def _rows(o: Outcome) -> Iterator[Row]:
    at = {"problem": o.problem, "order": o.order, "alpha": o.alpha}
    yield {"kind": "setting", **at, "shape": list(o.shape), "k": o.k, "q": o.q, "resident_bytes": o.resident}
    yield {"kind": "products", **at, **_milliseconds(o.products.time)}
    if o.paper:
        yield {"kind": "paper", **at, **asdict(o.paper)}
    for name in o.methods:
        yield {"kind": "method", **at, "method": name, **_method_row(o, name)}
    for label, value in o.targets().items():
        for name in o.methods:
            yield {"kind": "target", **at, "method": name, "target": label, "objective": value} | asdict(
                o.reach(name, value)
            )
    yield {"kind": "first_iterations", **at, "printed_ahead_up_to": o.lead()}
    for a in o.agreement:
        yield {"kind": "agreement", **at, **asdict(a)}
    for name, m in o.methods.items():
        for iteration, value in m.curve:
            yield {"kind": "curve", **at, "method": name, "iteration": iteration, "objective": value}


def _method_row(o: Outcome, name: str) -> dict[str, Any]:
    m, curve = o.methods[name], o.curve(name)
    return _milliseconds(m.time) | {
        "label": LABELS[name],
        "measured_seconds": m.seconds,
        **_ratios(o, name),
        "fraction_of_printed_time": o.fraction(name),
        "last_objective": curve[-1][1] if curve else None,
        "curve_of": SHARED.get(name, name),
        "memory_bytes": o.memory.get(name),
    }


def _ratios(o: Outcome, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for to in ("printed", "multiplicative", "products"):
        ratio = o.ratio(name, to)
        row |= {f"ratio_to_{to}_{key}": getattr(ratio, key, None) for key in ("median", "min", "max")}
    return row


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def _milliseconds(t: Any) -> dict[str, Any]:
    return {"ms_median": 1e3 * t.median, "ms_min": 1e3 * t.min, "ms_max": 1e3 * t.max, "stretches": t.count}
