"""The page of a study: ours beside the paper's, claims, what was not run, pictures; and the rows for the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..harness.config import Config
from ..harness.kinds import Context
from ..harness.results import Line, Panel, Picture, Report, Row, Score, Section, Table
from ..harness.study import Outcome
from .evidence import judge
from .scores import Scores

BULKY = ("score", "picture")


def finish(
    outcome: Outcome,
    context: Context,
    *,
    metrics: Sequence[str] = ("accuracy",),
    sections: Sequence[Section] = (),
    values: Mapping[str, Any] | None = None,
) -> Report:
    """Make the report of a study.

    Parameters
    ----------
    metrics : columns of the rows that get tables
    sections : put between the tables and what was not run
    values : numbers by name, where a score does not say it; rows of kind "value"
    """
    config, values = context.config, dict(values or {})
    tables = all_scores(outcome.rows, config, metrics)
    found = [
        *(_score_section(scores) for scores in tables.values()),
        *sections,
        _picture_section(outcome.rows),
        _claim_section(config, tables),
        skipped_section(outcome.skipped),
    ]
    return Report(
        sections=found,
        rows=[
            *outcome.rows,
            *(row for scores in tables.values() for row in scores.summary()),
            *({"kind": "value", "name": name, "value": value} for name, value in values.items()),
            *({"kind": "skipped", "problem": name, "why": why} for name, why in outcome.skipped.items()),
        ],
        bulky=BULKY,
        notes={"job_seconds": round(_seconds(outcome.rows), 1)},
    )


def all_scores(rows: Sequence[Row], config: Config, metrics: Sequence[str]) -> dict[str, Scores]:
    """Collect the scores of the metrics that have rows, those of the config's papers and claims as well."""
    papers = {p.metric: p for p in config.header.paper}
    claims = [made for c in config.header.claims for made in (c, *(one for _, one in c.variations()))]
    names = dict.fromkeys([*metrics, *papers, *(claim.metric for claim in claims)])
    tables = {name: Scores(rows, name, papers.get(name)) for name in names}
    return {name: scores for name, scores in tables.items() if scores.rows}


def _score_section(scores: Scores) -> Section:
    """One table to look at, one to look up."""
    source = f"The paper's values: {scores.paper.source}." if scores.paper else "The paper prints no values for this."
    return Section(f"Results: {scores.metric}", [source, EXPLAINED], [overview(scores), details(scores)])


UNITS = {  # what a metric is, where its name does not say it
    "accuracy": "accuracy, % right",
    "clusters": "clusters, % right",
    "nmi": "normalised mutual information, %",
    "out_of_sample": "accuracy on samples held out of training, % right",
    "sparsity": "Hoyer sparsity, %",
    "residual": "residual, % of the norm of the data",
    "condition": "condition number of the bases",
    "within": "weights that tie samples of one class, %",
    "objective_percent": "objective, % of the lowest",
    "growth": "growth, times as long",
    "speedup": "speed-up, times as fast",
    "excess": "objective, % above a long run",
    "said": "the same of fits that say they converged, 0 of others",
    "fit_seconds": "seconds",
    "to_target": "milliseconds to a common error",
    "right": "right numbers of components, %",
    "reached": "least error that was reached, % of the norm",
    "hidden": "error on what was hidden, % of its norm",
}

EXPLAINED = (
    "Mean and standard deviation over the splits and their runs. Chosen: at the parameters that cross-validation on "
    "the training data chose, split by split. Best over parameters: at the point with the best mean on the test data, "
    "chosen afterwards."
)


def overview(scores: Scores) -> Table:
    """Tabulate settings down, methods across: ours as chosen, and the paper's below it."""
    rows: list[list[Any]] = []
    for setting in scores.settings:
        rows.append([setting, "ours", *(scores.chosen(m, setting) for m in scores.methods)])
        printed = [scores.printed(m, setting) for m in scores.methods]
        if any(printed):
            rows.append(["", "paper", *printed])
    plain = [s for s in scores.settings if "/" not in s] or scores.settings
    if len(plain) > 1:
        rows.append(["average", "ours", *(_average(scores, "chosen", m, plain) for m in scores.methods)])
        if scores.paper:
            rows.append(["", "paper, of these", *(_average(scores, "paper", m, plain) for m in scores.methods)])
    return Table(UNITS.get(scores.metric, scores.metric), ["setting", "", *scores.methods], rows)


