"""Model files: fitted estimators as one safetensors file, read without executing code.

The tensors of an estimator are the tensors of the file. Its parameters and all else are JSON in the file's metadata,
under "nnfactor", beside the version of the format and a SHA-256 checksum of everything. Classes are named, and only
those that are registered are made.
"""

import hashlib
import importlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..version import VERSION
from .complete_files import replacing

FORMAT = 1  # a file of format n is read by every later version; raise it when older ones could not read what is new

REGISTERED: dict[str, type] = {}  # classes that a file may hold, by name

PLAIN = (bool, int, str, type(None))


def register(*classes: type) -> None:
    """Allow instances of classes in model files; each is known by its name."""
    REGISTERED.update({cls.__name__: cls for cls in classes})


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a file: completely, or not at all.

    Parameters
    ----------
    model : estimator of nnfactor, fitted or not
    path : str or path
        An existing file is replaced.

    Raises
    ------
    TypeError
        Something that a file cannot hold: a function, a random generator, terms of your own, an estimator of another
        package. The message names where it is.
    OSError
        The folder does not exist or cannot be written to.
    """
    text, tensors = encode(model)
    metadata = {"nnfactor": text, "format": str(FORMAT), "version": VERSION, "sha256": _checksum(text, tensors)}
    with replacing(Path(path)) as unfinished:
        with open(unfinished, "wb") as file:  # a missing folder is an OSError, whatever safetensors says
            mode = os.fstat(file.fileno()).st_mode
        save_file(tensors, unfinished, metadata=metadata)
        os.chmod(unfinished, mode)  # as any file of the user, whatever safetensors made of it


def encode(model: Any) -> tuple[str, dict[str, Tensor]]:
    """Return what the file of a model holds: text, and arrays by name; refuse what a file cannot hold, as `save`."""
    tensors: dict[str, Tensor] = {}
    content = _encode(model, type(model).__name__, tensors)
    if not (isinstance(content, dict) and "$object" in content):
        raise TypeError(f"model is a {type(model).__name__}, which is no estimator of nnfactor")
    return json.dumps(content, allow_nan=False, separators=(",", ":")), tensors


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote, onto the CPU; nothing in the file is executed.

    Returns
    -------
    The estimator; its tensors are on the CPU, and later data decide where it works.

    Raises
    ------
    ValueError
        A file that is damaged, truncated, of another program, of a newer format, or that names an unknown class.
    OSError
        No file, or none that can be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import nnfactor
    >>> model = nnfactor.NMF(1, random_state=0).fit([[1.0, 2.0], [2.0, 4.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(os.path.join(folder, "model.safetensors"))
    ...     again = nnfactor.load(os.path.join(folder, "model.safetensors"))
    >>> bool((again.components_ == model.components_).all())
    True
    """
    with open(path, "rb"):  # a missing file is an OSError, whatever safetensors says
        pass
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, truncated or no model file: {error}") from None
    if "nnfactor" not in metadata:
        raise ValueError(f"{path} is a safetensors file of another program: it holds no model of nnfactor")
    kind = metadata.get("format", "")
    if not kind.isdecimal() or int(kind) > FORMAT:
        raise ValueError(
            f"{path} has format {kind}, written by nnfactor {metadata.get('version')}; this version, {VERSION}, reads "
            f"up to format {FORMAT}: install a newer one"
        )
    if _checksum(metadata["nnfactor"], tensors) != metadata.get("sha256"):
        raise ValueError(f"{path} is damaged: its checksum is not that of its content")
    return _decode(json.loads(metadata["nnfactor"]), tensors, str(path))


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    """Sum up text, names, kinds and bytes."""
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        A = tensors[name].contiguous()
        total.update(f"{name} {A.dtype} {tuple(A.shape)}".encode())
        total.update(A.reshape(-1).view(torch.uint8).numpy().data if A.numel() else b"")
    return total.hexdigest()


