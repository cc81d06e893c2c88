"""A study that costs nothing: what its jobs did is noted in the file that TOY_NOTES names, TOY_FAIL names one that fails."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.data.datasets import check_problems
from benchmarks.data.pictures import row as picture
from benchmarks.harness.study import Job, carry_out
from benchmarks.report.study_report import finish


@dataclass(frozen=True)
class Parameters:
    problems: tuple[str, ...] = ("iris", "wine")
    methods: tuple[str, ...] = ("good", "bad")
    splits: int = 3
    strength: float = 1.0

    def __post_init__(self):
        check_problems(self.problems)


def run(parameters, context):
    outcome = carry_out(__name__, parameters, context)
    return finish(outcome, context, values={"classes": 3})


def plan(p):
    for problem in p.problems:
        for split in range(p.splits):
            for method in p.methods:
                points = ({"a": 1.0}, {"a": 2.0}) if method == "good" else ({},)
                yield Job(problem, method, split, points)


def solve(job):
    note = f"{job.problem} {job.split} {job.method} {len(job.points)}\n"
    with Path(os.environ["TOY_NOTES"]).open("a") as file:
        file.write(note)
    if str(job) == os.environ.get("TOY_FAIL"):
        raise ArithmeticError("told to fail")
    n = len(job.dataset().y)
    noise = float(np.random.default_rng(job.seed).random())
    for point in job.points:
        base = 80 + 5 * point.get("a", 0.0) + noise + n / 1000
        for r in range(2):
            yield {"point": point, "run": r, "accuracy": base + r, "cv": -point.get("a", 0.0)}
            yield {"point": point, "run": r, "accuracy": base - 10, "setting": "dark", "cv": -point.get("a", 0.0)}
    if job.split == 0 and job.method == "bad":
        yield picture({}, "a picture", np.arange(24.0).reshape(2, 3, 4))
