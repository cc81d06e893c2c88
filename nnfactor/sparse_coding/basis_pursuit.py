"""l1 codes: every sample as a sparse combination of others plus a sparse error, with a certified duality gap.

For a unit-length sample x and unit-length atoms in the rows of D (Fan et al. 2011, Eq. 7):

    min ||a||_1 + ||e||_1  subject to  x = D'a + e      =      max x'y  subject to  |y| <= 1, |D y| <= 1

e = x - D'a makes every a feasible, and clamping and scaling make every y feasible, so any pair (a, y) bounds the
optimum from both sides, however it was found. Three steps, each over all samples that are not done yet:

1. The zero code and the nearest atom, against y = x. Duplicates are finished here: their code is one-hot.
2. More than `SMALL` atoms: some hundred iterations of ADMM in float32 with one factorisation of I + D'D for all
   samples. Products of matrices only; a few per cent of gap at little cost, and it knows which atoms matter.
3. Primal-dual interior point steps in float64 on those atoms, batched Cholesky of one small system per sample; then the
   exact solution on the active set (`interior_point.py`). Atoms that the full dual violates join for the next round,
   until the gap of the FULL problem is small enough.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..core.data.as_data import to_csr
from .dictionary import CHUNK, Atoms, SparseAtoms, atoms_of, unit_chunks, unit_rows
from .interior_point import relative_gap, solve_active_set, solve_interior, value_codes

SMALL = 256  # atoms; below, ADMM does not pay
BUDGET = 1 << 21  # float64 numbers of one batch of systems (16 MB), on the CPU; more leaves the caches
BUDGET_GPU = 1 << 27
ROWS = 256  # samples of one ADMM batch on the CPU: its arrays then stay in the caches


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes of n samples over N atoms, and what is proved about them.

    Attributes
    ----------
    codes : Tensor (n, N)
        In the dtype of the samples, with exact zeros. They refer to samples and atoms of unit length.
    values, bounds : Tensor (n,), float64
        ||a||_1 + ||x - D'a||_1 before the codes are rounded to their dtype, and x'y for a feasible y of the full
        problem: no code has a smaller value.
    """

    codes: Tensor
    values: Tensor
    bounds: Tensor

    @property
    def gap(self) -> Tensor:
        """Certified relative duality gap (value - bound) / value, `(n,)`; 0 for a zero sample."""
        return relative_gap(self.values, self.bounds)


def l1_codes(X: Any, *, tol: float | None = None, max_rounds: int = 6, sweeps: int = 200) -> Codes:
    """Code every sample over all others (Fan et al. 2011, Eq. 7).

    Parameters
    ----------
    X : Tensor or scipy sparse matrix (N, m)
        Samples, any sign and scale, finite; brought to unit length here. Sparse ones are worked on by the host: a chunk
        of samples is dense at a time, and the atoms of one batch on the features in use.
    tol : float, optional
        Relative duality gap at which a code is done. Default: 1e-6 up to `SMALL` atoms, where it costs little, else
        1e-4; the accuracy of S-RLSC is the same from 1e-1 on.
    max_rounds, sweeps : int
        Rounds of step 3 (what is not done by then is returned with its gap) and ADMM iterations of step 2, at most.

    Returns
    -------
    Codes, `codes` (N, N) with a zero diagonal. A zero sample has the zero code and is in nobody's.

    Raises
    ------
    ValueError
        X is not a matrix, holds NaN or infinity, or tol, max_rounds or sweeps is negative.

    Examples
    --------
    >>> X = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> l1_codes(X).codes[:2].tolist()
    [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    """
    _check(tol, max_rounds, sweeps, X=X)
    return _solve(atoms_of(unit_rows(X)), X, True, tol, max_rounds, sweeps)


def l1_code(D: Any, X: Any, *, tol: float | None = None, max_rounds: int = 6, sweeps: int = 200) -> Codes:
    """Code samples X (n, m) over a dictionary D (N, m), both brought to unit length; otherwise as `l1_codes`.

    Examples
    --------
    >>> l1_code(torch.eye(2), torch.tensor([[0.0, -3.0]])).codes.tolist()
    [[0.0, -1.0]]
    """
    _check(tol, max_rounds, sweeps, D=D, X=X)
    if D.shape[1] != X.shape[1]:
        raise ValueError(f"D has {D.shape[1]} features and X has {X.shape[1]}; both must have the same")
    return _solve(atoms_of(unit_rows(D)), X, False, tol, max_rounds, sweeps)


