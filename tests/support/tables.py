"""The tables that the laws run over: a new term, rule or storage kind adds a row here and inherits every law."""

import atexit
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist

from nnfactor.core import (
    L1,
    L2,
    L21,
    BetaFit,
    Chunked,
    Fit,
    Graph,
    Laplacian,
    Sharded,
    Weight,
    as_data,
    compose,
    hals,
    m_matrix,
    multiplicative,
    projected_gradient,
)
from nnfactor.core.terms.fit import WeightedFit
from nnfactor.core.terms.multiview import Labels, Views
from nnfactor.core.terms.must_link import GroupedFit, SampleGroups
from nnfactor.core.terms.polynomial import PolynomialFit
from nnfactor.core.terms.tucker import TuckerFit

SHAPES = {2: (7, 6), 3: (6, 4, 5), 4: (4, 3, 5, 2), 5: (3, 2, 4, 2, 3)}


@dataclass
class Problem:
    """Random data, factors and graphs of one order; `batch` leading dimensions on the factors."""

    X: torch.Tensor
    factors: dict
    own: Graph
    between: Graph
    first: np.ndarray

    @property
    def modes(self):
        return tuple(name for name in self.factors if name[0] in "VU")

    @property
    def order_of_updates(self):
        return (*self.modes[1:], "V")


def problem(order=2, batch=(), seed=0, k=4, zeros=0.0, dtype=torch.float64, shape=None, weighted=False):
    rng = np.random.default_rng(seed)
    shape = SHAPES[order] if shape is None else shape
    X = rng.random(shape) * (rng.random(shape) >= zeros) * 10.0 ** rng.integers(-2, 3)
    tensor = lambda a: torch.as_tensor(a).to(dtype)
    factors = {}
    for b, d in enumerate(shape):
        F = rng.random((*batch, k, d)) * 10.0 ** rng.integers(-1, 2, size=(*batch, k, 1))
        F *= rng.random(F.shape) >= zeros
        factors["V" if b == 0 else f"U{b}"] = tensor(F).mT
    factors["W"] = tensor(rng.normal(size=(*batch, 3, k))).mT  # coefficients of three classes, any sign
    pi = rng.random((*batch, 1, len(shape) - 1)) + 0.1
    factors["pi"] = tensor(pi / pi.sum(-1, keepdims=True))
    factors["weight"] = tensor(10.0 ** rng.integers(-2, 3, size=batch))
    factors["core"] = tensor(rng.random((*batch, k, k ** (len(shape) - 1))) + 0.1).mT
    return Problem(tensor(X), factors, _graph(rng, shape[0], weighted), _graph(rng, shape[0], True), np.arange(k) < 2)


def _graph(rng, n, weighted):
    A = np.triu((rng.random((n, n)) < 0.5) * (rng.random((n, n)) if weighted else 1.0), 1)
    return Graph(A + A.T, cliques=None if weighted else rng.integers(-1, 2, size=n))


def _norms_of(p, weight=Weight("weight"), split="net"):
    graph = partial(Laplacian, on="V", norms_of=p.modes[1:], weight=weight, split=split)
    return [graph(p.own, columns=p.first), graph(p.between, columns=~p.first)]


def _tied(p):
    """Two samples for every row of the sample factor, in a shuffled order."""
    n = len(p.X)
    groups = np.random.default_rng(n).permutation(np.tile(np.arange(n), 2))
    return GroupedFit(torch.cat([p.X, 2 * p.X]), p.modes, SampleGroups(groups))


def _polynomial(p, degree):
    """Of the first matrix slice: the term is one of matrices."""
    return [PolynomialFit(p.X.reshape(*p.X.shape[:2], -1)[..., 0], ("V", "U1"), degree)]


def _views(p):
    """A matrix for every feature mode, all of the same samples."""
    matrix = lambda b: p.X.movedim(b, 1).flatten(2)[..., 0] if p.X.dim() > 2 else p.X
    return Views(
        [Fit(matrix(b), ("V", f"U{b}")) for b in range(1, p.X.dim())], scales=[2.0**b for b in range(1, p.X.dim())]
    )


