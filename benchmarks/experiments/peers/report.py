"""The comparison with other packages as a report: bars, tables, curves, and every number as a row. Plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

from ...harness.kinds import Context
from ...harness.machine import processor
from ...harness.results import Figure, Line, Panel, Report, Row, Section, Table
from ...report.bars import bar_rows, bar_section
from ...report.study_report import skipped_section
from ...timing.memory import how
from .checks import judge_bars, summarise
from .environment import describe_environment
from .numbers import Everything, Outcome, Trail, spread
from .parameters import LABELS, Parameters

MEGABYTE = 2**20


def report(p: Parameters, found: Everything, context: Context) -> Report:
    """Collect everything a person should see, and every number."""
    bars, summaries = judge_bars(found, context.bars), summarise(found)
    machine = describe_environment(processor())
    measures = how(context.device) if p.memory else "not measured"
    sections = [
        bar_section(bars),
        _others(p, found),
        *(_problem(p, o) for o in found.outcomes),
        Section(
            "Restarts", (), [Table.of("Seconds of a loop and of the batch", [_restart_row(r) for r in found.restarts])]
        ),
        skipped_section(_list_skipped(found)),
        Section("Run with", (), [Table("", ("what", "is"), [(r["what"], r["is"]) for r in machine])]),
        Section("Summary", ["Speed-ups over all sets of a race.", *map(str, summaries)]),
    ]
    rows = [*(row for o in found.outcomes for row in _rows(p, o)), *_other_rows(found)]
    rows += [*machine, *({"kind": "summary", **asdict(s)} for s in summaries)]
    rows += bar_rows(bars)
    rows += [{"kind": "skipped", "problem": name, "why": why} for name, why in _list_skipped(found).items()]
    return Report(sections, rows, bulky=("curve",), notes={"memory": measures, "rates": asdict(found.rates)})


def _others(p: Parameters, found: Everything) -> Section:
    """Median speed-up over every method that ran, by target."""
    head = ("problem", "against", *(f"to {f:g}" for f in p.factors), "starts")
    rows = []
    for o in found.outcomes:
        for name in (n for n in o.trails if n != "ours"):
            ratios = [o.speedups(f, name) for f in p.factors]
            rows.append((o.title, _label(o, name), *(median(r) if r else None for r in ratios), len(o.trails[name])))
    text = "Time of a method over that of our default, medians over the starts from which both arrive."
    return Section("Against everybody", [text], [Table("Speed-ups", head, rows)])


def _problem(p: Parameters, o: Outcome) -> Section:
    size = " x ".join(map(str, o.shape))
    t = o.products
    text = [
        f"{size}, k = {o.n_components}. Data and factors are {o.resident / MEGABYTE:.1f} MB; the two products of an "
        f"iteration with the data take {1e3 * t.median:.3g} ms ({1e3 * t.min:.3g} to {1e3 * t.max:.3g})"
        + (f", at the measured copy bandwidth and GEMM rate {1e3 * o.roofline:.3g} ms." if o.roofline else ".")
    ]
    return Section(o.title, text, [_methods(p, o), _starts(p, o), _curves(o)])


def _methods(p: Parameters, o: Outcome) -> Table:
    head = ["method", "starts", "ms per iteration", "roofline share", "lowest error, median", "memory on top, MB"]
    for f in p.factors:
        head += [f"s to {f:g}", "min to max", "never"]
    rows = []
    for name, trails in o.trails.items():
        pace, memory = o.pace(name), o.memory.get(name)
        row: list[Any] = [_label(o, name), len(trails), pace and 1e3 * pace]
        row += [o.roofline / pace if pace and o.roofline else None, median(t.best for t in trails)]
        row.append(None if memory is None else memory / MEGABYTE)
        for f in p.factors:
            times = [r.seconds for r in o.arrivals(name, f) if r]
            row += [median(times) if times else None, spread(times), o.count_missed(name, f)]
        rows.append(row)
    return Table("Methods: one iteration, and the time to common errors", head, rows)


def _starts(p: Parameters, o: Outcome) -> Table:
    """Compare ours with whichever rival arrived first, start by start."""
    head = ["start", "ours ends at", f"{LABELS[o.named]} ends at", "ended because"]
    names = [n for n in ("ours", o.named) if n in o.trails]
    for f in p.factors:
        head += [f"s to {f:g}, ours", f"s to {f:g}, best rival", "which"]
    rows = []
    ours, best = {f: o.arrivals("ours", f) for f in p.factors}, {f: o.best(f) for f in p.factors}
    for i in range(len(o.trails["ours"])):
        trails = [o.trails[n][i] for n in names]
        row: list[Any] = [i, *[t.best for t in trails], *[None] * (2 - len(trails)), ", ".join(t.end for t in trails)]
        for f in p.factors:
            name, there = best[f][i] if best[f] else ("", None)
            row += [(r := ours[f][i]) and r.seconds, there and there.seconds, LABELS.get(name)]
        rows.append(row)
    return Table("Start by start", head, rows)


def _curves(o: Outcome) -> Figure:
    """From the first start: the error above the lowest one seen, against iterations and time."""
    lowest = min(t[0].best for t in o.trails.values())
    panels = []
    for x, at in (("iteration", 0), ("seconds", 1)):
        lines = [Line(_label(o, name), *_line(t[0], at, lowest)) for name, t in o.trails.items()]
        panels.append(Panel(x, "error / lowest error seen - 1", lines, rule=(0.005, "0.5 %")))
    return Figure("Error against iteration and against time, first start", panels)


def _line(trail: Trail, at: int, lowest: float) -> tuple[list[float], list[float]]:
    points = [p for p in trail.points[1:] if p[2] > lowest * (1 + 1e-6)]
    return [p[at] for p in points], [p[2] / lowest - 1 for p in points]


def _list_skipped(found: Everything) -> dict[str, str]:
    return found.skipped | {f"{LABELS[n]} on {o.title}": w for o in found.outcomes for n, w in o.skipped.items()}


def _label(o: Outcome, name: str) -> str:
    return LABELS[name] + (f" ({o.labels[name]})" if name in o.labels else "")


def _rows(p: Parameters, o: Outcome) -> Iterator[Row]:
    at = {"problem": o.problem}
    yield {"kind": "setting", **at, "shape": list(o.shape), "k": o.n_components, "entries": o.entries}
    yield {"kind": "products", **at, **asdict(o.products), "roofline_seconds": o.roofline}
    for name, trails in o.trails.items():
        memory = o.memory.get(name)
        yield {"kind": "method", **at, "method": name, "seconds_per_iteration": o.pace(name), "memory_bytes": memory}
        for f in p.factors:
            for i, r in enumerate(o.arrivals(name, f)):
                reached = {"iterations": r and r.iterations, "seconds": r and r.seconds}
                yield {"kind": "target", **at, "method": name, "factor": f, "start": i, **reached}
        for i, t in enumerate(trails):
            yield {"kind": "trail", **at, "method": name, "start": i, "best": t.best, "end": t.end}
            for n, s, e in t.points:
                yield {"kind": "curve", **at, "method": name, "start": i, "iteration": n, "seconds": s, "error": e}


def _other_rows(found: Everything) -> Iterator[Row]:
    for c in (*found.sweeps, *found.sparse):
        yield {"kind": "cost", "title": c.title, "product_seconds": c.seconds, "memory_ratio": c.memory} | {
            f"{n}_{k}": v for n, s in c.ratios.items() for k, v in asdict(s).items()
        }
    for r in found.restarts:
        yield {"kind": "restarts", **_restart_row(r)}


def _restart_row(r: Any) -> Row:
    there = {f"batch_seconds_to_{t}": x and x.seconds for t, x in r.batch.items()}
    return {**asdict(r), "own_speedup": r.own_speedup, **there}
