"""The data sets of the studies: files of a folder that the user names, and data that need none (`embedded.py`).

A file is described once, in `FILES`: what it should hold is checked when it is read, and said when it is missing.
Sets that may not be handed on (FERET, CMU PIE, AR, ...) are read from a user's own copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..harness.errors import AbsentData, ConfigError, MissingData
from ..harness.words import unknown
from .embedded import EMBEDDED
from .samples import Dataset, codes

Arrays = Mapping[str, NDArray]

Shape = tuple[int | None, ...]

T = TypeVar("T")

HELP = "give --data DIR or NNFACTOR_DATA"


@dataclass(frozen=True)
class File:
    """One `.npz` file.

    Attributes
    ----------
    title : str
    keys : key -> shape
        What must be there beside y, the classes of the samples; None in a shape is any length.
    read : callable
        Arrays of the file as a `Dataset` without a name.
    note : str
        What the arrays are.
    optional : tuple of str
        Keys that are read if they are there.
    own : bool
        Whether only a user's own copy can be had.
    any_views : bool
        Whether there may be more views: every further array X0, X1, X2, ... is one. Otherwise more are refused, so that
        none is dropped silently.
    """

    title: str
    keys: dict[str, Shape]
    read: Callable[[Arrays], Dataset]
    note: str
    optional: tuple[str, ...] = ()
    own: bool = False
    any_views: bool = False

    @property
    def holds(self) -> str:
        """What must be there, in words."""
        arrays = ", ".join(f"{key} {_describe_shape(shape)}" for key, shape in self.keys.items())
        own = "your own copy of " if self.own else ""
        return f"{own}{self.title}: {arrays}: {self.note}; y holds whole numbers, the classes"


def load(name: str, data: Path | None, seed: int = 0) -> Dataset:
    """Load a data set by name.

    Parameters
    ----------
    data : Path or None
        The folder of the sets that are not shipped.
    seed : int
        Of generated data.

    Raises
    ------
    ConfigError
        An unknown name.
    AbsentData
        No folder, or the file is not in it; says which file and what it should hold.
    MissingData
        The file is not what it should be.
    """
    check_problems([name])
    if name in EMBEDDED:
        return EMBEDDED[name](seed)
    if name in DERIVED:
        source, change = DERIVED[name]
        return replace(change(load(source, data, seed)), name=name)
    return replace(_read(name, FILES[name], data), name=name)


def load_available(names: Iterable[str], load_one: Callable[[str], T]) -> tuple[dict[str, T], dict[str, str]]:
    """Load what can be had, by name, and say why the rest cannot; a MissingData error if nothing can."""
    found, skipped = {}, {}
    for name in names:
        try:
            found[name] = load_one(name)
        except AbsentData as error:
            skipped[name] = str(error)
    if skipped and not found:
        raise MissingData("nothing to run: " + "; ".join(f"{name}: {why}" for name, why in skipped.items()))
    return found, skipped


def check_problems(names: Iterable[str]) -> None:
    """Raise a ConfigError for the first name that is no data set."""
    for name in names:
        if name not in known_names():
            raise ConfigError(unknown("parameters.problems", name, known_names(), what="data set"))


def known_names() -> list[str]:
    """List the names of all data sets."""
    return [*EMBEDDED, *FILES, *DERIVED]


def _read(name: str, file: File, data: Path | None) -> Dataset:
    wanted = f"{name}.npz should hold {file.holds}"
    if data is None:
        raise AbsentData(f"data not available: no folder named ({HELP}); {wanted}")
    path = data / f"{name}.npz"
    if not path.is_file():
        raise AbsentData(f"data not available: {path} is missing; {wanted}")
    try:
        with np.load(path, allow_pickle=False) as content:
            views = sorted((key for key in content if re.fullmatch(r"X\d+", key)), key=lambda key: int(key[1:]))
            wanted_keys = dict.fromkeys([*file.keys, *file.optional, *(views if file.any_views else ())])
            arrays = {key: content[key] for key in wanted_keys if key in content}
    except (OSError, ValueError, EOFError) as error:
        raise MissingData(f"{path} cannot be read ({error}); {wanted}") from None
    _check_views(path, views, file, wanted)
    for key, shape in file.keys.items():
        found = arrays[key].shape if key in arrays else None
        if (
            found is None
            or len(found) != len(shape)
            or any(s not in (None, n) for n, s in zip(found, shape, strict=True))
        ):
            raise MissingData(
                f"{path}: {key} is {found or 'absent'}, expected shape {_describe_shape(shape)}; {wanted}"
            )
    try:
        dataset = file.read(arrays)
    except ValueError as error:
        raise MissingData(f"{path}: {error}; {wanted}") from None
    lengths = {len(dataset.y), *(view.shape[0] for view in dataset.views)}
    if len(lengths) > 1:
        raise MissingData(f"{path}: arrays of {sorted(lengths)} samples; {wanted}")
    return dataset


def _check_views(path: Path, views: list[str], file: File, wanted: str) -> None:
    """Refuse views that nobody would read: beside those of a file, or behind a gap in their numbers."""
    if "X0" in file.keys and not file.any_views and (extra := [key for key in views if key not in file.keys]):
        raise MissingData(f"{path}: views {', '.join(extra)} are not known; {wanted}")
    if file.any_views and views != [f"X{i}" for i in range(len(views))]:
        raise MissingData(f"{path}: views {', '.join(views) or 'none'}, expected X0, X1, ... without a gap; {wanted}")


def _describe_shape(shape: Shape) -> str:
    return f"({', '.join('any' if s is None else str(s) for s in shape)}{',' if len(shape) == 1 else ''})"


def _images(title: str, arrays: Arrays) -> Dataset:
    """Pixels to [0, 1]: bytes over 255, others over their maximum unless they are there already."""
    X = arrays["X"].astype(np.float64)
    top = 255.0 if arrays["X"].dtype == np.uint8 else max(1.0, float(X.max()))
    return Dataset("", title, (X / top,), codes(arrays["y"]), corrupt=arrays.get("corrupt"))


def _table(title: str, arrays: Arrays) -> Dataset:
    return Dataset("", title, (arrays["X"].astype(np.float64),), codes(arrays["y"]))


def _views(title: str, count: int, names: tuple[str, ...], arrays: Arrays) -> Dataset:
    return Dataset(
        "", title, tuple(arrays[f"X{i}"].astype(np.float64) for i in range(count)), codes(arrays["y"]), names
    )


def _all_views(title: str, arrays: Arrays) -> Dataset:
    """As many views as there are."""
    count = sum(key != "y" for key in arrays)
    return _views(title, count, tuple(f"view {i}" for i in range(count)), arrays)


def _vowel(title: str, arrays: Arrays) -> Dataset:
    """Take the 528 samples of the file's training part, those of Sun and Zhang 2009."""
    train = arrays["is_test"] == 0
    return _table(title, {key: arrays[key][train] for key in ("X", "y")})


