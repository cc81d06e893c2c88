"""Hierarchical alternating least squares: exact minimisation over one column after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..block import Block
from .base import bound_curvature, collect_linear, split_gram

WIDE, NARROW = 64, 16  # columns of a factor that HALS works on between two matrix products, at most

SLAB_ENTRIES = 65_536  # of a narrow slab on the CPU: more leave the cache between two columns


def hals(F: Tensor, block: Block, sweeps: int = 1) -> Tensor:
    """Exact minimisation over one column after the other (Cichocki and Phan 2009), `sweeps` times for one pull.

    The Gram may have any sign. Graphs couple rows but never columns: with D - S <= 2 D each column still has a closed
    form, from one sparse product per sweep. The floor is exactly 0; a column whose curvature is 0 (to
    rounding, against the largest) stays as it is: dividing by it would overflow.
    """
    if torch.is_grad_enabled():  # never inside `run`; columns are written in place
        with torch.no_grad():
            return hals(F, block, sweeps)
    G, rest = split_gram(block, F, "hals")
    curvature = bound_curvature(G.diagonal(dim1=-2, dim2=-1).unsqueeze(-2), rest, F)
    floor = torch.finfo(F.dtype).eps ** 2 * curvature.amax((-2, -1), keepdim=True)
    inverse = torch.where(curvature > floor, curvature.reciprocal(), 0)
    scale: Tensor | None = None
    steps: Tensor | None = inverse
    if inverse.shape[-2] == 1:  # the same step for all rows: it moves out of the loop over the columns
        G, scale, steps = G * inverse.mT, inverse, None
        G.diagonal(dim1=-2, dim2=-1).sub_(1)
    F = F.mT.clone(memory_format=torch.contiguous_format).mT  # never F itself
    linear = _flat(collect_linear(block, rest, F), scale)
    sweep = _hals_sweep(_flat(F), linear, _flat(G.mT), None if steps is None else _flat(steps))
    for i in range(sweeps):
        if i and rest:
            linear.copy_(_flat(collect_linear(block, rest, F), scale))
        sweep()
    return F


def _flat(F: Tensor, scale: Tensor | None = None) -> Tensor:
    """`(..., n, k)`, scaled, as `(B, k, n)`, of a single problem as `(k, n)`; a view where that is possible."""
    rows = (F if scale is None else F * scale).mT
    if rows.dim() == 2:
        return rows
    rows = rows.reshape(-1, *rows.shape[-2:])
    return rows[0] if len(rows) == 1 else rows


def _hals_sweep(F: Tensor, linear: Tensor, G: Tensor, steps: Tensor | None) -> Callable[[], None]:
    """One pass over the columns of F, in place, at every call: (B, k, n), (B, k, n), (B, k, k), (B, k, n) or without B.

    A column becomes `max(0, f + (linear - F g) steps)`, without steps `max(0, linear - F g)`. All views are made once:
    on small data they would cost as much as the arithmetic.
    """
    rooms = [F.new_empty(*F.shape[:-2], width, F.shape[-1]) for width in _slab_widths(F)]
    return _by_slabs(F, linear, G, steps, rooms, _columns(rooms[-1]))


def _by_slabs(
    F: Tensor, linear: Tensor, G: Tensor, steps: Tensor | None, rooms: Sequence[Tensor], columns: Sequence[Tensor]
) -> Callable[[], None]:
    """The columns in slabs, and those in narrower ones: inside a slab only its own columns are read.

    What the other slabs contribute does not change meanwhile and is one matrix product. `rooms` for it are as wide as
    the slabs, from outside to inside, and serve all slabs in turn: they stay in the cache. `columns` are the last's.
    """
    minus = torch.addmm if F.dim() == 2 else torch.baddbmm
    slabs = []
    for slab in _evenly(F.shape[-2], rooms[0].shape[-2]):
        given, others = linear[..., slab, :], _off_slab(G, slab)
        inside, length = F[..., slab, :], None if steps is None else steps[..., slab, :]
        rest, G_inside = rooms[0][..., : slab.stop - slab.start, :], G[..., slab, slab]
        if len(rooms) > 1:
            own = _by_slabs(inside, rest, G_inside, length, rooms[1:], columns)
        else:
            own = _by_columns(inside, columns, G_inside, length)
        slabs.append((given, rest, others, own))

    def sweep() -> None:
        for given, rest, others, own in slabs:
            if others is None:
                rest.copy_(given)
            else:
                minus(given, others, F, alpha=-1, out=rest)
            own()

    return sweep


def _by_columns(F: Tensor, rest: Sequence[Tensor], G: Tensor, steps: Tensor | None) -> Callable[[], None]:
    """One column after the other, by one small vector product each; `rest` is used up."""
    alone, fs = F.dim() == 2, _columns(F)
    lengths = [None] * len(fs) if steps is None else _columns(steps)
    columns = list(zip(fs, rest, _columns(G), lengths, strict=False))  # the last slab may be narrower than its room
    F = F.mT if alone else F

    def sweep() -> None:
        for f, r, g, step in columns:
            left = r.addmv_(F, g, alpha=-1) if alone else torch.baddbmm(r, g, F, alpha=-1)
            if step is None:
                torch.clamp_min(left, 0, out=f)
            else:
                f.addcmul_(left, step).clamp_(min=0)

    return sweep


def _columns(F: Tensor) -> Sequence[Tensor]:
    """Views of `(k, n)`, or `(B, 1, n)` of `(B, k, n)`."""
    return F.unbind() if F.dim() == 2 else F.split(1, dim=1)


def _slab_widths(F: Tensor) -> list[int]:
    """How many columns, from outside to inside: a wide slab saves reading F, a narrow one stays in the cache."""
    k, n = F.shape[-2:]
    if not F.is_cpu:
        return [min(WIDE // 2, k)]
    few = k <= 2 * NARROW and k * n <= SLAB_ENTRIES
    narrow = k if few else min(NARROW, max(8, SLAB_ENTRIES // n), k)
    return [WIDE, narrow] if k > WIDE else [narrow]


def _evenly(k: int, width: int) -> list[slice]:
    """All k columns in as few slabs as the width allows, about equally wide."""
    width = -(-k // -(-k // width))
    return [slice(a, min(a + width, k)) for a in range(0, k, width)]


def _off_slab(G: Tensor, slab: slice) -> Tensor | None:
    """The slab's rows of G, zero inside the slab; None if nothing is outside."""
    if slab.stop - slab.start == G.shape[-1]:
        return None
    G = G[..., slab, :].clone()
    G[..., slab] = 0
    return G