def _labels(p):
    """One-hot rows; every second sample is labelled."""
    n = len(p.X)
    targets = torch.eye(3, dtype=p.X.dtype, device=p.X.device).repeat(n, 1)[:n]
    return Labels(targets, np.arange(n) % 2 == 0, weight=Weight("weight"))


TERMS = {
    "fit": lambda p: [Fit(p.X, p.modes)],
    "graph": lambda p: [Laplacian(p.own, "V", weight=Weight("weight"))],
    "graph, columns": lambda p: [Laplacian(p.own, "V", columns=p.first, weight=3.0)],
    "graph, weighted columns": lambda p: [Laplacian(p.own, "V", columns=np.arange(len(p.first)) / 2.0)],
    "graph, norms_of": _norms_of,
    "graph, norms_of, paper": partial(_norms_of, split="paper"),
    "L1": lambda p: [L1("V", Weight("weight"))],
    "L2": lambda p: [L2("U1", Weight("weight"))],
    "L21": lambda p: [L21("U1", 2.0)],
    "views": lambda p: [_views(p)],
    "labels": lambda p: [_labels(p)],
    "tied": lambda p: [_tied(p), L2("V", 0.5)],
    "nge": lambda p: [Fit(p.X, p.modes), *_norms_of(p)],
    "nge, paper": lambda p: [Fit(p.X, p.modes), *_norms_of(p, split="paper")],
    "ridge, sparse": lambda p: [Fit(p.X, p.modes), L1("V", Weight("weight")), L2("U1", Weight("weight")), L2("V", 0.5)],
    "group": lambda p: [Fit(p.X, p.modes), L21("U1", 0.1), Laplacian(p.own, "V", weight=0.1)],
} | {f"beta {b:g}": (lambda p, b=b: [BetaFit(p.X + 0.01, p.modes, b)]) for b in (-0.5, 0, 0.5, 1, 1.5, 2, 3)}
TERMS |= {  # matrices and tensors of stored entries
    "stored, fit": lambda p: [Fit(p.X.to_sparse_coo(), p.modes), L1("V", Weight("weight")), L2("U1", 0.5)],
    "stored, KL": lambda p: [BetaFit(p.X.to_sparse_coo(), p.modes, 1)],
}
TERMS |= {
    "coupled": lambda p: [
        WeightedFit(p.X, p.modes, Weight("weight")),
        WeightedFit(p.X.flatten(1)[:, : p.X.shape[1]], ("V", "U1"), 0.5),
    ],
    "tucker": lambda p: [TuckerFit(p.X, p.modes), L1("core", Weight("weight"))],
    "stored, tucker": lambda p: [TuckerFit(p.X.to_sparse_coo(), p.modes)],
}
TERMS |= {f"polynomial {d}": partial(_polynomial, degree=d) for d in (1, 2, 3)}

MIXED = {  # for the multiplicative rule alone: Gram matrices on some rows, and divergences with penalties
    "tucker": lambda p: [TuckerFit(p.X, p.modes), L2("core", Weight("weight"))],
    "sulf": lambda p: [_views(p), _labels(p), L21("W", 0.3), L2("pi", Weight("weight"))],
    "KL, L2": lambda p: [BetaFit(p.X, p.modes, 1), L2("V", Weight("weight")), L2("U1", 1.0)],
    "KL, L1": lambda p: [BetaFit(p.X, p.modes, 1), L1("V", Weight("weight"))],
    "KL, graph": lambda p: [BetaFit(p.X, p.modes, 1), Laplacian(p.own, "V", weight=Weight("weight"))],
    "IS, L2": lambda p: [BetaFit(p.X + 0.01, p.modes, 0), L2("V", Weight("weight"))],
    "beta 3, graph": lambda p: [BetaFit(p.X, p.modes, 3), Laplacian(p.own, "V", weight=Weight("weight"))],
}

MODELS = {
    key: TERMS[key] for key in ("fit", "nge", "nge, paper", "ridge, sparse", "group", "tied", "stored, fit", "coupled")
}