def _sparse_views(title: str, count: int, names: tuple[str, ...], arrays: Arrays) -> Dataset:
    import scipy.sparse as sp

    from nnfactor.core.data.as_data import to_csr

    views = []
    for i in range(count):
        parts = [arrays[f"X{i}_{p}"] for p in ("data", "indices", "indptr")]
        views.append(to_csr(sp.csr_array(tuple(parts), shape=tuple(arrays[f"X{i}_shape"])), names[i], np.float64))
    return Dataset("", title, tuple(views), codes(arrays["y"]), names)


def _image_file(title: str, n: int | None, height: int | None, width: int | None, **more: Any) -> File:
    return File(title, {"X": (n, height, width), "y": (n,)}, partial(_images, title), "uint8 images, upright", **more)


def _table_file(title: str, n: int, m: int) -> File:
    return File(title, {"X": (n, m), "y": (n,)}, partial(_table, title), "numbers, NaN where missing")


def _view_file(title: str, n: int | None, widths: tuple[int | None, ...], names: tuple[str, ...], **more: Any) -> File:
    keys: dict[str, Shape] = {f"X{i}": (n, m) for i, m in enumerate(widths)} | {"y": (n,)}
    note = f"the views {', '.join(names)}, nonnegative where the method is"
    return File(title, keys, partial(_views, title, len(widths), names), note, **more)


def _any_view_file(title: str) -> File:
    keys: dict[str, Shape] = {"X0": (None, None), "X1": (None, None), "y": (None,)}
    note = "two views or more (X2, X3, ...), nonnegative where the method is"
    return File(title, keys, partial(_all_views, title), note, own=True, any_views=True)


