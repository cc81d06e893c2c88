"""Arrays as users hand them in: read as numbers, or refused by name where numpy would drop or reinterpret something."""

from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray | Tensor  # a result: in the kind of X

TEXT = (str, bytes, np.datetime64, np.timedelta64, date, time, timedelta)  # numpy turns these into numbers


def as_numbers(values: Any, name: str = "X") -> np.ndarray:
    """Read anything array-like as real numbers: no copy of what numpy holds, objects that are numbers as float64.

    Raises
    ------
    ValueError
        A mask that hides something; text, dates, durations, complex numbers; None, a dictionary or an iterator.
    """
    A = as_array(values, name)
    if A.dtype.kind == "O":
        if hasattr(values, "columns"):
            refuse_text_columns(values, name)
        refuse_text(A, name)
        A = A.astype(np.float64)
    refuse_other_than_real(A.dtype, name)
    return A


def as_array(values: Any, name: str = "X") -> np.ndarray:
    """Read anything array-like as numpy; refuse a mask that hides something, and what is no array."""
    if values is None or isinstance(values, Mapping | Iterator):
        kind = "None" if values is None else f"a {type(values).__name__}"
        raise ValueError(f"{name} is {kind}; it must be an array, or, where several are taken, a list of arrays")
    refuse_masked(values, name)
    A = np.asanyarray(values)  # keeps a mask that `__array__` of another class gives
    refuse_masked(A, name)
    return np.asarray(A)


def refuse_masked(values: Any, name: str) -> None:
    """Raise a ValueError if a masked array, or one inside of a list, hides an entry: numpy would read it as it is."""
    hidden = _count_masked(values)
    if hidden:
        entries = "1 masked entry" if hidden == 1 else f"{hidden} masked entries"
        raise ValueError(
            f"{name} is a masked array with {entries}, which would be read as if they were not masked; fill them, as "
            f"in {name}.filled(0), or leave out their samples (an array with nothing masked is fine)"
        )


def refuse_text(A: np.ndarray, name: str) -> None:
    """Raise a ValueError if an array of objects holds text, a date or a duration."""
    for value in A.flat:
        if isinstance(value, TEXT):
            raise ValueError(
                f"{name} holds {type(value).__name__} such as {value!r}; it must hold real numbers (complex, text and "
                "dates are not supported)"
            )


def refuse_text_columns(frame: Any, name: str) -> None:
    """Raise a ValueError that names the first column of a DataFrame with text, dates or durations."""
    for i, (label, dtype) in enumerate(zip(frame.columns, getattr(frame, "dtypes", ()), strict=False)):
        if getattr(dtype, "kind", "O") not in "fiubc":
            column = as_array(frame.iloc[:, i] if hasattr(frame, "iloc") else frame[label], name)
            called = f"{name}: column {label!r}"
            refuse_text(column, called) if column.dtype.kind == "O" else refuse_other_than_real(column.dtype, called)


def refuse_other_than_real(dtype: np.dtype, name: str) -> None:
    """Raise a ValueError if a dtype is not one of real numbers."""
    if dtype.kind not in "fiub":
        raise ValueError(
            f"{name} has dtype {dtype}; it must hold real numbers (complex, text and dates are not supported)"
        )


def float_type(dtype: np.dtype) -> type:
    """Choose the precision that numbers of a dtype are read in."""
    return np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64


def share_memory(A: np.ndarray) -> Tensor:
    """Make a float32 or float64 tensor on the memory of an array, also of a read-only one: nobody may write to it.

    A copy is made of what torch cannot hold: another byte order, negative strides, other dtypes.
    """
    A = A.astype(float_type(A.dtype), copy=False)
    A = A.copy() if any(s < 0 for s in A.strides) else A
    return torch.from_numpy(A if A.flags.writeable else np.asarray(_Writable(A)))


class _Writable:
    """The memory of a read-only array, as numpy may take it for writable; torch warns of any other."""

    def __init__(self, A: np.ndarray) -> None:
        self.owner, described = A, A.__array_interface__
        self.__array_interface__ = {**described, "data": (described["data"][0], False)}


def _count_masked(values: Any) -> int:
    """Count the entries that a masked array, or several in a nested list, hide."""
    if isinstance(values, np.ma.MaskedArray):
        return int(np.ma.count_masked(values))
    if isinstance(values, list | tuple):
        return sum(_count_masked(v) for v in values if isinstance(v, list | tuple | np.ma.MaskedArray))
    return 0