def chosen_line(scores: Scores, method: str, x: Mapping[str, float]) -> Line:
    """Draw a method's chosen values against `x` (setting -> abscissa), those that are there."""
    known = [(at, v) for s, at in x.items() if (v := scores.value("chosen", method, s)) is not None]
    return Line(method, [at for at, _ in known], [v for _, v in known])


def curve_panel(
    scores: Scores,
    pattern: str,
    title: str,
    *,
    y: str = "accuracy (%)",
    start: Mapping[str, float] | None = None,
    log_x: bool = False,
) -> Panel | None:
    """Draw chosen values against the last number of the settings' names; None where no setting fits.

    `start` has settings whose names say no number, and their abscissae.
    """
    x = {s: float(s.rpartition("=")[2].partition("/")[0]) for s in scores.matching([pattern])}
    if not x:
        return None
    lines = [chosen_line(scores, m, {**(start or {}), **x}) for m in scores.methods]
    return Panel(title, y, [line for line in lines if line.x], log_x=log_x and len(x) > 1, log_y=False)


def details(scores: Scores) -> Table:
    """List every number of a metric."""
    head = ["setting", "method", "chosen", "best over parameters", "paper", "chosen - paper", "best point", "runs"]
    rows = []
    for r in scores.summary():
        chosen, best, paper = (scores.score(c, r["method"], r["setting"]) for c in ("chosen", "best", "paper"))
        point = r["best_point"].strip("{}").replace('"', "") or "-"
        difference = None if paper is None or chosen is None else chosen.mean - paper.mean
        rows.append([r["setting"], r["method"], chosen, best, paper, difference, point, r["count"]])
    return Table(f"{UNITS.get(scores.metric, scores.metric)}: all", head, rows)


def _claim_section(config: Config, tables: Mapping[str, Scores]) -> Section:
    table = claim_table(config, tables)
    left = len(config.header.claims) - sum(row[0] in ("paper", "target") for row in table.rows)
    return Section("What should hold", [f"Claims about what was not run: {left}."] if left else [], [table])


def claim_table(config: Config, tables: Mapping[str, Scores]) -> Table:
    """List the claims of the config with their verdicts, without those about methods or settings that were not run.

    What was tried for a claim follows it: "tried", or "equally" where it measures the claim as well.
    """
    rows = []
    for claim in config.header.claims:
        tried = [("equally" if other.equal else "tried", made) for other, made in claim.variations()]
        for origin, one in [(claim.origin, claim), *tried]:
            verdict, numbers = judge(one, tables.get(one.metric, Scores([], one.metric)))
            column = "" if one.column == "chosen" else " (best over parameters)"
            if verdict != "not run":
                rows.append([origin, one.text + column, verdict, numbers])
    return Table("Claims", ["of the", "claim", "verdict", "numbers"], rows)


def _average(scores: Scores, column: str, method: str, settings: Sequence[str]) -> Score | None:
    mean = scores.average(column, method, settings)
    return None if mean is None else Score(mean)


def skipped_section(skipped: Mapping[str, str]) -> Section:
    """List what was not run, and why; a section without rows is not shown."""
    return Section("Not run", parts=[Table("", ["problem", "why"], list(skipped.items()))])


def _picture_section(rows: Sequence[Row]) -> Section:
    """Show the rows that `pictures.row` made."""
    shown = [r for r in rows if r["kind"] == "picture"]
    caption = lambda r: f"{r['problem']}, {r['method']}: {r['caption']}"
    return Section("Pictures", parts=[Picture(caption(r), r["png"], r["width"]) for r in shown])


def _seconds(rows: Sequence[Row]) -> float:
    """Time of the jobs, over all workers; rows of one point share it."""
    return sum(r["seconds"] / r.get("of", 1) for r in rows if "seconds" in r)
