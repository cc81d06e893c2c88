"""Read what is drawn: the factors of fitted models and of results, with the names of modes and of their rows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.labels import to_host
from ..models.shared.base import Factorization
from ..selection.consensus import Consensus
from ..selection.rank import RankSelection
from .style import shorten

TAKEN = (
    "a fitted factorization such as NMF(2).fit(X), what select_rank or consensus found, or a list of factors (d, k), "
    "samples first"
)


# A number, with a unit behind it or the word of an axis before it: 400, 3.5 Hz, band12. Other words are names: gene12.
AXIS = re.compile(
    r"(?:(?:band|bin|channel|day|frequency|hour|minute|mz|second|shift|t|time|wavelength|wavenumber|year)[ _-]?)?"
    r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?(?:[a-zµ°%][\w/^.-]{0,7})?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Mode:
    """One mode of a model: its factor, and the names of its rows.

    `lengths` are those of the slices that a factor consists of, where it evolves from one to the next (PARAFAC2).
    """

    name: str
    factor: np.ndarray
    names: tuple[str, ...] | None = None
    is_samples: bool = False
    lengths: tuple[int, ...] = ()
    spread: np.ndarray | None = None

    @property
    def ticks(self) -> np.ndarray | None:
        """Names as rising numbers of an axis, such as wavelengths; None where they are none."""
        matches = [AXIS.fullmatch(name) for name in self.names or ()]
        if not all(matches):
            return None
        found = np.array([float(match[1]) for match in matches if match])
        return found if len(found) > 1 and np.isfinite(found).all() and (np.diff(found) > 0).all() else None


@dataclass(frozen=True)
class Factors:
    """A model as modes; `tensors` lists the modes of every array that it stands for, `weights` are `(n_tensors, k)`."""

    title: str
    modes: tuple[Mode, ...]
    tensors: tuple[tuple[int, ...], ...]
    weights: np.ndarray | None = None
    core: np.ndarray | None = None
    labels: tuple[str, ...] = ()  # of the tensors
    component_names: tuple[str, ...] = ()

    @property
    def is_matrix(self) -> bool:
        """Whether features are one mode of one array, or of views."""
        return self.core is None and all(len(t) <= 2 for t in self.tensors)

    @property
    def n_components(self) -> int:
        """Number of components; of Tucker models the most of a mode."""
        return max(mode.factor.shape[1] for mode in self.modes)

    def title_of(self, j: int, few: bool = True) -> str:
        """Name a component: as it is called, else by its number, from 1 as in all that people read."""
        if self.component_names:
            return shorten(self.component_names[j])
        return f"component {j + 1}" if few else str(j + 1)

    def select(self, mode: Any) -> list[Mode]:
        """List the modes that are asked for, by number or name; None: of matrices the features, else all."""
        if mode is None:
            shown = [m for m in self.modes if not m.is_samples] if self.is_matrix else list(self.modes)
            return shown or list(self.modes)
        several = mode if isinstance(mode, list | tuple) else [mode]
        return [self.modes[self.index(m)] for m in several]

    def index(self, mode: Any) -> int:
        """Find a mode by its number or its name."""
        names = [m.name for m in self.modes]
        if isinstance(mode, str) and mode in names:
            return names.index(mode)
        if isinstance(mode, int | np.integer) and not isinstance(mode, bool) and -len(names) <= mode < len(names):
            return int(mode) % len(names)
        listed = ", ".join(f"{i} ({name!r})" for i, name in enumerate(names))
        raise ValueError(f"mode={mode!r} is not known; {self.title} has {listed}")


def read_model(model: Any, names: Any = None, mode_names: Any = None) -> Factors:
    """Read the factors of a model, and name their modes and rows."""
    found = _read(model)
    modes = found.modes
    if mode_names is not None:
        mode_names = [mode_names] if isinstance(mode_names, str) else list(mode_names)
        if len(mode_names) != len(modes):
            raise ValueError(f"mode_names has {len(mode_names)} names; {found.title} has {len(modes)} modes")
        modes = tuple(replace(m, name=str(name)) for m, name in zip(modes, mode_names, strict=True))
    found = replace(found, modes=modes)
    if isinstance(names, Mapping) and "components" in names:
        names = dict(names)
        found = replace(found, component_names=_component_names(names.pop("components"), found))
    for i, given in _by_mode(found, names, "names").items():
        texts = tuple(map(str, given))
        if len(texts) != len(modes[i].factor):
            raise ValueError(
                f"names of mode {i} ({modes[i].name!r}) are {len(texts)}; it has {len(modes[i].factor)} rows"
            )
        modes = (*modes[:i], replace(modes[i], names=texts), *modes[i + 1 :])
    return replace(found, modes=modes)


def _component_names(given: Any, factors: Factors) -> tuple[str, ...]:
    """Read names of components."""
    names = tuple(map(str, given))
    if len(names) != factors.n_components:
        raise ValueError(f"names of components are {len(names)}; {factors.title} has {factors.n_components}")
    return names


def _by_mode(factors: Factors, given: Any, name: str) -> dict[int, Any]:
    """Read an argument that has an entry for each mode: a sequence in their order, or a mapping by number or name."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {factors.index(key): value for key, value in given.items() if value is not None}
    entries = list(given)
    if isinstance(given, str) or len(entries) > len(factors.modes) or any(isinstance(e, str) for e in entries):
        modes = ", ".join(repr(m.name) for m in factors.modes)
        raise ValueError(
            f"{name} must have an entry (or None) for each mode ({modes}), such as {name}=(None, [...]), or be a "
            "mapping by mode"
        )
    return {i: value for i, value in enumerate(entries) if value is not None}


