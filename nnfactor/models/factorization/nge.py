"""Nonnegative graph embedding (Wang, Song, Yan, Zhang and Zhang 2009a; M-matrix rule: Yang et al. 2008)."""

import numbers
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from sklearn.utils.metaestimators import available_if

from ...core import Fit, Graph, Laplacian, Rule, Run, hals, m_matrix, multiplicative, projected_gradient, step
from ...core.factors import normalize_columns
from ...core.labels import encode_labels
from ...graphs import marginal_fisher_graphs
from ..shared.base import Factorization, cp_model, mode_names
from ..shared.constraints import with_own_terms
from ..shared.fitting import Learnt, Model, restore_on_error
from ..shared.hidden import HiddenEntries, Missing
from ..shared.inputs import Inputs
from ..shared.labelled_samples import Classifier, Compared, LabelledSamples, Metric, keep_labelled
from ..shared.labels import encode_classes, join_classes
from ..shared.minibatch import MiniBatches, takes_batches
from ..shared.parameters import Ridge, ShrunkCoefficients, graph_over, nonnegative, one_of, positive, whole
from ..shared.scikit_learn import BaseEstimator, ClassifierMixin
from ..shared.solvers import cg_steps, fastest

SWEEPS = 5  # Jacobi sweeps with inner="sweeps"


@dataclass(eq=False, repr=False)
class MarginalFisher(BaseEstimator):
    """Graphs of marginal Fisher analysis (Yan et al. 2007), as Wang et al. 2009a and 2009b use them.

    Parameters
    ----------
    n_neighbors : int or None
        Neighbours within the class; clipped to n_c - 1, which Wang et al. 2009b take. None: 3, as 2009a.
    n_pairs : int
        Shortest pairs between each class and the others; 20 in both papers.

    Notes
    -----
    Distances are between the samples as given. Where the papers mean PCA coefficients, which they do not say, pass
    `graph=marginal_fisher_graphs(PCA(...).fit_transform(X), y)`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NGE, MarginalFisher
    >>> X, y = np.random.default_rng(0).random((12, 5)), np.repeat([0, 1], 6)
    >>> NGE(n_components=3, graph=MarginalFisher(n_neighbors=1, n_pairs=4), random_state=0).fit(X, y).graph_[1]
    Graph(12 nodes, 4 edges)
    """

    n_neighbors: int | None = None
    n_pairs: int = 20

    def build(self, X: Any, y: np.ndarray) -> tuple[Graph, Graph]:
        """Intrinsic and penalty graph of samples `X` with integer labels `y` (-1: unlabelled, never linked)."""
        return marginal_fisher_graphs(X, y, n_neighbors=self.n_neighbors, n_pairs=self.n_pairs)


