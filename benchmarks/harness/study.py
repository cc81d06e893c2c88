"""Studies: experiments over problems, splits, methods and parameter points, resumable, in worker processes.

A kind that is a study has, besides `Parameters` and `run`,

* `plan(parameters) -> iterable of Job`: everything to be done; no data are loaded for it;
* `solve(job) -> iterable of dict`: one or more rows for every point of the job, each with its "point".

and its `run` is `return finish(carry_out(__name__, parameters, context), context)` (`study_report.finish`).
A row is anything JSON can hold. "kind" defaults to "score"; "setting" and "method" to those of the job: a job that
measures several variations at once (patches of several sizes, or one model's features in two ways) sets them row by
row. A study's tables read "accuracy" or another metric, and "cv", the same on held-out training data, where there is
more than one point.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..data.datasets import load, load_available
from ..data.samples import Dataset
from .errors import BenchmarkError
from .journal import Journal
from .kinds import Context, RunSettings
from .machine import prepare_torch
from .results import Row

Point = dict[str, Any]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """One method on one split of one problem, at all its parameter points: they share data, and run as a batch.

    Attributes
    ----------
    problem : a name in `datasets.DATASETS`
    method : str
    split : int
        0, 1, ...; random ones are drawn from `seed`.
    points : tuple of dict
        Parameter points; `({},)` for a method without parameters.
    setting : str
        A variation of the problem that has jobs of its own, such as "labels=10"; "" for none.
    parameters, run, data
        Of the study; filled in by `carry_out`.
    """

    problem: str
    method: str
    split: int = 0
    points: tuple[Point, ...] = field(default_factory=lambda: ({},))
    setting: str = ""
    parameters: Any = None
    run: RunSettings = field(default_factory=RunSettings)
    data: Path | None = None

    @property
    def seed(self) -> int:
        """Of the split: the same for every method."""
        return seed_of(self.run.seed, self.problem, self.setting, self.split)

    def seed_for(self, *what: Any) -> int:
        """Draw a seed for something within the split: `job.seed_for("start", run)`; the same for every method."""
        return seed_of(self.seed, *what)

    def dataset(self) -> Dataset:
        """Load the data of the problem."""
        return load_cached(self.problem, self.data, self.run.seed)

    def __str__(self) -> str:
        setting = f"/{self.setting}" if self.setting else ""
        return f"{self.problem}{setting}, split {self.split}, {self.method}"


@dataclass(frozen=True)
class Outcome:
    """Rows in the order of the plan, and why problems were left out."""

    rows: tuple[Row, ...]
    skipped: dict[str, str]


def seed_of(*parts: Any) -> int:
    """Make a number below 2^31 from anything printable, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big") >> 1


@lru_cache(maxsize=2)
def load_cached(problem: str, data: Path | None, seed: int) -> Dataset:
    """Jobs of one problem follow each other."""
    return load(problem, data, seed)


def carry_out(kind: str, parameters: Any, context: Context) -> Outcome:
    """Run what the plan says and the run folder does not have yet.

    Parameters
    ----------
    kind : module name with `plan` and `solve`

    Raises
    ------
    BenchmarkError
        The folder holds rows of another configuration; a job failed (finished rows stay).
    MissingData
        No problem can be run, or a file is not what it should be.
    """
    jobs = [
        replace(job, parameters=parameters, run=context.settings, data=context.data)
        for job in import_module(kind).plan(parameters)
    ]
    context.say(f"{len(jobs)} jobs on {context.device}")  # an absent device is known before anything runs
    problems = dict.fromkeys(job.problem for job in jobs)
    _, skipped = load_available(problems, lambda name: load_cached(name, context.data, context.settings.seed).title)
    jobs = [job for job in jobs if job.problem not in skipped]
    journal = Journal(context.folder, context.config, context.restart)
    todo = [rest for job in jobs if (rest := _drop_finished(job, journal))]
    if len(todo) < len(jobs):
        context.say(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are finished already")
    tick = context.progress(len(todo), kind.rsplit(".", 1)[-1])
    for rows in _run(kind, todo, context):
        journal.add(rows)
        tick(1)
    return Outcome(tuple(row for job in jobs for p in job.points for row in journal.points[_key(job, p)]), skipped)


def work(kind: str, job: Job) -> list[Row]:
    """Compute a job's rows, complete with what they belong to."""
    from sklearn.exceptions import ConvergenceWarning

    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # iterations are part of the protocol
        try:
            rows = [_complete_row(job, row) for row in import_module(kind).solve(job)]
        except Exception as error:
            error.add_note(f"in {job}")
            raise
    _check(job, rows)
    seconds = (time.perf_counter() - start) / len(job.points)
    return [{"seconds": round(seconds, 4), **row} for row in rows]


def _complete_row(job: Job, row: Row) -> Row:
    base = {
        "kind": "score",
        "problem": job.problem,
        "setting": job.setting,
        "job": [job.setting, job.method],
        "split": job.split,
        "method": job.method,
    }
    return {**base, **row}


def _check(job: Job, rows: Sequence[Row]) -> None:
    given, wanted = ({json.dumps(p) for p in points} for points in ([row["point"] for row in rows], job.points))
    if given != wanted:
        raise BenchmarkError(f"{job}: rows for {sorted(given)}, expected {sorted(wanted)}")


def _drop_finished(job: Job, journal: Journal) -> Job | None:
    """Keep the points of the job that are not there yet."""
    points = tuple(p for p in job.points if _key(job, p) not in journal.points)
    return replace(job, points=points) if points else None


def _key(job: Job, point: Point) -> Any:
    return (job.problem, job.setting, job.method, job.split, json.dumps(point))


def _run(kind: str, jobs: Sequence[Job], context: Context) -> Iterator[list[Row]]:
    """Rows job by job, as they come."""
    if context.jobs == 1 or len(jobs) < 2:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(context.settings.threads):
            for job in jobs:
                yield work(kind, job)
        return
    with (
        _thread_variables(context.settings.threads),
        ProcessPoolExecutor(
            min(context.jobs, len(jobs)),
            mp_context=get_context("spawn"),
            initializer=_prepare,
            initargs=(context.settings.threads,),
        ) as pool,
    ):
        yield from _gather(pool, [pool.submit(work, kind, job) for job in jobs])


def _gather(pool: ProcessPoolExecutor, futures: Sequence[Future[list[Row]]]) -> Iterator[list[Row]]:
    """Results as they come; after a failure those that are running are waited for and kept, then it is raised."""
    left, failure = set(futures), None
    while left:
        done, left = wait(left, timeout=1.0, return_when=FIRST_EXCEPTION)
        for future in (f for f in done if not f.cancelled()):
            if future.exception() is None:
                yield future.result()
            else:
                failure = failure or future.exception()
                left = {f for f in left if not f.cancel()}
    if failure is not None:
        raise failure


def _prepare(threads: int) -> None:
    """In a worker: threads as asked, for torch as well; denormal numbers are zeros, as in the main process."""
    import torch

    prepare_torch(threads)
    torch.set_flush_denormal(True)


@contextmanager
def _thread_variables(threads: int) -> Iterator[None]:
    """Set what libraries read when a worker imports them."""
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
