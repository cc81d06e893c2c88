"""`fit` and `select-rank`: one way for both, from the command line to a result folder."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...io import Table
from ..data import stem_of
from ..errors import OF_USERS, UserError
from ..folder import ResultFolder
from ..jobs import Work, compute, finish
from ..logs import follow, tell
from ..requests import Request


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Fit, or choose a rank; go on where an earlier call with the same words was interrupted."""
    request = Request.of(arguments, parameters)
    words = request.words
    with tell(words.quiet):
        given = request.read()
    path = Path(words.output_dir) / (words.name or f"{stem_of(words.data[0])}_{words.model}")
    plan = request.plan(given)
    plan["seed"] = _seed(words.seed, path, plan)
    with tell(words.quiet):
        work = Work.plan(plan, request.estimator, given, checkpoint=words.checkpoint is not None)
    told = {"command": ["nnfactor", *sys.argv[1:]], "data": [_describe(table, words) for table in given.tables]}
    folder = ResultFolder.begin(path, plan, {**told, "request": request.as_json()}, shared=work.workers > 1)
    with undone_on_mistakes(folder), follow(folder, words.quiet) as log:
        for line in told["data"]:
            log.info("read %s", line)
        compute(folder, work, given, words)
        if work.workers > 1:
            log.info("worker %d of %d is done; join all with nnfactor combine", words.worker_index, work.workers)
        else:
            finish(folder, work, given, pictures=not words.no_plots)
    return 0


def _describe(table: Table, words: Namespace) -> str:
    """Say what was read; of a file that is read in blocks what is known without reading it."""
    if not words.max_bytes:
        return repr(table)
    size = " x ".join(map(str, table.values.shape))
    return f"{table.source}: {size}, {table.values.dtype}, read in blocks within {words.max_bytes}"


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
