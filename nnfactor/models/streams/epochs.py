"""Epochs over a source: the order of the batches, what is held out, and how a stream that stopped goes on.

The order of an epoch follows from a seed and the number of the epoch alone, so that a few whole numbers (`stream_`)
beside the sums of the stream are all that it takes to go on from any batch.
"""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ...core.solve.history.progress import LOG
from ...io.checkpoints.digests import describe_value
from ...io.checkpoints.identity import MAY_CHANGE
from ...io.model_files import encode, load, save
from ..shared.fitting import read_random_state, restore_on_error
from ..shared.parameters import whole
from .sources import Batch, Batches, as_batches, values_of

Learn = Callable[[Any, Any, Any, Any], None]  # from one batch: the estimator, X, y, weights

DATA = -1  # in place of the number of the batch that is held out: the caller has handed in data


class StreamCheckpoint:
    """A model file in which a stream keeps the estimator, and from which the same call goes on."""

    def __init__(self, path: str | os.PathLike[str], every: float) -> None:
        if not float(every) >= 0:
            raise ValueError(f"checkpoint_every must be a number of seconds >= 0, got {every!r}")
        self.path, self.every, self.saved = Path(path), float(every), perf_counter()

    def restore(self, estimator: Any) -> bool:
        """Set what the file holds, and tell whether it is there; refuse that of another estimator."""
        encode(_bare(estimator))  # refuses now what a file cannot hold
        if not self.path.exists():
            return False
        known = load(self.path)
        if type(known) is not type(estimator) or not hasattr(known, "stream_"):
            raise ValueError(f"checkpoint {self.path} is no stream of {type(estimator).__name__}; use another path")
        own, its = estimator.get_params(deep=False), known.get_params(deep=False)
        for name, value in own.items():
            if name not in MAY_CHANGE and describe_value(value) != describe_value(its[name]):
                raise ValueError(
                    f"checkpoint {self.path} has {name}={its[name]!r}, the estimator {name}={value!r}; set it back, or "
                    "use another path"
                )
        vars(estimator).update({name: value for name, value in vars(known).items() if name not in own})
        return True

    def keep(self, estimator: Any, at_once: bool) -> None:
        """Save the estimator, if it is time."""
        if at_once or perf_counter() - self.saved >= self.every:
            save(_bare(estimator), self.path)
            self.saved = perf_counter()


def _bare(estimator: Any) -> Any:
    """Return the same estimator without those who are told of it."""
    bare = copy.copy(estimator)
    bare.callback = None
    return bare


def learn_epochs(
    estimator: Any,
    given: tuple[Any, Any, Any],
    n_epochs: int | None,
    held_out: Any,
    checkpoint: StreamCheckpoint | None,
    learn: Learn,
) -> None:
    """Go through a source `n_epochs` times, an epoch that was not finished first; None: learn from one batch."""
    if n_epochs is None:
        for name, value in (("held_out", held_out), ("checkpoint", checkpoint)):
            if value is not None:
                raise ValueError(f"{name} goes with n_epochs, of a source; X is one batch without it")
        with restore_on_error(estimator):
            return learn(estimator, *given)
    whole("n_epochs", n_epochs, least=1, also="None (X is one batch) or ")
    source = as_batches(*given, estimator.batch_size, n_epochs)
    with restore_on_error(estimator):
        goes_on = checkpoint is not None and checkpoint.restore(estimator)
        state = _begin(estimator, source, held_out, goes_on)
    until = state["began"] + n_epochs
    while state["n_epochs"] < until:
        _learn_epoch(estimator, source, state, held_out, checkpoint, learn)
    return None


