"""Rows of a study as tables: at the parameters that cross-validation chose, at the best ones, and in the paper.

A split may have several runs (random starts): rows with the same split and point. Every run of every split counts as
one measurement; parameters are chosen split by split, on the mean over its runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from math import inf
from statistics import fmean
from typing import Any

from ..harness.claims import Paper
from ..harness.results import Row, Score


def setting_of(row: Mapping[str, Any]) -> str:
    """Name the setting of a row: the problem, or `problem/variation`."""
    return f"{row['problem']}/{row['setting']}" if row.get("setting") else str(row["problem"])


class Scores:
    """One metric of the `score` rows of a study.

    Parameters
    ----------
    rows : rows of any kinds
    metric : str
        The column that is reported. Larger is better, in percent where it is a rate.
    paper : Paper or None
    by : str
        The column that cross-validation on the training data filled; rows without it have one parameter point.
    """

    def __init__(
        self, rows: Iterable[Row], metric: str = "accuracy", paper: Paper | None = None, by: str = "cv"
    ) -> None:
        self.metric, self.paper, self.by = metric, paper, by
        self.rows = [r for r in rows if r["kind"] == "score" and r.get(metric) is not None]

    @property
    def settings(self) -> list[str]:
        """In the order of the rows."""
        return list(dict.fromkeys(map(setting_of, self.rows)))

    @property
    def methods(self) -> list[str]:
        """In the order of the rows."""
        return list(dict.fromkeys(r["method"] for r in self.rows))

    def matching(self, patterns: Sequence[str]) -> list[str]:
        """List the settings that one of the patterns fits."""
        return [s for s in self.settings if any(fnmatchcase(s, p) for p in patterns)]

    def chosen(self, method: str, setting: str) -> Score | None:
        """At the point with the largest cross-validated value of its split, the first of equals."""
        splits = self._cells.get((setting, method))
        return Score.of([v for s in splits.values() for v in s[_choice(s)].values]) if splits else None

    def best(self, method: str, setting: str) -> Score | None:
        """At the point whose mean over the splits is largest: chosen on test data, as the papers do."""
        point = self.best_point(method, setting)
        if point is None:
            return None
        splits = self._cells[setting, method].values()
        return Score.of([v for s in splits if point in s for v in s[point].values])

    def best_point(self, method: str, setting: str) -> str | None:
        """Find the point of `best`, as JSON."""
        splits = self._cells.get((setting, method))
        if not splits:
            return None
        points = dict.fromkeys(p for s in splits.values() for p in s)
        return max(points, key=lambda p: fmean(fmean(s[p].values) for s in splits.values() if p in s))

    def chosen_points(self, method: str, setting: str) -> Counter[str]:
        """How often cross-validation chose which point, as JSON."""
        return Counter(_choice(s) for s in self._cells.get((setting, method), {}).values())

    def printed(self, method: str, setting: str) -> Score | None:
        """Give what the paper prints."""
        values = self.paper.values.get(setting, {}).get(method) if self.paper else None
        return Score(values[0], values[1] if len(values) > 1 else None) if values else None

    def score(self, column: str, method: str, setting: str) -> Score | None:
        """By the name of a column: "chosen", "best" or "paper"."""
        named = {"chosen": self.chosen, "best": self.best, "paper": self.printed}
        return named[column](method, setting)

    def value(self, column: str, method: str, setting: str) -> Any:
        """Give the mean of a score, None if there is none."""
        score = self.score(column, method, setting)
        return None if score is None else score.mean

    def average(self, column: str, method: str, patterns: Sequence[str]) -> float | None:
        """Over the settings that fit and have a value."""
        means = [self.value(column, method, s) for s in self.matching(patterns)]
        return fmean(m for m in means if m is not None) if any(m is not None for m in means) else None

    def summary(self) -> list[Row]:
        """One row per setting and method."""
        return [row for s in self.settings for m in self.methods if (row := self._summary(s, m))]

    def _summary(self, setting: str, method: str) -> Row | None:
        chosen, best, paper = (self.score(c, method, setting) for c in ("chosen", "best", "paper"))
        if chosen is None or best is None:
            return None
        points = self.chosen_points(method, setting).most_common(1)
        return {
            "kind": "summary",
            "metric": self.metric,
            "setting": setting,
            "method": method,
            "count": chosen.count,
            "chosen_mean": chosen.mean,
            "chosen_std": chosen.std,
            "chosen_most_often": points[0][0],
            "best_mean": best.mean,
            "best_std": best.std,
            "best_point": self.best_point(method, setting),
            "paper_mean": paper and paper.mean,
            "paper_std": paper and paper.std,
        }

    @cached_property
    def _cells(self) -> dict[tuple[str, str], dict[int, dict[str, _Runs]]]:
        """(setting, method) -> split -> point -> its runs."""
        cells: dict[tuple[str, str], dict[int, dict[str, _Runs]]] = {}
        for r in self.rows:
            splits = cells.setdefault((setting_of(r), r["method"]), {})
            runs = splits.setdefault(r["split"], {}).setdefault(json.dumps(r["point"]), _Runs())
            runs.values.append(r[self.metric])
            if r.get(self.by) is not None:
                runs.by.append(r[self.by])
        return cells


@dataclass
class _Runs:
    """A point on one split: the metric of its runs (starts), and what they are chosen by."""

    values: list[float] = field(default_factory=list)
    by: list[float] = field(default_factory=list)


def _choice(points: Mapping[str, _Runs]) -> str:
    means = {p: fmean(runs.by) if runs.by else -inf for p, runs in points.items()}
    return max(means, key=means.__getitem__)
