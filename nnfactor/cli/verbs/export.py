"""`export`: factors in the names and formats of other tools."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...io import load, write_h5ad_results, write_table
from ..arguments import FORMATS
from ..data import digest
from ..errors import UserError, nearest
from ..folder import ResultFolder, written
from ..logs import tell
from ..requests import read_again
from ..solutions import MODEL, NAMES, Factor, factors_of

OF_MATRICES = ("cnmf", "h5ad")

Factors = dict[str, Factor]


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Write the factors of a solution."""
    if arguments.format not in EXPORTS:
        told = nearest(arguments.format, FORMATS)
        raise UserError(f"--format {arguments.format}{told}; use one of {', '.join(FORMATS)}")
    folder = ResultFolder.open(arguments.result)
    solution = folder.choose(arguments.k)
    model, names = load(solution / MODEL), json.loads((solution / NAMES).read_text(encoding="utf-8"))
    factors = factors_of(model, names, lambda: read_again(folder).X)
    if arguments.format in OF_MATRICES and not {"usages", "components"} <= factors.keys():
        told = f"{type(model).__name__} of these data has others"
        raise UserError(f"--format {arguments.format} is for factors of a matrix; {told}")
    output = Path(arguments.output or folder.file("export"))
    with tell(arguments.quiet) as log:
        for path in EXPORTS[arguments.format](folder, model, factors, output):
            log.info("wrote %s", path)
    return 0


def _cnmf(folder: ResultFolder, model: Any, factors: Factors, output: Path) -> list[Path]:
    """Write the files that cNMF writes: usages, and spectra with components as rows, numbered from 1."""
    k, name = len(factors["components"].values), folder.path.resolve().name
    found = []
    for what, factor in (("usages", factors["usages"]), ("spectra", factors["components"])):
        numbers = [str(j) for j in range(1, k + 1)]
        rows, columns = (factor.rows, numbers) if what == "usages" else (numbers, factor.columns)
        path = output / f"{name}.{what}.k_{k}.dt_2_0.consensus.txt"  # 2.0: no restart is dropped
        with written(path) as unfinished:
            table = unfinished.with_suffix(".tsv")
            write_table(table, factor.values, rows, columns)
            table.rename(unfinished)
        found.append(path)
    return found


def _csv(folder: ResultFolder, model: Any, factors: Factors, output: Path) -> list[Path]:
    found = []
    output.mkdir(parents=True, exist_ok=True)
    for name, factor in factors.items():
        write_table(output / f"{name}.csv", factor.values, factor.rows, factor.columns)
        found.append(output / f"{name}.csv")
    return found


def _npz(folder: ResultFolder, model: Any, factors: Factors, output: Path) -> list[Path]:
    """Write all factors and names as one file of numpy."""
    arrays: dict[str, Any] = {}
    for name, factor in factors.items():
        arrays[name] = factor.values
        for side, names in (("rows", factor.rows), ("columns", factor.columns)):
            arrays |= {} if names is None else {f"{name}_{side}": np.array(list(names))}
    path = output if output.suffix == ".npz" else output / "factors.npz"
    with written(path) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return [path]


def _h5ad(folder: ResultFolder, model: Any, factors: Factors, output: Path) -> list[Path]:
    """Copy the data file, with the factors in `obsm`, `varm` and `uns`."""
    (source, *others) = folder.metadata["request"]["words"]["data"]
    if others or not source.endswith(".h5ad"):
        raise UserError("--format h5ad copies the data file, which is no .h5ad here; use csv or npz")
    if folder.plan["transpose"]:
        raise UserError("--format h5ad puts usages beside rows of the file, which were features here; use csv or npz")
    if digest(Path(source)) not in folder.plan["files"].values():
        raise UserError(f"{source} has changed since {folder.path} was begun")
    path = output if output.suffix == ".h5ad" else output / f"{Path(source).stem}_nmf.h5ad"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_h5ad_results(source, path, model)
    return [path]


EXPORTS: dict[str, Callable[[ResultFolder, Any, Factors, Path], list[Path]]] = {
    "cnmf": _cnmf,
    "csv": _csv,
    "h5ad": _h5ad,
    "npz": _npz,
}
