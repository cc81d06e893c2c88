"""`python -m benchmarks findings DIR`: the tables of the pages in `docs/findings` from the finished runs in a folder.

A page is written by hand but for the block between two markers, which holds what a run says: the command and the
machine, the config's `[[tables]]`, the verdicts of its claims and bars, what was not run, and the summary of the last
run on every other processor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

from ..harness import config as configs
from ..harness.claims import PageTable
from ..harness.config import Config
from ..harness.errors import BenchmarkError
from ..harness.journal import read_rows
from ..harness.results import Row, Table
from .bars import HEAD
from .page import cell
from .prose import BEGIN, END, TRIES, judged_claims
from .scores import Scores
from .study_report import EXPLAINED, UNITS, all_scores, claim_table, overview

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "findings"

COUNT = ("<!-- counted by `python -m benchmarks findings` -->", "<!-- end of count -->")


def write(runs: Path, pages: Path = FOLDER) -> list[Path]:
    """Renew the results of every page whose experiment has a finished run in `runs`; other pages stay.

    Raises
    ------
    BenchmarkError
        There is no run, or a page has lost its markers.
    """
    found = [c.parent for c in sorted(runs.glob("*/config.toml")) if (c.parent / "report.html").exists()]
    if not found:
        raise BenchmarkError(f"{runs} holds no finished run; run some first: python -m benchmarks list")
    renewed = [_renew(pages / f"{run.name}.md", run) for run in found]
    _renew_count(pages)
    return renewed


def _renew(page: Path, run: Path) -> Path:
    rows, ran = read_rows(run), replace(configs.load(run / "config.toml"), name=run.name)
    now = _config_of_today(ran)
    machine = json.loads((run / "machine.json").read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8") if page.exists() else f"# {run.name}\n\n{BEGIN}\n{END}\n"
    if BEGIN not in text or END not in text:
        raise BenchmarkError(f"{page}: no place for the results; it needs the lines {BEGIN} and {END}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    earlier = _summaries_elsewhere(text[len(before) : -len(after) or None], machine["device_name"], now)
    block = "\n\n".join([BEGIN, describe_run(ran, now, machine), *results(rows, now), *earlier, END])
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(before + block + after, encoding="utf-8")
    return page


def _summaries_elsewhere(block: str, processor: str, config: Config) -> list[str]:
    """Find the runs on other processors that a block of results has, and the summary of each."""
    heads = [markdown(Table("", t.show, [])).splitlines()[0] for t in config.header.tables if t.kind == "summary"]
    found: dict[str, list[str]] = {}
    run = ""
    for paragraph in block.split("\n\n"):
        run = paragraph if paragraph.startswith("Run: ") else run
        if paragraph.splitlines()[0] in heads and f"({processor})" not in run:
            found.setdefault(run.partition(", ")[0], [run, paragraph])
    return [part for parts in found.values() for part in parts]


def _renew_count(pages: Path) -> None:
    """Write into the index how many of the papers' claims hold, page by page."""
    index = pages / "index.md"
    text = index.read_text(encoding="utf-8") if index.exists() else ""
    if COUNT[0] not in text or COUNT[1] not in text:
        return
    found = {p.stem: judged_claims(p.read_text(encoding="utf-8")) for p in sorted(pages.glob("*.md"))}
    every = [claim for claims in found.values() for claim in claims]
    lost = [claim for claim in every if claim.outcome == "not met"]
    hold = lambda claims: sum(claim.outcome != "not met" for claim in claims)
    each = ", ".join(f"{name} {hold(claims)} of {len(claims)}" for name, claims in found.items() if claims)
    says = (
        f"Of the {len(every)} claims of the papers that the configs state {hold(every)} hold, "
        f"{sum(claim.outcome == 'met equally' for claim in every)} of them measured in another way that says as much: "
        f"{each}. For {sum(len(claim.tried) >= TRIES for claim in lost)} of the other {len(lost)} the page has {TRIES} "
        "ways or more that were tried, and by how many points they fail."
    )
    block = fill(says, 120)
    before, after = text.partition(COUNT[0])[0], text.partition(COUNT[1])[2]
    index.write_text(f"{before}{COUNT[0]}\n{block}\n{COUNT[1]}{after}", encoding="utf-8")