def _begin(estimator: Any, source: Batches, held_out: Any, goes_on: bool) -> dict[str, Any]:
    """Return where the stream is: at its beginning, or where it stopped."""
    count = -1 if source.count is None else source.count
    known = getattr(estimator, "stream_", None)
    if known is None:
        random = read_random_state(estimator.random_state)
        known = {"seed": int(random.randint(2**31 - 1)), "n_epochs": 0, "position": 0, "n_batches": count}
    seed = known["seed"]
    held = _held_out(held_out, source, seed)
    alike = known["n_batches"] == count and known.get("held_out", held) == held
    if known["position"] and not alike:
        raise ValueError(
            f"X has {count} batches{'' if held is None else f' with held_out={held_out!r}'}, but the stream stopped "
            f"inside an epoch of {known['n_batches']} batches; hand in the same source, batch_size and held_out, or "
            "begin anew with a clone of the estimator"
        )
    began = known["began"] if goes_on else known["n_epochs"]
    state = {**known, "n_batches": count, "held_out": held, "began": began}
    if count >= 0 and count <= (held is not None and held >= 0):
        raise ValueError(f"X has {count} batches, of which held_out={held_out!r} leaves none; use a lower batch_size")
    if not alike:
        vars(estimator).pop("history_", None)
    return state


def _held_out(held_out: Any, source: Batches, seed: int) -> int | None:
    """Choose the batch that is held out: by the seed, or the first one where they come in turn."""
    if held_out is None or held_out is False:
        return None
    if held_out is not True:
        return DATA
    return 0 if source.count is None else int(np.random.default_rng([seed]).integers(source.count))


def _learn_epoch(
    estimator: Any, source: Batches, state: dict[str, Any], held_out: Any, checkpoint: Any, learn: Learn
) -> None:
    """Learn from the batches that the epoch has left, each of which is learned completely or not at all."""
    begun, held, done = perf_counter(), state["held_out"], state["position"]
    known = vars(estimator) if "stream_" in vars(estimator) else {}
    kept = {name: known[name] for name in ("history_", "n_iter_") if name in known}
    spent = state.pop("seconds", 0.0)
    numbers: list[int] | None = None
    if source.count is not None:
        order = np.random.default_rng([state["seed"], state["n_epochs"]]).permutation(source.count).tolist()
        numbers = [b for b in order if b != held][done:]
    skipped = done + (held == 0) if numbers is None else 0
    learned, aside = done, None
    for i, batch in enumerate(source.read(numbers) if numbers != [] else ()):
        if i < skipped:
            aside = batch if i == held else aside
            continue
        with restore_on_error(estimator):
            learn(estimator, *batch)
            learned += 1
            here = {**state, "position": learned, "seconds": spent + perf_counter() - begun}
            vars(estimator).update({**kept, "stream_": here})
        if checkpoint is not None:
            checkpoint.keep(estimator, False)
    if not learned:
        raise ValueError(
            "X gives no batch to learn from" + ("" if held is None else " beside the one that is held out")
        )
    with restore_on_error(estimator):
        loss = _loss_of_held_out(estimator, aside or source, held, held_out)
        state.update(n_epochs=state["n_epochs"] + 1, position=0)
        row = {"iteration": state["n_epochs"], "seconds": spent + perf_counter() - begun}
        found = _add_row(kept.get("history_"), row | ({} if loss is None else {"held_out": loss}))
        vars(estimator).update(history_=found, n_iter_=state["n_epochs"], stream_=dict(state))
    told = "" if loss is None else f", held-out loss {loss:.6g}"
    LOG.info("%s: epoch %d, %d batches%s", type(estimator).__name__, state["n_epochs"], learned, told)
    if checkpoint is not None:
        checkpoint.keep(estimator, True)


def _loss_of_held_out(estimator: Any, source: Batches | Batch, held: int | None, held_out: Any) -> float | None:
    """Compute the mean loss of an entry that no batch has, with its coefficients solved: minus `score`."""
    if held is None:
        return None
    if held == DATA:
        return -float(estimator._score(values_of(held_out)))
    batch = source if isinstance(source, Batch) else next(source.read([held]))
    return -float(estimator._score(batch.X, batch.weights))


def _add_row(history: Any, row: dict[str, float]) -> dict[str, np.ndarray]:
    """Add an epoch to the history; seconds go on from those before."""
    if not history or set(history) != set(row):
        return {name: np.array([value]) for name, value in row.items()}
    row["seconds"] += history["seconds"][-1]
    return {name: np.append(column, row[name]) for name, column in history.items()}
