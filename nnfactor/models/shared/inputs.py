"""What users give: arrays of any kind, devices, dtypes; and how results go back in the same kind."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import frexp, prod
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import sklearn
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from ...core.arrays import (
    as_array,
    as_numbers,
    refuse_other_than_real,
    refuse_text,
    refuse_text_columns,
    share_memory,
)
from ...core.data.as_data import (
    as_data,
    as_scaled_data,
    as_scipy,
    as_tensor,
    is_sparse,
    is_sparse_tensor,
    to_csr,
)
from ...core.data.base import Data
from ...core.data.distributed.sharded import Sharded
from ...core.data.hidden import hide, take_mask
from ...core.factors import as_factor
from ...io.model_files import save
from ...penalties import Smooth
from ...version import VERSION
from .parameters import loss_exponent


def given_start(arrays: Any, data: Data, shapes: Mapping[str, tuple[int, int]], free: bool = False) -> list[Tensor]:
    """Read `init` as arrays, samples first: checked, copied, cast; `free` feature factors have any sign."""
    wanted = ", ".join(f"{n} {s}" for n, s in shapes.items())
    if not isinstance(arrays, Sequence) or len(arrays) != len(shapes):
        found = f"{len(arrays)} arrays" if isinstance(arrays, Sequence) else type(arrays).__name__
        raise ValueError(f"init must be 'auto', 'random', 'nndsvda' or the arrays ({wanted}); got {found}")
    if not data.sums.alone:
        arrays = [data.sums.join(arrays[0], "init: V"), *arrays[1:]]
    start = [
        given_array(f"init: {name}", array, shape, data, free and name != "V", f"; init is ({wanted})")
        for (name, shape), array in zip(shapes.items(), arrays, strict=True)
    ]
    return [as_factor(F) for F in start]


def given_array(
    name: str, array: Any, shape: tuple[int, ...], like: Data | Tensor, free: bool = False, hint: str = ""
) -> Tensor:
    """Copy an array that a user gave: of this shape, finite, and unless `free` nonnegative."""
    F = as_tensor(array, name).to(like.device, like.dtype)
    if tuple(F.shape) != shape:
        turned = "; is it transposed?" if tuple(F.shape) == shape[::-1] else ""
        raise ValueError(f"{name} has shape {tuple(F.shape)}, but must be {shape}{hint}{turned}")
    bad = int((~torch.isfinite(F) | (F < 0 if not free else False)).sum())
    if bad:
        kinds, wanted = ("NaN", "finite") if free else ("negative, NaN", "finite and >= 0")
        raise ValueError(f"{name} has {bad} {kinds} or infinite entries; all must be {wanted}")
    return F.clone()


def to_torch(F: Any) -> Tensor:
    """Give an array of numpy or torch as a tensor of the same memory, on its own device."""
    return F if isinstance(F, Tensor) else share_memory(F)


def place_factor(F: Any, like: Data | Tensor) -> Tensor:
    """Move a fitted factor to the device (and, for data, the dtype) at hand."""
    F = to_torch(F)
    return F.to(like.device) if isinstance(like, Tensor) else F.to(like.device, like.dtype)


def read_coefficients(V: Any, n_components: int, name: str = "V") -> Tensor:
    """Read coefficients `(n_samples, n_components)` of any sign as data are read: a dense tensor, finite."""
    as_given = V if hasattr(V, "shape") else as_array(V, name)
    if len(as_given.shape) != 2 or as_given.shape[1] != n_components:
        raise ValueError(f"{name} has shape {tuple(as_given.shape)}; it must be (n_samples, {n_components})")
    rows = as_data(as_given, name=name, signed=True).samples()
    device = V.device if isinstance(V, Tensor) else torch.device("cpu")
    return torch.from_numpy(rows.toarray()).to(device) if sp.issparse(rows) else rows


class PickledOnCPU:
    """Mixin of estimators: fitted tensors are saved on the CPU, so that a model from a GPU loads without one."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator to a safetensors file, which `nnfactor.load` reads without executing code.

        Raises a TypeError that names what a file cannot hold, such as a callback or a random generator.
        """
        save(self, path)

    def __setstate__(self, state: dict[str, Any]) -> None:
        made = state.get("fit_info_", {}).get("nnfactor", VERSION)
        if made != VERSION:
            told = f"{type(self).__name__} was pickled by nnfactor {made} and is loaded by {VERSION}: it may answer in "
            warnings.warn(f"{told}another way, or not at all; fit it again if you can", UserWarning, stacklevel=2)
        cast(Any, super()).__setstate__(state)

    def __getstate__(self) -> dict[str, Any]:
        return {key: move_to_cpu(value) for key, value in cast(dict, super().__getstate__()).items()}


@dataclass(frozen=True)
class Inputs:
    """Data as an estimator reads them, and the way back to the caller.

    `scale` is a power of two; 1 unless the data are so large or small that squares leave the floating-point range. Data
    are divided in the precision that they come in, and then cast.
    """

    data: Data  # on the working device, divided by `scale`
    unscaled: Data  # the same before the division: graphs are built from its samples
    X: Any  # what they were read from: a sparse matrix or tensor, Data; of dense data the tensor on the working device
    scale: float
    as_torch: bool  # whether the caller works with tensors (results then stay on the device), else with numpy
    shape: tuple[int, ...]  # as given
    views: tuple["Inputs", ...] = ()  # all views, where an estimator takes several; the first is this one

    def given_samples(self) -> Any:
        """Give `X`; of data in blocks all samples, or refuse."""
        return self.X.samples() if isinstance(self.X, Data) and self.X.order == 2 else self.X

    def points(self) -> Tensor | sp.csr_array:
        """Give the samples in the unit: a dense tensor on the device, or float64 CSR on the host (a copy)."""
        X = self.data.samples()
        return sp.csr_array(X, dtype=np.float64, copy=True) if sp.issparse(X) else X

    def samples64(self, copy: bool = False) -> Tensor | sp.csr_array:
        """`points` in float64 in either case; `copy` those that a model keeps, for they may be the caller's memory."""
        X = self.points()
        return X.to(torch.float64, copy=copy) if isinstance(X, Tensor) else X

    def to_caller(self, F: Tensor) -> Any:
        """Turn a result into the caller's kind, row-major."""
        F = F.contiguous()
        return F if self.as_torch else F.cpu().numpy()

    def in_range(self, F: Tensor) -> Tensor:
        """Return a result as it is; refuse one that left the range because of the size of the data."""
        scales = [self.scale, *(view.scale for view in self.views)]
        if any(scale != 1 for scale in scales) and bool(F.isinf().any()):
            extreme = max(scales, key=lambda scale: abs(frexp(scale)[1]))
            raise ValueError(
                f"X has entries around {extreme:.1g}, and results leave the range of {F.dtype}; divide X by "
                f"{extreme:.3g} first, or use float64"
            )
        return F