def _sparse_view_file(title: str, n: int, names: tuple[str, ...]) -> File:
    parts: dict[str, Shape] = {"data": (None,), "indices": (None,), "indptr": (n + 1,), "shape": (2,)}
    keys = {f"X{i}_{part}": shape for i in range(len(names)) for part, shape in parts.items()} | {"y": (n,)}
    return File(title, keys, partial(_sparse_views, title, len(names), names), f"CSR parts of {', '.join(names)}")


def _halve(dataset: Dataset) -> Dataset:
    """Images at half the height and width: means over 2 x 2 pixels."""
    X = dataset.X
    n, h, w = X.shape
    smaller = X.reshape(n, h // 2, 2, w // 2, 2).mean((2, 4))
    return replace(dataset, views=(smaller,), title=dataset.title.replace(f"{h} x {w}", f"{h // 2} x {w // 2}"))


def _paper_languages(dataset: Dataset) -> Dataset:
    """English, French and Spanish: the three languages of Jiang et al. 2014."""
    names = ("EN", "FR", "SP")
    views = tuple(dataset.views[dataset.view_names.index(name)] for name in names)
    return replace(dataset, views=views, view_names=names, title=f"{dataset.title}, three languages")


MSRC = ("CM", "HOG", "GIST", "LBP", "CENTRIST")

FILES: dict[str, File] = {
    "orl_32x32": _image_file("ORL 32 x 32", 400, 32, 32),
    "orl_64x64": _image_file("ORL 64 x 64", 400, 64, 64),
    "yale_64x64": _image_file("Yale 64 x 64", 165, 64, 64),
    "yaleb_ext_32x32": _image_file("Extended Yale B 32 x 32", 2414, 32, 32, optional=("corrupt",)),
    "coil20_32x32": _image_file("COIL-20 32 x 32", 1440, 32, 32),
    "cbcl_train_19x19": _image_file("MIT CBCL faces 19 x 19", 6977, 19, 19),
    "usps_16x16": _image_file("USPS 16 x 16", 9298, 16, 16),
    "uci_dermatology": _table_file("Dermatology (UCI)", 366, 34),
    "uci_horse_colic": _table_file("Horse colic (UCI)", 300, 21),
    "uci_lymph": _table_file("Lymphography (UCI)", 148, 18),
    "uci_sonar": _table_file("Sonar (UCI)", 208, 60),
    "uci_soybean_small": _table_file("Soybean, small (UCI)", 47, 35),
    "uci_vowel": File(
        "Vowel (UCI)",
        {"X": (990, 10), "y": (990,), "is_test": (990,)},
        partial(_vowel, "Vowel (UCI)"),
        "numbers; the 528 samples with is_test = 0 are used",
    ),
    "mfeat_6views": _view_file(
        "Multiple features (UCI)", 2000, (76, 216, 64, 240, 47, 6), ("fou", "fac", "kar", "pix", "zer", "mor")
    ),
    "msrc_v5_5views": _view_file("MSRC-v1, 5 views", 210, (24, 576, 512, 256, 254), MSRC),
    "reuters1200_5views": _sparse_view_file(
        "Reuters multilingual, 1200 documents", 1200, ("EN", "FR", "GR", "SP", "IT")
    ),
    "feret": _image_file("FERET", None, None, None, own=True),
    "cmu_pie": _image_file("CMU PIE", None, None, None, own=True),
    "ar": _image_file("AR", None, None, None, own=True),
    "its": _image_file("ITS (humans and roads)", None, None, None, own=True),
    "nus_wide_object": _any_view_file("NUS-WIDE-Object"),
    "corel5k": _any_view_file("Corel5K"),
}

# name -> (the set it is made of, how)
DERIVED: dict[str, tuple[str, Callable[[Dataset], Dataset]]] = {
    "orl_16x16": ("orl_32x32", _halve),
    "yale_32x32": ("yale_64x64", _halve),
    "yale_16x16": ("yale_32x32", _halve),
    "yaleb_ext_16x16": ("yaleb_ext_32x32", _halve),
    "reuters1200_3views": ("reuters1200_5views", _paper_languages),
}
