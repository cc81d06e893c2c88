"""`--check`: what a finished run does not keep of what its config says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from ..data.datasets import known_names
from ..harness.claims import Claim, PageTable, Paper
from ..harness.config import Config
from ..harness.results import Row
from .evidence import judge
from .scores import Scores
from .study_report import all_scores


def find_faults(rows: Sequence[Row], ran: Config, whole: Sequence[Config]) -> list[str]:
    """List missed bars, names of things that do not exist, and methods without a row.

    Parameters
    ----------
    rows : of the run
    ran : Config
        What was run. A run that is none of `whole` (--quick, --set) has fewer rows: names of settings are then compared
        with the data sets alone, and its numbers are not judged.
    whole : sequence of Config
        The config as its file has it, and with its [full] tables.
    """
    small = all(ran.parameters != config.parameters for config in whole)
    faults = [*_lost_methods(rows, ran), *_unknown_names(rows, ran, whole, small)]
    return faults if small else [*faults, *_missed_bars(rows, ran)]


def _missed_bars(rows: Sequence[Row], config: Config) -> Iterator[str]:
    """Bars of measurements, and claims that are targets of our own; what a paper claims may turn out wrong."""
    for row in rows:
        if row["kind"] == "check" and row["verdict"] == "not met":
            yield f"bar missed: {row['claim']}, {row['where']}: {row['measured']}, {row['bar']}"
    tables = all_scores(rows, config, [c.metric for c in config.header.claims])
    for claim in (c for c in config.header.claims if c.origin == "target" and c.metric in tables):
        verdict, numbers = judge(claim, tables[claim.metric])
        if verdict == "not met":
            yield f"bar missed: {claim.text}: {numbers}"


def _lost_methods(rows: Sequence[Row], config: Config) -> Iterator[str]:
    """Methods that the config names and that left neither a row nor a reason."""
    asked = getattr(config.parameters, "methods", ()) or getattr(config.parameters, "solvers", ())
    seen = {r.get("method", r.get("solver")) for r in rows}
    yield from (f"method vanished: {name} has no result" for name in asked if name not in seen)


def _unknown_names(rows: Sequence[Row], ran: Config, whole: Sequence[Config], small: bool) -> Iterator[str]:
    """Metrics, methods, data sets, settings and figures of claims, papers and tables that are nowhere."""
    methods = {r["method"] for r in rows if "method" in r}.union(*map(_named_methods, whole))
    there = _problems(ran) - {r["problem"] for r in rows if r["kind"] == "skipped"}
    asked = _problems(ran, *whole)
    for what, part in _statements(ran):
        if isinstance(part, PageTable) and (part.values or part.show):
            lost = [] if small else _lost_figures(rows, part)
            yield from (f"{what} names no figure: {name}" for name in lost)
            continue
        scores = Scores(rows, part.metric)
        if not scores.rows and not small:
            yield f"{what} names no metric: {part.metric}"
        yield from (f"{what} names no method: {name}" for name in _methods_of(part) if name not in methods)
        for pattern in part.values if isinstance(part, Paper) else part.settings:
            problems = {name for name in {*known_names(), *asked} if fnmatchcase(name, pattern.partition("/")[0])}
            if not problems:
                yield f"{what} names no data set: {pattern}"
            elif small or isinstance(part, Paper) or scores.matching([pattern]):
                continue  # a paper may print more than is run
            elif problems & there or not problems & asked:
                yield f"{what} names no row: {pattern}"


def _lost_figures(rows: Sequence[Row], table: PageTable) -> list[str]:
    values = {r["name"] for r in rows if r["kind"] == "value"}
    columns = {name for r in rows if r["kind"] == table.kind for name in r}
    return [v for v in table.values if v not in values] + [c for c in table.show if c not in columns]


def _problems(*configs: Config) -> set[str]:
    return {name for config in configs for name in getattr(config.parameters, "problems", ())}


def _statements(config: Config) -> Iterable[tuple[str, Claim | Paper | PageTable]]:
    header = config.header
    for claim in header.claims:
        yield f"claim {claim.text!r}", claim
        yield from ((f"claim {claim.text!r}, tried {made.text!r},", made) for _, made in claim.variations())
    yield from ((f"paper {paper.source!r}", paper) for paper in header.paper)
    yield from ((f"table {i}", table) for i, table in enumerate(header.tables, 1))


def _methods_of(part: Claim | Paper | PageTable) -> Iterable[str]:
    if isinstance(part, Paper):
        return dict.fromkeys(name for row in part.values.values() for name in row)
    return (*part.methods, *part.ahead_of) if isinstance(part, Claim) else part.methods


def _named_methods(config: Config) -> set[str]:
    """Collect the methods that the parameters name, and their variants."""
    p = config.parameters
    plain = {*getattr(p, "methods", ()), *getattr(p, "solvers", ())}
    return plain | {f"{name}-{variant}" for name in plain for variant in getattr(p, "variants", ())}
