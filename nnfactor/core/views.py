"""Several views of the same samples, their weights, and labels: what paper 001 adds to terms and rules.

Jiang, Liu, Li and Lu (2014), "Semi-supervised unified latent factor learning with multi-view data", and Semi-NMF
(Ding, Li and Jordan 2010). View weights are a factor of one row, `(..., 1, P)`, so that they are seen, updated and
taken apart like every other factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .block import Block, Part, Quad, Some
from .data import Samples
from .ops import component_major, gram, mixed
from .terms import Factors, Fit, Weight, per_column

# Terms


@dataclass(frozen=True, eq=False)
class SemiFit(Fit):
    """`||X - V U'||^2` where the data and all factors but one may have any sign.

    As `Fit`; every coefficient is split into its positive and its negative part (paper 001, Eq. 6), so that the
    multiplicative rule keeps a factor nonnegative and `exact` solves for one that need not be.
    """

    def block(self, factors: Factors, name: str) -> Block:
        """Those of `Fit`, split."""
        return split(super().block(factors, name))


@dataclass(frozen=True, eq=False)
class Views:
    """`sum_p pi_p s_p ||X^p - V U^p'||^2`: matrices of the same samples, which share V (paper 001, Eq. 8).

    Parameters
    ----------
    fits : sequence of Fit
        One per view; the first of its two modes is the shared factor.
    weights : str
        Name of the state entry that holds pi, `(..., 1, P)`.
    scales : sequence of float, optional
        s_p > 0, e.g. one over the energy of view p. Default: 1.
    """

    fits: tuple[Fit, ...]
    weights: str = "pi"
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fits", tuple(self.fits))
        scales = tuple(float(s) for s in self.scales) or (1.0,) * len(self.fits)
        if len(scales) != len(self.fits):
            raise ValueError(f"scales has {len(scales)} numbers, but there are {len(self.fits)} views")
        object.__setattr__(self, "scales", scales)

    @cached_property
    def touches(self) -> tuple[str, ...]:
        """The shared factor, the views' own, and the weights."""
        return (*dict.fromkeys(name for fit in self.fits for name in fit.touches), self.weights)

    def block(self, factors: Factors, name: str) -> Block:
        """On pi: a push of half the views' distances. Elsewhere: the blocks of the fits, weighted.

        A view of weight 0 lends its own factor the weight 1: the objective does not feel that factor, and only a
        factor that keeps up with V lets the view come back.
        """
        if name == self.weights:
            return Block(push=self.distances(factors).clamp(min=0) / 2)
        shared, own = self._shares(factors)
        if name == self.fits[0].modes[0]:
            return self._on_shared(factors, name, shared)
        here = [p for p, fit in enumerate(self.fits) if name in fit.modes]
        return weighted([self.fits[p].block(factors, name) for p in here], [own[p] for p in here])

    def _on_shared(self, factors: Factors, name: str, weights: Sequence[Tensor]) -> Block:
        """The pulls of all views in one tensor, each product added to it as it is made.

        But where a view's sign is free, or it has more features than samples: `_cross` asks for that product again.
        """
        blocks, pull = [], None
        for fit, w in zip(self.fits, weights, strict=True):
            if _slim(fit) and not isinstance(fit, SemiFit):
                U = factors[fit.modes[1]]
                pull = cast(Samples, fit.data).times(w * U, pull)
                blocks.append(Block(quads=(Quad(gram(U)),)))
            else:
                blocks.append(fit.block(factors, name))
        return weighted(blocks, weights) + Block(pull=pull)

    def _shares(self, factors: Factors) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The weight of every view times its scale, `(..., 1, 1)` each: for the shared factor, and for its own."""
        pi, first = factors[self.weights], self.fits[0].data
        return first.memo(("shares", self), (pi,), lambda: self._split_weights(pi))

    def _split_weights(self, pi: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        scales = self._scales_as(pi)
        both = scales * pi, scales * (pi + (pi == 0))
        return both[0].split(1, dim=-1), both[1].split(1, dim=-1)

    def distances(self, factors: Factors) -> Tensor:
        """`s_p ||X^p - V U^p'||^2`, float64 `(..., 1, P)`; nearly free within sweeps (see `_cross`), and remembered."""
        first, Fs = self.fits[0].data, [factors[name] for name in self.touches[:-1]]
        return first.memo(("distances", self), Fs, lambda: self._distances(factors)).unsqueeze(-2)

    def _distances(self, factors: Factors) -> Tensor:
        """`s_p (||X^p||^2 - 2 <X^p, V U^p'> + ||V U^p'||^2)` for all views at once."""
        first = self.fits[0].data
        grams = torch.stack([gram(factors[fit.modes[1]]) for fit in self.fits], dim=-3)
        shared = gram(factors[self.fits[0].modes[0]]).unsqueeze(-3)
        last_first = [_cross(fit, factors) for fit in self.fits[::-1]]  # those that V has just read are in the cache
        cross = torch.stack(last_first[::-1], dim=-1)
        norms = first.memo(("norms", self), (), lambda: torch.stack([fit.data.sqnorm() for fit in self.fits]))
        return ((grams * shared).sum((-2, -1), dtype=torch.float64) - 2 * cross + norms) * self._scales_as(norms)

    def _scales_as(self, like: Tensor) -> Tensor:
        """The scales `(P,)`, made once for every dtype."""
        make = lambda: torch.stack([like.new_full((), s) for s in self.scales])
        return self.fits[0].data.memo(("scales", self, like.dtype), (), make)

    def value(self, factors: Factors) -> Tensor:
        """The weighted sum of the distances."""
        return (factors[self.weights] * self.distances(factors)).sum((-2, -1))

    def direct(self, factors: Factors) -> Tensor:
        """The same number from the residuals themselves."""
        return (factors[self.weights] * self._gathered([fit.direct(factors) for fit in self.fits])).sum((-2, -1))

    def _gathered(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([s * v for s, v in zip(self.scales, values, strict=True)], dim=-1).unsqueeze(-2)


@dataclass(frozen=True, eq=False)
class Labels:
    """`weight ||V_l W - Y||^2` over the labelled rows of V; W (k, C) has any sign (paper 001, Eq. 9).

    Parameters
    ----------
    targets : Tensor (n, C)
        Y, one-hot rows as a rule. Rows of unlabelled samples are ignored.
    labelled : bool array or Tensor (n,)
    modes : (str, str)
        Names of V and W.
    weight : float, Tensor or str
        As for `Graph`.
    printed : bool
        Eqs. 22-26 as printed: what V sees lacks `weight V_l W W'` (the paper takes the inverse in W for a constant). It
        is no gradient of anything and makes the iteration diverge; for study only.
    """

    targets: Tensor
    labelled: Tensor | np.ndarray
    modes: tuple[str, str] = ("V", "W")
    weight: Weight = 1.0
    printed: bool = False
    _rows: Some = field(init=False, repr=False)  # the labelled ones
    _known: Tensor = field(init=False, repr=False)  # their targets

    def __post_init__(self) -> None:
        if self.targets.dim() != 2 or self.labelled.shape != self.targets.shape[:1]:
            raise ValueError(
                f"targets must be (n, C) and labelled (n,), got {tuple(self.targets.shape)} and "
                f"{tuple(self.labelled.shape)}"
            )
        on = self.targets.device
        known = self.labelled if isinstance(self.labelled, Tensor) else torch.from_numpy(self.labelled)
        rows = known.nonzero()[:, 0] if known is self.labelled else torch.from_numpy(np.flatnonzero(self.labelled))
        rows, mask = rows.to(on), known.to(on, self.targets.dtype)[:, None]
        for name, value in {"_rows": Some(rows, mask), "_known": self.targets.index_select(0, rows)}.items():
            object.__setattr__(self, name, value)

    @property
    def touches(self) -> tuple[str, ...]:
        """V and W."""
        return self.modes

    def block(self, factors: Factors, name: str) -> Block:
        """On V: the two parts of Y W' and, on labelled rows, of the Gram W W'. On W: least squares (see `Design`)."""
        V, W = (factors[m] for m in self.modes)
        weight = per_column(self.weight, factors, V)[..., :1]
        if name == self.modes[0]:
            linear = Part(self._rows, *_parts(((weight * W) @ self._known.mT).mT, fresh=True))
            quads = () if self.printed else (Quad(weight * (W @ W.mT), self._rows),)
            return split(Block(quads=quads, parts=(linear,)))
        root = weight.sqrt()
        rows: Any = Design(root * self._labelled(V), root * self._known)
        pull, push = _parts(rows.A.mT @ rows.b, fresh=True)
        return Block(quads=(Quad(torch.ones_like(W[..., :1, :]), rows),), pull=pull, push=push)

    def value(self, factors: Factors) -> Tensor:
        """From the residual itself."""
        V, W = (factors[m] for m in self.modes)
        residual = self._labelled(V) @ W - self._known
        weight = per_column(self.weight, factors, V)[..., :1]
        return (weight * residual.square()).sum((-2, -1), dtype=torch.float64)

    def _labelled(self, V: Tensor) -> Tensor:
        return self._rows.take(V)


@dataclass(frozen=True, eq=False)
class Design:
    """The rows of a quad, `A' A`, known by `A (..., r, n)`; with the `b (..., r, C)` of the pull `A' b` beside it.

    It acts as the matrix that it stands for. `least_squares` takes A and b themselves: forming A' A would square the
    condition number, which at paper 001's weights (beta = 1e8 against gamma = 100) leaves no digit.
    """

    A: Tensor
    b: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """That of `A' A`."""
        return (*self.A.shape[:-2], self.A.shape[-1], self.A.shape[-1])

    def __matmul__(self, F: Tensor) -> Tensor:
        return self.A.mT @ (self.A @ F)

    def sum(self, dim: int, keepdim: bool = True) -> Tensor:
        """Row sums (the matrix is symmetric: of either dimension)."""
        return self.A.mT @ self.A.sum(-1, keepdim=True)


def split(block: Block) -> Block:
    """The same function from coefficients of any sign: each becomes two that are nonnegative."""
    quads = []
    for q in block.quads:
        plus, minus = _parts(q.cols)
        quads += [replace(q, cols=plus), replace(q, cols=minus, sign=-q.sign)]
    net = _net(block)
    pull, push = (None, None) if net is None else _parts(net, fresh=net is not block.pull)
    return replace(block, quads=tuple(quads), pull=pull, push=push)


def weighted(blocks: Sequence[Block], weights: Sequence[Tensor]) -> Block:
    """The blocks' functions, each times its weight `(..., 1, 1) >= 0`, summed; quads of one kind become one."""
    kinds: dict[tuple[int, int, str], list[tuple[Quad, Tensor]]] = {}
    for b, w in zip(blocks, weights, strict=True):
        for q in b.quads:
            kinds.setdefault((id(q.rows), q.sign, str((q.span, q.mixes_columns))), []).append((q, w))
    quads = [replace(pairs[0][0], cols=_sum_of([(q.cols, w) for q, w in pairs])) for pairs in kinds.values()]
    linear = [_weighted_sum([b.pull for b in blocks], weights), _weighted_sum([b.push for b in blocks], weights)]
    return Block(quads=tuple(quads), pull=linear[0], push=linear[1])


