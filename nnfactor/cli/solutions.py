"""One solution as files: factors as tables with the user's names, the model file, restarts, classes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..io import write_table
from ..io.fitted_factors import as_numpy
from .data import Given, Names, samples_of
from .folder import write_table_file, write_text

MODEL, NAMES = "factors.safetensors", "names.json"


@dataclass(frozen=True)
class Factor:
    """A table of a solution: values, and the names of rows and columns."""

    values: np.ndarray
    rows: Names
    columns: Names


def component_names(k: int) -> list[str]:
    """Name components as all tables do."""
    return [f"component_{j}" for j in range(1, k + 1)]


def write_solution(folder: Path, model: Any, given: Given) -> None:
    """Write a fitted model to a new folder."""
    folder.mkdir()
    model.save(folder / MODEL)
    write_text(folder / NAMES, json.dumps(given.names) + "\n")
    for name, factor in factors_of(model, given.names, lambda: given.X).items():
        write_table(folder / f"{name}.tsv", factor.values, factor.rows, factor.columns)
    if hasattr(model, "core_"):
        np.save(folder / "core.npy", as_numpy(model.core_))
    if hasattr(model, "restarts_"):
        write_table_file(folder / "restarts.tsv", restarts_of(model))
    if given.y is not None and (classes := predict(model, given.X)) is not None:
        names = given.samples or range(1, len(classes) + 1)
        write_table_file(folder / "predictions.tsv", {"sample": names, "label": given.y, "predicted": classes})


def predict(model: Any, X: Any) -> Any:
    """Predict classes of samples, where the model does: of fitted samples those that it has found."""
    if hasattr(model, "transduction_") and len(model.transduction_) == _count(X):
        return as_numpy(model.transduction_)
    return as_numpy(model.predict(X)) if hasattr(model, "predict") else None


def _count(X: Any) -> int:
    return len(X[0]) if isinstance(X, list) else X.shape[0]


def restarts_of(model: Any) -> dict[str, Any]:
    """List the restarts of a fit: seeds, losses, iterations."""
    loss, n_iter = (as_numpy(model.restarts_[name]) for name in ("loss", "n_iter"))
    return {"restart": range(len(loss)), "seed": model.fit_info_["seeds"], "loss": loss, "iterations": n_iter}


def factors_of(model: Any, names: Sequence[Sequence[Names]], read: Callable[[], Any]) -> dict[str, Factor]:
    """Collect the factors of a model by the names of their files.

    `names` are those for each file and each of its dimensions; `read` gives the data to a model without an embedding.
    """
    found: dict[str, Factor] = {}
    rows = usages_of(model, read)
    if rows is not None:
        samples = None if _is_slices(model) else samples_of(names)
        found["usages"] = Factor(rows, samples, component_names(rows.shape[1]))
    if hasattr(model, "view_weights_"):
        found["view_weights"] = Factor(as_numpy(model.view_weights_)[:, None], None, ["weight"])
    if isinstance(getattr(model, "factors_", None), Mapping):
        weights = as_numpy(model.component_weights_)
        found["component_weights"] = Factor(weights, None, component_names(weights.shape[1]))
    for i, E in enumerate(getattr(model, "evolving_", ()), 1):
        found[f"evolving_{i}"] = _tall(E, names[min(i, len(names)) - 1][0])
    return found | features_of(model, names)


def features_of(model: Any, names: Sequence[Sequence[Names]]) -> dict[str, Factor]:
    """Collect the factors of features: components as rows, or one factor for each mode or view."""
    if isinstance(getattr(model, "factors_", None), Mapping):
        return _coupled(model, names)
    matrix = bool(np.ndim(getattr(model, "components_", 0)) == 2)
    if matrix:
        components = as_numpy(model.components_)
        columns = names[0][-1] if names[0][-1] is None or len(names[0][-1]) == components.shape[1] else None
        return {"components": Factor(components, component_names(len(components)), columns)}
    factors = list(getattr(model, "factors_", ()))
    several = len(names) > 1  # views have names of their own, modes those of the only file
    of = [names[i][-1] for i in range(len(factors))] if several else names[0][1:]
    shown = [
        n if n is not None and len(n) == len(F) else None for n, F in zip(_padded(of, factors), factors, strict=True)
    ]
    return {f"factor_U{b}": _tall(F, n) for b, (F, n) in enumerate(zip(factors, shown, strict=True), 1)}


def _padded(names: Sequence[Names], factors: Sequence[Any]) -> list[Names]:
    """Give every factor names or None; a matrix of folded samples has fewer names than factors."""
    return list(names) if len(names) == len(factors) else [None] * len(factors)


def _tall(F: Any, names: Names) -> Factor:
    values = as_numpy(F)
    return Factor(
        values, names if names is not None and len(names) == len(values) else None, component_names(values.shape[1])
    )


def _coupled(model: Any, names: Sequence[Sequence[Names]]) -> dict[str, Factor]:
    """Collect the factors of coupled tensors, by the names of modes."""
    of: dict[str, Names] = {}
    for modes, known in zip(model.modes, names, strict=True):
        of |= {mode: n for mode, n in zip(modes, known, strict=True) if n is not None}
    features = list(model.factors_.items())[1:]  # the first mode has the samples: usages
    return {f"factor_{mode}": _tall(F, of.get(mode)) for mode, F in features}


def _is_slices(model: Any) -> bool:
    return hasattr(model, "evolving_")


def usages_of(model: Any, read: Callable[[], Any]) -> np.ndarray | None:
    """Return the coefficients of the fitted samples; None for a model that has none."""
    if hasattr(model, "embedding_"):
        return as_numpy(model.embedding_)
    return as_numpy(model.transform(read())) if hasattr(model, "transform") else None


def summary(model: Any) -> dict[str, Any]:
    """Return the numbers of a fit for `all_solutions_stat.tsv`, as far as the model has them."""
    names = {"loss": "loss_", "error": "reconstruction_err_", "iterations": "n_iter_", "converged": "converged_"}
    found = {name: getattr(model, attribute) for name, attribute in names.items() if hasattr(model, attribute)}
    if hasattr(model, "n_init"):
        found["restarts"] = model.n_init
    return found
