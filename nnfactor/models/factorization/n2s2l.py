"""Nonnegative semi-supervised learning (Wang, Yan, Zhang and Zhang 2009b), for vectors, matrices and tensors."""

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

from ...core import Graph
from ..shared.fitting import Learnt
from ..shared.inputs import Inputs
from ..shared.parameters import check_neighbors, neighbor_graph, nonnegative
from .nge import NGE, MarginalFisher

ALL_OF_THE_CLASS = 2**31 - 1  # clipped to n_c - 1: a within-class clique, kept as class sums


@dataclass(kw_only=True, eq=False, repr=False)
class N2S2L(NGE):
    """Nonnegative semi-supervised learning: NGE with a third graph, over all samples, labelled or not.

    Minimises (Wang et al. 2009b, Eqs. 9 and 40)

        ||X - [[V, U1, ...]]||^2 + sum_j (prod_b ||u^b_j||^2) v_j' Y_j v_j,
        Y_j = alpha L + beta L^s for the first q columns, alpha L^p for the others,

    with L the intrinsic and L^p the penalty graph over labelled samples and L^s the nearest-neighbour graph over all.
    alpha and beta are those of the trace form (the paper's sums over i != j are twice that), whatever the data's scale.

    Parameters
    ----------
    n_components : int
        Rank k; the paper takes round(n m / (n + m)).
    n_discriminative : int or None
        q; None: min(number of classes, k), as in the paper.
    alpha, beta : float
        Weights of the labelled graphs (the paper: 10) and of the neighbour graph (the paper: 1e-6 to 1e3).
    graph : "marginal_fisher", MarginalFisher, or (intrinsic, penalty)
        "marginal_fisher" means k1 = n_c - 1 here, as in the paper: all samples of a class are linked.
    neighbors : int, or adjacency (n, n)
        p of the neighbour graph, whose value the paper does not give (5 is common practice), or the graph itself.
    solver : {"auto", "m_matrix", "multiplicative", "mu", "hals", "projected"}, as for `NGE`
    basis_rule : {"exact", "paper"}, as for `NGE`; "paper" is Eqs. 25 and 54
    inner : {"cg", "sweeps"}, how the graph systems of V are solved, as for `NGE`
    inner_iter : int or "auto", conjugate gradient steps or sweeps
    inner_tol : float or None, solve every system to this relative residual instead
    sample_shape : tuple of int, optional, shape of one sample when `X` comes as flattened rows
    init : {"auto", "random", "nndsvda"} or tuple (V, U1, ...), where restart 0 begins, as for `NMF`
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    transform_method : {"nnls", "pinv", "ridge"}, coefficients of `transform`: nonnegative, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration
    keep_embeddings : bool, whether `restarts_` also holds the sample factor of every restart
    ridge : float >= 0 or "cv", strength of transform_method="ridge", as for `NMF`
    classifier : {"nearest_neighbor", "nearest_centroid"}, what `predict` compares new samples with, as for `NGE`
    metric : {"euclidean", "cosine"}, of `predict`
    coefficients : {"discriminative", "all"}, which ones `predict` compares, as for `NGE`
    missing : {"nan", "unstored"} or None, what is missing, as for `NGE`
    terms : list of `nnfactor.core.Term`, or function, optional, terms of your own, as for `NGE`

    Attributes
    ----------
    neighbors_ : Graph
    embedding_, factors_, components_, graph_, classes_, n_discriminative_, loss_, reconstruction_err_, n_iter_, \
converged_, history_, restarts_, sample_shape_, fit_info_
        As for `NGE`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import N2S2L
    >>> rng = np.random.default_rng(0)
    >>> y = np.array([0, 1] + 8 * [-1])                   # two labelled samples, eight that are not
    >>> X = rng.random((10, 6)) + np.eye(2)[np.arange(10) % 2] @ rng.random((2, 6))
    >>> model = N2S2L(n_components=3, neighbors=2, random_state=0).fit(X, y)
    >>> model.embedding_.shape, model.neighbors_.n_nodes
    ((10, 3), 10)
    """

    beta: float = 1.0
    neighbors: Any = 5
    batch_size: None = field(init=False, default=None)  # a graph over all samples has no mini-batches
    forgetting: float = field(init=False, default=0.0)
    neighbors_: Graph = field(init=False)

    _weights: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    _default_graph: ClassVar[MarginalFisher] = MarginalFisher(n_neighbors=ALL_OF_THE_CLASS)

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        learnt = super()._learn_structure(inputs, y)
        n, sums = inputs.data.shape[0], inputs.data.sums
        samples = inputs.unscaled.samples() if isinstance(self.neighbors, Integral) else None
        return {**learnt, "neighbors_": neighbor_graph(self.neighbors, samples, n, sums)}

    def _weighted(self, learnt: Learnt) -> list[tuple[Graph, float, bool]]:
        return [*super()._weighted(learnt), (learnt["neighbors_"], self.beta, True)]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        nonnegative("beta", self.beta)
        check_neighbors(self.neighbors)