def read(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    sample_shape: tuple[int, ...] | None = None,
    tensors: bool = False,
    signed: bool = False,
    weights: Any = None,
    complete: bool = False,
) -> Inputs:
    """Validate `X` as scikit-learn does (feature names and counts on the flattened view), then as `as_data` does.

    `tensors` allows more than two dimensions; `sample_shape` folds flattened rows; `signed` lets negative entries in.
    `Data` of any storage kind keep their dtype and stay where they are, but for those in blocks, which are read for
    the estimator's device and dtype. Where the estimator has a parameter `missing`,
    masks, `weights` and what that names are honoured, unless X must be `complete`.
    """
    X = take_shard(estimator, X, reset, weights) if isinstance(X, Sharded) else X
    missing = None if complete else getattr(estimator, "missing", None)
    honoured = not complete and hasattr(estimator, "missing")
    X, mask = take_mask(X) if isinstance(X, np.ma.MaskedArray) and honoured else (X, None)
    columns = [list(F.columns) for F in (X, weights) if hasattr(F, "columns") and not isinstance(F, Data)]
    if len(columns) == 2 and columns[0] != columns[1]:
        raise ValueError("weights has other columns than X; order them alike, as in weights[X.columns]")
    as_torch = isinstance(X, Tensor)
    device = choose_device(estimator.device, X)
    dtype = choose_dtype(estimator.dtype)
    if not reset and sample_shape is not None and tuple(getattr(X, "shape", ())) == tuple(sample_shape):
        raise ValueError(
            f"X has shape {tuple(X.shape)}, that of one sample. Reshape your data: X[None] is a batch of one"
        )
    X = _validated(estimator, X, reset, tensors)
    given = tuple(X.shape)
    if sample_shape is not None and tuple(X.shape[1:]) != tuple(sample_shape):
        X = _fold(X, sample_shape)
    weigh = None
    if mask is not None or weights is not None or missing is not None:
        X, weigh = hide(X, missing, mask, weights, loss_exponent(estimator) > 0, given, not reset)
    data, unscaled, scale = as_scaled_data(X, device, dtype, signed=signed, fastest=weigh is None)
    if weigh is not None:
        data, unscaled = (weigh(data), weigh(unscaled)) if scale != 1 else (weigh(data),) * 2
        return Inputs(data, unscaled, unscaled, scale, as_torch, given)
    if isinstance(X, Data) and not signed and unscaled.smallest() < 0:
        raise ValueError(
            "Negative values in data passed to X; shift or clip them, or use SemiNMF, which takes negative data"
        )
    dense = isinstance(X, np.ndarray) or (isinstance(X, Tensor) and X.layout == torch.strided)
    whole = isinstance(X, Data) and X.in_memory and X.sums.alone
    if dense or (whole and X.order == 2):  # what graphs and kernels are made of
        X = unscaled.samples()
    return Inputs(data, unscaled, X, scale, as_torch, given)