def _check(tol: float | None, max_rounds: int, sweeps: int, **matrices: Any) -> None:
    for name, M in matrices.items():
        if M.ndim != 2:
            raise ValueError(f"{name} has shape {tuple(M.shape)}; it must be a matrix, one sample a row")
        bad = int((~np.isfinite(to_csr(M, name).data)).sum() if sp.issparse(M) else (~torch.isfinite(M)).sum())
        if bad:
            raise ValueError(f"{name} has {bad} NaN or infinite entries; fill or drop them first")
    for name, value in (("tol", tol), ("max_rounds", max_rounds), ("sweeps", sweeps)):
        if value is not None and not value >= 0:
            raise ValueError(f"{name} must be >= 0, got {value!r}")


class _Best:
    """The best code and bound of every sample so far, and the latest dual point, which says where to look next."""

    def __init__(self, D: Atoms, x: Tensor, own: Tensor | None) -> None:
        self.D, self.x, self.own = D, x, own
        n = len(x)
        self.a = x.new_zeros(n, len(D))
        self.value, self.bound, self.y = x.abs().sum(1) * (1 + 1e-12), x.new_zeros(n), x.clone()  # a tie: an atom
        for rows in torch.arange(n, device=x.device).split(max(1, 8 * BUDGET // max(1, len(D) + x.shape[1]))):
            cosine = self.correlations(x[rows], rows)
            if len(D):
                j = cosine.abs().argmax(1, keepdim=True)
                nearest = torch.zeros_like(cosine).scatter_(1, j, cosine.gather(1, j))
                self.offer(rows, nearest, x[rows])
            self.offer(rows, self.a[rows], x[rows].sign())  # proves the zero code where no atom helps
            self.y[rows] = x[rows]

    def correlations(self, y: Tensor, rows: Tensor) -> Tensor:
        """Compute D y without a sample's own atom, (len(rows), N)."""
        c = self.D.against(y)
        if self.own is not None:
            c.scatter_(1, self.own[rows, None], 0)
        return c

    def offer(self, rows: Tensor, a: Tensor, y: Tensor) -> None:
        """Take a code where it is better, and a bound where it is higher; both are proved here and nowhere else."""
        x, y = self.x[rows], y.nan_to_num(0.0).clamp(-1, 1)
        bound = (x * y).sum(1) / self.correlations(y, rows).abs().amax(1).clamp(min=1)
        value = a.abs().sum(1) + (x - self.D.combine(a)).abs().sum(1)
        better = value < self.value[rows]
        self.a[rows] = torch.where(better[:, None], a, self.a[rows])
        self.value[rows] = torch.where(better, value, self.value[rows])
        self.bound[rows] = torch.maximum(self.bound[rows], bound)
        self.y[rows] = y

    def gap(self) -> Tensor:
        return relative_gap(self.value, self.bound)


def _solve(D: Atoms, X: Any, among: bool, tol: float | None, max_rounds: int, sweeps: int) -> Codes:
    """Code the rows of X; `among`: they are the atoms themselves, and none is in its own code."""
    tol = (1e-6 if len(D) <= SMALL else 1e-4) if tol is None else tol
    dtype = torch.from_numpy(X.data[:0]).dtype if sp.issparse(X) else X.dtype
    found = []
    if sp.issparse(X) or isinstance(D, SparseAtoms):
        chunks = unit_chunks(X, CHUNK // max(1, *D.shape))
    else:
        chunks = iter([(slice(0, len(X)), D.D if among else unit_rows(X))])
    with torch.no_grad(), torch.autocast(D.device.type, enabled=False):
        for at, x in chunks:
            best = _Best(D, x.to(D.device), torch.arange(at.start, at.stop, device=D.device) if among else None)
            if len(D) > SMALL and sweeps > 0:
                _admm(best, tol, sweeps)
            for turn in range(max_rounds if len(D) else 0):
                if not len(todo := (best.gap() > tol).nonzero().squeeze(1)):
                    break
                _round(best, todo, 0.85 - 0.05 * turn if len(D) > SMALL else -1.0, tol)
            found.append((best.a, best.value, best.bound))
    a, value, bound = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Codes(a.to(dtype) if dtype.is_floating_point else a, value, bound)


def _admm(best: _Best, tol: float, sweeps: int) -> None:
    """Step 2 for all samples in batches; the constraint is projected onto exactly, the rest is soft thresholding."""
    D, inverse = best.D.single, best.D.inverse
    todo = (best.gap() > tol).nonzero().squeeze(1)
    for rows in todo.split(ROWS if D.device.type == "cpu" else 8 * ROWS):
        x = best.x[rows].float()
        own = None if best.own is None else best.own[rows, None]
        t = x.abs().mean(1, keepdim=True)  # the size of an entry of x: no scale has to be chosen
        a, e, ua, ue = x.new_zeros(len(x), len(D)), x.clone(), x.new_zeros(len(x), len(D)), torch.zeros_like(x)
        nu = torch.zeros_like(x)
        for _ in range(sweeps):
            wa, we = a - ua, e - ue
            nu = inverse(x - D.combine(wa) - we)
            ua += D.against(nu).add_(wa).mul_(1.6).add_(a, alpha=-0.6)  # over-relaxed
            ue += (nu + we).mul_(1.6).add_(e, alpha=-0.6)
            ca, ce = ua.clamp(-t, t), ue.clamp(-t, t)
            if own is not None:
                ca.scatter_(1, own, ua.gather(1, own))
            a, e = ua - ca, ue - ce
            ua, ue = ca, ce
        best.offer(rows, a.double(), (nu / t).double())


def _round(best: _Best, todo: Tensor, share: float, tol: float) -> None:
    """Step 3 once: each sample on the atoms whose constraint is used to at least `share`; similar sizes together."""
    m = max(1, best.x.shape[1])
    budget = BUDGET if best.x.device.type == "cpu" else BUDGET_GPU
    most = len(best.D) - (best.own is not None)
    for some in todo.split(max(1, 8 * budget // max(m, len(best.D)))):
        c, wanted = _choose_atoms(best, some, share)
        width = wanted.sum(1).clamp(max=most)
        order = width.argsort(descending=True)
        sizes = width[order].tolist()
        at = 0 if most > 0 else len(sizes)
        while at < len(sizes):
            W = max(1, sizes[at])
            part = order[at : at + max(1, budget // (W * max(m, W)))]
            _improve(best, some[part], c[part], W, tol)
            at += len(part)


def _choose_atoms(best: _Best, rows: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Rank the atoms and say which are wanted: those in the code, and those the dual point nearly or over-uses."""
    c = best.correlations(best.y[rows], rows).abs()
    top = c.amax(1, keepdim=True).clamp(min=1)
    used = best.a[rows] != 0
    if best.own is not None:
        c.scatter_(1, best.own[rows, None], -1)
    wanted = ((c >= share) | used) & (c >= 0)
    return torch.where(used, c + top, c), wanted


def _improve(best: _Best, rows: Tensor, rank: Tensor, W: int, tol: float) -> None:
    """One batch on its W best-ranked atoms, from the best code; offered as it is and solved on its active set."""
    atoms = rank.topk(W, 1).indices
    D, features = best.D.some(atoms, best.x[rows])
    narrow = lambda z: z if features is None else z[:, features]
    whole = lambda y: y if features is None else y.new_zeros(len(y), best.x.shape[1]).index_copy_(1, features, y)
    x, y = narrow(best.x[rows]), narrow(best.y[rows])
    top = (D @ y.unsqueeze(-1)).abs().amax((1, 2)).clamp(min=1)
    a, y = solve_interior(D, x, y * (0.97 / top)[:, None], best.a[rows].gather(1, atoms), tol / 2)
    limit, wide = value_codes(D, x, a) * (1 + tol / 4), x.new_zeros(len(x), len(best.D))
    for reach in (1.0, 0.1, 10.0):
        cut, sharp, dual = solve_active_set(D, x, a, y, reach)
        finest = a
        for sparser in (cut, sharp):
            finest = torch.where((value_codes(D, x, sparser) <= limit).unsqueeze(1), sparser, finest)
        for point in (dual, y):  # y last: it names the violated atoms better than a corner does
            best.offer(rows, wide.scatter(1, atoms, finest), whole(point))
        left = best.gap()[rows] > tol
        if tol >= 1e-5 or not bool(left.any()):
            break
        atoms, D, x, a, y, rows, limit, wide = (part[left] for part in (atoms, D, x, a, y, rows, limit, wide))
