"""`fit` and `select-rank`: one way for both, from the command line to a result folder."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ...io import Table
from ...models.shared.parameters import loss_exponent
from ..arguments import read_size
from ..data import Given, stem_of, told_of_scale
from ..errors import OF_USERS, UserError
from ..folder import ResultFolder
from ..jobs import Work, compute, finish
from ..launch import is_one_of_several, launch
from ..logs import LOGGER, follow, tell
from ..processes import Processes, choose_split, join, require_gpus, share
from ..requests import Request


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Fit, or choose a rank; go on where an earlier call with the same words was interrupted."""
    request = Request.of(arguments, parameters)
    if request.words.gpus:
        require_gpus(request.words.gpus)
    if request.n_processes > 1 and not is_one_of_several():
        return launch(request.words.argv, request.n_processes)
    with join(bool(request.words.gpus)) as processes:
        _run(request, processes)
    return 0


def _run(request: Request, processes: Processes) -> None:
    """Be one of the processes of a run: the first makes the folder, tells how it goes, and writes what all have."""
    words = request.words
    words.quiet = words.quiet or not processes.is_first
    with tell(words.quiet):
        given = request.read(opened=processes.size > 1)
    path = Path(words.output_dir) / (words.name or f"{stem_of(words.data[0])}_{words.model}")
    plan = request.plan(given)
    plan["seed"] = processes.same(lambda: _seed(words.seed, path, plan))
    told = {
        "command": ["nnfactor", *sys.argv[1:]],
        "data": [_describe(table, words, processes.size) for table in given.tables],
    }
    processes = choose_split(processes, request.n_jobs, request.estimator, given)
    with tell(words.quiet):
        size = read_size(words.max_bytes) if words.max_bytes else None
        given = share(given, processes, request.estimator, size)
        work = Work.plan(plan, request.estimator, given, words.checkpoint is not None, processes.workers)
    words.worker_index = processes.rank if processes.workers > 1 else words.worker_index
    begin = lambda: ResultFolder.begin(path, plan, {**told, "request": request.as_json()}, words.total_workers > 1)
    folder = begin() if processes.is_first else None
    processes.wait()
    folder = folder or ResultFolder.open(path)
    tells = processes.is_first or not processes.splits_samples
    with undone_on_mistakes(folder), follow(folder, words.quiet) if tells else nullcontext():
        for line in told["data"] if processes.is_first else ():
            LOGGER.info("read %s", line)
        for line in _advice(request, given, processes) if processes.is_first else ():
            LOGGER.warning("warning: %s", line)
        compute(folder, work, given, words, processes)
        processes.wait_for_others()
        if words.total_workers > 1:
            share_of = words.worker_index, work.workers
            LOGGER.info("worker %d of %d is done; join all with nnfactor combine", *share_of)
        elif processes.is_first:
            finish(folder, work, given, pictures=not words.no_plots)


def _describe(table: Table, words: Namespace, n: int) -> str:
    """Say what n processes read; of a file that is read in blocks or parts what is known without reading it."""
    if not words.max_bytes and n == 1:
        return repr(table)
    how = f"read in blocks within {words.max_bytes}" if words.max_bytes else "read by"
    how += f" {'in ' * bool(words.max_bytes)}each of {n} processes" if n > 1 else ""
    return f"{table.source}: {' x '.join(map(str, table.values.shape))}, {table.values.dtype}, {how}"


def _advice(request: Request, given: Given, processes: Processes) -> list[str]:
    """Say what of data in memory will spoil a fit by least squares."""
    opened = request.words.max_bytes or processes.size > 1
    if opened or given.weights is not None or loss_exponent(request.estimator) != 2:
        return []
    return [line for table in given.tables if (line := told_of_scale(table)) is not None]


@contextmanager
def undone_on_mistakes(folder: ResultFolder) -> Iterator[None]:
    """Leave no folder behind a run whose data or parameters were refused."""
    try:
        yield
    except OF_USERS:
        folder.undo()
        raise


def _seed(seed: int | None, path: Path, plan: Mapping[str, Any]) -> int:
    """Take the seed that was given, that of an interrupted run with the same plan, or draw one."""
    if seed is not None:
        return seed
    try:
        earlier = ResultFolder.open(path)
    except UserError:
        earlier = None
    if earlier is not None and not earlier.metadata["finished"]:
        known = dict(earlier.plan)
        seed = known.pop("seed")
        if known == json.loads(json.dumps(plan)):
            return int(seed)
    return int(np.random.SeedSequence().generate_state(1)[0])