def take_shard(estimator: Any, X: Any, reset: bool, weights: Any = None) -> Any:
    """Let data in whose samples are split over processes, as the estimator takes them; `transform` gets own rows.

    Anything else is returned as it is.
    """
    if not isinstance(X, Sharded):
        return X
    if not reset:
        return X.local
    name, takes = type(estimator).__name__, getattr(estimator, "_sharded", None)
    if takes is None:
        raise ValueError(f"X is Sharded, which {name} does not take; NMF, NTF or NGE do, or hand in one array")
    if weights is not None:
        raise ValueError("weights are of the rows of each process, and X is Sharded: use Sharded(X, weights=...)")
    asked = {"batch_size": getattr(estimator, "batch_size", None) is not None}
    asked["sketch"] = bool(getattr(estimator, "sketch", False))
    for parameter in (p for p, used in asked.items() if used):
        raise ValueError(f"{parameter} needs all samples in one process, and X is Sharded; leave it out")
    if X.weighted and not hasattr(estimator, "missing"):
        raise ValueError(f"X has weighted or missing entries, which {name} does not take")
    return X.split() if takes == "split" and not _couples_samples(estimator) else X.gathered()


def _couples_samples(estimator: Any) -> bool:
    """Tell whether rows of V may depend on each other: then every process needs all of them."""
    given = getattr(estimator, "penalties", None)
    own = given.get("V", ()) if isinstance(given, Mapping) else ()
    smooth = any(isinstance(p, Smooth) for p in (own if isinstance(own, Sequence) else [own]))
    by_chance = getattr(estimator, "transform_method", "") == "ridge" and estimator.ridge == "cv"
    return smooth or by_chance or getattr(estimator, "terms", None) is not None


def own_results(inputs: Inputs, found: dict[str, Any]) -> dict[str, Any]:
    """Cut what is published of every sample to those of this process, where several share the samples."""
    cut, restarts = inputs.data.sums.cut, found.get("restarts_", {})
    more = {"restarts_": restarts | {"embeddings": cut(restarts["embeddings"])}} if "embeddings" in restarts else {}
    return {**found, "embedding_": cut(found["embedding_"]), **more}


def as_float64(values: Any, device: torch.device) -> Tensor:
    """Move numbers to a device, as float64; arrays that are read-only (a model loaded as a memory map) are fine."""
    return to_torch(values).to(device, torch.float64)


def as_given(F: Tensor, inputs: Inputs) -> Any:
    """Return a result in the kind, on the device and in the dtype of the data."""
    return inputs.to_caller(inputs.in_range(F.to(inputs.data.device, inputs.data.dtype)))


