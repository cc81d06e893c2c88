"""Sparse regularised least squares classification (Fan et al. 2011), and its base with any regulariser."""

import warnings
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ...core.arrays import Array, as_numbers
from ...core.graph.distances import gaussian
from ...sparse_coding.basis_pursuit import Codes, l1_codes
from ...sparse_coding.dictionary import unit_rows
from ..shared.inputs import Inputs, as_float64, as_given
from ..shared.labels import nearest_distribution
from ..shared.parameters import Device, DType, nonnegative, one_of, positive, whole
from .base import Points, SemiSupervised, given_width, margins, measure_distances

SIGMA = 0.5  # of Fan et al. 2011


class KernelLeastSquares(SemiSupervised):
    """B = (J K + CA I + CI M K)^-1 Y and the decision K(x, .) B; a subclass says what M K is.

    It is Fan et al. 2011, Eqs. 17 and 18, transposed, for samples are rows here: B and Y are (n, C); K, M and the
    diagonal J, 1 for labelled samples and 0 for others, are (n, n).
    """

    CA: float
    CI: float
    sigma: float | None
    gamma: float | None
    normalize: bool
    dual_coef_: Array

    @abstractmethod
    def _smooth(self, inputs: Inputs, points: Points, K: Tensor) -> Tensor:
        """Compute M K (n, n), M the matrix of the smoothness penalty tr(F' M F)."""

    def _check_parameters(self) -> None:
        positive("CA", self.CA)
        nonnegative("CI", self.CI)
        positive("sigma", given_width(self.sigma, self.gamma, SIGMA))
        one_of("normalize", self.normalize, (True, False))

    def decision_function(self, X: Any) -> Array:
        """Return K(x, .) B (n_samples, n_classes); for two classes the difference (n_samples,), > 0 for the second."""
        scores, inputs = self._score_new(X)
        return as_given(margins(scores), inputs)

    def _fit_scores(self, inputs: Inputs, class_codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        self._unit, self._normalized = inputs.scale, bool(self.normalize)
        sigma = float(given_width(self.sigma, self.gamma, SIGMA))
        self._width = sigma / (1.0 if self.normalize else inputs.scale)
        points = self._points = self._scale_points(inputs)
        K = self._kernel(points, Y.device).fill_diagonal_(1)
        J = as_float64(class_codes >= 0, Y.device).double().unsqueeze(1)
        system = J * K + float(self.CI) * self._smooth(inputs, points, K)
        system.diagonal().add_(float(self.CA))
        B = torch.linalg.solve(system, Y)  # one matrix: K semidefinite and CA > 0 make it regular
        self.dual_coef_ = as_given(B, inputs)
        F = K @ B
        return F, nearest_distribution(F)

    def _predict_scores(self, inputs: Inputs) -> Tensor:
        points = self._scale_points(inputs)
        device = inputs.data.device
        B = as_float64(self.dual_coef_, device)
        step = max(1, (1 << 22) // len(B))
        pieces = (points[a : a + step] for a in range(0, points.shape[0], step))
        return torch.cat([self._kernel(z, device) @ B for z in pieces])

    def _scale_points(self, inputs: Inputs) -> Points:
        points = inputs.samples64()
        return unit_rows(points) if self._normalized else points * (inputs.scale / self._unit)

    def _kernel(self, Z: Points, device: torch.device) -> Tensor:
        """Compute exp(-||z - x||^2 / sigma^2) against the training samples, no factor 2."""
        return gaussian(measure_distances(Z, self._points).to(device), self._width)


@dataclass(kw_only=True, eq=False, repr=False)
class SRLSC(KernelLeastSquares):
    """Sparse regularised least squares: the decision function keeps the l1 codes (Fan et al. 2011, Eq. 17).

    Every sample is coded by all others, min ||a||_1 + ||e||_1 subject to x_i = X'a + e (Eq. 7); with the codes as rows
    of A, M = (I - A)'(I - A), K the Gaussian kernel and J the labelled samples,
    B = (J K + CA I + CI M K)^-1 Y. (Multiplying Eq. 16 by l gives gamma_A l and gamma_I l / (l + u)^2, which are CA and
    CI; in the printed Eq. 17 both lack the factor l.)

    Parameters
    ----------
    CA, CI : float
        Weights of the norm (> 0) and of the codes (>= 0): gamma_A l and gamma_I l / (l + u)^2 of the paper, whose
        values 0.005 and 0.01 are the defaults.
    sigma : float
        Width of exp(-||x - y||^2 / sigma^2), in units of length of a sample; 0.5 as in the paper. See `gamma`.
    normalize : bool
        Bring samples to unit length for the kernel too (step 1 of the paper's Algorithm 1; sigma = 0.5 makes sense
        there only). Codes are of unit-length samples in any case. False: sigma is in the units of X.
    codes : "l1" or (n_samples, n_samples)
        "l1": computed here. They depend on X alone and take nearly all the time; with other labels or weights for the
        same samples hand over `codes_` of an earlier fit, or those of `sparse_coding.basis_pursuit.l1_codes` (array,
        tensor or scipy sparse). One code a row, zeros on the diagonal, any sign.
    tol, max_rounds : float, int
        Certified relative duality gap of every code, and rounds of the code solver at most.
    device, dtype
        As for `NMF`: "auto" follows the data, on CUDA if there is one. Computed in float64.
    gamma : float > 0 or None
        The kernel as scikit-learn writes it, exp(-gamma ||x - y||^2), in place of sigma: gamma = 1 / sigma^2. With
        exp(-||x - y||^2 / (2 sigma^2)) and sigma = 0.5, gamma = 2, the paper's figures on Extended Yale B come out.
        ValueError if sigma is given too (other than its default or None).

    Attributes
    ----------
    classes_ : array (C,)
    transduction_ : (n_samples,)
        Labels of the training samples, unlabelled ones included; -1, "-1" or None where the decision is exactly zero
        (with `normalize=False`: samples so far away that the kernel underflows).
    label_distributions_ : (n_samples, C)
        The distribution nearest to every row of the decision function; its largest entry is the label.
    scores_ : (n_samples, C)
        The decision function K B of the training samples.
    dual_coef_ : (n_samples, C); codes_ : (n_samples, n_samples)
        B and A, one code a row.
    code_gaps_ : (n_samples,)
        The certified relative duality gap of every code; NaN if codes were handed over, for nothing is known of them.
    n_features_in_, feature_names_in_, fit_info_

    Notes
    -----
    Codes that miss `tol` give a ConvergenceWarning; on 2000 faces of 38 people the accuracy is the same within 0.5 %
    for gaps from 1e-1 to 1e-4. A code takes about 0.1 s for 2000 samples of 1024 features on one core; the system takes
    O(n^3) time and O(n^2) memory. Sparse X is worked on by the host and is never dense as a whole.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import SRLSC
    >>> X = np.array([[1, 0, 0], [0.9, 0.1, 0], [1, 0.1, 0], [0, 0, 1], [0, 0.1, 0.9], [0, 0, 0.8]])
    >>> model = SRLSC().fit(X, [0, -1, -1, 1, -1, -1])
    >>> model.transduction_.tolist()
    [0, 0, 0, 1, 1, 1]
    >>> SRLSC(CI=0.1, codes=model.codes_).fit(X, [-1, -1, 0, 1, -1, -1]).transduction_.tolist()
    [0, 0, 0, 1, 1, 1]
    """

    CA: float = 0.005
    CI: float = 0.01
    sigma: float | None = SIGMA
    normalize: bool = True
    codes: Any = "l1"
    tol: float = 1e-4
    max_rounds: int = 6
    device: Device = "auto"
    dtype: DType = "auto"
    gamma: float | None = None
    codes_: Array = field(init=False)
    code_gaps_: Array = field(init=False)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_solver(self)

    def _smooth(self, inputs: Inputs, points: Points, K: Tensor) -> Tensor:
        if isinstance(self.codes, str):
            one_of("codes", self.codes, ("l1",), f"codes ({len(K)}, {len(K)})")
            found = l1_codes(inputs.samples64(), tol=self.tol, max_rounds=self.max_rounds)
            warn_of_gaps(self, found)
            A, gaps = found.codes.to(K.device), found.gap
        else:
            A = _read_codes(self.codes, len(K), K.device)
            gaps = torch.full_like(A[:, 0], torch.nan)
        self.codes_, self.code_gaps_ = as_given(A, inputs), inputs.to_caller(gaps)
        residue = K - A @ K
        return residue - A.mT @ residue


def _read_codes(codes: Any, n: int, device: torch.device) -> Tensor:
    """Check codes that were computed before; return them as (n, n) float64."""
    given = codes.toarray() if sp.issparse(codes) else codes
    A = as_float64(given if isinstance(given, Tensor) else as_numbers(given, "codes"), device).clone()
    if tuple(A.shape) != (n, n):
        raise ValueError(f"codes has shape {tuple(A.shape)}; X has {n} samples, it must be ({n}, {n}), one code a row")
    if not bool(torch.isfinite(A).all()):
        raise ValueError("codes has NaN or infinite entries; use `codes_` of a fit on the same samples")
    if bool((A.diagonal() != 0).any()):
        raise ValueError("codes has entries on its diagonal; a sample must not be in its own code")
    return A


def check_solver(estimator: Any) -> None:
    """Check the parameters of the code solver (ValueError)."""
    positive("tol", estimator.tol)
    whole("max_rounds", estimator.max_rounds, least=0)


def warn_of_gaps(estimator: Any, found: Codes) -> None:
    """Warn once if some codes stopped before their duality gap was `tol`."""
    missed = int((found.gap > estimator.tol).sum())
    if missed:
        warnings.warn(
            f"{type(estimator).__name__}: {missed} of {len(found.gap)} codes stopped after max_rounds="
            f"{estimator.max_rounds} above tol={estimator.tol:g}, the worst with a duality gap of "
            f"{float(found.gap.max()):.1e}; raise tol or max_rounds",
            ConvergenceWarning,
            stacklevel=5,
        )