def read_many(models: Any) -> dict[str, Any]:
    """Read several models with their labels: a mapping, a list, or one."""
    if isinstance(models, RankSelection):
        return {str(rank): model for rank, model in models.models.items()}
    if isinstance(models, Mapping):
        found = {str(label): model for label, model in models.items()}
    elif isinstance(models, list | tuple) and models and not _is_factors(models):
        found = {f"{i}: {type(model).__name__}": model for i, model in enumerate(models)}
    elif isinstance(models, Iterable) and not isinstance(models, list | tuple | str) and not hasattr(models, "shape"):
        return read_many(list(models))
    else:
        found = {type(models).__name__: models}
    if not found:
        raise ValueError(f"models is empty; give {TAKEN}, or several of them")
    return found


def _is_factors(given: Any) -> bool:
    """Tell whether a list has the factors of one model."""
    return _has_weights(given) or all(getattr(F, "ndim", 0) == 2 or _is_rows(F) for F in given)


def _has_weights(given: Any) -> bool:
    """Tell whether a pair is TensorLy's `(weights, factors)`."""
    flat = len(given) == 2 and (given[0] is None or getattr(given[0], "ndim", 0) == 1)
    return flat and isinstance(given[1], list | tuple)


def _is_rows(F: Any) -> bool:
    """Tell whether a list has rows of numbers."""
    return (
        isinstance(F, list | tuple)
        and len(F) > 0
        and all(isinstance(row, list | tuple) for row in F)
        and np.isscalar(F[0][0])
    )


def _read(model: Any) -> Factors:
    if isinstance(model, RankSelection):
        return _read(model.model)
    if isinstance(model, Consensus):
        return _read_consensus(model)
    if isinstance(model, Factorization):
        check_is_fitted(model, "factors_")
        return _read_estimator(model)
    if isinstance(model, list | tuple) and model and _is_factors(model):
        return _read_list(model)
    raise TypeError(f"model is {type(model).__name__}; give {TAKEN}")


def _read_consensus(model: Consensus) -> Factors:
    pairs = zip(_names(len(model.factors)), model.factors, model.spread, strict=True)
    modes = [Mode(name, to_host(F), spread=S) for name, F, S in pairs]
    if model.embedding is not None:
        modes = [Mode("samples", to_host(model.embedding), is_samples=True), *modes]
    return Factors("Consensus", tuple(modes), (tuple(range(len(modes))),))


def _read_list(model: Sequence[Any]) -> Factors:
    weights = None
    if _has_weights(model):
        weights, model = model
    arrays = [np.asarray(to_host(F), dtype=np.float64) for F in model]
    if any(F.ndim != 2 or F.shape[1] != arrays[0].shape[1] for F in arrays):
        raise ValueError(f"model has factors of shapes {[F.shape for F in arrays]}; all must be (d, k) with one k")
    if weights is not None:
        arrays[0] = arrays[0] * to_host(weights)
    bases = [Mode(name, F) for name, F in zip(_names(len(arrays) - 1), arrays[1:], strict=True)]
    return Factors("the model", (Mode("samples", arrays[0], is_samples=True), *bases), (tuple(range(len(arrays))),))


def _read_estimator(model: Any) -> Factors:
    title, given = type(model).__name__, vars(model)
    samples = () if "embedding_" not in given else (Mode("samples", to_host(model.embedding_), is_samples=True),)
    first = len(samples)
    if isinstance(model.factors_, Mapping):  # modes with names of their own, the first that of the samples
        names = list(model.factors_)
        modes = [Mode(name, to_host(F), is_samples=name == names[0]) for name, F in model.factors_.items()]
        tensors = tuple(tuple(names.index(name) for name in of) for of in model._modes)
        labels = tuple(" x ".join(of) for of in model._modes)
        return Factors(title, tuple(modes), tensors, to_host(model.component_weights_), labels=labels)
    bases = [to_host(F) for F in model.factors_]
    if "evolving_" in given:
        evolving = [to_host(B) for B in model.evolving_]
        slices = Mode("slices", to_host(model.embedding_), is_samples=True)
        rows = Mode("rows of slices", np.concatenate(evolving), lengths=tuple(map(len, evolving)))
        return Factors(title, (slices, rows, Mode("columns", bases[0], _feature_names(model, bases[0]))), ((0, 1, 2),))
    if getattr(model, "_listed_views", False) and len(bases) > 1:
        views = [Mode(f"view {p + 1}", U) for p, U in enumerate(bases)]
        tensors = tuple((0, p + 1) for p in range(len(bases))) if samples else tuple((p,) for p in range(len(bases)))
        return Factors(title, (*samples, *views), tensors, labels=tuple(m.name for m in views))
    names = _names(len(bases)) if model._of_features or len(bases) > 1 else ["bases"]
    modes = [
        Mode(name, F, _feature_names(model, F) if len(bases) == 1 else None)
        for name, F in zip(names, bases, strict=True)
    ]
    core = to_host(model.core_) if "core_" in given else None
    return Factors(title, (*samples, *modes), (tuple(range(first + len(modes))),), core=core)


def _names(n_bases: int) -> list[str]:
    return ["features"] if n_bases == 1 else [f"mode {i + 1}" for i in range(n_bases)]


def _feature_names(model: Any, F: np.ndarray) -> tuple[str, ...] | None:
    names = getattr(model, "feature_names_in_", ())
    return tuple(map(str, names)) if len(names) == len(F) else None
