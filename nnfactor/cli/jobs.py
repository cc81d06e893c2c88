"""The work of a run as pieces, each of which is computed once: fits of ranks, shares of restarts, folds.

A piece that is written is never computed again, whoever goes on. Several workers have a share of every rank's restarts
and of the folds; `combine` joins what they have written, and the outcome is that of a single run.
"""

import inspect
import shutil
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from ..callbacks import JSONLines, ProgressBar
from ..io import load
from ..io.complete_files import remove
from ..io.model_files import encode
from ..models.restarts.shares import join_restarts, take_restarts
from ..models.shared.fitting import draw_seeds
from ..selection import RankSelection
from ..selection.rank import conclude
from ..selection.study import RankStudy, warn_of_large_ranks
from .data import Given, check_alike
from .describe import told_in_options
from .errors import UserError
from .folder import JOBS, SUGGESTED, ResultFolder, write_table_file, written
from .logs import LOGGER
from .pictures import can_draw, draw
from .processes import Processes
from .solutions import MODEL, summary, write_solution
from .values import rank_names


@dataclass(frozen=True)
class Work:
    """What there is to compute."""

    estimator: Any  # of any rank
    seed: int  # of every rank's restarts
    ranks: list[int | None]  # None: the model has no number of components, or the estimator has it
    n_init: int
    workers: int
    study: RankStudy | None  # of `select-rank`

    @classmethod
    def plan(
        cls, plan: Mapping[str, Any], estimator: Any, given: Given, checkpoint: bool = False, processes: int = 1
    ) -> Self:
        """Make the work of a plan; refuse what cannot be, before anything is computed. Processes are workers, too."""
        seed, ranks = int(plan["seed"]), [*plan["ranks"]] or [_rank_of(estimator)]
        workers = int(plan["total_workers"]) * processes
        takes = inspect.signature(type(estimator).fit).parameters
        if given.weights is not None and "weights" not in takes:
            raise UserError(f"{plan['model']} takes no weights; leave --weights out")
        if plan["model"] == "PARAFAC2" and isinstance(given.X, list):
            check_alike(given.tables, [(i, 1) for i in range(len(given.tables))])
        for name in {name for of in getattr(estimator, "modes", ()) for name in of}:
            check_alike(given.tables, [(i, of.index(name)) for i, of in enumerate(estimator.modes) if name in of])
        encode(clone(estimator).set_params(**_left_out(estimator)))  # refuses what a model file cannot hold
        if checkpoint and "checkpoint" not in takes:
            raise UserError(f"{plan['model']} has no state to save; leave --checkpoint out")
        if given.y is None and takes["y"].default is inspect.Parameter.empty:
            raise UserError(f"{plan['model']} needs labels; say --labels")
        if plan["verb"] == "fit":
            if not hasattr(estimator, "n_init") and workers > 1:
                raise UserError(f"{plan['model']} has no restarts to split; leave --total-workers or --processes out")
            warn_of_large_ranks(estimator, given.X, [rank for rank in ranks if rank is not None])
            return cls(estimator, seed, ranks, getattr(estimator, "n_init", 1), workers, None)
        chosen = {"n_init": plan["n_init"], "random_state": seed, "weights": given.weights, "y": given.y}
        study = RankStudy.plan(estimator, given.X, ranks, plan["criterion"], **chosen)
        return cls(estimator, study.seed, [*study.ranks], study.n_init, workers, study)

    def make(self, rank: int | None) -> Any:
        """Make the estimator of a rank, with all its restarts."""
        made = clone(self.estimator)
        known = made.get_params(deep=False)
        values = {"n_init": self.n_init, "random_state": self.seed}
        values |= {} if rank is None else dict.fromkeys(rank_names(type(made)), rank)
        return made.set_params(**{name: value for name, value in values.items() if name in known})

    @property
    def is_split(self) -> bool:
        """Whether workers share the restarts of a rank: those of mini-batches visit the same batches, and stay one."""
        return getattr(self.estimator, "batch_size", None) is None

    def share(self, rank: int | None, worker: int) -> list[int]:
        """Return the restarts of a rank that a worker computes: they go round in turn."""
        before = self.ranks.index(rank) * self.n_init
        if not self.is_split:
            return [*range(self.n_init)] if self.ranks.index(rank) % self.workers == worker else []
        return [r for r in range(self.n_init) if (before + r) % self.workers == worker]

    def shares(self, rank: int | None) -> list[tuple[int, tuple[int, ...]]]:
        """Return the workers that have a share of a rank, and their shares."""
        found = ((worker, tuple(self.share(rank, worker))) for worker in range(self.workers))
        return [(worker, share) for worker, share in found if share]

    def missing(self, folder: ResultFolder) -> list[tuple[int, Path]]:
        """List pieces that are not written yet, with the worker that has each."""
        pieces = [
            (worker, _piece(folder, rank, worker, self.workers))
            for rank in self.ranks
            if not folder.solution(rank).exists()
            for worker, _ in self.shares(rank)
        ]
        pieces += [(i % self.workers, _part(folder, i)) for i in range(len(self.study.parts) if self.study else 0)]
        return [(worker, path) for worker, path in pieces if not path.exists()]


