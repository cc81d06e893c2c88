"""Constrained NMF (Liu, Wu, Li, Cai and Huang 2012)."""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from torch import Tensor

from ...core import Run
from ...core.labels import encode_optional_labels
from ...core.terms.must_link import GroupedFit, SampleGroups, group_samples
from ..shared.base import Factorization, cp_model
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs
from ..shared.parameters import Ridge, ShrunkCoefficients, Solver
from ..shared.solvers import unsupervised_rule


@dataclass(kw_only=True, eq=False, repr=False)
class ConstrainedNMF(Factorization):
    """Constrained NMF (Liu, Wu, Li, Cai and Huang 2012): labelled samples of one class share their coefficients.

    Minimises `||X - A Z U'||^2` over nonnegative Z (p x k) and U (m x k), `V = A Z`: A (n x p) gives all samples of a
    class one row of Z, and every unlabelled sample (-1, NaN; None, "-1", "" among text) its own. Without labels this is
    NMF. `U *= X'V / (U V'V)`, then `Z *= A'XU / (A'A Z U'U)`; the objective carries no 1/2.

    Parameters
    ----------
    n_components : int
        Rank k.
    solver : {"multiplicative", "mu", "auto", "hals", "projected"}
        "multiplicative": the published rules. The others as for `NMF`; "auto" is faster. All are monotone.
    init : {"auto", "random", "nndsvda"} or tuple (Z, U)
        Rows of Z: the classes in sorted order, then the unlabelled samples in theirs. The named ones as for `NMF`, with
        the means over a class as its row.
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    transform_method : {"nnls", "pinv", "ridge"}, coefficients of `transform`: nonnegative, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration
    ridge : float >= 0 or "cv", strength of transform_method="ridge", as for `NMF`

    Attributes
    ----------
    embedding_ : (n_samples, k), the fitted V = A Z
    Z_ : (p, k), classes in order, then unlabelled samples
    factors_ : list with U (m, k); classes_ : array
    components_, loss_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import ConstrainedNMF
    >>> X = np.random.default_rng(0).random((6, 5))
    >>> model = ConstrainedNMF(2, random_state=0, max_iter=2000).fit(X, ["b", "a", None, "a", "b", None])
    >>> model.Z_.shape, bool((model.embedding_[1] == model.Z_[0]).all())
    ((4, 2), True)
    """

    solver: Solver = "multiplicative"
    transform_method: ShrunkCoefficients = "nnls"
    ridge: Ridge = 0.1
    classes_: np.ndarray = field(init=False)

    _sharded = "gathered"

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        n = inputs.data.shape[0]
        codes, classes = encode_optional_labels(y, n)
        return {"classes_": classes, "groups": SampleGroups(group_samples(codes, n))}

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        groups, k = learnt["groups"], int(self.n_components)
        rule = unsupervised_rule(self.solver, 2)
        term = GroupedFit(inputs.data, ("Z", "U1"), groups)
        shapes = {"Z": (len(groups.sizes), k), "U1": (inputs.data.shape[1], k)}
        return cp_model(inputs, self.n_components, [term], {"U1": rule, "Z": rule}, shapes=shapes, embed=groups.spread)

    def _start(self, inputs: Inputs, model: Model, seeds: list[int], restart: int) -> dict[str, Tensor]:
        """Start the rows of Z as given, or at the means of a class where V was drawn."""
        start, groups = super()._start(inputs, model, seeds, restart), cast(GroupedFit, model.terms[0]).groups
        Z = start["Z"]
        given = not restart and not isinstance(self.init, str)
        return {**start, "Z": Z * groups.weights(Z) if given else groups.gather(Z)}

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        return {**found, "Z_": found["embedding_"][np.unique(learnt["groups"].groups, return_index=True)[1]]}
