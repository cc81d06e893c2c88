"""`consensus`: what the restarts of a result folder have in common."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from ...io import load, write_table
from ...selection import Consensus, consensus
from ..errors import UserError
from ..folder import ResultFolder, write_table_file, written
from ..logs import follow
from ..requests import read_again
from ..solutions import MODEL, Factor, component_names, features_of


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Match the components of all restarts; write medians, spread, stability and refitted usages."""
    folder = ResultFolder.open(arguments.result)
    solution = folder.choose(arguments.k)
    model = load(solution / MODEL)
    if not hasattr(model, "restarts_"):
        raise UserError(f"{solution} has one run, which has no consensus; fit with --n-init 20 or more")
    given = read_again(folder)
    refit = {"X": given.X, "weights": given.weights} if hasattr(model, "alpha_W") else {}
    with follow(folder, arguments.quiet) as log:
        found = consensus(model, density_threshold=arguments.density_threshold, **refit)
        path = folder.file(f"consensus_k_{len(found.stable):02d}")
        with written(path) as unfinished:
            _write(unfinished, found, features_of(model, given.names), given.samples)
        mean, least = np.nanmean(found.stability), np.nanmin(found.stability)
        passes = mean >= arguments.mean_stability and least >= arguments.min_stability
        log.info("%r: stability %.2f in the mean, %.2f at least: %s", found, mean, least, _told(passes))
        log.info("wrote %s", path)
    return 0


def _told(passes: bool) -> str:
    return "a stable solution" if passes else "no stable solution"


def _write(path: Path, found: Consensus, features: dict[str, Factor], samples: Any) -> None:
    """Write medians and spreads in the form of the solution, and what is told of each component."""
    path.mkdir()
    names = component_names(len(found.stable))
    for (name, factor), median, spread in zip(features.items(), found.factors, found.spread, strict=True):
        wide = name.startswith("components")
        for end, values in (("", median), ("_spread", spread)):
            write_table(path / f"{name}{end}.tsv", values.T if wide else values, factor.rows, factor.columns)
    if found.embedding is not None:
        write_table(path / "usages.tsv", found.embedding, samples, names)
    told = {"component": names, "stable": found.stable, "stability": found.stability, "share": found.share}
    write_table_file(path / "stability.tsv", told)