def _left_out(estimator: Any) -> dict[str, None]:
    """Return parameters that only a fit needs: who is told of it, and terms of the user's own, which are code."""
    return {name: None for name in ("callback", "terms") if name in estimator.get_params(deep=False)}


def _rank_of(estimator: Any) -> int | None:
    rank = getattr(estimator, "n_components", None)
    return int(rank) if isinstance(rank, int) else None


def _piece(folder: ResultFolder, rank: int | None, worker: int, workers: int) -> Path:
    return folder.file(JOBS, folder.solution(rank).name, f"restarts_{worker}_of_{workers}.safetensors")


def _part(folder: ResultFolder, i: int) -> Path:
    return folder.file(JOBS, "parts", f"part_{i:03d}.npz")


def compute(folder: ResultFolder, work: Work, given: Given, words: Namespace, processes: Processes) -> None:
    """Compute the pieces of one worker that are not written yet; processes that split the samples are one worker."""
    for rank in work.ranks:
        share = work.share(rank, words.worker_index)
        if folder.solution(rank).exists() or not share:
            continue
        piece = _piece(folder, rank, words.worker_index, work.workers)
        if work.workers == 1:
            model = processes.whole(_fit(work.make(rank), given, folder, piece, words, not processes.is_first))
            if processes.is_first:
                with written(folder.solution(rank)) as path:
                    write_solution(path, model, given)
            processes.wait()  # writing may take longer than a message of the next fit
        elif not piece.exists():
            split = take_restarts(work.make(rank), work.seed, share) if work.is_split else work.make(rank)
            with written(piece) as path:
                _fit(split, given, folder, piece, words).set_params(random_state=work.seed).save(path)
        told = f", {len(share)} of {work.n_init} restarts" if work.n_init > 1 else ""
        LOGGER.info("fitted %s%s", "the model" if rank is None else f"rank {rank}", told)
    if work.study is not None:
        _compute_parts(folder, work, work.study, words.worker_index)


def _fit(
    estimator: Any, given: Given, folder: ResultFolder, piece: Path, words: Namespace, silent: bool = False
) -> Any:
    """Fit, and tell how it goes: on a terminal, and in `log.jsonl`; from a checkpoint beside the piece if asked for.

    Processes that share a fit must all have somebody to tell, or none: `silent` ones tell nobody.
    """
    more: dict[str, Any] = {} if given.weights is None else {"weights": given.weights}
    if words.checkpoint is not None:
        piece.parent.mkdir(parents=True, exist_ok=True)
        more |= {"checkpoint": piece.with_suffix(".checkpoint"), "checkpoint_every": words.checkpoint}
    if not hasattr(estimator, "callback"):
        return estimator.fit(given.X, given.y, **more)
    bar = ProgressBar()
    callbacks = [JSONLines(folder.file("log.jsonl")), *([] if words.quiet else [bar])]
    callbacks = [lambda told: None] if silent else callbacks
    try:
        return estimator.set_params(callback=callbacks).fit(given.X, given.y, **more).set_params(**_left_out(estimator))
    finally:
        bar.close()


def _compute_parts(folder: ResultFolder, work: Work, study: RankStudy, worker: int) -> None:
    """Compute the parts of a choice of a rank that are not written yet."""
    for i in range(worker, len(study.parts), work.workers):
        if not _part(folder, i).exists():
            with written(_part(folder, i)) as path:
                _write_part(path, study, i)
            LOGGER.info("computed part %d of %d of the choice", i + 1, len(study.parts))


