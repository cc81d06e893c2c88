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


def find_faults(rows: Sequence[Row], ran: Config, whole: Config) -> list[str]:
    """List missed bars, names of things that do not exist, and methods without a row.

    Parameters
    ----------
    rows : of the run
    ran : Config
        What was run. A smaller run than the config's own (--quick, --set) has fewer rows: names of settings are then
        compared with the data sets alone, and its numbers are not judged.
    whole : Config
        The config as its file has it.
    """
    small = ran.parameters != whole.parameters
    faults = [*_lost_methods(rows, ran), *_unknown_names(rows, whole, small)]
    return faults if small else [*faults, *_missed_bars(rows, whole)]


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


def _unknown_names(rows: Sequence[Row], config: Config, small: bool) -> Iterator[str]:
    """Metrics, methods, data sets and settings of claims, papers and tables that are nowhere."""
    methods = {r["method"] for r in rows if "method" in r} | _named_methods(config)
    skipped = {r["problem"] for r in rows if r["kind"] == "skipped"}
    for what, part in _statements(config):
        scores = Scores(rows, part.metric)
        if isinstance(part, PageTable) and (part.values or part.show):
            values = {r["name"] for r in rows if r["kind"] == "value"}
            columns = {name for r in rows if r["kind"] == part.kind for name in r}
            lost = [v for v in part.values if v not in values] + [c for c in part.show if c not in columns]
            yield from (f"{what} names no figure: {name}" for name in lost if not small)
            continue
        if not scores.rows and not small:
            yield f"{what} names no metric: {part.metric}"
        yield from (f"{what} names no method: {name}" for name in _methods_of(part) if name not in methods)
        for pattern in part.values if isinstance(part, Paper) else part.settings:
            head = pattern.partition("/")[0]
            problems = [name for name in known_names() if fnmatchcase(name, head)]
            if not problems:
                yield f"{what} names no data set: {pattern}"
            elif not small and not scores.matching([pattern]) and not skipped & set(problems):
                yield f"{what} names no row: {pattern}"


def _statements(config: Config) -> Iterable[tuple[str, Claim | Paper | PageTable]]:
    header = config.header
    yield from ((f"claim {claim.text!r}", claim) for claim in header.claims)
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
