"""Keys that are equal for values that mean the same: what one batch may hold, and what estimators may share."""

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from math import isfinite
from numbers import Real
from typing import Any

import torch

from .base import Term
from .fit import DataTerm


def identity_of(value: Any) -> Hashable:
    """Return a key that is equal for equal plain values and containers of them; other objects count by address.

    The number that is a term's weight is left out (it may differ within a batch), as is what the term sets itself, and
    of small data nothing counts but what `Stacked` needs to be equal.
    """
    if value is None or isinstance(value, str | int | float | bool | torch.dtype | torch.device):
        return type(value).__name__, value
    if isinstance(value, tuple | list):
        return tuple(map(identity_of, value))
    if isinstance(value, Mapping):
        return tuple((name, identity_of(v)) for name, v in value.items())
    if isinstance(value, slice):
        return value.start, value.stop
    if isinstance(value, partial):
        return value.func, identity_of(value.args), identity_of(value.keywords)
    if hasattr(value, "get_params") and not isinstance(value, type):  # an estimator of scikit-learn's kind
        return type(value).__name__, identity_of(value.get_params(deep=False))
    if isinstance(value, Term) and is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in fields(value) if f.init and f.name != "cache"}
        if isinstance(given.get("weight"), Real) and isfinite(given["weight"]):
            del given["weight"]
        if isinstance(value, DataTerm) and value.stacks_data and value.data.stack_key is not None:
            return type(value), value.data.stack_key, identity_of({**given, "data": None})
        return type(value), identity_of(given)
    return getattr(value, "identity", id(value))
