"""Minimisation over one column of a factor after the other, as `columns` has it, on a GPU: Triton kernels.

A program has one tile of rows of one problem, with all their columns in registers: one read of the factor, one write,
for all sweeps. What is left of a column's linear part is made anew for every column; to carry that of all columns would
take as many registers again. Programs do not depend on each other, and a tile's size depends on the rank alone: a
problem ends the same in every batch, bit for bit. The kernels are operators of torch: fake tensors and CUDA graphs see
them. With `TRITON_INTERPRET=1`, set before Triton is imported, they run on the CPU: slowly, for tests.
"""

# ruff: noqa: ANN001, ANN202
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers of a tile, 4 bytes each, and its rows, at least and at most. One warp has a tile: a sum over columns stays
# inside it. Compiled for capability 9.0, tiles of up to 64 columns take 26 to 199 registers of a thread (float32) and
# spill none, twice as large ones do; of 128 columns some registers spill. Not measured otherwise.
TILE, FEWEST, MOST = 1024, 16, 64
OPTIONS = {"num_warps": 1, "enable_fp_fusion": True}


def tile_rows(k: int, itemsize: int) -> int:
    """Choose the rows of a tile, by the rank alone."""
    return max(FEWEST, min(MOST, TILE // triton.next_power_of_2(k) * 4 // itemsize))


@torch.library.custom_op(
    "nnfactor::minimise_columns",
    mutates_args=(),
    schema="(Tensor F, Tensor linear, Tensor G, Tensor? steps, Tensor[]? bounds, int sweeps, int? rows=None) -> Tensor",
)
def minimise_columns(
    F: Tensor,
    linear: Tensor,
    G: Tensor,
    steps: Tensor | None,
    bounds: Sequence[Tensor] | None,
    sweeps: int,
    rows: int | None = None,
) -> Tensor:
    """Return the factor after some sweeps over its columns: arguments and answer are those of `columns`.

    `rows` of a tile, a power of two, are for measurements. Default: `tile_rows`.
    """
    (B, k, n), out = F.shape, F.new_empty(F.shape)
    each = 0 if steps is None else steps.shape[-1]
    given = out if steps is None else steps.contiguous()
    T = rows or tile_rows(k, F.element_size())
    constants = {"EACH": min(each, 2), "FLOOR": torch.finfo(F.dtype).eps ** 2}
    with torch.cuda.device_of(F):
        _sweep_tiles[(B * triton.cdiv(n, T),)](
            F.contiguous(), linear.contiguous(), G.contiguous(), given, out, *_limits(bounds, out), k, n, sweeps,
            **constants, BOUNDED=bounds is not None, K=triton.next_power_of_2(k), T=T, **OPTIONS,
        )  # fmt: skip
    return out


@torch.library.custom_op(
    "nnfactor::minimise_rows",
    mutates_args=(),
    schema="(Tensor F, Tensor linear, Tensor G, Tensor floor, Tensor[]? bounds, int sweeps) -> Tensor",
)
def minimise_rows(
    F: Tensor, linear: Tensor, G: Tensor, floor: Tensor, bounds: Sequence[Tensor] | None, sweeps: int
) -> Tensor:
    """Return the factor after some sweeps, where every row has a Gram of its own: arguments as in `columns`."""
    (B, k, n), out = F.shape, F.new_empty(F.shape)
    T = tile_rows(2 * k, F.element_size())  # a tile of Grams is there as well
    with torch.cuda.device_of(F):
        _sweep_rows[(B * triton.cdiv(n, T),)](
            F.contiguous(), linear.contiguous(), G.contiguous(), floor.contiguous(), out, *_limits(bounds, out),
            k, n, sweeps, BOUNDED=bounds is not None, K=triton.next_power_of_2(k), T=T, **OPTIONS,
        )  # fmt: skip
    return out


@minimise_columns.register_fake
@minimise_rows.register_fake
def _give_shape(F: Tensor, *_: object) -> Tensor:
    return F.new_empty(F.shape)


def _limits(bounds: Sequence[Tensor] | None, unused: Tensor) -> tuple[Tensor, Tensor, int, int, int]:
    """Return both bounds, and how far their next problem, column and row are."""
    if bounds is None:
        return unused, unused, 0, 0, 0
    lower, upper = (b.contiguous() for b in torch.broadcast_tensors(*bounds))
    B, k, n = lower.shape
    return lower, upper, (k * n if B > 1 else 0), n, int(n > 1)


def probe(device: torch.device) -> None:
    """Raise what Triton raises on a device that it has no code for, or where it lacks a compiler."""
    F = torch.ones(1, 2, 3, device=device)
    if not bool((minimise_columns(F, F, torch.eye(2, device=device)[None], None, None, 1) == 1).all()):
        raise RuntimeError("a kernel of Triton gave a wrong answer")


@triton.jit(do_not_specialize=["sweeps"])
def _sweep_tiles(
    F, linear, G, steps, out, lower, upper, problem, column, row, k, n, sweeps,
    EACH: tl.constexpr, FLOOR: tl.constexpr, BOUNDED: tl.constexpr, K: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Sweep over one tile; `EACH`: steps from the diagonal (0), one for a column (1), one for an entry (2)."""
    tiles, item = tl.cdiv(n, T), tl.program_id(0).to(tl.int64)  # products of sizes may need 64 bits
    b, first = item // tiles, item % tiles * T
    F, linear, out, G = F + b * k * n, linear + b * k * n, out + b * k * n, G + b * k * k
    steps = steps + b * k * (n if EACH == 2 else 1)
    columns, rows = tl.arange(0, K), first + tl.arange(0, T)
    known, inside = columns < k, rows < n
    places, mask = columns[:, None] * n + rows[None, :], known[:, None] & inside[None, :]
    f = tl.load(F + places, mask=mask, other=0.0)
    floor = FLOOR * tl.max(tl.load(G + columns * (k + 1), mask=known, other=0.0), 0)
    for _ in range(sweeps):
        for c in range(k):
            own = columns == c
            g = tl.load(G + c * k + columns, mask=known, other=0.0)
            m = tl.load(linear + c * n + rows, mask=inside, other=0.0)
            # f_c + (m - F g) s is m s + F (e_c - g s): one sum over columns
            if EACH == 2:
                step = tl.load(steps + c * n + rows, mask=inside, other=0.0)
                weights = tl.where(own, 1.0, 0.0)[:, None] - g[:, None] * step[None, :]
            else:
                if EACH == 1:
                    step = tl.load(steps + c)
                else:
                    curvature = tl.load(G + c * (k + 1))
                    flat = curvature <= floor
                    step = tl.where(flat, 0.0, 1.0 / tl.where(flat, 1.0, curvature))
                weights = (tl.where(own, 1.0, 0.0) - g * step)[:, None]
            new = m * step + tl.sum(weights * f, 0)
            new = _limit(new, lower, upper, b * problem + c * column + rows * row, inside, BOUNDED)
            f = tl.where(own[:, None], new[None, :], f)
    tl.store(out + places, f, mask=mask)


@triton.jit(do_not_specialize=["sweeps"])
def _sweep_rows(
    F, linear, G, floor, out, lower, upper, problem, column, row, k, n, sweeps,
    BOUNDED: tl.constexpr, K: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Sweep over one tile, whose rows have Grams of their own."""
    tiles, item = tl.cdiv(n, T), tl.program_id(0).to(tl.int64)
    b, first = item // tiles, item % tiles * T
    F, linear, out, G = F + b * k * n, linear + b * k * n, out + b * k * n, G + b * k * k * n
    columns, rows = tl.arange(0, K), first + tl.arange(0, T)
    inside = rows < n
    places, mask = columns[:, None] * n + rows[None, :], (columns < k)[:, None] & inside[None, :]
    f, least = tl.load(F + places, mask=mask, other=0.0), tl.load(floor + b)
    for _ in range(sweeps):
        for c in range(k):
            own = (columns == c)[:, None]
            g = tl.load(G + tl.cast(c, tl.int64) * k * n + places, mask=mask, other=0.0)
            left = tl.load(linear + c * n + rows, mask=inside, other=0.0) - tl.sum(g * f, 0)
            curvature, now = tl.sum(tl.where(own, g, 0.0), 0), tl.sum(tl.where(own, f, 0.0), 0)
            step = tl.where(curvature > least, left / tl.where(curvature > least, curvature, 1.0), 0.0)
            new = _limit(now + step, lower, upper, b * problem + c * column + rows * row, inside, BOUNDED)
            f = tl.where(own, new[None, :], f)
    tl.store(out + places, f, mask=mask)


@triton.jit
def _limit(f, lower, upper, places, inside, BOUNDED: tl.constexpr):
    """Bring the entries of a column into their bounds; what is not a number stays so."""
    if BOUNDED:
        low = tl.load(lower + places, mask=inside, other=0.0)
        high = tl.load(upper + places, mask=inside, other=0.0)
        f = tl.maximum(f, low, propagate_nan=tl.PropagateNan.ALL)
        return tl.minimum(f, high, propagate_nan=tl.PropagateNan.ALL)
    else:
        return tl.maximum(f, 0.0, propagate_nan=tl.PropagateNan.ALL)
