"""Lengths of columns where several CP models share factors: what may be moved between them, starts, and order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import log

import torch
from torch import Tensor

from ..data.base import Data
from ..factors import as_factor, column_norms, draw_factor


@dataclass(frozen=True)
class Lengths:
    """What lengths of columns may change without a change of any model.

    Logarithms of lengths, one for each mode, may move in the null space of the incidence matrix of tensors and modes.
    """

    names: tuple[str, ...]
    modes: Sequence[Sequence[str]]
    apart: float

    def bound(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Bring components whose free part of the lengths exceeds `apart` to lengths without that part.

        For one tensor that is its CP model with lengths that are equal. A component with a zero column stays.
        """
        some = [factors[name] for name in self.names]
        logs = torch.cat([column_norms(F) for F in some], dim=-2).double().log()
        alive = torch.isfinite(logs).all(-2, keepdim=True)
        free = self.free(logs.device) @ torch.where(alive, logs, 0)
        far = free.abs().amax(-2, keepdim=True) > log(self.apart)
        times = torch.where(far & alive, (-free).exp(), 1).to(some[0].dtype).split(1, dim=-2)
        return {**factors, **{n: F * c for n, F, c in zip(self.names, some, times, strict=True)}}

    def free(self, device: torch.device) -> Tensor:
        """Compute the projection on the moves that change nothing, `(modes, modes)`."""
        A = incidence(self.names, self.modes)
        return (torch.eye(len(self.names), dtype=A.dtype, device="cpu") - torch.linalg.pinv(A) @ A).to(device)


def incidence(names: Sequence[str], modes: Sequence[Sequence[str]]) -> Tensor:
    """Tell which tensor has which mode, float64 `(tensors, modes)`."""
    return torch.tensor([[float(n in own) for n in names] for own in modes], dtype=torch.float64, device="cpu")


def draw_coupled(
    shapes: dict[str, tuple[int, int]], modes: Sequence[Sequence[str]], data: Sequence[Data], seed: int
) -> dict[str, Tensor]:
    """Draw |normal| factors whose models have the means of the data, as nearly as shared factors allow.

    Modes are scaled by the shortest vector of logarithms that gives these means.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    like = data[0]
    drawn = {name: draw_factor(d, k, generator, like.device) for name, (d, k) in shapes.items()}
    means = {name: F.mean(0) for name, F in drawn.items()}
    wanted = [float(X.mean()) for X in data]
    now = [float(torch.stack([means[m] for m in own]).prod(0).sum()) for own in modes]
    logs = [log(w / n) if w > 0 else 0.0 for w, n in zip(wanted, now, strict=True)]
    short = torch.tensor(logs, dtype=torch.float64, device="cpu")
    steps = (torch.linalg.pinv(incidence(list(shapes), modes)) @ short).exp().tolist()
    return {name: (F * c).to(like.dtype) for (name, F), c in zip(drawn.items(), steps, strict=True)}


def sort_coupled(
    names: Sequence[str], modes: Sequence[Sequence[str]], weights: Sequence[float], factors: list[Tensor]
) -> list[Tensor]:
    """Sort components by falling energy in all tensors, each by its weight; equal ones keep their order."""
    lengths = {name: column_norms(F).double() for name, F in zip(names, factors, strict=True)}
    square = lambda own: reduce(torch.mul, (lengths[m].square() for m in own))
    energies = [w * square(own) for w, own in zip(weights, modes, strict=True)]
    order = reduce(torch.add, energies).argsort(dim=-1, descending=True, stable=True)
    return [as_factor(F.take_along_dim(order, -1)) for F in factors]
