"""`python -m benchmarks findings DIR`: FINDINGS.md from the finished runs in a folder.

Tables and verdicts come from the rows of the runs, claims and prose from the configs as they are now; every number of
the prose is looked up. A run whose parameters are not the config's says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..harness import config as configs
from ..harness.errors import BenchmarkError
from ..harness.journal import read_rows
from ..harness.results import Row, Table
from .evidence import fill
from .page import cell
from .study_report import EXPLAINED, all_scores, claim_table, details, overview

BARS = ("claim", "where", "bar", "measured", "verdict", "note")

PATH = Path(__file__).resolve().parents[1] / "FINDINGS.md"

INTRODUCTION = f"""# Findings

What the experiments in `configs/` say about the papers' tables and figures. This page is written by
`python -m benchmarks findings DIR` from finished runs in DIR, and no number in it by hand. What DIR lacks stays.

{EXPLAINED}
"""


def write(folder: Path, path: Path = PATH) -> Path:
    """The page from all runs in `folder` that compare with a paper or a bar; sections of other experiments stay.

    Raises
    ------
    BenchmarkError
        There is none.
    """
    runs = [run for run in sorted(folder.glob("*/config.toml")) if (run.parent / "report.html").exists()]
    parts = [part for run in runs if (part := _part(run.parent))]
    if not parts:
        raise BenchmarkError(f"{folder} holds no finished run of a study; run some first: python -m benchmarks list")
    sections = _sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    sections |= _sections("\n".join(parts))
    path.write_text("\n".join([INTRODUCTION, *(sections[name] for name in sorted(sections))]), encoding="utf-8")
    return path


def _sections(page: str) -> dict[str, str]:
    """The page's sections by experiment."""
    found = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)[1:]
    return {name: f"## {name}\n{text.rstrip()}\n" for name, text in zip(found[::2], found[1::2], strict=True)}


def _part(folder: Path) -> str | None:
    """One run; None if it compares with nothing."""
    rows = read_rows(folder / "results.jsonl")
    ran = configs.load(folder / "config.toml")
    now = _as_now(folder, ran)
    body = _study(rows, now) or _race(rows)
    if not body:
        return None
    skipped = [[r["problem"], r.get("why") or r["note"]] for r in rows if r["kind"] == "skipped"]
    lines = [f"## {folder.name}", now.header.summary + ".", *_how(folder, ran, now), *body]
    lines += [markdown(Table("", ["not run", "why"], [[k, _short(why)] for k, why in skipped]))] if skipped else []
    return "\n\n".join(lines) + "\n"


def _study(rows: Sequence[Row], now: configs.Config) -> list[str]:
    """Scores beside the paper's, claims, prose; nothing if the run has no scores."""
    metrics = list(dict.fromkeys(r["metric"] for r in rows if r["kind"] == "summary"))
    values = {r["name"]: r["value"] for r in rows if r["kind"] == "value"}
    if not metrics and not values:
        return []
    lines, tables = [], all_scores(rows, now, metrics)
    for scores in tables.values():
        lines += [scores.paper.source + ":"] if scores.paper else []
        lines += [markdown(overview(scores))]
        lines += [f"<details><summary>all of {scores.metric}</summary>", markdown(details(scores)), "</details>"]
    lines += [markdown(claim_table(now, tables))] if now.header.claims else []
    lines += [fill(now.header.findings, tables, values)] if now.header.findings.strip() else []
    return lines


def _race(rows: Sequence[Row]) -> list[str]:
    """Sentences beside the paper's, and bars; nothing if the run has none."""
    bars = [[r[column] for column in BARS] for r in rows if r["kind"] == "check"]
    return [
        *(r["text"] for r in rows if r["kind"] == "sentence"),
        *([markdown(Table("", BARS, bars))] if bars else []),
    ]


def markdown(table: Table) -> str:
    """A table in Markdown."""
    clean = lambda values: [cell(v).replace("|", "\\|") for v in values]
    lines = [clean(table.head), ["---"] * len(table.head), *map(clean, table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _as_now(folder: Path, ran: configs.Config) -> configs.Config:
    """The config of the same name with today's claims, prose and paper, or the one that ran."""
    known = {p.stem: p for p in configs.known_configs()}
    return configs.load(known[folder.name]) if folder.name in known else ran


def _how(folder: Path, ran: configs.Config, now: configs.Config) -> Iterable[str]:
    machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    yield (
        f"Run: `python -m benchmarks {folder.name}` on {machine['device']} ({machine['device_name']}), "
        f"{machine['threads']} thread(s), {ran.header.run.dtype}, seed {ran.header.run.seed}, "
        f"torch {machine['versions']['torch']}, {machine['time'][:10]}."
    )
    other = [d.replace(" there,", " in the config,").replace(" here", " in this run") for d in _differences(now, ran)]
    if other:
        yield "Not the config as it is: " + "; ".join(other) + "."


def _differences(now: Any, ran: Any) -> Sequence[str]:
    return configs.differences(now, ran)


def _short(why: str) -> str:
    """Without the machine's paths."""
    return "data not available; " + why.rsplit("; ", 1)[-1] if why.startswith("data not available") else why