RULES = {
    "multiplicative": multiplicative,
    "m_matrix": m_matrix,
    "m_matrix, 1 step": partial(m_matrix, cg=1),
    "m_matrix, 5 sweeps": partial(m_matrix, cg=0, sweeps=5),
    "m_matrix, solved": partial(m_matrix, tol=1e-10, max_cg=300),
    "hals": hals,
    "hals, 3 sweeps": partial(hals, sweeps=3),
    "projected": projected_gradient,
    "composed": compose(m_matrix, hals),
}


def of_one_process(X, **given):
    """Split samples over a group of this one process."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        atexit.register(dist.destroy_process_group)
    return Sharded(X, **given)


STORAGES = {
    "dense": lambda X: as_data(X),
    "fortran": lambda X: as_data(np.asfortranarray(X)),
    "strided": lambda X: as_data(np.repeat(X, 2, axis=1)[:, ::2]),
    "csr": lambda X: as_data(sp.csr_array(X)),
    "csc": lambda X: as_data(sp.csc_matrix(X)),
    "coo, duplicates": lambda X: as_data(_doubled(X)),
    "torch csr": lambda X: as_data(quiet_csr(X)),
    "chunked": lambda X: Chunked(X, n_rows=3),
    "chunked, single rows": lambda X: Chunked(X, n_rows=1),
    "chunked, whole": lambda X: Chunked(X),
    "chunked, parts": lambda X: Chunked([X[:2], X[2:3], X[3:]], n_rows=2),
    "chunked, csr": lambda X: Chunked(sp.csr_array(X), n_rows=2),
    "chunked, sparse parts": lambda X: Chunked([sp.csc_array(X[:3]), sp.coo_array(X[3:])], n_rows=4),
    "sharded": of_one_process,
    "sharded, csr": lambda X: of_one_process(sp.csr_array(X)),
    "sharded, chunked": lambda X: of_one_process(Chunked(X, n_rows=3)),
    "gathered": lambda X: of_one_process(X).gathered(),
    "gathered, csr": lambda X: of_one_process(sp.csr_array(X)).gathered(),
    "gathered, chunked": lambda X: of_one_process(Chunked(X, n_rows=3)).gathered(),
}

CHUNKED_TENSORS = {  # of order 3 and more, dense: every beta
    "chunked": lambda X: Chunked(X, n_rows=3),
    "chunked, single rows": lambda X: Chunked(torch.from_numpy(X), n_rows=1),
    "sharded": of_one_process,
    "gathered": lambda X: of_one_process(X).gathered(),
}

TENSORS = {  # of order 3 and more
    "torch coo": lambda X: as_data(torch.from_numpy(X).to_sparse_coo()),
    "torch coo, uncoalesced": lambda X: as_data(_uncoalesced(X)),
    "scipy coo, duplicates": lambda X: as_data(_doubled(X)),
    "pydata coo": lambda X: as_data(PyData(X)),
    "sharded coo": lambda X: of_one_process(torch.from_numpy(X).to_sparse_coo()),
    "gathered coo": lambda X: of_one_process(torch.from_numpy(X).to_sparse_coo()).gathered(),
}


class PyData:
    """What a `sparse.COO` of PyData shows; the entries in any order, some stored zeros."""

    fill_value = 0

    def __init__(self, X):
        self.shape = X.shape
        order = np.random.default_rng(0).permutation(X.size)[: X.size - X.size // 5]
        order = np.union1d(order, np.flatnonzero(X))[::-1]
        self.coords, self.data = np.stack(np.unravel_index(order, X.shape)), X.ravel()[order]


def _doubled(X):
    """Every entry in two parts that need not have its sign."""
    at, values = np.nonzero(X), X[np.nonzero(X)]
    twice = tuple(np.concatenate([i, i[::-1]]) for i in at)
    return sp.coo_array((np.concatenate([values * 1.5, -values[::-1] / 2]), twice), shape=X.shape)


def _uncoalesced(X):
    X = torch.from_numpy(X).to_sparse_coo()
    at, values = X.indices().flip(1), X.values().flip(0)
    halves = torch.cat([values / 4, 3 * values / 4])
    return torch.sparse_coo_tensor(torch.cat([at, at], 1), halves, X.shape, check_invariants=True)


def quiet_csr(X):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that CSR is in beta
        return torch.from_numpy(X).to_sparse_csr()
