"""`transform`: coefficients or classes of new samples."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...io import load, write_table
from ...io.fitted_factors import as_numpy
from ..data import Given, Names, in_order, read_given, stem_of
from ..errors import UserError
from ..folder import ResultFolder, write_table_file
from ..logs import tell
from ..solutions import MODEL, NAMES, component_names

ENDS = (".tsv", ".csv", ".npy")


def run(arguments: Namespace, parameters: dict[str, str]) -> int:
    """Read the model and the new samples, and write what the model makes of them."""
    path = find_model_file(arguments.result, arguments.k)
    output = Path(arguments.output or _default(arguments))
    if output.suffix not in ENDS:
        raise UserError(f"--output {output}: the file ends in one of {', '.join(ENDS)}")
    model = load(path)
    if not hasattr(model, "predict" if arguments.predict else "transform"):
        does = "classes" if arguments.predict else "coefficients; say --predict for classes"
        raise UserError(f"{type(model).__name__} gives no {does}")
    given = read_given(arguments, type(model).__name__)
    X, weights = _as_fitted(given, path.with_name(NAMES))
    with tell(arguments.quiet) as log:
        if arguments.predict:
            _write_classes(output, as_numpy(model.predict(X)), given.samples)
        else:
            more = {} if weights is None else {"weights": weights}
            rows = as_numpy(model.transform(X, **more))
            names = (None, None) if output.suffix == ".npy" else (given.samples, component_names(rows.shape[1]))
            write_table(output, rows, *names)
        log.info("wrote %s", output)
    return 0


def find_model_file(result: str, ranks: Sequence[str] | None) -> Path:
    """Return the model file of a result folder, or the file that was named."""
    path = Path(result)
    if path.is_file():
        if path.suffix != ".safetensors":
            raise UserError(f"{path} is no model: the first argument is a result folder or a .safetensors file")
        return path
    return ResultFolder.open(path).choose(ranks) / MODEL


def _default(arguments: Namespace) -> str:
    stem = stem_of(arguments.data[0]) if arguments.data else "samples"
    return f"{stem}_{'classes' if arguments.predict else 'usages'}.tsv"


def _write_classes(output: Path, classes: np.ndarray, samples: Names) -> None:
    if output.suffix == ".npy":
        np.save(output, classes, allow_pickle=False)
        return
    columns = {"sample": samples or range(1, len(classes) + 1), "predicted": classes}
    write_table_file(output, columns)


def _as_fitted(given: Given, file: Path) -> tuple[Any, Any]:
    """Bring features of data and weights into the order of the fitted data, by their names."""
    if not file.exists():
        return given.X, given.weights
    fitted = json.loads(file.read_text(encoding="utf-8"))
    wanted = lambda i: [None, *fitted[min(i, len(fitted) - 1)][1:]]  # slices may be more than those of the fit
    order = lambda values, i, table: in_order(values, [None, *table.names[1:]], wanted(i), table.source)
    if isinstance(given.X, list):
        return [order(A, *at) for A, at in zip(given.X, enumerate(given.tables), strict=True)], given.weights
    first = given.tables[0]
    return order(given.X, 0, first), None if given.weights is None else order(given.weights, 0, first)