def results(rows: Sequence[Row], config: Config) -> Iterator[str]:
    """Write the blocks of a page in Markdown: tables, claims, bars, what was not run."""
    scores = all_scores(rows, config, [t.metric for t in config.header.tables])
    if scores:
        yield EXPLAINED
    for spec in config.header.tables:
        yield from _block(spec, rows, scores)
    if (claims := claim_table(config, scores)).rows:
        yield markdown(claims)
    bars = [[r[column] for column in HEAD] for r in rows if r["kind"] == "check"]
    if bars:
        yield markdown(Table("", HEAD, bars))
    skipped = [[r["problem"], _shorten(r["why"])] for r in rows if r["kind"] == "skipped"]
    if skipped:
        yield markdown(Table("", ["not run", "why"], skipped))


def _block(spec: PageTable, rows: Sequence[Row], scores: Mapping[str, Scores]) -> Iterator[str]:
    """One of the config's tables, with its unit."""
    if spec.values:
        known = {r["name"]: r["value"] for r in rows if r["kind"] == "value"}
        yield markdown(Table("", ["figure", "value"], [[name, _round(known.get(name))] for name in spec.values]))
    elif spec.show:
        cells = [[r.get(name) for name in spec.show] for r in rows if r["kind"] == spec.kind]
        yield markdown(Table("", spec.show, cells))
    elif spec.metric in scores:
        table = page_table(spec, scores[spec.metric]) if spec.settings else overview(scores[spec.metric])
        yield f"{UNITS.get(spec.metric, spec.metric)}:"
        yield markdown(table)


def page_table(spec: PageTable, scores: Scores) -> Table:
    """Patterns of settings down, methods across; means where a pattern has several settings."""
    methods = spec.methods or tuple(scores.methods)
    rows: list[list[Any]] = []
    for pattern in spec.settings:
        matching = scores.matching([pattern])
        for column in spec.columns:
            values: list[Any]
            if len(matching) == 1:
                values = [scores.score(column, m, matching[0]) for m in methods]
            else:
                values = [_round(scores.average(column, m, [pattern])) for m in methods]
            if any(v is not None for v in values):
                rows.append([f"`{pattern}`", column, *values])
    return Table("", ["setting", "", *methods], rows)


def describe_run(ran: Config, now: Config, machine: Mapping[str, Any]) -> str:
    """Say how a run can be had again, and in what it is not the config as it is."""
    text = (
        f"Run: `python -m benchmarks {ran.name}` on {machine['device']} ({machine['device_name']}), "
        f"{machine['threads']} thread(s), {ran.header.run.dtype}, seed {ran.header.run.seed}, "
        f"torch {machine['versions']['torch']}, {machine['time'][:10]}, "
        f"commit {machine.get('commit', 'not recorded')}, {machine.get('job_seconds', machine['seconds']):.0f} s."
    )
    other = [
        d.replace(" there,", " in the config,").replace(" here", " in this run") for d in configs.differences(now, ran)
    ]
    return text + (" Not the config as it is: " + "; ".join(other) + "." if other else "")


def markdown(table: Table) -> str:
    """Write a table in Markdown."""
    clean = lambda values: [cell(v).replace("|", "\\|") for v in values]
    lines = [clean(table.head), ["---"] * len(table.head), *map(clean, table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _config_of_today(ran: Config) -> Config:
    """Load the config of the same name with today's claims, tables and paper, or give the one that ran."""
    known = {p.stem: p for p in configs.known_configs()}
    return configs.load(known[ran.name]) if ran.name in known else ran


def _round(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _shorten(why: str) -> str:
    """Without the machine's paths."""
    return "data not available; " + why.partition("; ")[2] if why.startswith("data not available") else why
