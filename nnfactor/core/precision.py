"""The precision of a run: no autocast, no denormals, and on CUDA, on request, products in TF32 at first."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

import numpy as np
import torch

SLOW = 1e-3  # relative fall of an objective from one reading to the next: TF32 rounds factors of a product to 5e-4

_asked: ContextVar[bool] = ContextVar("tf32_first", default=False)


@contextmanager
def strict_precision(device: torch.device) -> Iterator[None]:
    """Switch gradients and autocast off: products in the dtype of their factors. TF32 is as the caller has set it."""
    with denormals(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def denormals(kept: bool) -> Iterator[None]:
    """Keep denormal numbers meanwhile, in this thread, or take them for zeros.

    Multiplicative rules make entries that small, and CPUs need ten times as long for a product with them.
    """
    before = keeps_denormals()
    torch.set_flush_denormal(not kept)
    try:
        yield
    finally:
        torch.set_flush_denormal(not before)


def keeps_denormals() -> bool:
    """Tell whether the processor keeps denormal numbers, in this thread."""
    return sys.float_info.min * 0.5 != 0


@contextmanager
def tf32_first() -> Iterator[None]:
    """Let fits on CUDA begin with products in TF32, which NVIDIA's cards since 2020 compute several times faster.

    As soon as the objective of a problem falls by less than a thousandth from one reading to the next, the run takes
    float32 for all its problems and goes on to its usual stop: no problem stops in TF32, and the objective that is
    reached is that of a fit in float32, up to which optimum it ends in. Fits in float64 and on the CPU are as always;
    torch's own settings are what they were afterwards. A batch goes over as one, so that here, and here only, a problem
    may depend on its batch. A run that goes on from a checkpoint goes on in float32.

    Examples
    --------
    >>> import torch
    >>> from nnfactor import NMF
    >>> from nnfactor.core import tf32_first
    >>> with tf32_first():
    ...     model = NMF(2, random_state=0).fit(torch.rand(20, 10))
    """
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)


def begins_in_tf32(device: str, dtype: torch.dtype) -> bool:
    """Tell whether a run begins with products in TF32."""
    return _asked.get() and device == "cuda" and dtype == torch.float32


class ProductPrecision:
    """The precision of a run's products with float32 data; torch's setting is restored at the end.

    Parameters
    ----------
    coarse : bool
        Whether the run begins in TF32. If not, nothing is changed: products are as the caller has set them.
    """

    def __init__(self, coarse: bool) -> None:
        self.coarse, self._before = coarse, None

    def __enter__(self) -> "ProductPrecision":
        if self.coarse:
            self._before = _setting()
            _set("tf32")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            _set(self._before)

    def refine(self, before: np.ndarray, now: np.ndarray) -> bool:
        """Go over to float32 if an objective fell slowly, rose or is no number; tell whether that happened now."""
        if not self.coarse or bool((before - now > SLOW * now).all()):
            return False
        self.coarse = False
        _set("ieee")
        return True


def restart_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state that knows nothing of earlier products: copies of the factors, no memory of momentum."""
    kept = {key: value for key, value in state.items() if key not in ("memory", "objective", "kept")}
    return {**kept, "factors": {name: F.clone() for name, F in state["factors"].items()}}


def _setting() -> Any:
    matmul = torch.backends.cuda.matmul
    return matmul.fp32_precision if hasattr(matmul, "fp32_precision") else matmul.allow_tf32


def _set(value: Any) -> None:
    """Set the precision by the interface that torch has: since 2.9 the other one is deprecated."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        matmul.fp32_precision = value
    else:
        matmul.allow_tf32 = value == "tf32" if isinstance(value, str) else value
