"""The NGE comparison as a report: tables, curves, sentences, and every number as a row. Plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from ...data.problems import Paper
from ...harness.kinds import Context
from ...harness.results import Figure, Line, Panel, Picture, Report, Row, Section, Table
from ...report.bars import bar_rows, bar_section
from ...report.study_report import skipped_section
from ...timing.memory import how
from .checks import describe_setting, judge_bars
from .numbers import SHARED, Outcome
from .parameters import LABELS, Parameters

MEGABYTE = 2**20

RATIOS = ("printed", "multiplicative", "products")  # what an iteration is compared with

FIG1 = (1, 2, 3, 5, 10, 20, 50, 100, 200)


def report(parameters: Parameters, outcomes: Sequence[Outcome], skipped: dict[str, str], context: Context) -> Report:
    """Collect everything a person should see, and every number."""
    bars = judge_bars(outcomes, skipped, context.bars)
    paper = [_paper_row(o, o.paper) for o in outcomes if o.paper]
    leads = [{"setting": describe_setting(o), "printed ahead up to iteration": o.lead()} for o in outcomes]
    sections = [
        bar_section(bars),
        Section("Time per iteration against the paper's Table 1", (), [Table.of("x: times the printed rule", paper)]),
        Section("The first iterations", (), [_fig1(outcomes), Table.of("Printed rule against M-matrix NGE", leads)]),
        *(_setting(o) for o in outcomes),
        skipped_section(skipped),
    ]
    rows = [row for o in outcomes for row in _rows(o)] + bar_rows(bars)
    rows += [{"kind": "paper", **row} for row in paper] + [{"kind": "first_iterations", **row} for row in leads]
    rows += [{"kind": "skipped", "problem": name, "why": why} for name, why in skipped.items()]
    measures = how(context.device) if parameters.memory else "not measured"
    return Report(sections, rows, bulky=("curve",), notes={"memory": measures})


def _paper_row(o: Outcome, paper: Paper) -> dict[str, Any]:
    return {
        "setting": describe_setting(o),
        "paper NGE s": paper.nge,
        "paper 2D-NDTF s": paper.ndtf,
        "paper ratio": paper.ratio,
        "printed ms": 1e3 * o.methods["printed"].time.median if "printed" in o.methods else None,
        **{f"{name} x": getattr(o.ratio(name, "printed"), "median", None) for name in ("inverses", "cholesky", "cg")},
    }


def _fig1(outcomes: Sequence[Outcome]) -> Table:
    rows, marks = [], [i for i in FIG1 if any(i <= o.iterations for o in outcomes)]
    for o in outcomes:
        for name in ("printed", "multiplicative", "tight"):
            seen = dict(o.curve(name)) if name in o.methods else {}
            if seen:
                rows.append((describe_setting(o), LABELS[name], *(seen.get(i) for i in marks)))
    return Table("Objective after so many iterations", ("setting", "method", *map(str, marks)), rows)


def _setting(o: Outcome) -> Section:
    n, *features = o.shape
    text = (
        f"{n} samples of {' x '.join(map(str, features))}, k = {o.k}, q = {o.q}. Data and factors are "
        f"{o.resident / MEGABYTE:.1f} MB; the dense products of one iteration alone take "
        f"{1e3 * o.products.time.median:.3g} ms ({1e3 * o.products.time.min:.3g} to {1e3 * o.products.time.max:.3g})."
    )
    methods = [{"method": LABELS[name]} | _method_row(o, name) for name in o.methods]
    parts: list[Table | Figure | Picture] = [
        Table.of(f"One iteration, and the objective after {o.iterations}", methods),
        Table.of("Time to common objectives", _targets(o)),
        _curves(o),
        Table.of(
            "Dense solvers against CG to 1e-10, float64, same start: relative differences",
            list(map(asdict, o.agreement)),
        ),
    ]
    return Section(describe_setting(o), [text], parts)


def _targets(o: Outcome) -> list[Row]:
    rows = []
    for (label, value), (name, m) in product(o.targets().items(), o.methods.items()):
        n = o.reach(name, value)
        reached = {"iterations": n, "seconds": None if n is None else n * m.time.median}
        rows.append({"method": name, "target": label, "objective": value, **reached})
    return rows


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


def _rows(o: Outcome) -> Iterator[Row]:
    at = {"problem": o.problem, "order": o.order, "alpha": o.alpha}
    yield {"kind": "setting", **at, "shape": list(o.shape), "k": o.k, "q": o.q, "resident_bytes": o.resident}
    yield {"kind": "products", **at, **_milliseconds(o.products.time)}
    for name in o.methods:
        yield {"kind": "method", **at, "method": name, **_method_row(o, name)}
    yield from ({"kind": "target", **at, **row} for row in _targets(o))
    for a in o.agreement:
        yield {"kind": "agreement", **at, **asdict(a)}
    for name, m in o.methods.items():
        for iteration, value in m.curve:
            yield {"kind": "curve", **at, "method": name, "iteration": iteration, "objective": value}


def _method_row(o: Outcome, name: str) -> dict[str, Any]:
    m, curve = o.methods[name], o.curve(name)
    return _milliseconds(m.time) | {
        "measured_seconds": m.seconds,
        **_ratios(o, name),
        "fraction_of_printed_time": o.fraction(name),
        "last_objective": curve[-1][1] if curve else None,
        "curve_of": SHARED.get(name, name),
        "memory_bytes": o.memory.get(name),
    }


def _ratios(o: Outcome, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for to in RATIOS:
        ratio = o.ratio(name, to)
        row |= {f"ratio_to_{to}_{key}": getattr(ratio, key, None) for key in ("median", "min", "max")}
    return row


def _milliseconds(t: Any) -> dict[str, Any]:
    return {"ms_median": 1e3 * t.median, "ms_min": 1e3 * t.min, "ms_max": 1e3 * t.max, "stretches": t.count}
