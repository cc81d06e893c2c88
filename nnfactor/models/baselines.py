"""Factorizations that the papers compare with: LNMF, graph-regularised NMF with and without labels, constrained NMF."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..core import BetaFit, Block, Fit, Graph, Links, Rule, Run, Term, as_links
from ..core.ops import divide, unit_columns
from ..core.rules import hals, m_matrix, multiplicative
from ..core.terms import Factors
from ..core.ties import TiedFit, Ties, tied_groups
from ..graphs import knn_graph
from .base import Factorization, Model, _to
from .checks import nonnegative, one_of
from .graph_rules import cg_steps, fastest, hals_sweeps
from .labels import encode_labels
from .nmf import rule_key, unsupervised_rule
from .reading import Source
from .together import values_of, weight_of


class LNMF(Factorization):
    """Local nonnegative matrix factorization (Li, Hou, Zhang and Cheng 2001): a heuristic, kept as a baseline.

    One iteration, V (n x k) first:

        V <- sqrt(V * ((X / (V U')) U));   U *= ((X / (V U'))' V) / colsum(V);   columns of U (m x k) to unit sum

    V is not rescaled. Nothing is promised: the Kullback-Leibler divergence of X and V U', which is reported, rises in
    many steps.

    Parameters
    ----------
    n_components : int
        Rank k.
    init : {"auto", "random", "nndsvda"} or tuple (V, W)
        As for `NMF`; W is U.
    tol : float
        Default 0: exactly `max_iter` iterations, as in the papers, for there is no falling objective to stop by.
        Otherwise stop when the divergence fell by no more than tol times its start value, or rose, over 10 iterations.
    n_init, max_iter, transform_method, random_state, device, dtype, callback, verbose
        As for `NMF`. `transform` solves least squares on the bases; the papers take "pinv".

    Attributes
    ----------
    embedding_ : (n_samples, k)
        The fitted V.
    factors_ : list with U (m, k), columns of unit sum (or zero)
    loss_ : float
        The divergence `sum X log(X / (V U')) - X + V U'`.
    components_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Notes
    -----
    With unit sums the two rules are majorise-minimise steps for the divergence plus `||V - 1||^2 / 2`. Hence V is in
    units of the root of the data's (X to c^2 X gives V to c V) and V U' need not be near X. A classifier that compares
    directions does not mind.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import LNMF
    >>> model = LNMF(n_components=3, random_state=0).fit(np.random.default_rng(0).random((12, 6)))
    >>> model.factors_[0].sum(0).round(6).tolist(), model.n_iter_
    ([1.0, 1.0, 1.0], 200)
    """

    def __init__(
        self,
        n_components: int,
        *,
        init: Any = "auto",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 0.0,
        transform_method: str = "nnls",
        random_state: Any = None,
        device: Any = "auto",
        dtype: Any = "auto",
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.transform_method = transform_method
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.callback = callback
        self.verbose = verbose

    def _model(self, source: Source, y: Any) -> Model:
        term = _Divergence(source.data, ("V", "W"), 1.0, source.scale)
        return Model([term], {"V": _root_rule, "W": _unit_sums}, ("V", "W"))

    def _target(self, source: Source) -> Source:
        """Extreme data are divided by `scale ** 2`, a power of four, for V is in units of their root."""
        peak = source.data.largest() * source.scale
        root = 1.0 if peak == 0 or 2.0**-30 <= peak <= 2.0**30 else 2.0 ** (np.floor(np.log2(peak)) // 2)
        return replace(source, data=source.data.scaled(source.scale / root / root), scale=float(root))

    def _publish(self, source: Source, model: Model, result: Run) -> None:
        super()._publish(source, model, result)
        V, U = (_to(F, source.data).double() for F in (self.embedding_, self.factors_[0]))
        distance = float(source.data.residual_sq([V / source.scale / source.scale, U]).sqrt())
        self.reconstruction_err_ = source.scale * source.scale * distance

    def _shapes(self, source: Source) -> dict[str, tuple[int, int]]:
        (n, m), k = source.data.shape, int(self.n_components)
        return {"V": (n, k), "W": (m, k)}


class GraphNMF(Factorization):
    """Graph-regularised NMF (Cai, He, Han and Huang 2011); with labels SGNMF, as paper 001 compares with.

    Minimises `||X - V U'||^2 + lam tr(V' L V)` over nonnegative V (n x k) and U (m x k), `L = D - S` of a graph of
    samples; the objective carries no 1/2.

    Parameters
    ----------
    n_components : int
        Rank k.
    lam : float
        Weight of the graph, >= 0. An absolute penalty: with `scale_free=False` it depends on the scale of V.
    graph : "knn" or adjacency (n, n)
        Links between samples: nearest neighbours with weight 1 (`nnfactor.graphs.knn_graph`), or your own (array,
        scipy sparse or `Links`), symmetric and nonnegative; 0 is no link.
    n_neighbors : int
        p of "knn". 5, as usual with this method.
    scale_free : bool
        The printed penalty lacks a minimum: (c U, V / c) sends it to 0 and fits as well, so that iterations creep for
        ever. True weighs column j by `||u_j||^2`, the same as normalised bases: blind to c, and `lam` then does not
        depend on the data's scale. Default False, the method as published.
    solver : {"multiplicative", "mu", "auto", "m_matrix", "hals"}
        "multiplicative": the published rules. "m_matrix": V by solving the graph's systems. "hals": both factors
        column by column. "auto": HALS for U; for V the systems, then HALS. All are monotone, but for "auto" with
        `scale_free`, which has momentum as in `NGE` and is the fastest. Without `scale_free` it would carry U out of
        range: the printed penalty draws it there.
    init : {"auto", "random", "nndsvda"} or tuple (V, U)
        As for `NMF`.
    n_init, max_iter, tol, transform_method, random_state, device, dtype, callback, verbose
        As for `NMF`. `transform` computes coefficients without the graph.

    Attributes
    ----------
    embedding_ : (n_samples, k)
        The fitted V.
    factors_ : list with U (m, k); columns of unit length with `scale_free`
    graph_ : Links
        The graph, labels included.
    classes_ : array
        Of the labels; empty without.
    loss_ : float
        The full objective.
    components_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Notes
    -----
    `fit(X, y)` overwrites the weights of labelled pairs: 1 in the same class, 0 in different ones. Unlabelled samples
    (-1, NaN; None and "-1" among strings) keep theirs. A class costs O(its size), never the square.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import GraphNMF
    >>> X = np.random.default_rng(0).random((10, 6))
    >>> GraphNMF(n_components=2, random_state=0, max_iter=2000).fit(X).embedding_.shape
    (10, 2)
    >>> GraphNMF(2, random_state=0, n_neighbors=1, max_iter=2000).fit(X, [0, 0, 0, 1, 1, 1, -1, -1, -1, -1]).classes_
    array([0, 1])
    """

    _batched = ("lam",)

    def __init__(
        self,
        n_components: int,
        *,
        lam: float = 1.0,
        graph: Any = "knn",
        n_neighbors: int = 5,
        scale_free: bool = False,
        solver: str = "multiplicative",
        init: Any = "auto",
        n_init: int = 1,
        max_iter: int = 500,
        tol: float = 1e-4,
        transform_method: str = "nnls",
        random_state: Any = None,
        device: Any = "auto",
        dtype: Any = "auto",
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.scale_free = scale_free
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.transform_method = transform_method
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.callback = callback
        self.verbose = verbose

    def _prepare(self, source: Source, y: Any) -> None:
        self.graph_ = self._links(source, y)

    def _model(self, source: Source, y: Any) -> Model:
        gauge = ("U",) if self.scale_free else ()
        terms: list[Term] = [Fit(source.data, ("V", "U")), Graph(self.graph_, "V", gauge, weight_of(self.lam))]
        names = ("V", "U")
        if self.solver == "auto":
            solve = partial(m_matrix, cg=self._cg_steps())
            rules, method = fastest(names, source.data, int(self.n_components), solve, gauge=self.scale_free)
            return Model(terms, rules, names, method)
        named: dict[str, tuple[Rule, Rule]] = {"m_matrix": (multiplicative, m_matrix), "hals": (hals, hals)}
        basis, embedding = named.get(self.solver, (multiplicative, multiplicative))
        return Model(terms, {"U": basis, "V": embedding}, names)

    def _batch_key(self, source: Source) -> Hashable:
        if self.solver != "auto":
            return ()
        return hals_sweeps(source.data, int(self.n_components)), self._cg_steps()

    def _cg_steps(self) -> int:
        return cg_steps(max(values_of(self.lam)) * self.graph_.mean_degree, momentum=self.scale_free)

    def _links(self, source: Source, y: Any) -> Links:
        n = source.data.shape[0]
        knn = isinstance(self.graph, str)
        links = knn_graph(source.X, self.n_neighbors) if knn else as_links(self.graph, "graph")
        if links.n_nodes != n:
            raise ValueError(f"graph has {links.n_nodes} nodes, X has {n} samples; it needs one node per sample")
        codes, self.classes_ = encode_labels(y, n) if y is not None else (None, np.array([]))
        return links if codes is None else labelled_links(links, codes)

    def _published(self, factors: list[Tensor]) -> list[Tensor]:
        return unit_columns(factors) if self.scale_free else factors

    def _shapes(self, source: Source) -> dict[str, tuple[int, int]]:
        (n, m), k = source.data.shape, int(self.n_components)
        return {"V": (n, k), "U": (m, k)}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        nonnegative("lam", self.lam)
        if isinstance(self.graph, str) or self.graph is None:
            one_of("graph", self.graph, ("knn",), "an adjacency (n_samples, n_samples)")
        one_of("scale_free", self.scale_free, (True, False))
        one_of("solver", self.solver, ("multiplicative", "mu", "auto", "m_matrix", "hals"))


class ConstrainedNMF(Factorization):
    """Constrained NMF (Liu, Wu, Li, Cai and Huang 2012): labelled samples of one class share their coefficients.

    Minimises `||X - A Z U'||^2` over nonnegative Z (p x k) and U (m x k), `V = A Z`: A (n x p) gives all samples of a
    class one row of Z, and every unlabelled sample its own. `U *= X'V / (U V'V)`, then `Z *= A'XU / (A'A Z U'U)`;
    the objective carries no 1/2.

    Parameters
    ----------
    n_components : int
        Rank k.
    solver : {"multiplicative", "mu", "auto", "hals", "projected"}
        "multiplicative": the published rules. The others as for `NMF`; "auto" is faster. All are monotone.
    init : {"auto", "random", "nndsvda"} or tuple (Z, U)
        Rows of Z: the classes in sorted order, then the unlabelled samples in theirs. The named ones as for `NMF`, with
        the means over a class as its row.
    n_init, max_iter, tol, transform_method, random_state, device, dtype, callback, verbose
        As for `NMF`.

    Attributes
    ----------
    embedding_ : (n_samples, k)
        The fitted V = A Z.
    Z_ : (p, k)
        Classes in order, then unlabelled samples.
    factors_ : list with U (m, k)
    classes_ : array
    components_, loss_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Notes
    -----
    `fit(X, y)`: unlabelled are -1 and NaN, None and "-1" among strings and objects. Without labels, or with none known,
    this is NMF.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import ConstrainedNMF
    >>> X = np.random.default_rng(0).random((6, 5))
    >>> model = ConstrainedNMF(2, random_state=0, max_iter=2000).fit(X, ["b", "a", None, "a", "b", None])
    >>> model.Z_.shape, bool((model.embedding_[1] == model.Z_[0]).all())
    ((4, 2), True)
    """

    def __init__(
        self,
        n_components: int,
        *,
        solver: str = "multiplicative",
        init: Any = "auto",
        n_init: int = 1,
        max_iter: int = 500,
        tol: float = 1e-4,
        transform_method: str = "nnls",
        random_state: Any = None,
        device: Any = "auto",
        dtype: Any = "auto",
        callback: Callable[..., Any] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.transform_method = transform_method
        self.random_state = random_state
        self.device = device
        self.dtype = dtype
        self.callback = callback
        self.verbose = verbose

    def _prepare(self, source: Source, y: Any) -> None:
        codes, self.classes_ = encode_labels(y, source.data.shape[0]) if y is not None else (None, np.array([]))
        self._ties = Ties(tied_groups(codes, source.data.shape[0]))

    def _batch_key(self, source: Source) -> Hashable:
        return rule_key(self.solver, 2, self.n_components)

    def _model(self, source: Source, y: Any) -> Model:
        rule = unsupervised_rule(self.solver, 2, self.n_components)
        return Model([TiedFit(source.data, ("Z", "U"), self._ties)], {"U": rule, "Z": rule}, ("Z", "U"))

    def _start(self, source: Source, restart: int) -> list[Tensor]:
        V, U = super()._start(source, restart)
        given = not restart and not isinstance(self.init, str)
        return [V * self._ties.weights(V) if given else self._ties.gather(V), U]

    def _shapes(self, source: Source) -> dict[str, tuple[int, int]]:
        k = int(self.n_components)
        return {"Z": (len(self._ties.sizes), k), "U": (source.data.shape[1], k)}

    def _embedded(self, V: Tensor) -> Tensor:
        return self._ties.spread(V)

    def _publish(self, source: Source, model: Model, result: Run) -> None:
        super()._publish(source, model, result)
        self.Z_ = self.embedding_[np.unique(self._ties.groups, return_index=True)[1]]
        del self._ties


def labelled_links(links: Links, codes: np.ndarray) -> Links:
    """Links whose labelled pairs (codes >= 0) are overwritten: 1 in the same class, 0 in different ones (SGNMF)."""
    S = (links.adjacency if links.cliques is None else sp.csr_array(links.toarray())).tocoo()
    known = codes >= 0
    keep = ~(known[S.row] & known[S.col])
    S = sp.csr_array((S.data[keep], (S.row[keep], S.col[keep])), shape=S.shape)
    return Links(S, cliques=codes if known.any() else None)


@dataclass(frozen=True, eq=False)
class _Divergence(BetaFit):
    """Kullback-Leibler of `s^2 X` and `s V U'`, over `s^2`."""

    stretch: float = 1.0

    def value(self, factors: Factors) -> Tensor:
        V, W = (factors[m] for m in self.modes)
        value = super().value(factors)
        model = (V.sum(-2, dtype=torch.float64) * W.sum(-2, dtype=torch.float64)).sum(-1)
        total = self.data.mean() * math.prod(self.data.shape)
        more = math.log(self.stretch) * total + (1 / self.stretch - 1) * model
        return value if self.stretch == 1 else value + more


def _root_rule(F: Tensor, block: Block) -> Tensor:
    """`sqrt(F * ratio)`; a block of the divergence pulls with half the ratio product."""
    return (2 * block.down(F) * F).sqrt()


def _unit_sums(F: Tensor, block: Block) -> Tensor:
    """The multiplicative rule, then columns to unit sum."""
    F = multiplicative(F, block)
    return divide(F, F.sum(-2, keepdim=True))
