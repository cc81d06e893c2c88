"""Constrained NMF (Liu, Wu, Li, Cai and Huang 2012)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from torch import Tensor

from ...core import Run
from ...core.terms.must_link import GroupedFit, SampleGroups, group_samples
from ..shared.base import Factorization
from ..shared.fitting import Model
from ..shared.inputs import Inputs
from ..shared.labels import encode_labels
from ..shared.solvers import rule_key, unsupervised_rule


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

    def _prepare(self, source: Inputs, y: Any) -> None:
        codes, self.classes_ = encode_labels(y, source.data.shape[0]) if y is not None else (None, np.array([]))
        self._ties = SampleGroups(group_samples(codes, source.data.shape[0]))

    def _batch_key(self, source: Inputs) -> Hashable:
        return rule_key(self.solver, 2, self.n_components)

    def _model(self, source: Inputs, y: Any) -> Model:
        rule = unsupervised_rule(self.solver, 2, self.n_components)
        return Model([GroupedFit(source.data, ("Z", "U"), self._ties)], {"U": rule, "Z": rule}, ("Z", "U"))

    def _start(self, source: Inputs, restart: int) -> list[Tensor]:
        V, U = super()._start(source, restart)
        given = not restart and not isinstance(self.init, str)
        return [V * self._ties.weights(V) if given else self._ties.gather(V), U]

    def _shapes(self, source: Inputs) -> dict[str, tuple[int, int]]:
        k = int(self.n_components)
        return {"Z": (len(self._ties.sizes), k), "U": (source.data.shape[1], k)}

    def _embedded(self, V: Tensor) -> Tensor:
        return self._ties.spread(V)

    def _publish(self, source: Inputs, model: Model, result: Run) -> None:
        super()._publish(source, model, result)
        self.Z_ = self.embedding_[np.unique(self._ties.groups, return_index=True)[1]]
        del self._ties
