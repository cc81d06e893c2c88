"""The kinds of experiments that a config can name, and what an experiment is given.

A kind is a module with

* `Parameters`: a frozen dataclass, the `[parameters]` table of a config. Importing the module must not import torch;
* `run(parameters, context) -> Report`: does the work (`results.Report`).

Experiments over data sets, splits, methods and parameter points are studies (`study.py`): they also have `plan` and
`solve`, and get resuming, worker processes, tables and findings from there.

A new experiment is one module, one line in `KINDS` and one TOML in `configs/`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import ConfigError
from .words import unknown

KINDS = {
    "batch_speed": "benchmarks.experiments.batch_speed",
    "device": "benchmarks.experiments.device.experiment",
    "dpca": "benchmarks.experiments.dpca",
    "growth": "benchmarks.experiments.growth.experiment",
    "kernel_nmf": "benchmarks.experiments.kernel_nmf",
    "kernel_nmf_time": "benchmarks.experiments.kernel_nmf_time",
    "label_models": "benchmarks.experiments.label_models",
    "larger_than_memory": "benchmarks.experiments.larger_than_memory.experiment",
    "missing": "benchmarks.experiments.missing.experiment",
    "multiway": "benchmarks.experiments.multiway.experiment",
    "n2s2l": "benchmarks.experiments.n2s2l",
    "ndtf": "benchmarks.experiments.ndtf",
    "ndtf_convergence": "benchmarks.experiments.ndtf_convergence",
    "nge_bases": "benchmarks.experiments.nge_bases",
    "nge_speed": "benchmarks.experiments.nge_speed.experiment",
    "peers": "benchmarks.experiments.peers.experiment",
    "rank_selection": "benchmarks.experiments.rank_selection.experiment",
    "scaling": "benchmarks.experiments.scaling.experiment",
    "srlsc": "benchmarks.experiments.srlsc",
    "stopping": "benchmarks.experiments.stopping",
    "sulf": "benchmarks.experiments.sulf",
    "sulf_parameters": "benchmarks.experiments.sulf_parameters",
}


@dataclass(frozen=True)
class RunSettings:
    """The `[run]` table, alike for every kind.

    Attributes
    ----------
    device : str
        "cpu", "cuda", "cuda:1", ..., or "auto": CUDA when present.
    dtype : str
        "float32" or "float64".
    threads : int
        Threads of torch. More threads than free cores can be many times slower.
    seed : int
        Everything random is drawn from it.
    """

    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")


@dataclass(frozen=True)
class Context:
    """What an experiment may use besides its parameters.

    Attributes
    ----------
    settings : RunSettings
    data : Path or None
        Folder with data sets that the package does not ship.
    say : callable
        Takes a line for the person who waits.
    config : Config
        The whole configuration: what the paper prints, bars, claims.
    folder : Path
        Where the run is written; a study keeps its finished rows there.
    jobs : int
        Worker processes of a study; 1 works in this one.
    restart : bool
        Whether a study forgets its finished rows.
    """

    settings: RunSettings
    data: Path | None
    say: Callable[[str], Any]
    config: Any
    folder: Path
    jobs: int = 1
    restart: bool = False

    @property
    def bars(self) -> dict[str, float]:
        """The bars of the configuration."""
        return self.config.header.bars

    @property
    def device(self) -> Any:
        """The torch device; a ConfigError if it is not there."""
        from nnfactor.models.shared.inputs import choose_device

        try:
            return choose_device(self.settings.device, None)
        except ValueError as error:
            raise ConfigError(f"run.{error}") from None

    @property
    def dtype(self) -> Any:
        """The torch dtype."""
        import torch

        return getattr(torch, self.settings.dtype)

    def progress(self, total: int, label: str) -> Callable[[int], Any]:
        """Make a function that advances a bar by some steps; silent unless a terminal watches."""
        if not sys.stderr.isatty():
            return lambda steps: None
        from tqdm import tqdm

        return tqdm(total=total, desc=label, leave=False).update


def kind(name: str) -> ModuleType:
    """Import the module of a kind; a ConfigError that suggests the nearest name otherwise."""
    if name not in KINDS:
        raise ConfigError(unknown("experiment", name, KINDS, what="kind"))
    return import_module(KINDS[name])