@dataclass(kw_only=True, eq=False, repr=False)
class NGE(LabelledSamples, ClassifierMixin, MiniBatches, HiddenEntries, Factorization):  # type: ignore[misc]
    """Nonnegative graph embedding of vectors, matrices or tensors: `X ~ [[V, U1, ...]]` with two graphs on V.

    Minimises (Wang et al. 2009a, Eq. 9), columns 1..q of V on the intrinsic graph, the others on the penalty graph,

        ||X - [[V, U1, ...]]||^2 + alpha sum_j (prod_b ||u^b_j||^2) v_j' L_j v_j,   L_j = L for j <= q, else L^p

    Rescaling columns between V and the bases does not change the objective. Alpha does not depend on the data's scale.

    Parameters
    ----------
    n_components : int
        Rank k. The papers take round(n m / (n + m)) for n samples of m features.
    n_discriminative : int or None
        q, the columns of V that carry the discriminative part; 0 to k. None: min(number of classes, k).
    alpha : float
        Weight of both graphs; the papers try 10, 100, 1000. From about 1e6 on use float64: rounding hides v'Lv.
    graph : "marginal_fisher", MarginalFisher, or (intrinsic, penalty)
        Built from labels, or two adjacencies (dense, scipy sparse or `core.Graph`; weighted or not) over the samples;
        then `y` may be None and `n_discriminative` is required.
    solver : {"auto", "m_matrix", "multiplicative", "mu", "hals", "projected"}
        "auto" has momentum and restarts (Ang and Gillis 2019): HALS for the bases; for V the graph solve, then HALS
        with the same product, in one to four sweeps (Gillis and Glineur 2012). Its objective can rise for an iteration,
        as that of `NMF`. The others are plain and monotone. "multiplicative", short "mu": Wang et al. 2009a, Eq. 15 for
        the bases (see `basis_rule`) and Eq. 28 for V. "m_matrix", with which they compare, is reconstructed from their
        description of it (Yang et al. 2008): multiplicative bases, the graph solve for V. "hals" and "projected"
        minimise the same objective without a solve.
    basis_rule : {"exact", "paper"}
        How the graphs enter the rule of a basis (`core.Laplacian`, `split`). "paper" is Eq. 15 as printed: correct, and
        slow at large alpha. "exact" has no Y_u- in the numerator, and Y_u, not Y_u+, in the denominator. For
        multiplicative bases only.
    inner : {"cg", "sweeps"}
        How the graph systems of V are solved: conjugate gradients and one Jacobi sweep, or Jacobi sweeps alone.
    inner_iter : int or "auto"
        CG steps or sweeps (auto: 5). One sweep is the multiplicative rule. Automatic CG steps are 4, and grow with the
        cube root of the penalty, alpha times the mean degree of a graph, where that is above 100 (solver="m_matrix":
        1000, for momentum needs a more exact V), to 24 at most.
    inner_tol : float or None
        Solve every system to this relative residual instead, e.g. 1e-10 for reference solutions. Slow.
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
    batch_size : int or None
        As for `NMF`, without momentum, with the graphs over all samples: links between batches count, so that the
        objective above never rises. Batches gather linked samples and classes. At alpha = 100 and more, epochs
        achieve less than iterations over all samples: what is linked across batches is not solved together.
    forgetting : float
        For `partial_fit`, as for `NMF`. That builds the graphs inside each batch: hand in several samples of each class
        at once, and choose `MarginalFisher(n_pairs=...)` in proportion to the batch. The first batch with labels
        settles `n_discriminative=None`.
    ridge : float >= 0 or "cv", strength of transform_method="ridge", as for `NMF`
    classifier : {"nearest_neighbor", "nearest_centroid"}
        What `predict` compares new samples with: the labelled samples of `fit`, or the mean of each class.
    metric : {"euclidean", "cosine"}
        How it compares them.
    coefficients : {"discriminative", "all"}
        Which ones: the first `n_discriminative_` (all, if that is 0), as in the papers, or all. With few classes "all"
        can be far better: on digits 96 % right instead of 88; on ORL, with 40 classes, 92 instead of 95. For `predict`
        take `transform_method="ridge"`: bases are often so nearly dependent that noise decides in "pinv" and "nnls".
    missing : {"nan", "unstored"} or None
        What is missing, as for `NMF`. Neighbours are then found by the distance over the features that two samples have
        in common, scaled up to all; a graph that is given is used as it is.
    terms : list of `nnfactor.core.Term`, or function, optional
        Terms of your own, as for `NMF`. With one that depends on lengths bases keep theirs, and "auto" has no momentum.

    Attributes
    ----------
    embedding_ : (n_samples, k)
        The fitted, graph-informed V, whatever `transform_method` is. `transform` computes coefficients without the
        graphs, and `predict` compares those, of labelled training samples too. A classifier behind it in a pipeline
        gets y with its -1, and takes that for a class, unless it is in a `LabelledOnly`.
    factors_ : list of (d_b, k), columns of unit length, or zero; the norms are in V
    graph_ : (Graph, Graph); classes_ : array; n_discriminative_ : int
    components_, loss_, reconstruction_err_, n_iter_, converged_, history_, restarts_, sample_shape_, fit_info_
        As for `NTF`. `loss_` is the full objective above.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NGE
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, -1], 5)                      # -1: unlabelled
    >>> X = rng.random((15, 8)) + np.eye(2)[np.abs(y)] @ rng.random((2, 8))
    >>> model = NGE(n_components=4, random_state=0).fit(X, y)
    >>> model.embedding_.shape, model.n_discriminative_
    ((15, 4), 2)
    >>> model.predict(X[:1]), model.score(X, y)           # samples without a label are not scored
    (array([0]), 1.0)
    """

    n_discriminative: int | None = None
    alpha: float = 10.0
    graph: Any = "marginal_fisher"
    solver: Literal["auto", "m_matrix", "multiplicative", "mu", "hals", "projected"] = "auto"
    basis_rule: Literal["exact", "paper"] = "exact"
    inner: Literal["cg", "sweeps"] = "cg"
    inner_iter: int | Literal["auto"] = "auto"
    inner_tol: float | None = None
    sample_shape: Sequence[int] | None = None
    transform_method: ShrunkCoefficients = "nnls"
    keep_embeddings: bool = False
    ridge: Ridge = 0.1
    classifier: Classifier = "nearest_neighbor"
    metric: Metric = "euclidean"
    coefficients: Compared = "discriminative"
    missing: Missing = None
    terms: Any = None
    graph_: tuple[Graph, Graph] = field(init=False)
    classes_: np.ndarray = field(init=False)
    n_discriminative_: int = field(init=False)

    _sharded = "gathered"
    _tensors = True
    _weights: ClassVar[tuple[str, ...]] = ("alpha",)
    _default_graph: ClassVar[MarginalFisher] = MarginalFisher()  # what graph="marginal_fisher" means

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        """Build the two graphs; code the classes that they come from."""
        n, given, sums = inputs.data.shape[0], not self._builds_graphs, inputs.data.sums
        codes, classes = (None, np.array([])) if y is None else encode_classes(y, n, stacklevel=5)
        if given:
            graphs = tuple(graph_over(A, f"graph[{i}]", n, sums) for i, A in enumerate(self.graph))
        elif codes is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: graph='marginal_fisher' is "
                "built from labels (-1: unlabelled); without them pass graph=(intrinsic, penalty) and n_discriminative"
            )
        else:
            builder = self._default_graph if isinstance(self.graph, str) else self.graph
            graphs = builder.build(inputs.unscaled.samples(), codes)
        return {"graph_": graphs, "classes_": classes, "codes": codes}

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        names = mode_names(inputs.data)
        graphs = self._graph_terms(names, learnt)
        solve = self._graph_solve(graphs)
        if self.solver == "auto":
            rules, method = fastest(names, inputs.data.shape, int(self.n_components), solve)
        else:
            named: dict[str, Rule] = {"hals": hals, "projected": projected_gradient}
            rule = named.get(self.solver, multiplicative)
            rules = {**dict.fromkeys(names[1:], rule), "V": solve if self.solver == "m_matrix" else rule}
            method = step
        terms = [Fit(inputs.data, names), *graphs]
        # Eqs. 24-25 once, of the results: the norms in the weights make the rules independent of the lengths of columns
        model = cp_model(inputs, self.n_components, terms, rules, method, normalize=normalize_columns)
        return model if self.terms is None else with_own_terms(self, model)

    def _graph_terms(self, names: tuple[str, ...], learnt: Learnt) -> list[Laplacian]:
        """Put each graph on its columns of V, weighed by the column norms of the bases."""
        q = self._discriminative(learnt)
        split: Literal["net", "paper"] = "net" if self.basis_rule == "exact" else "paper"
        return [
            Laplacian(graph, "V", names[1:], float(weight), slice(q) if discriminative else slice(q, None), split)
            for graph, weight, discriminative in self._weighted(learnt)
        ]

    def _weighted(self, learnt: Learnt) -> list[tuple[Graph, float, bool]]:
        """List graphs, their weights, and whether they act on the discriminative columns or on the others."""
        intrinsic, penalty = learnt["graph_"]
        return [(intrinsic, self.alpha, True), (penalty, self.alpha, False)]

    @available_if(takes_batches)
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, weights: Any = None, **epochs: Any) -> Self:
        """Learn from one batch of a stream, then forget the batch, as `NMF.partial_fit`.

        The bases move with every batch, and no labelled sample of earlier ones is kept: `predict` and `score` are
        refused until the next `fit`. A classifier behind `transform` is the way to classify with what a stream learned.

        Parameters
        ----------
        X, y, weights : one batch, its labels and the weights of its entries, as for `fit`
        classes : array, optional
            Labels of all batches. They settle `n_discriminative=None`; without them the first batch with labels does.
        n_epochs, held_out, checkpoint, checkpoint_every : optional
            Of a source, as for `NMF`: what was learned before an interruption stays.
        """
        with restore_on_error(self) if epochs.get("n_epochs") is None else nullcontext():
            if classes is not None and not len(getattr(self, "classes_", ())):
                self.classes_ = encode_labels(classes, len(classes))[1]
                vars(self).pop("n_discriminative_", None)
            return cast(Any, super()).partial_fit(X, y, weights=weights, **epochs)

    def _learn_batch(self, inputs: Inputs, y: Any) -> Learnt:
        """Build graphs inside the batch; the first batch that has labels settles the roles of the columns."""
        if not self._builds_graphs:
            raise ValueError(
                "partial_fit builds the graphs of every batch; graph=(intrinsic, penalty) over all samples cannot be "
                "cut to a batch. Use graph='marginal_fisher' or MarginalFisher(...), or fit with batch_size"
            )
        learnt = dict(self._learn_structure(inputs, y))
        known = getattr(self, "classes_", np.array([]))
        learnt["classes_"] = join_classes(known, learnt["classes_"])
        settled = vars(self) if len(known) and hasattr(self, "n_discriminative_") else learnt
        learnt["n_discriminative_"] = self._discriminative(settled)
        return {**learnt, "_labelled": {}}  # of earlier batches nothing is there that new bases could be held against

    def _past_graphs(self, names: tuple[str, ...]) -> list[Laplacian]:
        return self._graph_terms(names, vars(self))

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        key = self.transform_method, float(found.get("ridge_", 0.0))
        labelled = keep_labelled(inputs, learnt["codes"], found["factors_"], key)
        return {**found, "n_discriminative_": self._discriminative(learnt), "_labelled": labelled}

    @property
    def _builds_graphs(self) -> bool:
        """Whether the graphs are built from labels, not given."""
        return isinstance(self.graph, str | BaseEstimator)

    def _discriminative(self, learnt: Learnt) -> int:
        """Count the discriminative columns."""
        q, n_classes = self.n_discriminative, len(learnt["classes_"])
        if "n_discriminative_" in learnt:
            return int(learnt["n_discriminative_"])
        if q is None:
            if not n_classes and not self._builds_graphs:
                raise ValueError("n_discriminative is required with graph=(intrinsic, penalty) and no labels; got None")
            return min(n_classes, self.n_components)
        if not isinstance(q, numbers.Integral) or isinstance(q, bool) or not 0 <= q <= self.n_components:
            raise ValueError(f"n_discriminative must be None or a whole number in 0..{self.n_components}, got {q!r}")
        return int(q)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        nonnegative("alpha", self.alpha)
        named, listed = isinstance(self.graph, str), isinstance(self.graph, Sequence)
        known = self.graph == "marginal_fisher" if named else listed and len(self.graph) == 2
        if not known and not isinstance(self.graph, MarginalFisher):
            raise ValueError(
                f"graph={self.graph!r} is not known; use 'marginal_fisher', MarginalFisher(...) or a pair "
                "(intrinsic, penalty) of adjacencies"
            )
        one_of("solver", self.solver, ("auto", "m_matrix", "multiplicative", "mu", "hals", "projected"))
        one_of("basis_rule", self.basis_rule, ("exact", "paper"))
        one_of("inner", self.inner, ("cg", "sweeps"))
        one_of("classifier", self.classifier, ("nearest_neighbor", "nearest_centroid"))
        one_of("metric", self.metric, ("euclidean", "cosine"))
        one_of("coefficients", self.coefficients, ("discriminative", "all"))
        if self.basis_rule == "paper" and self.solver not in ("multiplicative", "mu", "m_matrix"):
            other = f"solver={self.solver!r} has other bases. Use solver='multiplicative' or 'm_matrix'"
            raise ValueError(f"basis_rule='paper' is the printed multiplicative rule; {other}")
        if self.inner_iter != "auto":
            whole("inner_iter", self.inner_iter, also="'auto' or ")
        if self.inner_tol is not None:
            positive("inner_tol", self.inner_tol, also="None or ")

    def _graph_solve(self, graphs: list[Laplacian]) -> Rule:
        """Make the rule that solves the graph systems of V."""
        if self.inner_tol is not None:
            return partial(m_matrix, tol=float(self.inner_tol))
        strength = max(float(cast(float, term.weight)) * term.graph.mean_degree for term in graphs)
        usual = SWEEPS if self.inner == "sweeps" else cg_steps(strength, momentum=self.solver == "auto")
        n_inner = usual if isinstance(self.inner_iter, str) else int(self.inner_iter)
        return partial(m_matrix, cg=0, sweeps=n_inner) if self.inner == "sweeps" else partial(m_matrix, cg=n_inner)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = isinstance(self.graph, str | BaseEstimator)
        return tags


NDTF = NGE  # the name in Wang et al. 2009a of NGE with marginal Fisher graphs, the default
