"""How a factor improves on the block that it sees: plain functions `(F, block, ...) -> F`.

Every rule takes factors `(..., n, k)` with any leading batch dimensions, never writes into its arguments, and (but for
`m_matrix` with a tolerance) never reads the host. All are monotone: none raises the block's function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Protocol, cast

import torch
from torch import Tensor

from .block import Block, Quad, accumulate
from .links import Links, from_rows, rows_of, to_rows
from .memo import tiny
from .ops import component_major, divide, row_major, safe_ratio

WIDE, NARROW = 64, 16  # columns of a factor that HALS works on between two matrix products, at most
SLAB_ENTRIES = 65_536  # of a narrow slab on the CPU: more leave the cache between two columns


class Rule(Protocol):
    """One improvement of one factor."""

    def __call__(self, F: Tensor, block: Block) -> Tensor:
        """The next factor."""


def multiplicative(F: Tensor, block: Block, power: float | None = None) -> Tensor:
    """`F * (down / up) ** power`; 0/0 counts as 1, zeros stay zeros.

    `power=None` takes the block's own exponent, for which the rule is proved never to raise the objective
    (Lee and Seung 2001, Fevotte and Idier 2011, Yang and Oja 2011).
    """
    power = block.power if power is None else power
    F = _stored_as_pull(F, block)
    ratio = safe_ratio(block.down(F), block.up(F), fresh=any(q.sign > 0 for q in block.quads))
    return (ratio if power == 1 else ratio.pow_(power)).mul_(F)


def m_matrix(
    F: Tensor, block: Block, cg: int = 4, sweeps: int = 1, tol: float | None = None, max_cg: int = 10_000
) -> Tensor:
    """Graph links exact, everything else majorised by `diag(up / F)` (Yang et al. 2008; paper 002's rival).

    For every column the minimiser of the majoriser solves `(diag(up / F) - links) x = pull`, an M-matrix. With
    s = sqrt(F / up) and x = s w it becomes `(1 - s links s) w = s pull`: unit diagonal, and zero entries need no case.
    All columns of all problems are solved at once, warm-started at F.

    Parameters
    ----------
    cg : int
        Conjugate gradient steps. On the ORL faces 3, 4, 5 and 8 needed 43, 41, 40 and 40 iterations to a common
        objective (alpha = 100): more are not worth it. Then negative entries are clamped, which never raises the
        majoriser.
    sweeps : int
        Jacobi sweeps after that. At least one after CG: it keeps clamped entries alive. **`cg=0, sweeps=1` is exactly
        `multiplicative`**: the two rivals are one function with a number.
    tol : float, optional
        For reference solutions: CG to this relative residual in every column instead of `cg` steps (reads the host).
    """
    _needs_quadratic(block, "m_matrix")
    coupled = [q for q in block.quads if q.sign < 0 and isinstance(q.rows, Links) and not q.mixes_columns]
    if not coupled:
        return multiplicative(F, block)
    F = _stored_as_pull(F, block)
    up, x = to_rows(block.up(F)), rows_of(F)
    pull = to_rows(block.without(coupled).down(F).expand_as(F))
    links = _links_on_rows(coupled, F)
    t = x / (up + tiny(x.dtype))
    y = _conjugate_gradients(x, up, t.sqrt(), pull, links, cg, tol, max_cg) if cg or tol is not None else x
    for _ in range(sweeps):
        y = t * (pull + links(y))
    return from_rows(torch.where(up > 0, y, x), F)


def hals(F: Tensor, block: Block, sweeps: int = 1) -> Tensor:
    """Exact minimisation over one column after the other (Cichocki and Phan 2009), `sweeps` times for one pull.

    The Gram may have any sign. Graphs couple rows but never columns: with D - S <= 2 D each column still has a closed
    form, from one sparse product per sweep. The floor is exactly 0; a column whose curvature is 0 (to
    rounding, against the largest) stays as it is: dividing by it would overflow.
    """
    if torch.is_grad_enabled():  # never inside `run`; columns are written in place
        with torch.no_grad():
            return hals(F, block, sweeps)
    G, rest = _split(block, F, "hals")
    curvature = _curvature(G.diagonal(dim1=-2, dim2=-1).unsqueeze(-2), rest, F)
    floor = torch.finfo(F.dtype).eps ** 2 * curvature.amax((-2, -1), keepdim=True)
    inverse = torch.where(curvature > floor, curvature.reciprocal(), 0)
    scale: Tensor | None = None
    steps: Tensor | None = inverse
    if inverse.shape[-2] == 1:  # the same step for all rows: it moves out of the loop over the columns
        G, scale, steps = G * inverse.mT, inverse, None
        G.diagonal(dim1=-2, dim2=-1).sub_(1)
    F = F.mT.clone(memory_format=torch.contiguous_format).mT  # never F itself
    linear = _flat(_linear(block, rest, F), scale)
    sweep = _hals_sweep(_flat(F), linear, _flat(G.mT), None if steps is None else _flat(steps))
    for i in range(sweeps):
        if i and rest:
            linear.copy_(_flat(_linear(block, rest, F), scale))
        sweep()
    return F


def projected(F: Tensor, block: Block, steps: int = 5) -> Tensor:
    """Accelerated projected gradient (Beck and Teboulle 2009; Guan et al. 2012): an option and a reference.

    Steps are one over a row-sum bound of the curvature (Gershgorin), entry by entry where there is a graph. A problem
    whose accelerated steps would raise its objective takes the first plain step instead, so that the rule is monotone.
    """
    G, rest = _split(block, F, "projected")
    bound = _curvature(G.abs().sum(-1, keepdim=True).mT, rest, F)
    step = divide(torch.ones_like(bound), bound)
    gradient = block.half_gradient(F)
    first = x = (F - step * gradient).clamp_(min=0)
    y, t = x, 1.0
    for _ in range(steps - 1):
        new = (y - step * block.half_gradient(y)).clamp_(min=0)
        t, before = (1 + (1 + 4 * t * t) ** 0.5) / 2, t
        y, x = new + ((before - 1) / t) * (new - x), new
    rise = ((x - F) * (gradient + block.half_gradient(x))).sum((-2, -1), keepdim=True, dtype=torch.float64)
    return component_major(torch.where(rise <= 0, x, first))


def composed(*rules: Rule) -> Rule:
    """Rules in turn on the same block: no new data product. `composed(m_matrix, hals)` suits graph models best."""

    def both(F: Tensor, block: Block) -> Tensor:
        for rule in rules:
            F = rule(F, block)
        return F

    return both


def _stored_as_pull(F: Tensor, block: Block) -> Tensor:
    """The factor in the memory order of the pull: row-major of sparse data, else component-major."""
    if block.pull is None or block.pull.shape != F.shape or row_major(F) == row_major(block.pull):
        return F  # the very tensor: products with it are remembered
    return component_major(F) if row_major(F) else rows_of(F)


def _needs_quadratic(block: Block, rule: str) -> None:
    if not block.quadratic:
        raise ValueError(
            f"solver {rule!r} needs a quadratic objective; for beta-divergences (loss='kullback-leibler' or a number) "
            "only solver='multiplicative' works"
        )


def _links_on_rows(coupled: Sequence[Quad], F: Tensor) -> Callable[[Tensor], Tensor]:
    """`sum_q links_q z cols_q` for row-major z `(n, B k)`."""
    (*batch, n, k), b = F.shape, prod(F.shape[:-2])
    parts = [
        (cast(Links, q.rows), q.span or slice(0, k), q.cols.expand(*batch, 1, q.cols.shape[-1]).reshape(b, -1))
        for q in coupled
    ]
    parts.sort(key=lambda part: part[1].start)
    ends = [span.stop for _, span, _ in parts]
    tiled = [span.start for _, span, _ in parts] == [0, *ends[:-1]] and ends[-1] == k

    def apply(z: Tensor) -> Tensor:
        if tiled and b == 1:  # every column belongs to one graph: each writes where its columns are
            total = torch.empty_like(z)
            for links, span, c in parts:
                links.product(z[:, span], out=total[:, span]).mul_(c)
            return total
        z = z.view(n, b, k)
        total = torch.zeros_like(z)
        for links, span, c in parts:
            product = links.product(z[..., span].flatten(1)).view(n, b, span.stop - span.start)
            total[..., span].addcmul_(product, c)
        return total.view(n, b * k)

    return apply


def _conjugate_gradients(
    x: Tensor, up: Tensor, s: Tensor, pull: Tensor, links: Callable, cg: int, tol: float | None, max_cg: int
) -> Tensor:
    """CG on `(1 - s links s) w = s pull` from w = x / s, every column by itself; returns `s w` clamped at 0.

    A column whose residual or curvature has vanished takes steps of length 0. The curvature of a singular system (a
    component of the graph that the data do not see) can round to less: it counts as vanished too.
    """
    w = (x * up).sqrt_()
    target = s * pull
    p = r = torch.addcmul(target, s, links(x)).sub_(w)
    pp = rr = _squares(r)  # squared lengths: of p by recursion, for p was orthogonal to r
    enough = None if tol is None else tol**2 * _squares(target)
    floor, steps = torch.finfo(x.dtype).eps, cg if tol is None else max_cg
    for i in range(steps):
        if enough is not None and i % 5 == 0 and bool((rr <= enough).all()):
            break
        Ap = torch.addcmul(p, s, links(s * p), value=-1)
        curvature = (p * Ap).sum(0)
        a = divide(rr, torch.where(curvature > floor * pp, curvature, 0))
        w.addcmul_(a, p)
        if i == steps - 1:
            break
        r = torch.addcmul(r, a, Ap, value=-1)
        before, rr = rr, _squares(r)
        b = divide(rr, before)
        p, pp = torch.addcmul(r, b, p), torch.addcmul(rr, b * b, pp)
    return w.mul_(s).clamp_(min=0)


def _squares(z: Tensor) -> Tensor:
    """Sums of squares of the columns (two passes, and four times as fast as a norm over rows)."""
    return z.square().sum(0)


def _linear(block: Block, separable: Sequence[Quad], F: Tensor) -> Tensor:
    """`pull - push - sum sign rows F cols` over the quads that do not mix columns, component-major; may be shared."""
    total = torch.zeros_like(F) if block.pull is None else block.pull.expand_as(F)
    if block.push is not None:
        total = total - block.push
    elif separable or block.parts:
        total = total.clone()
    for q in separable:
        accumulate(total, [q], F, alpha=-q.sign)
    for part in block.parts:
        part.rows.add(total, part.pull - part.push)
    return component_major(total)


def _split(block: Block, F: Tensor, rule: str) -> tuple[Tensor, list[Quad]]:
    """The net Gram matrix `(..., k, k)`, of any sign, and the quads that never mix columns."""
    _needs_quadratic(block, rule)
    mixing = [q for q in block.quads if q.rows is None and q.mixes_columns]
    rest = [q for q in block.quads if q not in mixing]
    if any(q.mixes_columns for q in rest):
        raise ValueError(f"{rule} cannot take a quad with both rows and a Gram matrix; use 'multiplicative'")
    k = F.shape[-1]
    grams = [q.cols if q.sign > 0 else -q.cols for q in mixing]
    return (reduce(torch.add, grams) if grams else F.new_zeros(k, k)).expand(*F.shape[:-2], k, k), rest


def _curvature(columns: Tensor, separable: Sequence[Quad], F: Tensor) -> Tensor:
    """An upper bound of the second derivative `(..., 1 or n, k)`: of the Gram, plus row weights and 2 D of graphs."""
    if separable:
        rows = F.shape[-2] if any(q.rows is not None for q in separable) else 1
        columns = component_major(columns.expand(*F.shape[:-2], rows, F.shape[-1]).clone())
    for q in separable:
        sign = 1 if q.couples_rows else q.sign
        columns[..., q.span or slice(None)].add_(q.row_sums(F) * q.cols, alpha=sign)
    return columns


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