def _weighted_sum(parts: Sequence[Tensor | None], weights: Sequence[Tensor]) -> Tensor | None:
    """Of the parts that are there."""
    there = [(z, w) for z, w in zip(parts, weights, strict=True) if z is not None]
    return _sum_of(there) if there else None


def _sum_of(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """`sum w z`, in one pass for each part."""
    (first, w), *others = pairs
    total = w * first
    for z, w in others:
        total.addcmul_(z, w)
    return total


def _slim(fit: Fit) -> bool:
    """Whether a view has fewer features than samples."""
    n, m = fit.data.shape
    return m < n


def _cross(fit: Fit, factors: Factors) -> Tensor:
    """`<X, V U'>` by way of the factor with fewer rows.

    Between two sweeps that is `X'V` as a rule, the product with which the next sweep begins.
    """
    Fs, mode = [factors[m] for m in fit.modes], int(_slim(fit))
    return (fit.data.mttkrp(Fs, mode) * Fs[mode]).sum((-2, -1), dtype=torch.float64)


def _parts(Z: Tensor, fresh: bool = False) -> tuple[Tensor, Tensor]:
    """Positive and negative part; the latter takes the place of a fresh Z."""
    plus = Z.clamp(min=0)
    return plus, torch.sub(plus, Z, out=Z) if fresh else plus - Z


def _net(block: Block) -> Tensor | None:
    """`pull - push`."""
    if block.push is None:
        return block.pull
    return -block.push if block.pull is None else block.pull - block.push


# Rules


def exact(F: Tensor, block: Block) -> Tensor:
    """The minimiser over factors of any sign, `(pull - push) G^+` with G the net Gram (paper 001, Eq. 4).

    In float64. Directions of G below k eps of the largest count as empty. Where leaving them out would raise the
    objective (a component that is tiny, not absent), F keeps its part in them, so that the rule is monotone.
    """
    if not block.quadratic or block.parts or any(q.rows is not None for q in block.quads):
        raise ValueError(
            "exact solves for a factor that sees Gram matrices and column weights only; use 'multiplicative'"
        )
    G, net = _net_gram(block, F), _net(block)
    B = torch.zeros_like(F, dtype=torch.float64) if net is None else net.double()
    P = _pseudo_inverse(G)
    new = mixed(B.expand_as(F), P)
    gradient = mixed(F.double(), G) - B
    step = new - F
    rise = (step * (2 * gradient + mixed(step, G))).sum((-2, -1), keepdim=True)
    return component_major(torch.where(rise > 0, F - mixed(gradient, P), new).to(F.dtype))


def least_squares(F: Tensor, block: Block) -> Tensor:
    """The minimiser of `||A F - b||^2 + sum_i d_i ||f_i||^2`, any sign: Labels on W, with L21 or L2 on its rows.

    By one orthogonal triangularisation of [A b; sqrt(d) 0] in float64, never by normal equations. With penalties on the
    rows the answer is unique; sqrt(d) is lifted to the rounding of A, so that it is always finite. Without, it is the
    one of minimum norm.
    """
    designs = [q.rows for q in block.quads if isinstance(q.rows, Design)]
    ridges = [q for q in block.quads if not isinstance(q.rows, Design)]
    if not designs or any(q.couples_rows or q.mixes_columns for q in ridges):
        raise ValueError("least_squares solves for the coefficients of Labels, with L2 or L21 on them; use 'exact'")
    n = F.shape[-2]
    R = torch.linalg.qr(_stacked(F, designs, ridges), mode="r").R
    if ridges:
        solved = torch.linalg.solve_triangular(R[..., :n, :n], R[..., :n, n:], upper=True)
    else:
        solved = _where_finite(R, lambda R: torch.linalg.pinv(R[..., :n]) @ R[..., n:])
    return component_major(solved.to(F.dtype))


def _stacked(F: Tensor, designs: Sequence[Any], ridges: Sequence[Quad]) -> Tensor:
    """[A b; sqrt(d) 0], `(..., r (+ n), n + C)`, float64 and column-major."""
    (*batch, n, C), parts = F.shape, [(d.A, d.b) for d in designs]
    rows = sum(A.shape[-2] for A, _ in parts)
    M = F.new_empty(*batch, n + C, rows + (n if ridges else 0), dtype=torch.float64).mT
    at = 0
    for A, b in parts:
        here = M[..., at : at + A.shape[-2], :]
        here[..., :n], here[..., n:] = A, b
        at += A.shape[-2]
    if ridges:
        size = reduce(torch.maximum, (torch.linalg.matrix_norm(A, keepdim=True) for A, _ in parts))
        weights = reduce(torch.add, (q.cols[..., :1].double() * q.row_sums(F) for q in ridges))
        root = torch.maximum(weights.sqrt(), size.double() * torch.finfo(torch.float64).eps)
        M[..., at:, :] = 0
        M[..., at:, :n].diagonal(dim1=-2, dim2=-1).copy_(root.clamp(min=torch.finfo(torch.float64).tiny).squeeze(-1))
    return M


def simplex(F: Tensor, block: Block) -> Tensor:
    """The minimiser of `lam ||f||^2 + <c, f>` over nonnegative rows f of sum 1, exactly (paper 001, Eq. 28).

    The Euclidean projection of `-c / (2 lam)`: f = max(0, tau - c) / (2 lam). An entry is positive if the others that
    are below it lie less than 2 lam below it in sum, and tau is 2 lam plus those entries' sum, over their number: all
    pairs are compared, views are few. lam = 0: everything on the smallest c, the first of equals. lam is the weight of
    an `L2` on F.
    """
    if any(q.mixes_columns or q.couples_rows for q in block.quads):
        raise ValueError("simplex takes one weight for all columns (an L2 term) and linear parts")
    net = _net(block)
    c = torch.zeros_like(F, dtype=torch.float64) if net is None else (-2 * net.double()).expand_as(F)
    twice = [2 * q.sign * q.row_sums(F) * q.cols[..., :1].double() for q in block.quads]
    lam = reduce(torch.add, twice) if twice else c.new_zeros(1, 1)  # 2 lam, (..., rows or 1, 1)
    lowest, first = c.min(-1, keepdim=True)
    c = c - lowest
    positive = (c.unsqueeze(-1) - c.unsqueeze(-2)).clamp_(min=0).sum(-1) < lam
    tau = (torch.where(positive, c, 0).sum(-1, keepdim=True) + lam) / positive.sum(-1, keepdim=True)
    f = torch.where(lam > 0, (tau - c).clamp_(min=0), torch.zeros_like(c).scatter_(-1, first, 1))
    return component_major((f / f.sum(-1, keepdim=True)).to(F.dtype))


def _net_gram(block: Block, F: Tensor) -> Tensor:
    """Positive less negative Gram matrices, weights on the diagonal, float64 `(..., k, k)`."""
    k = F.shape[-1]
    parts = [q.sign * (q.cols if q.cols.shape[-2] == k else torch.diag_embed(q.cols.squeeze(-2))) for q in block.quads]
    return reduce(torch.add, (G.double() for G in parts), F.new_zeros(k, k, dtype=torch.float64))


def _pseudo_inverse(G: Tensor) -> Tensor:
    """Moore-Penrose inverse of symmetric positive semidefinite matrices `(..., k, k)`."""

    def inverse(G: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(G)
        cut = values[..., -1:].clamp(min=0) * G.shape[-1] * torch.finfo(G.dtype).eps
        kept = torch.where(values > cut, 1 / torch.where(values > cut, values, 1), 0)
        return (vectors * kept.unsqueeze(-2)) @ vectors.mT

    return _where_finite(G, inverse)


def _where_finite(M: Tensor, f: Any) -> Tensor:
    """`f(M)`, and NaN for the problems whose M is not finite: decompositions would raise for all of them."""
    ok = torch.isfinite(M).all(-1, keepdim=True).all(-2, keepdim=True)
    return torch.where(ok, f(torch.where(ok, M, 0)), torch.nan)
