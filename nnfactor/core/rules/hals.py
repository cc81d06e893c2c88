"""Hierarchical alternating least squares: minimisation over one column after the other."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ..block import Block
from ..compiled import compiled_loops
from ..factors import clone_factor, components, flatten_problems
from .base import bound_curvature, collect_linear, split_gram
from .constraints import Box

Bounds = tuple[Tensor, Tensor]  # the least and the largest entries of a factor
WIDE, NARROW = 64, 16  # columns of a factor between two matrix products, at most: a wider slab leaves the cache
SLAB_ENTRIES = 65_536  # of a narrow slab on the CPU: more of them leave the cache between two columns


def hals(F: Tensor, block: Block, sweeps: int = 1, within: Box | None = None) -> Tensor:
    """Minimise over one column after the other (Cichocki and Phan 2009), `sweeps` times for one product with the data.

    `f_j = max(0, f_j + (m_j - F g_j) / g_jj)` for a fit alone: m_j is column j of its product with the data, G its Gram
    (entries of any sign). Graphs couple rows, never columns: with D - S <= 2 D each column still has a closed form, and
    a sweep takes one sparse product. A column whose curvature is 0 (to rounding, against the largest) stays as it is.
    With a Gram for each row every row is minimised by its own, exactly as well. `within` has other bounds of the
    entries than 0 and infinity; those whose bounds are equal are fixed.
    """
    if torch.is_grad_enabled():  # columns are written in place
        with torch.no_grad():
            return hals(F, block, sweeps, within)
    bounds = None if within is None else _entries_of(within, F)
    if block.row_grams is not None:
        return _by_own_grams(F, block, sweeps, bounds)
    G, rest = split_gram(block, F, "hals")
    loops = compiled_loops("columns", F, G)
    if loops and not rest:
        return _by_tiles(loops, F, collect_linear(block, rest, F), G, None, bounds, sweeps)
    curvature = bound_curvature(G.diagonal(dim1=-2, dim2=-1).unsqueeze(-2), rest, F)
    floor = torch.finfo(F.dtype).eps ** 2 * curvature.amax((-2, -1), keepdim=True)
    inverse = torch.where(curvature > floor, curvature.reciprocal(), 0)
    if loops:
        for _ in range(sweeps):
            F = _by_tiles(loops, F, collect_linear(block, rest, F), G, inverse, bounds, 1)
        return F
    scale: Tensor | None = None
    steps: Tensor | None = None
    if inverse.shape[-2] == 1:  # the same step for all rows: it moves out of the loop over the columns
        G, scale = G * inverse.squeeze(-2).unsqueeze(-1), inverse
        G.diagonal(dim1=-2, dim2=-1).sub_(1)
    else:
        steps = components(inverse)
    F = clone_factor(F)  # the caller keeps its own
    linear, columns = components(collect_linear(block, rest, F), scale), components(F)
    buffers = [columns.new_empty(*columns.shape[:-2], w, columns.shape[-1]) for w in _slab_widths(columns)]
    limits = _limits_of_columns(bounds, columns)
    sweep = _by_slabs(columns, linear, flatten_problems(G), steps, limits, buffers, _columns(buffers[-1]))
    for i in range(sweeps):
        if i and rest:
            linear.copy_(components(collect_linear(block, rest, F), scale))
        sweep()
    return F


def _entries_of(within: Box, F: Tensor) -> Bounds:
    """Return the bounds of the entries, `(B or 1, k, n or 1)` each."""
    known = lambda b: (
        b.mT.reshape(-1, *b.mT.shape[-2:]) if isinstance(b, Tensor) else F.new_full((1, F.shape[-1], 1), b)
    )
    return known(within.lower), known(within.upper)


def _limits_of_columns(bounds: Bounds | None, F: Tensor) -> Sequence[tuple[Any, Any]]:
    """List the least and the largest entries of every column of `F (B, k, n)` or `(k, n)`, as `clamp` takes them."""
    if bounds is None:
        return [(0, None)] * F.shape[-2]
    return list(zip(*(_columns(b[0] if F.dim() == 2 else b) for b in bounds), strict=True))


def _by_tiles(
    loops: Any, F: Tensor, linear: Tensor, G: Tensor, inverse: Tensor | None, bounds: Bounds | None, sweeps: int
) -> Tensor:
    """Sweep by compiled loops over tiles of rows: one read of the factor, one write."""
    turned, batch = F.mT, lambda M: M.unsqueeze(0) if M.dim() == 2 else M.reshape(-1, *M.shape[-2:])
    steps = None if inverse is None else batch(inverse.mT)
    new = loops.minimise_columns(batch(turned), batch(linear.mT), batch(G), steps, bounds, sweeps)
    return new.view(turned.shape).mT


def _by_own_grams(F: Tensor, block: Block, sweeps: int, bounds: Bounds | None) -> Tensor:
    """Minimise over one column after the other; the quads, if any, are a Gram that all rows share."""
    G = cast(Tensor, block.row_grams)
    for q in block.quads:
        if q.row_matrix is not None or q.columns is not None or q.sign < 0:
            raise ValueError("rows with a Gram of their own cannot be coupled by a graph; fit completed data instead")
        shared = q.column_matrix if q.mixes_columns else torch.diag_embed(q.column_matrix.squeeze(-2))
        G = G + shared.unsqueeze(-1)
    linear = cast(Tensor, block.net_linear()).mT  # the batch of the Grams stays that of the factor
    curvature = G.diagonal(dim1=-3, dim2=-2).mT
    floor = torch.finfo(F.dtype).eps ** 2 * curvature.amax((-2, -1), keepdim=True)
    if loops := compiled_loops("columns", F, G):
        batch = lambda M, dims: M.expand(*F.shape[:-2], *M.shape[-dims:]).reshape(-1, *M.shape[-dims:])
        arrays = batch(F.mT, 2), batch(linear, 2), batch(G, 3), floor.expand(*F.shape[:-2], 1, 1).reshape(-1)
        return loops.minimise_rows(*arrays, bounds, sweeps).view(F.mT.shape).mT
    inverse = torch.where(curvature > floor, curvature.reciprocal(), 0)
    F = clone_factor(F)
    columns = F.mT
    for _ in range(sweeps):
        for j in range(F.shape[-1]):
            left = linear[..., j, :] - (columns * G[..., j, :, :]).sum(-2)
            f = columns[..., j, :].addcmul_(left, inverse[..., j, :])
            f.clamp_(min=0) if bounds is None else f.clamp_(
                bounds[0][..., j, :].squeeze(0), bounds[1][..., j, :].squeeze(0)
            )
    return F


def _by_slabs(
    F: Tensor,
    linear: Tensor,
    G: Tensor,
    steps: Tensor | None,
    limits: Sequence[tuple[Any, Any]],
    buffers: Sequence[Tensor],
    columns: Sequence[Tensor],
) -> Callable[[], None]:
    """Return a function that passes once over the columns of F, in place.

    Its views are made here, once: on small data they would cost as much as the arithmetic. F, linear and steps are
    (B, k, n), G is (B, k, k), or all without B. A column becomes `max(0, f + (linear - F g) steps)`, without steps
    `max(0, linear - F g)`, within its limits. Columns are cut into slabs, and slabs into narrower ones. The other
    slabs' part of `F g` is one matrix product. Its result goes to a buffer as wide as a slab, `buffers` being sorted
    from wide to narrow; all slabs share it, so that it stays in the cache. `columns` are the columns of the last.
    """
    subtract_product = torch.addmm if F.dim() == 2 else torch.baddbmm
    slabs = []
    for slab in _cut_evenly(F.shape[-2], buffers[0].shape[-2]):
        given, others = linear[..., slab, :], _off_slab(G, slab)
        inside, inner_steps = F[..., slab, :], None if steps is None else steps[..., slab, :]
        rest, G_inside = buffers[0][..., : slab.stop - slab.start, :], G[..., slab, slab]
        if len(buffers) > 1:
            own = _by_slabs(inside, rest, G_inside, inner_steps, limits[slab], buffers[1:], columns)
        else:
            own = _by_columns(inside, columns, G_inside, inner_steps, limits[slab])
        slabs.append((given, rest, others, own))

    def sweep() -> None:
        for given, rest, others, own in slabs:
            if others is None:
                rest.copy_(given)
            else:
                subtract_product(given, others, F, alpha=-1, out=rest)
            own()

    return sweep


def _by_columns(
    F: Tensor, rest: Sequence[Tensor], G: Tensor, steps: Tensor | None, limits: Sequence[tuple[Any, Any]]
) -> Callable[[], None]:
    """Return a function that updates one column after the other, by one product `F g` each; `rest` is overwritten."""
    single, fs = F.dim() == 2, _columns(F)
    column_steps = [None] * len(fs) if steps is None else _columns(steps)
    columns = list(
        zip(fs, rest, _columns(G), column_steps, limits, strict=False)
    )  # a slab may be narrower than its buffer
    F = F.t() if single else F

    def sweep() -> None:
        for f, r, g, step, (low, high) in columns:
            left = r.addmv_(F, g, alpha=-1) if single else torch.baddbmm(r, g, F, alpha=-1)
            if step is None:
                torch.clamp(left, low, high, out=f)
            else:
                f.addcmul_(left, step).clamp_(low, high)

    return sweep


def _columns(F: Tensor) -> Sequence[Tensor]:
    """Return the columns as views, of `(k, n)` as `(n,)`, of `(B, k, n)` as `(B, 1, n)`."""
    return F.unbind() if F.dim() == 2 else F.split(1, dim=1)


def _slab_widths(F: Tensor) -> list[int]:
    """Choose how many columns, from outside to inside: a wide slab saves reading F, a narrow one stays in the cache."""
    k, n = F.shape[-2:]
    if not F.is_cpu:
        return [min(WIDE // 2, k)]
    few = k <= 2 * NARROW and k * n <= SLAB_ENTRIES
    narrow = k if few else min(NARROW, max(8, SLAB_ENTRIES // n), k)
    return [WIDE, narrow] if k > WIDE else [narrow]


def _cut_evenly(k: int, width: int) -> list[slice]:
    """Cut k columns into as few slabs as the width allows, about equally wide."""
    width = -(-k // -(-k // width))
    return [slice(a, min(a + width, k)) for a in range(0, k, width)]


def _off_slab(G: Tensor, slab: slice) -> Tensor | None:
    """Return the slab's rows of G, zero inside the slab; None if nothing is outside."""
    if slab.stop - slab.start == G.shape[-1]:
        return None
    G = G[..., slab, :].clone()
    G[..., slab] = 0
    return G
