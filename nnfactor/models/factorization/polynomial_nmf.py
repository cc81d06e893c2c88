"""Polynomial NMF (Buciu, Nikolaidis and Pitas 2008)."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...core import Run, multiplicative
from ...core.data.base import times_power
from ...core.factors import gram
from ...core.solve.nnls import coefficients_from
from ...core.terms.polynomial import PolynomialFit, PrintedPolynomialFit
from ...kernels import check_kernel
from ..shared.base import cp_model, power
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs
from ..shared.parameters import Coefficients, one_of
from .kernel_nmf import InFeatureSpace


@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialNMF(InFeatureSpace):
    """Polynomial NMF, PNMF (Buciu, Nikolaidis and Pitas 2008; Zhang and Liu 2009, section 2.2): bases in data space.

    Minimises `sum_i ||phi(x_i) - sum_k v_ik phi(w_k)||^2`, `phi(x)'phi(y) = (x'y)^d`, over nonnegative V (n x k) and
    W (m x k). With K_xw = (XW)^d, K_ww = (W'W)^d, K' = d (.)^(d-1), one iteration is, V first,

        V *= K_xw / (V K_ww);   W *= [X'(K'_xw * V) / (W (K'_ww * V'V))]^(1/(2d - 1))

    Both lower the objective, which carries no 1/2. (c W, V / c^d) is the same model: scale components to compare them.
    Data times c give W times c and the same V.

    Parameters
    ----------
    n_components : int
        Rank k.
    degree : int
        d >= 1; 1 is Frobenius NMF.
    w_rule : {"corrected", "printed"}
        "printed" (Zhang and Liu 2009, Eq. 4) lacks V in the numerator and raises the objective in 16-97 % of steps.
    init : {"auto", "random", "nndsvda"} or tuple (V, W), where restart 0 begins, as for `NMF`
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    transform_method : {"nnls", "pinv"}, coefficients of `transform` in feature space: nonnegative, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration

    Attributes
    ----------
    embedding_ : (n_samples, k), the fitted V
    factors_ : list with W (m, k), in the units of the data; components_ : (k, m), its transpose
    loss_, reconstruction_err_ : float, the objective above and its square root; inf beyond the floating-point range
    n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import PolynomialNMF
    >>> X = np.random.default_rng(0).random((12, 6))
    >>> model = PolynomialNMF(n_components=3, random_state=0).fit(X)
    >>> bool((np.diff(model.history_["objective"]) <= 0).all()), model.components_.shape
    (True, (3, 6))
    """

    degree: int = 2
    w_rule: Literal["corrected", "printed"] = "corrected"
    transform_method: Coefficients = "nnls"
    _degree: int = field(init=False)

    def _read(self, X: Any, reset: bool) -> Inputs:
        """Scale samples to length 1 at most, by a power of two: powers of longer ones overflow."""
        inputs = super()._read(X, reset)
        peak = inputs.data.largest() * math.sqrt(inputs.data.shape[1])
        unit = 2.0 ** math.ceil(math.log2(peak)) if peak else 1.0
        unit = max(unit, float(np.finfo(np.float64).tiny) / inputs.scale)  # a denormal one would count as zero
        unit = min(unit, 2.0**1023 / inputs.scale)
        return replace(inputs, data=inputs.data.scaled(1 / unit), scale=inputs.scale * unit)

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        return {"_degree": int(self.degree)}

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        fit = PolynomialFit if self.w_rule == "corrected" else PrintedPolynomialFit
        rules, scales = {"V": multiplicative, "U1": multiplicative}, (1.0, inputs.scale)
        term, unit = fit(inputs.data, ("V", "U1"), int(self.degree)), power(inputs.scale, 2.0 * self.degree)
        return cp_model(inputs, self.n_components, [term], rules, scales=scales, unit=unit, shares_scales=False)

    def _draw(self, model: Model, seed: int, svd: bool) -> list[Tensor]:
        """Start with U in units of the data and V without, so that the start scales with the data."""
        V, U = super()._draw(model, seed, svd)
        root = float(model.data[0].mean()) ** 0.5 or 1.0
        return [V / root, U * root]

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        return {**found, "reconstruction_err_": math.sqrt(found["loss_"])}

    def _coefficients(self, inputs: Inputs) -> Tensor:
        U, degree = self._bases(inputs.data)[0].double(), self._degree
        peak = float(U.max()) or 1.0  # of powers, only those of the answer may leave the floating-point range
        U = U / peak
        G = gram(U).pow(degree)
        B = inputs.data.mttkrp([U, U.to(inputs.data.dtype)], 0).double().pow(degree)
        V = coefficients_from(G, B, self.transform_method)
        unit = torch.tensor(inputs.scale / peak, dtype=torch.float64, device=V.device).pow(degree)
        return V * unit.clamp(max=torch.finfo(unit.dtype).max)

    def _mean_loss(self, inputs: Inputs, V: Tensor) -> float:
        """Average the squared distance in feature space over the samples."""
        U = self._bases(inputs.data)[0].double() / inputs.scale
        data = inputs.data
        loss = float(PolynomialFit(data, ("V", "U1"), self._degree).direct({"V": V.double(), "U1": U}))
        return times_power(loss / data.shape[0], inputs.scale, 2.0 * self._degree)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_kernel("poly", "median", self.degree)
        one_of("w_rule", self.w_rule, ("corrected", "printed"))