def run_environment(data: Data) -> dict[str, str]:
    """List what `fit_info_` records of every fit: where, in which precision, with which versions."""
    versions = {"torch": torch.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
    where = {"device": str(data.device), "dtype": str(data.dtype).removeprefix("torch.")}
    return {**where, "nnfactor": VERSION, **versions}


def choose_device(device: Any, X: Any) -> torch.device:
    """Choose the working device: asked for, or the tensor's own, or CUDA when present, or the CPU.

    Data are moved between accelerators by the caller only.
    """
    there = X.device if isinstance(X, Tensor | Data) else None
    if there is not None and there.type == "meta":
        raise ValueError("X is on the meta device, which holds no numbers; hand in a tensor on 'cpu' or 'cuda'")
    if isinstance(device, str) and device == "auto":
        return there or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={device!r} is not a device; use 'auto', 'cpu', 'cuda' or 'cuda:i'") from None
    if chosen.type == "cuda" and (not torch.cuda.is_available() or (chosen.index or 0) >= torch.cuda.device_count()):
        raise ValueError(f"device={device!r}: torch sees {torch.cuda.device_count()} CUDA devices; use 'cpu' or 'auto'")
    try:
        torch.ones(1, device=chosen).cpu()
    except (RuntimeError, AssertionError, ImportError):  # torch says it of each kind in another way
        raise ValueError(f"device={device!r}: torch has no such device here; use 'cpu' or 'auto'") from None
    if there is not None and there.type not in ("cpu", chosen.type):
        raise ValueError(f"device={device!r} but X is on {there}; move X with X.to({device!r}) or use device='auto'")
    return chosen


def choose_dtype(dtype: Any) -> torch.dtype | None:
    """Choose the working precision, None for "auto": the data's own."""
    if isinstance(dtype, str) and dtype == "auto":
        return None
    known = {"float32": torch.float32, "float64": torch.float64}
    try:  # None is float64 to numpy
        name = np.dtype(str(dtype).removeprefix("torch.") if isinstance(dtype, str | torch.dtype) else dtype).name
    except TypeError:
        name = ""
    if dtype is None or name not in known:
        raise ValueError(f"dtype={dtype!r} is not supported; use 'auto', 'float32' or 'float64'")
    return known[name]


def _validated(estimator: Any, X: Any, reset: bool, tensors: bool) -> Any:
    """Check the order of an array; set (reset) or compare the estimator's feature count and names."""
    usual = type(X) is np.ndarray and X.dtype in (np.float32, np.float64)
    X = X if usual or isinstance(X, Tensor | Data) else _read_array(as_scipy(X))
    array = isinstance(X, np.ndarray)
    if isinstance(X, Tensor | Data) or (array and X.ndim > 2) or (not array and is_sparse_tensor(X)):
        if len(X.shape) < 2 or (len(X.shape) > 2 and not tensors):
            wanted = "at least 2 dimensions, samples first" if tensors else "2 dimensions (n_samples, n_features)"
            advice = "" if tensors else ", or use NTF, NGE or N2S2L, which take tensors"
            raise ValueError(f"X has shape {tuple(X.shape)}; it must have {wanted}. Reshape your data{advice}")
        if array:
            X = as_numbers(X)
            if 0 in X.shape:
                raise ValueError(f"X has shape {X.shape}; it must have no empty dimension")
        _count_features(estimator, prod(X.shape[1:]), reset)
        return X
    kept = {"accept_sparse": ["csr", "csc", "coo"], "dtype": [np.float64, np.float32], "ensure_all_finite": False}
    return validate_data(estimator, X, reset=reset, **kept)


def _read_array(X: Any) -> Any:
    """Read an array or a DataFrame as scikit-learn may convert it: masks, text and dates are refused before."""
    if is_sparse(X):
        return X
    if hasattr(X, "columns"):
        if not getattr(X.columns, "is_unique", True):
            twice = X.columns[X.columns.duplicated()][0]
            raise ValueError(f"X has several columns called {twice!r}; rename them, or hand in X.to_numpy()")
        refuse_text_columns(X, "X")
        half = all(dtype == np.float16 for dtype in getattr(X, "dtypes", (None,)))
        return X.astype(np.float32) if half else X
    X = as_array(X)
    if X.dtype.kind == "O":
        refuse_text(X, "X")
    elif X.dtype.kind == "c":
        raise ValueError("Complex data not supported: X holds complex numbers")
    else:
        refuse_other_than_real(X.dtype, "X")
    return X.astype(np.float32) if X.dtype == np.float16 else X


def _count_features(estimator: Any, n: int, reset: bool) -> None:
    if reset:
        estimator.n_features_in_ = n
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
    elif n != estimator.n_features_in_:
        name, known = type(estimator).__name__, estimator.n_features_in_
        raise ValueError(f"X has {n} features, but {name} is expecting {known} features as input")


def _fold(X: Any, sample_shape: tuple[int, ...]) -> Any:
    """Fold flattened rows to `(n, *sample_shape)`; of a sparse matrix into a sparse tensor."""
    if isinstance(X, Data):
        kind = f"X is {type(X).__name__} of shape {X.shape}"
        raise ValueError(f"{kind}, which sample_shape={tuple(sample_shape)} cannot fold; make data of the folded array")
    if len(X.shape) != 2 or prod(sample_shape) != X.shape[1]:
        wanted = f"(n_samples, {', '.join(map(str, sample_shape))})"
        if sorted(X.shape[1:]) == sorted(sample_shape):
            raise ValueError(f"X has shape {tuple(X.shape)}; it must be {wanted}: are its modes in another order?")
        raise ValueError(
            f"sample_shape={tuple(sample_shape)} has {prod(sample_shape)} entries, but X has shape {tuple(X.shape)}; "
            f"it must be (n_samples, {prod(sample_shape)}) or {wanted}"
        )
    shape = (X.shape[0], *sample_shape)
    if not is_sparse(X):
        return X.reshape(shape)
    X = to_csr(as_scipy(X)).tocoo()
    at = np.stack([X.row, *np.unravel_index(X.col, shape[1:])]).astype(np.int64)
    return torch.sparse_coo_tensor(
        torch.from_numpy(at), torch.from_numpy(X.data), shape, device="cpu", check_invariants=False
    )


def move_to_cpu(value: Any) -> Any:
    """Move the tensors in nested lists, tuples and dictionaries to the CPU."""
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, list | tuple):
        moved = [move_to_cpu(v) for v in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)  # a named tuple, or any other
    return {k: move_to_cpu(v) for k, v in value.items()} if type(value) is dict else value
