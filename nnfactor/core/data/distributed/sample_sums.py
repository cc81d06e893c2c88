"""Sums over samples, by which everything but the rows of the sample factor is known."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...factors import column_norms, gram, gram_of_others, square_norms


class SampleSums:
    """Sums over the rows of the sample factor, all of which this process has.

    Terms, methods and estimators ask these, and none sums over samples by itself: `ProcessSums` adds what other
    processes hold.

    Attributes
    ----------
    held : int, optional
        Rows of the sample factor in this process. None: all of them.
    alone : bool
        Whether no other process works on the same samples.
    """

    held: int | None = None
    alone = True

    def gram_of_others(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Multiply the Grams of all factors but one, samples first: `(..., k, k)`."""
        return gram_of_others(factors, mode)

    def gram(self, V: Tensor) -> Tensor:
        """Compute `V'V`, `(..., k, k)`."""
        return gram(V)

    def square_norms(self, V: Tensor) -> Tensor:
        """Compute squared lengths of the columns, `(..., 1, k)`."""
        return square_norms(V)

    def column_norms(self, V: Tensor) -> Tensor:
        """Compute the lengths of the columns, `(..., 1, k)`, without overflow or underflow of the squares."""
        return column_norms(V)

    def orthonormal(self, Y: Tensor) -> Tensor:
        """Return orthonormal columns with the span of `Y (n, c)`, float64."""
        return torch.linalg.qr(Y)[0]

    def largest(self, number: float) -> float:
        """Find the largest of a number that every process has."""
        return number

    def same(self, value: Any) -> Any:
        """Return the value of the first process, in all."""
        return value

    def add(self, part: Tensor) -> Tensor:
        """Add a sum over rows of this process to those of the others."""
        return part

    def peak(self, part: Tensor) -> Tensor:
        """Find the largest of every entry over all processes."""
        return part

    def alike(self, make: Callable[[], Any]) -> Any:
        """Make something of what users give; where one process refuses it, all do."""
        return make()

    def common(self, told: list[str]) -> list[str]:
        """Keep what every process tells: what only some do is of their rows, not of all."""
        every = self.collect(told)
        return [one for one in told if all(one in others for others in every)]

    def collect(self, value: Any) -> list[Any]:
        """List what every process has, in the order of the ranks; all must ask."""
        return [value]

    def decide(self, value: Tensor) -> Tensor:
        """Return a value by which processes decide: that of the first, to the last bit."""
        return value

    def least(self, number: int) -> int:
        """Find the least of a whole number that every process has."""
        return number

    def own(self, V: Tensor) -> Tensor:
        """Return the rows of this process of a factor of all samples."""
        return V

    def join(self, given: Any, name: str) -> Any:
        """Return what users give for each sample (labels, a start, rows of a graph) for the rows of the factor."""
        return given

    def cut(self, found: Any) -> Any:
        """Return the rows `(..., n, k)` that this process publishes, of those of the factor."""
        return found

    def listeners(self, callbacks: Sequence[Callable[[Any], Any]], max_seconds: float | None) -> tuple[Any, Any]:
        """Return callbacks and a limit of seconds that end a run in all processes alike."""
        return callbacks, max_seconds


WHOLE = SampleSums()