def _encode(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """Turn a value into JSON; arrays go to `tensors`, and are named in their place."""
    again = lambda v, part: _encode(v, f"{where}{part}", tensors)
    if type(value) in PLAIN:
        return value
    if isinstance(value, torch.torch_version.TorchVersion | np.str_):
        return str(value)
    if isinstance(value, float) and type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.generic):
        return {"$scalar": value.dtype.str, "value": again(value.item(), "")}
    if isinstance(value, Tensor):
        return {"$tensor": _keep(value.detach().cpu(), tensors)}
    if isinstance(value, np.ndarray):
        return _encode_array(value, where, tensors)
    if sp.issparse(value) and value.format == "csr":
        parts = {name: again(getattr(value, name), f".{name}") for name in ("data", "indices", "indptr")}
        return {"$csr": list(map(int, value.shape)), **parts}
    if isinstance(value, torch.device | torch.dtype):
        return {"$torch": type(value).__name__, "value": str(value).removeprefix("torch.")}
    if type(value) in (list, tuple):
        items = [again(v, f"[{i}]") for i, v in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        return {"$dict": [[again(k, ".key"), again(v, f"[{k!r}]")] for k, v in value.items()]}
    if isinstance(value, slice):
        return {"$slice": [again(v, "") for v in (value.start, value.stop, value.step)]}
    if REGISTERED.get(type(value).__name__) is type(value):
        state: Any = value.__getstate__() if hasattr(value, "__getstate__") else vars(value)
        named = [[name, again(v, f".{name}")] for name, v in dict(state).items()]
        return {"$object": type(value).__name__, "state": {"$dict": named}}
    raise TypeError(
        f"{where} is {value!r}, which a model file cannot hold; set it to None or a number before saving, or pickle "
        "the model"
    )


def _encode_array(value: np.ndarray, where: str, tensors: dict[str, Tensor]) -> Any:
    """Keep numbers as a tensor; text and objects, such as labels of classes, as a list."""
    if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        native = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
        stored = native.view(f"i{native.itemsize}") if native.dtype.kind == "u" and native.itemsize > 1 else native
        order = "F" if value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        name = _keep(torch.from_numpy(stored.copy()), tensors)
        return {"$array": name, "dtype": native.dtype.str, "order": order}
    items = [_encode(v, f"{where}[{i}]", tensors) for i, v in enumerate(value.ravel().tolist())]
    return {"$objects": items, "dtype": value.dtype.str, "shape": list(value.shape)}


def _keep(A: Tensor, tensors: dict[str, Tensor]) -> str:
    name = f"t{len(tensors)}"
    tensors[name] = A.contiguous().clone()
    return name


def _decode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Make the value again."""
    again = lambda v: _decode(v, tensors, path)
    if isinstance(value, list):
        return [again(v) for v in value]
    if not isinstance(value, dict):
        return value
    kind = next((key for key in value if key in DECODERS), None)
    if kind is None:
        raise ValueError(f"{path} holds {sorted(value)[:1]}, which this version does not know")
    return DECODERS[kind](value, again, tensors, path)


def _decode_array(value: Any, again: Any, tensors: dict[str, Tensor], path: str) -> np.ndarray:
    A = tensors[value["$array"]].numpy()
    return np.array(A.view(np.dtype(value["dtype"])), order=value["order"])


def _decode_objects(value: Any, again: Any, tensors: dict[str, Tensor], path: str) -> np.ndarray:
    A = np.empty(len(value["$objects"]), dtype=np.dtype(value["dtype"]))
    A[:] = again(value["$objects"])
    return A.reshape(value["shape"])


def _decode_object(value: Any, again: Any, tensors: dict[str, Tensor], path: str) -> Any:
    name = value["$object"]
    if name not in REGISTERED:  # the package imports its classes, and these register, when they are first used
        importlib.import_module(f"{__name__.partition('.')[0]}.models")
    if name not in REGISTERED:
        raise ValueError(f"{path} holds a {name}, which is no class that a model file may hold")
    made: Any = object.__new__(REGISTERED[name])
    state = again(value["state"])
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        vars(made).update(state)
    return made


def _decode_csr(value: Any, again: Any, tensors: dict[str, Tensor], path: str) -> sp.csr_array:
    return sp.csr_array(tuple(again(value[name]) for name in ("data", "indices", "indptr")), shape=tuple(value["$csr"]))


def _decode_torch(value: Any, again: Any, tensors: dict[str, Tensor], path: str) -> Any:
    if value["$torch"] == "device":
        return torch.device(value["value"])
    found = getattr(torch, value["value"], None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{path} names the dtype {value['value']!r}, which torch does not have")
    return found


DECODERS: dict[str, Callable[..., Any]] = {
    "$float": lambda value, again, tensors, path: float(value["$float"]),
    "$scalar": lambda value, again, tensors, path: np.dtype(value["$scalar"]).type(again(value["value"])),
    "$tensor": lambda value, again, tensors, path: tensors[value["$tensor"]].clone(),
    "$array": _decode_array,
    "$objects": _decode_objects,
    "$csr": _decode_csr,
    "$torch": _decode_torch,
    "$tuple": lambda value, again, tensors, path: tuple(again(value["$tuple"])),
    "$dict": lambda value, again, tensors, path: {again(k): again(v) for k, v in value["$dict"]},
    "$slice": lambda value, again, tensors, path: slice(*again(value["$slice"])),
    "$object": _decode_object,
}
