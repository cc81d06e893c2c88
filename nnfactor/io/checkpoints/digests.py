"""Digests of data and parameters: by them a checkpoint knows that it is of this fit and no other."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ...core.cache import TensorCache

WHOLE = 1 << 32  # bytes of an array that are read one by one, in a second or four; of a larger one samples are
PIECE = 1 << 24  # bytes that are read at once

PLAIN = (bool, int, float, str, bytes, type(None))


def describe_value(value: Any) -> str:
    """Describe a parameter so that equal values have equal descriptions: short ones as they are written in Python."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, PLAIN) and len(repr(value)) < 60:
        return repr(value)
    if isinstance(value, list | tuple) and len(value) < 10 and all(isinstance(v, PLAIN) for v in value):
        return repr(value)
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return type(value).__name__  # its state has moved on
    shape = f" {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"{type(value).__name__}{shape} with digest {digest(value)}"


def digest(value: Any) -> str:
    """Sum up a value of any kind, 16 digits: arrays by their bytes, objects by their class and what they hold."""
    walk = _Walk()
    walk.add(value)
    return walk.sum.hexdigest()


class _Walk:
    """A walk through a value; what stands in several places is read once."""

    def __init__(self) -> None:
        self.sum = hashlib.blake2b(digest_size=8)
        self.seen: dict[Any, int] = {}
        self.alive: list[Any] = []  # so that no address is used twice

    def add(self, value: Any) -> None:
        """Add a value."""
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, PLAIN):
            self.tell(repr(value))
        elif isinstance(value, torch.dtype | np.dtype | torch.layout):
            self.tell(str(value))
        elif isinstance(value, torch.device):
            self.tell(value.type)
        elif isinstance(value, TensorCache):
            return
        elif isinstance(value, MethodType):
            self.each((value.__func__, value.__self__))
        elif isinstance(value, FunctionType) and self.is_new(value):
            self.add_function(value)
        elif isinstance(value, BuiltinFunctionType | ModuleType | type | np.ufunc):
            self.tell(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}")
        elif self.is_new(value):
            self.add_parts(value)

    def add_function(self, value: FunctionType) -> None:
        """Add a function: two of one name may differ in their code, in what they enclose, and in their defaults."""
        self.tell(f"{value.__module__}.{value.__qualname__}")
        self.add_code(value.__code__)
        cells = value.__closure__ or ()
        self.each((value.__defaults__, value.__kwdefaults__, [cell.cell_contents for cell in cells]))

    def add_code(self, code: CodeType) -> None:
        """Add what a function does, without its place in a file."""
        self.each((code.co_code, code.co_names, code.co_varnames))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.add_code(constant)
            else:
                self.add(constant)

    def add_parts(self, value: Any) -> None:
        """Add what a value is made of."""
        self.tell(type(value).__name__)
        if isinstance(value, Tensor | np.ndarray):
            self.add_array(value)
        elif isinstance(value, partial):
            self.each((value.func, value.args, value.keywords))
        elif sp.issparse(value):
            parts = value.tocsr() if value.ndim == 2 else value.tocoo()
            index = (parts.indptr, parts.indices) if value.ndim == 2 else parts.coords
            self.each((tuple(value.shape), parts.data, *index))
        elif isinstance(value, Mapping):
            self.each(part for item in value.items() for part in item)
        elif isinstance(value, list | tuple):
            self.each(value)
        elif isinstance(value, set | frozenset):
            self.each(sorted(value, key=repr))
        elif hasattr(value, "to_numpy"):  # a table or a column of one
            self.each((list(getattr(value, "columns", ())), np.asarray(value)))
        elif isinstance(value, np.random.Generator | np.random.RandomState):
            return
        else:
            state, cls = value.__getstate__(), type(value)
            held = state if isinstance(state, Mapping) else {}
            made_when_asked = lambda name: isinstance(getattr(cls, name, None), cached_property)
            names = [name for name in sorted(held) if name != "identity" and not made_when_asked(name)]
            self.each(part for name in names for part in (name, held[name]))

    def each(self, values: Any) -> None:
        """Add several values, and that they end."""
        for value in values:
            self.add(value)
        self.tell("end")

    def tell(self, text: str) -> None:
        """Add a text."""
        self.sum.update(f"{len(text)} {text}".encode())

    def is_new(self, value: Any) -> bool:
        """Tell whether a value was not read before; if it was, add where."""
        key: Any = id(value)
        if isinstance(value, Tensor) and value.layout == torch.strided:
            key = value.data_ptr(), tuple(value.shape), value.stride(), value.dtype
        if key in self.seen:
            self.tell(f"again {self.seen[key]}")
            return False
        self.seen[key] = len(self.seen)
        self.alive.append(value)
        return True

    def add_array(self, value: Any) -> None:
        """Add kind, shape and bytes of an array or tensor."""
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biufc":
                self.each((value.shape, value.ravel().tolist()))
                return
            self.each((value.shape, value.dtype.str))
            native = value.astype(value.dtype.newbyteorder("="), copy=False)
            self.add_bytes(native.nbytes, lambda: _pieces(native))
            return
        self.each((tuple(value.shape), value.dtype, value.device))
        if value.layout != torch.strided:
            parts = value.coalesce() if value.layout == torch.sparse_coo else value.to_sparse_coo()
            self.each((parts.indices(), parts.values()))
            return
        self.add_bytes(value.nbytes, lambda: (piece.detach().cpu().numpy() for piece in _pieces(value)))

    def add_bytes(self, size: int, pieces: Callable[[], Iterator[np.ndarray]]) -> None:
        """Add the bytes of an array; of a large one those of some pieces, and a sum over all of them."""
        every = max(1, size // WHOLE)
        for i, piece in enumerate(pieces()):
            flat = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
            if i % every == 0:
                self.sum.update(flat.data)
            if every > 1:
                words = flat[: flat.size // 8 * 8].view(np.uint64)
                self.tell(str(int(words.sum(dtype=np.uint64))))  # modulo 2^64: exact, in any order


def _pieces(A: Any) -> Iterator[Any]:
    """Cut an array along its first dimension into pieces of about `PIECE` bytes."""
    if A.ndim == 0 or len(A) == 0:
        return iter([A])
    step = max(1, PIECE * len(A) // max(1, A.nbytes))
    return (A[i : i + step] for i in range(0, len(A), step))
