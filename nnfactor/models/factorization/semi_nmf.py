"""Semi-nonnegative matrix factorization (Ding, Li and Jordan 2010; Jiang et al. 2014, Eqs. 3-6)."""

import numbers
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, cast

import torch
from torch import Tensor

from ...core import Block, Rule, compose, multiplicative
from ...core.rules.closed_form import unconstrained
from ...core.solve.view_init import start_views
from ...core.terms.multiview import SemiFit
from ..shared.base import Factorization, cp_model, mode_names
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs
from ..shared.parameters import Ridge, ShrunkCoefficients, Solver
from ..shared.solvers import unsupervised_rule


@dataclass(kw_only=True, eq=False, repr=False)
class SemiNMF(Factorization):
    """Semi-nonnegative matrix factorization: `X (n x m) ~ V U'`, V (n x k) nonnegative, X and U (m x k) of any sign.

    Minimises `||X - V U'||^2` (Ding, Li and Jordan 2010; Jiang et al. 2014, Eqs. 3-6): in turn
    `U = X'V (V'V)^+`, exactly, and V >= 0 by one of the rules below; the objective never rises.

    Parameters
    ----------
    n_components : int
        Rank k; may exceed both dimensions.
    solver : {"auto", "multiplicative", "mu", "hals", "projected"}
        For V. "auto": HALS with 6 sweeps for one product with the data, as in `NMF`; "hals"
        is one sweep. "multiplicative" (= "mu") is the printed rule
        `V *= sqrt[ ((XU)+ + V(U'U)-) / ((XU)- + V(U'U)+) ]`: entries that belong at 0, as those of zero samples, creep
        there in hundreds of iterations, and zeros are absorbing.
    exponent : float in (0, 1]
        Of the ratio in the multiplicative rule. 0.5, the printed square root; every exponent up to 1 is monotone,
        and 1 takes longer steps.
    init : {"auto", "random", "nndsvda"} or tuple (V, U)
        As for `NMF`; V >= 0, U of any sign. U is solved first: only the objective at iteration 0 depends on its start.
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
    embedding_ : (n_samples, k), the fitted V >= 0
    factors_ : list with U (m, k), any sign; components_ : (k, m), its transpose
    loss_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import SemiNMF
    >>> X = np.outer([1., 2., 3.], [4., -1., 0., -6.])
    >>> model = SemiNMF(n_components=1, random_state=0).fit(X)
    >>> float(round(model.reconstruction_err_, 6)), bool((model.embedding_ >= 0).all())
    (0.0, True)
    """

    solver: Solver = "auto"
    exponent: float = 0.5
    transform_method: ShrunkCoefficients = "nnls"
    ridge: Ridge = 0.1

    _sharded = "gathered"

    @property
    def _signed(self) -> bool:
        return True

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        rule = unsupervised_rule(self.solver, 2)
        printed = partial(multiplicative, power=float(self.exponent))
        own = printed if rule is multiplicative else compose(_cleared, rule)
        rules: dict[str, Rule] = {"U1": unconstrained, "V": own}
        # the Gram of a padded V is singular for the unconstrained rule
        return cp_model(inputs, self.n_components, [SemiFit(inputs.data, mode_names(inputs.data))], rules, padded=False)

    def _draw(self, model: Model, seed: int, svd: bool) -> list[Tensor]:
        return start_views(cast(Any, model.data), [1.0], model.rank, seed, svd)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_exponent(self.exponent)


def _cleared(F: Tensor, block: Block) -> Tensor:
    """Set rows without a linear part, those of zero samples, to 0, where what is left, `v U'U v'`, is least."""
    parts = [z != 0 for z in (block.linear_minus, block.linear_plus) if z is not None]
    return F * reduce(torch.logical_or, parts).any(-1, keepdim=True)


def check_exponent(exponent: Any) -> None:
    """Refuse exponents outside (0, 1], for which the multiplicative rule may rise."""
    if not isinstance(exponent, numbers.Real) or isinstance(exponent, bool) or not 0 < float(exponent) <= 1:
        raise ValueError(f"exponent must be a number in (0, 1] (the rule is monotone there), got {exponent!r}")
