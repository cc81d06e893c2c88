"""Bars of a run as a section of its page and as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, fields

from ..harness.results import Bar, Row, Section, Table

HEAD = tuple(f.name for f in fields(Bar))


def bar_section(bars: Sequence[Bar]) -> Section:
    """Count the verdicts and list the bars."""
    count = {v: sum(b.verdict == v for b in bars) for v in ("met", "not met", "not run")}
    text = f"{count['met']} of {len(bars)} bars met, {count['not met']} not met, {count['not run']} not run."
    head = (*HEAD[:-1], "spread, and what bounds it")
    return Section("Bars", [text] if bars else [], [Table("Ratios within this run", head, [astuple(b) for b in bars])])


def bar_rows(bars: Sequence[Bar]) -> list[Row]:
    """Turn bars into rows of kind "check"."""
    return [{"kind": "check", **asdict(bar)} for bar in bars]
