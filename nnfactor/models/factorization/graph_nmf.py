"""Graph-regularised NMF (Cai, He, Han and Huang 2011), without labels and with them (SGNMF)."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from ...core import Fit, Graph, Laplacian, Rule, Term, hals, m_matrix, multiplicative, step
from ...core.factors import normalize_columns
from ...core.labels import encode_optional_labels
from ...graphs import knn_graph
from ..shared.base import Factorization, cp_model
from ..shared.constraints import with_own_terms
from ..shared.fitting import Learnt, Model
from ..shared.hidden import HiddenEntries, Missing
from ..shared.inputs import Inputs
from ..shared.parameters import Ridge, ShrunkCoefficients, graph_over, nonnegative, one_of
from ..shared.solvers import cg_steps, fastest


@dataclass(kw_only=True, eq=False, repr=False)
class GraphNMF(HiddenEntries, Factorization):
    """Graph-regularised NMF (Cai, He, Han and Huang 2011); with labels SGNMF, which Jiang et al. 2014 compare with.

    Minimises `||X - V U'||^2 + lam tr(V' L V)` over nonnegative V (n x k) and U (m x k), `L = D - S` of a graph of
    samples; the objective carries no 1/2. `fit(X, y)` overwrites the weights of labelled pairs: 1 in the same class, 0
    in different ones; unlabelled samples (-1, NaN; None, "-1" and "" among text) keep theirs.

    Parameters
    ----------
    n_components : int
        Rank k.
    lam : float
        Weight of the graph, >= 0. An absolute penalty: with `scale_free=False` it depends on the scale of V.
    graph : "knn" or adjacency (n, n)
        Edges between samples: nearest neighbours with weight 1 (`nnfactor.graphs.knn_graph`), or your own (array,
        scipy sparse or `Graph`), symmetric and nonnegative; 0 is no link.
    n_neighbors : int
        Of "knn". 5, as usual with this method.
    scale_free : bool
        The printed penalty lacks a minimum: (c U, V / c) sends it to 0 and fits as well. True weighs column j by
        `||u_j||^2`, as bases of unit length would: blind to c and to the data's scale. False: the method as published.
    solver : {"multiplicative", "mu", "auto", "m_matrix", "hals"}
        "multiplicative": the published rules. "m_matrix": V by solving the graph's systems. "hals": both factors
        column by column. "auto": HALS for U; for V the systems, then HALS. All are monotone, but for "auto" with
        `scale_free`, which has momentum as in `NGE` and is the fastest.
    init : {"auto", "random", "nndsvda"} or tuple (V, U), where restart 0 begins, as for `NMF`
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    transform_method : {"nnls", "pinv", "ridge"}, of `transform`, without the graph: nonnegative, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration
    ridge : float >= 0 or "cv", strength of transform_method="ridge", as for `NMF`
    missing : {"nan", "unstored"} or None, what is missing, as for `NGE`
    terms : list of `nnfactor.core.Term`, or function, optional, terms of your own, as for `NGE`

    Attributes
    ----------
    embedding_ : (n_samples, k), the fitted V
    factors_ : list with U (m, k); columns of unit length with `scale_free`
    graph_ : Graph, labels included
    classes_ : array, empty without labels
    loss_ : float, the full objective
    components_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import GraphNMF
    >>> X = np.random.default_rng(0).random((10, 6))
    >>> GraphNMF(2, random_state=0, n_neighbors=1, max_iter=2000).fit(X, [0, 0, 0, 1, 1, 1, -1, -1, -1, -1]).classes_
    array([0, 1])
    """

    lam: float = 1.0
    graph: Any = "knn"
    n_neighbors: int = 5
    scale_free: bool = False
    solver: Literal["multiplicative", "mu", "auto", "m_matrix", "hals"] = "multiplicative"
    transform_method: ShrunkCoefficients = "nnls"
    ridge: Ridge = 0.1
    missing: Missing = None
    terms: Any = None
    graph_: Graph = field(init=False)
    classes_: np.ndarray = field(init=False)

    _sharded = "gathered"
    _weights = ("lam",)

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        n, knn, sums = inputs.data.shape[0], isinstance(self.graph, str), inputs.data.sums
        make = lambda: knn_graph(inputs.unscaled.samples(), self.n_neighbors)
        graph = make() if knn else graph_over(self.graph, "graph", n, sums)
        codes, classes = encode_optional_labels(y, n)
        return {"graph_": graph if codes is None else overwrite_labelled(graph, codes), "classes_": classes}

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        names, k, graph = ("V", "U1"), int(self.n_components), learnt["graph_"]
        penalty = Laplacian(graph, "V", ("U1",) if self.scale_free else (), float(self.lam))
        terms: list[Term] = [Fit(inputs.data, names), penalty]
        if self.solver == "auto":
            solve = partial(m_matrix, cg=cg_steps(penalty.weight * graph.mean_degree, momentum=self.scale_free))
            rules, method = fastest(names, inputs.data.shape, k, solve, norms_of=self.scale_free)
        else:
            named: dict[str, tuple[Rule, Rule]] = {"m_matrix": (multiplicative, m_matrix), "hals": (hals, hals)}
            basis, embedding = named.get(self.solver, (multiplicative, multiplicative))
            rules, method = {"U1": basis, "V": embedding}, step
        normalize: dict[str, Any] = {"normalize": normalize_columns} if self.scale_free else {}
        model = cp_model(inputs, k, terms, rules, method, **normalize)
        return model if self.terms is None else with_own_terms(self, model)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        nonnegative("lam", self.lam)
        if isinstance(self.graph, str) or self.graph is None:
            one_of("graph", self.graph, ("knn",), "an adjacency (n_samples, n_samples)")
        one_of("scale_free", self.scale_free, (True, False))
        one_of("solver", self.solver, ("multiplicative", "mu", "auto", "m_matrix", "hals"))


def overwrite_labelled(links: Graph, codes: np.ndarray) -> Graph:
    """Overwrite the weights of labelled pairs (codes >= 0): 1 in the same class, 0 in different ones (SGNMF)."""
    S = (links.adjacency if links.cliques is None else sp.csr_array(links.toarray())).tocoo()
    known = codes >= 0
    keep = ~(known[S.row] & known[S.col])
    S = sp.csr_array((S.data[keep], (S.row[keep], S.col[keep])), shape=S.shape)
    return Graph(S, cliques=codes if known.any() else None)
