"""Polynomial NMF (Buciu, Nikolaidis and Pitas 2008)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import Run, multiplicative
from ...core.data.base import Data
from ...core.factors import gram
from ...core.solve.nnls import nnls, pseudo_inverse_coefficients
from ...core.terms.polynomial import PolynomialFit, PrintedPolynomialFit
from ...kernels import check_kernel
from ..shared.fitting import Model
from ..shared.inputs import Inputs, _to
from ..shared.parameters import one_of
from .kernel_nmf import _InFeatureSpace


class PolynomialNMF(_InFeatureSpace):
    """Polynomial NMF, PNMF (Buciu, Nikolaidis and Pitas 2008; paper 004, section 2.2): bases in the data space.

    Minimises `sum_i ||phi(x_i) - sum_k v_ik phi(w_k)||^2`, `phi(x)'phi(y) = (x'y)^d`, over nonnegative V (n x k) and
    W (m x k). With K_xw = (XW)^d, K_ww = (W'W)^d, K' = d (.)^(d-1), one iteration is, V first,

        V *= K_xw / (V K_ww);   W *= [X'(K'_xw * V) / (W (K'_ww * V'V))]^(1/(2d - 1))

    Both lower the objective, which carries no 1/2.

    Parameters
    ----------
    n_components : int
        Rank k.
    degree : int
        d >= 1; 1 is Frobenius NMF.
    w_rule : {"corrected", "printed"}
        "printed" (paper 004, Eq. 4) lacks V in the numerator and raises the objective in 16-97 % of steps: for study.
    init : {"auto", "random", "nndsvda"} or tuple (V, W)
        As for `NMF`.
    n_init, max_iter, tol, transform_method, random_state, device, dtype, callback, verbose
        As for `NMF`. `transform` solves for coefficients in feature space.

    Attributes
    ----------
    embedding_ : (n_samples, k)
        The fitted V.
    factors_ : list with W (m, k), in the units of the data; components_ : (k, m), its transpose
    loss_, reconstruction_err_ : float
        The objective above and its square root. Inf if it leaves the floating-point range.
    n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Raises
    ------
    ValueError
        Negative data; unknown options.

    Notes
    -----
    (c W, V / c^d) is the same model: compare components after scaling them. Multiplying the data by c multiplies W by
    c and leaves V.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import PolynomialNMF
    >>> X = np.random.default_rng(0).random((12, 6))
    >>> model = PolynomialNMF(n_components=3, random_state=0).fit(X)
    >>> bool((np.diff(model.history_["objective"]) <= 0).all()), model.components_.shape
    (True, (3, 6))
    """

    def __init__(
        self,
        n_components: int,
        *,
        degree: int = 2,
        w_rule: str = "corrected",
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
        self.degree = degree
        self.w_rule = w_rule
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

    def _model(self, source: Inputs, y: Any) -> Model:
        term = PolynomialFit if self.w_rule == "corrected" else PrintedPolynomialFit
        names = ("V", "W")
        return Model([term(source.data, names, int(self.degree))], dict.fromkeys(names, multiplicative), names)

    def _read(self, X: Any, reset: bool) -> Inputs:
        """Samples of length 1 at most, by a power of two: powers of longer ones leave the floating-point range."""
        source = super()._read(X, reset)
        peak = source.data.largest() * math.sqrt(source.data.shape[1])
        unit = 2.0 ** math.ceil(math.log2(peak)) if peak else 1.0
        unit = max(unit, float(np.finfo(np.float64).tiny) / source.scale)  # a denormal one would count as zero
        return replace(source, data=source.data.scaled(1 / unit), scale=source.scale * unit)

    def _shapes(self, source: Inputs) -> dict[str, tuple[int, int]]:
        (n, m), k = source.data.shape, int(self.n_components)
        return {"V": (n, k), "W": (m, k)}

    def _drawn(self, data: Data, seed: int, svd: bool) -> list[Tensor]:
        """W in units of the data and V without: the start's objective, which `tol` is relative to, then scales too."""
        V, W = super()._drawn(data, seed, svd)
        root = float(data.mean()) ** 0.5 or 1.0
        return [V / root, W * root]

    def _rescaled(self, factors: list[Tensor], scale: float) -> list[Tensor]:
        return [factors[0], factors[1] * scale]

    def _unit(self, scale: float) -> float:
        power = 2 * self.degree * math.log2(scale)
        return 2.0**power if power < 1024 else math.inf

    def _publish(self, source: Inputs, model: Model, result: Run) -> None:
        super()._publish(source, model, result)
        self.reconstruction_err_ = math.sqrt(self.loss_)

    def _features(self, source: Inputs) -> Tensor:
        W = _to(self.factors_[0], source.data).double()
        peak = float(W.max()) or 1.0  # of powers, only those of the answer may leave the floating-point range
        W = W / peak
        G = gram(W).pow(self.degree)
        B = source.data.mttkrp([W, W.to(source.data.dtype)], 0).double().pow(self.degree)
        V = nnls(G, B) if self.transform_method == "nnls" else pseudo_inverse_coefficients(G, B)
        unit = torch.tensor(source.scale / peak, dtype=torch.float64, device=V.device).pow(self.degree)
        return V * unit.clamp(max=torch.finfo(unit.dtype).max)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_kernel("poly", "median", self.degree)
        one_of("w_rule", self.w_rule, ("corrected", "printed"))
