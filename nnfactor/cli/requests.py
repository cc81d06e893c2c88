"""What a run was asked for: read from a command line and a TOML file, written down, and read again."""

import re
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ..version import VERSION
from .arguments import CRITERIA, read_ranks
from .data import NO_NAMES, Given, column_of, digest, read_given, told_without_data
from .describe import find_model
from .errors import UserError, nearest
from .folder import ResultFolder
from .values import make_estimator, rank_names

# What a TOML file may set beside the parameters of the model: long options by their names.
SETTINGS = (
    "data", "key", "long", "header", "row_names", "names", "drop_columns", "transpose", "labels", "weights",
    "max_bytes", "model", "k", "n_init", "seed", "output_dir", "name", "checkpoint", "total_workers", "worker_index",
    "processes", "gpus", "criterion", "no_plots", "quiet",
)  # fmt: skip

DEFAULTS = {"model": "NMF", "total_workers": 1, "worker_index": 0, "criterion": "auto", "output_dir": "."}

KINDS_OF_SETTINGS: dict[str, type] = {
    **dict.fromkeys(("long", "header", "row_names", "transpose", "no_plots", "quiet"), bool),
    **dict.fromkeys(("n_init", "seed", "total_workers", "worker_index", "processes", "gpus"), int),
    "checkpoint": float,
}

WORDS_FOR = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

OF_THE_CALL = (  # they change no result
    "worker_index", "output_dir", "name", "checkpoint", "max_bytes", "no_plots", "quiet", "config", "debug", "help",
    "processes", "gpus", "argv",
)  # fmt: skip

OF_THE_PLAN = (
    "verb", "model", "key", "long", "header", "row_names", "names", "drop_columns", "transpose", "labels", "n_init",
    "total_workers",
)  # fmt: skip

FILE = re.compile(r"(?<=['\"])@([^'\"]+)|^\s*@(.+)$")  # an array from a file: a text inside a value, or all of it


