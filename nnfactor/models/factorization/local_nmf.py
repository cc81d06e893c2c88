"""Local NMF (Li, Hou, Zhang and Cheng 2001)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core import BetaFit, Block
from ...core.data.base import power_of_two
from ...core.factors import divide
from ...core.rules.multiplicative import multiplicative
from ...core.terms.base import Factors
from ..shared.base import Factorization, cp_model, power
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs
from ..shared.parameters import Ridge, ShrunkCoefficients


@dataclass(kw_only=True, eq=False, repr=False)
class LNMF(Factorization):
    """Local nonnegative matrix factorization (Li, Hou, Zhang and Cheng 2001): a heuristic, kept as a baseline.

    One iteration, V (n x k) first:

        V <- sqrt(V * ((X / (V U')) U));   U *= ((X / (V U'))' V) / colsum(V);   columns of U (m x k) to unit sum

    V is not rescaled. The Kullback-Leibler divergence of X and V U', which is reported, rises in many steps.

    Parameters
    ----------
    n_components : int
        Rank k.
    tol : float
        0: exactly `max_iter` iterations, as in the papers, for no objective falls. Otherwise as for `NMF`.
    init : {"auto", "random", "nndsvda"} or tuple (V, U), where restart 0 begins, as for `NMF`
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    transform_method : {"nnls", "pinv", "ridge"}, coefficients of `transform` (least squares): nonnegative, or not
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration
    ridge : float >= 0 or "cv"
        Strength of transform_method="ridge", as for `NMF`. The bases count at unit length; the coefficients are those
        of the published ones, of unit sum: for distances multiply them by `np.linalg.norm(factors_[0], axis=0)`.

    Attributes
    ----------
    embedding_ : (n_samples, k), the fitted V
    factors_ : list with U (m, k), columns of unit sum (or zero)
    loss_ : float, the divergence `sum X log(X / (V U')) - X + V U'`
    components_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Notes
    -----
    With unit sums the two rules are majorise-minimise steps for the divergence plus `||V - 1||^2 / 2`. Hence V is in
    units of the root of the data's (X to c^2 X gives V to c V) and V U' need not be near X.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import LNMF
    >>> model = LNMF(n_components=3, random_state=0).fit(np.random.default_rng(0).random((12, 6)))
    >>> model.factors_[0].sum(0).round(6).tolist(), model.n_iter_
    ([1.0, 1.0, 1.0], 200)
    """

    max_iter: int = 200
    tol: float = 0.0
    transform_method: ShrunkCoefficients = "nnls"
    ridge: Ridge = 0.1

    _sharded = "gathered"

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        """Divide extreme data by `scale ** 2`, a power of four, for V is in units of their root."""
        root = power_of_two(math.sqrt(inputs.data.largest()) * math.sqrt(inputs.scale), reach=15)
        factor = inputs.scale / root / root  # 1 for usual data, which need no copy then
        return {"data": inputs.data if factor == 1 else inputs.data.scaled(factor), "scale": root}

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        data, scale = learnt["data"], learnt["scale"]
        term, rules = _Divergence(data, ("V", "U1"), 1.0, scale), {"V": _root_rule, "U1": _unit_sums}
        fields: dict[str, Any] = {"data": [data], "scales": (scale, 1.0), "unit": power(scale, 2.0)}
        return cp_model(inputs, self.n_components, [term], rules, **fields)

    def _errors(self, inputs: Inputs, model: Model, factors: list[Tensor]) -> dict[str, Any]:
        (V, U), scale = factors, model.scales[0]
        return {"reconstruction_err_": scale * scale * float(model.data[0].residual_sq([V / scale, U]).sqrt())}


@dataclass(frozen=True, eq=False)
class _Divergence(BetaFit):
    """Kullback-Leibler of `s^2 X` and `s V U'`, over `s^2`."""

    stretch: float = 1.0

    def value(self, factors: Factors) -> Tensor:
        V, U = (factors[m] for m in self.modes)
        value = super().value(factors)
        model = (V.sum(-2, dtype=torch.float64) * U.sum(-2, dtype=torch.float64)).sum(-1)
        total = self.data.mean() * math.prod(self.data.shape)
        more = math.log(self.stretch) * total + (1 / self.stretch - 1) * model
        return value if self.stretch == 1 else value + more


def _root_rule(F: Tensor, block: Block) -> Tensor:
    """Compute `sqrt(F * ratio)`; `gradient_minus` of the divergence is half the ratio product."""
    return (2 * block.gradient_minus(F) * F).sqrt()


def _unit_sums(F: Tensor, block: Block) -> Tensor:
    """Apply the multiplicative rule, then bring the columns to unit sum."""
    F = multiplicative(F, block)
    return divide(F, F.sum(-2, keepdim=True))