def _write_part(path: Path, study: Any, i: int) -> None:
    """Write what a part of a study gives: losses, or factors and losses of every rank."""
    found = study.compute(i)
    with open(path, "wb") as file:
        if isinstance(found[0], tuple):
            arrays = {f"{r}_{m}": F for r, (factors, _) in enumerate(found) for m, F in enumerate(factors)}
            np.savez(file, allow_pickle=False, losses=np.array([loss for _, loss in found]), **arrays)
        else:
            np.savez(file, allow_pickle=False, losses=np.array(found))


def _read_part(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as file:
        losses, n_modes = file["losses"].tolist(), sum(name.startswith("0_") for name in file.files)
        if not n_modes:
            return losses
        return [([file[f"{r}_{m}"] for m in range(n_modes)], loss) for r, loss in enumerate(losses)]


def finish(folder: ResultFolder, work: Work, given: Given, pictures: bool) -> None:
    """Join what was computed, and write tables, the suggested solution, pictures and the report."""
    for rank in work.ranks:
        if not folder.solution(rank).exists():
            with written(folder.solution(rank)) as path:
                write_solution(path, _join(folder, work, rank), given)
    models: dict[Any, Any] = {rank: load(folder.solution(rank) / MODEL) for rank in work.ranks}
    found = None
    if work.study:
        parts = [_read_part(_part(folder, i)) for i in range(len(work.study.parts))]
        found = conclude(work.study, models, parts)
    only = found is None and len(work.ranks) == 1  # its rank is None where the model has none
    suggested = work.ranks[0] if only else found.rank if found else None
    _write_tables(folder, work, models, found)
    remove(folder.file(SUGGESTED))
    if only or suggested is not None:
        with written(folder.file(SUGGESTED)) as path:
            shutil.copytree(folder.solution(suggested), path)
    reason = told_in_options(found.reason) if found else None
    first = next(iter(models.values()))
    environment = {name: value for name, value in getattr(first, "fit_info_", {}).items() if name != "seeds"}
    folder.write_metadata(
        suggested=suggested, reason=reason, criterion=found and found.criterion, environment=environment
    )
    if reason:
        LOGGER.info("suggested rank: %s", reason)
    if pictures and can_draw():
        draw(folder)
    elif pictures:
        LOGGER.info(
            "no pictures, for matplotlib is missing: pip install 'nnfactor[plot]', nnfactor plot %s", folder.path
        )
    folder.write_metadata(finished=True)
    remove(folder.file(JOBS))
    LOGGER.info("wrote %s", folder.path)


def _join(folder: ResultFolder, work: Work, rank: int | None) -> Any:
    """Join the shares of the restarts of a rank."""
    shares = work.shares(rank)
    fits = {share: load(_piece(folder, rank, worker, work.workers)) for worker, share in shares}
    return join_restarts(work.make(rank), work.seed, fits) if work.is_split else fits[shares[0][1]]


def _write_tables(folder: ResultFolder, work: Work, models: Mapping[Any, Any], found: RankSelection | None) -> None:
    """Write `all_solutions_stat.tsv`, the seeds, and the losses of folds."""
    rows = [summary(model) for model in models.values()]
    columns: dict[str, Any] = {"rank": ["" if k is None else k for k in models]}
    columns |= {name: [row[name] for row in rows] for name in rows[0]}
    if found is not None:
        columns |= {name: [*found.table[name]] for name in found.table if name not in columns}
        columns["suggested"] = [k == found.rank for k in models]
        if found.losses is not None:
            names = ["constant", "one_component", *(f"rank_{k}" for k in models)]
            write_table_file(folder.file("held_out.tsv"), dict(zip(names, found.losses.T, strict=True)))
    write_table_file(folder.file("all_solutions_stat.tsv"), columns)
    seeds = {"root": [work.seed]} if not hasattr(work.estimator, "n_init") else {}
    if not seeds:
        drawn = draw_seeds(work.make(work.ranks[0]))  # the same for every rank
        seeds = {"restart": [*range(len(drawn))], "seed": drawn}
    write_table_file(folder.file("seeds.txt"), seeds)