@dataclass(frozen=True)
class Request:
    """Words of a command line with all defaults, and parameters of the model as text or values of TOML."""

    words: Namespace
    parameters: dict[str, Any]

    @classmethod
    def of(cls, words: Namespace, parameters: Mapping[str, Any]) -> Self:
        """Take what the command line leaves out from a TOML file, then from the defaults, and check it."""
        config = _read_config(words.config) if words.config else {}
        nested = config.pop("parameters", {})
        if not isinstance(nested, dict):
            raise UserError(f"{words.config}: parameters must be a table, [parameters]")
        merged = Namespace(**vars(words))
        for name in SETTINGS:
            told, value = getattr(merged, name, None), config.pop(name, None)
            value = DEFAULTS.get(name) if value is None else _as_words(name, value, str(words.config))
            if told is None or told == []:
                setattr(merged, name, value)
        nested = {name.replace("-", "_"): value for name, value in nested.items()}
        request = cls(merged, {**config, **nested, **parameters})
        request._check()
        return request

    @classmethod
    def again(cls, folder: ResultFolder) -> Self:
        """Read what a result folder was asked for."""
        known = folder.metadata["request"]
        return cls(Namespace(**known["words"]), known["parameters"])

    def _check(self) -> None:
        """Refuse what cannot go together before anything is read."""
        words = self.words
        if not words.data:
            raise UserError(told_without_data(words))
        names = rank_names(find_model(words.model))
        if "random_state" in self.parameters:
            raise UserError("--random-state is --seed here")
        if twice := [name for name in names if name in self.parameters and words.k]:
            raise UserError(f"-k and {twice[0]} say the same; leave one out")
        if words.criterion not in CRITERIA:
            told = nearest(words.criterion, CRITERIA)
            raise UserError(f"--criterion {words.criterion}{told}; use one of {', '.join(CRITERIA)}")
        if words.total_workers < 1 or not 0 <= words.worker_index < words.total_workers:
            told = f"--worker-index {words.worker_index} of --total-workers {words.total_workers}"
            raise UserError(f"{told}: indices are 0 to total - 1")
        if words.total_workers > 1 and words.seed is None:
            raise UserError("--total-workers needs --seed: all workers must draw the same numbers")
        if words.seed is not None and not 0 <= words.seed < 2**32:
            raise UserError(f"--seed {words.seed} must be 0 to 4294967295")
        if words.n_init is not None and words.n_init < 1:
            raise UserError(f"--n-init {words.n_init} must be 1 or more")
        if words.checkpoint is not None and not words.checkpoint >= 0:
            raise UserError(f"--checkpoint {words.checkpoint:g} must be a number of seconds")
        self._check_processes()
        self._check_ranks()

    def _check_processes(self) -> None:
        words = self.words
        for name in ("processes", "gpus"):
            if (n := getattr(words, name)) is not None and n < 1:
                raise UserError(f"--{name} {n} must be 1 or more")
        if words.processes and words.gpus:
            raise UserError("--processes and --gpus say the same, on CPUs and on GPUs; leave one out")
        if self.n_processes > 1 and words.total_workers > 1:
            raise UserError("--processes and --total-workers both split the work; leave one out")

    def _check_ranks(self) -> None:
        names = rank_names(find_model(self.words.model))
        if self.ranks and not names:
            raise UserError(f"{self.words.model} has no number of components; leave -k out")
        if self.words.verb == "select-rank" and "n_components" not in names:
            raise UserError(f"{self.words.model} has no n_components whose values could be compared")
        if self.words.verb == "select-rank" and len(self.ranks) < 2:
            raise UserError("select-rank compares ranks; say -k 2:12, or -k with several")
        _ = self.estimator  # refuses unknown parameters and values

    @property
    def ranks(self) -> list[int]:
        """Numbers of components that `-k` names."""
        return read_ranks(self.words.k) if self.words.k else []

    @property
    def n_processes(self) -> int:
        """How many processes `--processes` or `--gpus` asks for."""
        return self.words.processes or self.words.gpus or 1

    @cached_property
    def estimator(self) -> Any:
        """The estimator of the first rank; arrays of its parameters are read from their files once."""
        names = rank_names(find_model(self.words.model))
        given = {} if self.words.n_init is None else {"n_init": self.words.n_init}
        return make_estimator(
            self.words.model, self.parameters, given | {n: self.ranks[0] for n in names if self.ranks}
        )

    @property
    def n_jobs(self) -> int:
        """How many fits there are that need nothing of each other; choosing a rank has many."""
        single = getattr(self.estimator, "batch_size", None) is not None
        restarts = 1 if single else getattr(self.estimator, "n_init", 1)
        return restarts * max(1, len(self.ranks)) if self.words.verb == "fit" else 2**31

    def read(self, opened: bool = False) -> Given:
        """Read data, labels and weights; `opened`: only open the data, where their kind of file can be."""
        return read_given(self.words, self.words.model, opened)

    def plan(self, given: Given) -> dict[str, Any]:
        """Collect everything that decides the outcome, but for the seed."""
        chosen = {name: getattr(self.words, name) for name in OF_THE_PLAN}
        if self.words.verb == "select-rank":
            chosen["criterion"] = self.words.criterion
        texts = {name: str(value) for name, value in sorted(self.parameters.items())}
        inside = {f"inside: {path}": digest(Path(path)) for text in texts.values() for path in _files_in(text)}
        return {**chosen, "parameters": texts, "ranks": self.ranks, "files": given.digests | inside, "version": VERSION}

    def as_json(self) -> dict[str, Any]:
        """Return what `again` reads; files by their full paths."""
        words = {name: value for name, value in vars(self.words).items() if name not in OF_THE_CALL}
        words["data"] = [str(Path(path).resolve()) for path in words["data"]]
        column = column_of(self.words.labels, self.words.data[0])
        words["labels"] = f"obs:{column}" if column else _full_path(self.words.labels)
        words["weights"] = _full_path(self.words.weights)
        words["names"] = words["names"] and [name if name == NO_NAMES else _full_path(name) for name in words["names"]]
        return {"words": words, "parameters": {name: _with_full_paths(v) for name, v in self.parameters.items()}}


def read_again(folder: ResultFolder) -> Given:
    """Read the data of a result folder again; refuse files that have changed."""
    given = Request.again(folder).read()
    before = {path: total for path, total in folder.plan["files"].items() if path in given.digests}
    if changed := [path for path, total in given.digests.items() if before.get(path) != total]:
        raise UserError(f"{changed[0]} has changed since {folder.path} was begun")
    return given


def _files_in(text: str) -> list[str]:
    """List the files whose arrays a value holds."""
    return [(match[1] or match[2]).strip() for match in FILE.finditer(text)]


def _with_full_paths(value: Any) -> Any:
    """Name the files in a value by their full paths, also inside lists and tables of TOML."""
    if isinstance(value, Mapping):
        return {key: _with_full_paths(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_with_full_paths(v) for v in value]
    if not isinstance(value, str):
        return value
    return FILE.sub(lambda match: f"@{Path((match[1] or match[2]).strip()).resolve()}", value)


def _full_path(name: str | None) -> str | None:
    return name and str(Path(name).resolve())


def _read_config(path: str) -> dict[str, Any]:
    try:
        read = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from None
    return {name.replace("-", "_"): value for name, value in read.items()}


def _as_words(name: str, value: Any, source: str) -> Any:
    """Turn values of a file into what the command line gives; refuse those of another kind."""
    if name in ("data", "k", "drop_columns", "names"):
        listed = value if isinstance(value, list) else [value]
        return [str(v) for v in listed] if name == "k" else listed
    kind = KINDS_OF_SETTINGS.get(name, str)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise UserError(f"{source}: {name} must be {WORDS_FOR[kind]}, got {value!r}")
    return value
