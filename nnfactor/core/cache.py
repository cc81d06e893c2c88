"""Products that are kept for as long as their inputs are the very same tensors."""

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


class TensorCache:
    """One kept value per key, returned again while its inputs have not changed.

    "Not changed" means identity and version: the same tensor objects, not written to since. The cache holds its inputs,
    so that none of their addresses can be used again. Values of inputs that record gradients (or of inference tensors,
    which carry no version, or of memory that others hold too, such as a numpy array's) are never kept. Autocast is off
    while a value is made, for what is kept outlives it. `data` are inputs of every value beside those of a call, in
    whatever memory; writes to them that leave no new version are not noticed.
    """

    def __init__(self, *data: Tensor) -> None:
        self.data = tuple(t for t in data if not t.is_inference())
        self._kept: dict[Hashable, tuple[list[tuple[int, int]], tuple[Tensor, ...], Any]] = {}

    def __call__(self, key: Hashable, inputs: Iterable[Tensor], make: Callable[[], Any]) -> Any:
        """Return `make()`, made again only when `inputs` are other tensors than last time under this key."""
        inputs = tuple(inputs)
        if any([t.requires_grad or t.is_inference() for t in inputs]):
            return without_autocast(make, (*inputs, *self.data))
        state = _state((*self.data, *inputs))
        seen = self._kept.get(key)
        if seen is None or seen[0] != state:
            value = without_autocast(make, (*inputs, *self.data))
            if isinstance(value, Tensor) and (value.requires_grad or value.is_inference()):
                return value
            if not all(map(owns_memory, inputs)):
                return value
            seen = self._kept[key] = (state, inputs, value)
        return seen[2]

    def known(self, key: Hashable, inputs: tuple[Tensor, ...]) -> Any:
        """Return what is kept of these inputs under this key, or None."""
        seen = self._kept.get(key)
        if not seen or any([t.is_inference() for t in inputs]):
            return None
        return seen[2] if seen[0] == _state((*self.data, *inputs)) else None

    def clear(self) -> None:
        """Drop all values and release their inputs."""
        self._kept.clear()


def owns_memory(F: Tensor) -> bool:
    """Tell whether torch allocated the memory of a tensor: what writes to it leaves a new version then."""
    return bool(F.untyped_storage().resizable())


def without_autocast(make: Callable[[], Value], inputs: Sequence[Tensor]) -> Value:
    """Call `make` in the precision of its inputs, which a caller's autocast would lower."""
    if not torch._C._is_any_autocast_enabled():  # a sweep asks twenty times, and the name of a device takes longer
        return make()
    device = inputs[0].device.type if inputs else "cpu"
    if device == "meta" or not torch.is_autocast_enabled(device):
        return make()
    with torch.autocast(device, enabled=False):
        return make()


def _state(inputs: tuple[Tensor, ...]) -> list[tuple[int, int]]:
    return [(id(t), t._version) for t in inputs]


def cached(F: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `make(F)`, kept for as long as `F` lives and is not written to: one value per tensor and function.

    Nothing is kept of memory that others hold too (a numpy array's). Writes to `F.data` are not noticed.
    """
    if F.requires_grad or F.is_inference():
        return without_autocast(partial(make, F), (F,))
    kept = _KEPT.get(id(F))
    if kept is None:  # a plain reference: several times faster than `weakref.finalize`
        kept = _KEPT[id(F)] = weakref.ref(F, partial(_forget, id(F))), {}
    known = kept[1]
    seen = known.get(make)
    if seen is None or seen[0] != F._version:
        value = without_autocast(partial(make, F), (F,))
        if value is F or value.is_inference() or value._base is F:  # a view costs nothing, and kept it would keep F
            return value
        if not owns_memory(F):
            return value
        seen = known[make] = (F._version, value)
    return seen[1]


# by address: what tells of the tensor's end, and a value with the tensor's version for every function
_KEPT: dict[int, tuple[weakref.ref, dict[Callable[[Tensor], Tensor], tuple[int, Tensor]]]] = {}


def _forget(address: int, reference: weakref.ref, kept: dict = _KEPT) -> None:
    """Drop what was kept of a tensor that is gone, by the address that it had."""
    kept.pop(address, None)


def tiny(dtype: torch.dtype) -> float:
    """Return the smallest normal number of `dtype`: a floor that changes nothing above it."""
    return torch.finfo(dtype).tiny
