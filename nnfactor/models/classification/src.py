"""Classification by sparse representation (Wright et al. 2009)."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ...core.arrays import Array
from ...core.factors import divide
from ...sparse_coding.basis_pursuit import l1_code
from ...sparse_coding.dictionary import CHUNK, atoms_of, unit_rows
from ..shared.inputs import Inputs, as_given
from ..shared.labels import nearest_distribution
from ..shared.parameters import Device, DType
from .base import Points, SemiSupervised, margins
from .srlsc import check_solver, warn_of_gaps


@dataclass(kw_only=True, eq=False, repr=False)
class SRC(SemiSupervised):
    """Sparse-representation classification: the class that explains most of a sample's code (Wright et al. 2009).

    x is coded over the labelled samples, min ||a||_1 + ||e||_1 subject to x = D'a + e, all of unit length, and goes to
    the class with the smallest ||x - e - D_c'a_c||. Unlabelled samples teach nothing. Every
    sample has a code, unlike in the formulation that Fan et al. 2011 measured. Sparse X stays sparse.

    Parameters
    ----------
    tol, max_rounds, device, dtype
        As for `SRLSC`.

    Attributes
    ----------
    classes_ : array (C,)
    transduction_ : (n_samples,)
        Labelled samples keep their labels; -1, "-1" or None for a sample whose code is zero, which no class explains.
    label_distributions_ : (n_samples, C)
        The distribution nearest to `scores_`; one-hot for labelled samples.
    scores_ : (n_samples, C)
        1 - ||x - e - D_c'a_c|| / ||x - e||: what share of its code's part a class explains; one-hot for labelled
        samples, zeros where the code is zero.
    dictionary_ : (n_labelled, n_features)
        The labelled samples at unit length; scipy CSR if X is sparse.
    n_features_in_, feature_names_in_, fit_info_

    Examples
    --------
    >>> from nnfactor import SRC
    >>> X = [[1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [0.9, 0.1, 0.1]]
    >>> SRC().fit(X, [5, 7, -1]).transduction_.tolist()
    [5, 7, 5]
    """

    tol: float = 1e-4
    max_rounds: int = 6
    device: Device = "auto"
    dtype: DType = "auto"
    dictionary_: Array = field(init=False)

    def decision_function(self, X: Any) -> Array:
        """Return what `scores_` is (n_samples, n_classes); for two classes the difference, > 0 for the second."""
        scores, inputs = self._score_new(X)
        return as_given(margins(scores), inputs)

    def _check_parameters(self) -> None:
        check_solver(self)

    def _fit_scores(self, inputs: Inputs, class_codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        known, X = Y.sum(1) > 0, inputs.samples64()
        at = known.cpu().numpy() if sp.issparse(X) else known
        self._members, self._atoms = Y[known], (D := unit_rows(X[at]))
        precision = str(inputs.data.dtype).removeprefix("torch.")
        self.dictionary_ = D.astype(precision) if sp.issparse(D) else as_given(D.clone(), inputs)
        scores = Y.clone()
        scores[~known] = self._explain(X[~at])
        return scores, nearest_distribution(scores)

    def _predict_scores(self, inputs: Inputs) -> Tensor:
        return self._explain(inputs.samples64())

    def _explain(self, X: Points) -> Tensor:
        """Score samples: 1 - ||x - e - D_c'a_c|| / ||x - e|| for every class, zeros where the code is zero."""
        members, D = self._members, self._atoms
        if not X.shape[0]:
            return members.new_zeros(0, len(self.classes_))
        D = D if sp.issparse(D) or sp.issparse(X) else D.to(X.device)
        found = l1_code(D, X, tol=self.tol, max_rounds=self.max_rounds)
        warn_of_gaps(self, found)
        atoms, shares = atoms_of(D), []
        others = 1 - members.mT.to(found.codes.device)
        for a in found.codes.split(max(1, CHUNK // atoms.shape[1])):
            left = torch.stack([atoms.combine(a * other).norm(dim=1) for other in others], 1)
            share = 1 - divide(left, atoms.combine(a).norm(dim=1, keepdim=True))
            shares.append(torch.where((a != 0).any(1, keepdim=True), share, 0))
        return torch.cat(shares).to(members.device)
