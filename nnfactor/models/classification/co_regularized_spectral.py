"""Pairwise co-regularised spectral clustering (Kumar, Rai and Daume 2011)."""

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ...core.arrays import Array
from ...kernels import check_kernel, fix_kernel
from ..shared.fitting import forget_and_restore_on_error, read_random_state
from ..shared.inputs import Inputs, PickledOnCPU, as_given, run_environment
from ..shared.parameters import Device, DType, Seed, nonnegative, whole
from ..shared.scikit_learn import BaseEstimator, ClusterMixin
from ..shared.views import drop_constant, read_views


@dataclass(kw_only=True, eq=False, repr=False)
class PairwiseCoRegularizedSpectral(PickledOnCPU, ClusterMixin, BaseEstimator):
    """Pairwise co-regularized multi-view spectral clustering, PCSC (Kumar, Rai and Daume 2011).

    Maximises sum_p tr(U_p'L_p U_p) + lam sum_{p<q} ||U_p'U_q||^2 over orthonormal U_p (n x C), with L_p = D_p^-1/2 K_p
    D_p^-1/2 the normalised similarities of view p: U_p <- top-C eigenvectors of L_p + lam sum over q != p of U_q U_q',
    view after view until it settles (it never falls). Then rows to unit length and k-means on the views side by side.

    Parameters
    ----------
    n_clusters : int
        C, at most n_samples.
    lam : float >= 0
        Weight of the agreement; L_p has eigenvalues of at most 1, so it has no unit. The paper tries 0.01 to 0.1. 0
        treats every view by itself; it can be better, for the later eigenvalues of a wide Gaussian are near 0.01.
    kernel : "rbf", "poly", "linear", "precomputed" or callable
        Similarities K_p >= 0 as in `kernels.fix_kernel`. "rbf" is the paper's. "linear" on rows of unit length is the
        cosine, for counts of words. "precomputed": the views are the K_p.
    sigma, degree : "median" or float, int
        Of "rbf" and "poly". "median": the median distance within the view, as in the paper.
    max_iter, tol : int, float
        Rounds end when the objective gains less than tol of itself: 10 to 20 of them with 1e-4; more gain little.
    n_init, random_state : int, and int, RandomState, Generator or None
        Of k-means, the only random part; 20 starts, for a single one depends on luck.
    device : "auto", "cpu", "cuda" or "cuda:i"; dtype : "auto", "float32" or "float64"
        As for `DPCA`; results are float32 if every view is.

    Attributes
    ----------
    labels_ : integer array (n_samples,)
    embeddings_ : list of (n_samples, n_clusters)
        U_p, orthonormal columns; zeros for a view whose samples are all equal, which is left out with a warning.
    embedding_ : (n_samples, n_views n_clusters)
        What k-means clusters: rows of each U_p at unit length (or zero), side by side.
    objective_ : float; history_ : array of the objective at the start and after every round
    n_iter_ : int; converged_ : bool; n_features_in_ : list of int; fit_info_ : dict

    Notes
    -----
    O(n^3) time and O(n^2) memory per view and round: a baseline for a few thousand samples. Like scikit-learn's
    SpectralClustering it labels the samples of `fit` only.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import PairwiseCoRegularizedSpectral
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0, 1], 20)
    >>> views = [rng.normal(size=(40, 3)) + 6 * truth[:, None] for _ in range(2)]
    >>> labels = PairwiseCoRegularizedSpectral(n_clusters=2, random_state=0).fit_predict(views)
    >>> bool(((labels == labels[0]) == (truth == 0)).all())
    True
    """

    n_clusters: int = field(kw_only=False)
    lam: float = 0.05
    kernel: Any = "rbf"
    sigma: float | Literal["median"] = "median"
    degree: int = 2
    max_iter: int = 100
    tol: float = 1e-4
    n_init: int = 20
    random_state: Seed = None
    device: Device = "auto"
    dtype: DType = "auto"
    labels_: np.ndarray = field(init=False)
    embeddings_: list[Array] = field(init=False)
    embedding_: Array = field(init=False)
    objective_: float = field(init=False)
    history_: np.ndarray = field(init=False)
    n_iter_: int = field(init=False)
    converged_: bool = field(init=False)
    fit_info_: dict[str, Any] = field(init=False)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster the samples; `X` is a list of views as for `CoTraining`, `y` is ignored.

        Raises
        ------
        ValueError
            Views with different numbers of samples, bad data or similarities (the message names the view), more
            clusters than samples, bad parameters.
        """
        from sklearn.cluster import KMeans  # brings half of scikit-learn along

        self._check_parameters()
        with forget_and_restore_on_error(self):
            inputs = read_views(self, X, reset=True, signed=True)
            sources, n = inputs.views, inputs.data.shape[0]
            if self.n_clusters > n:
                raise ValueError(f"n_clusters={self.n_clusters} needs as many samples, X has {n}")
            with torch.no_grad():
                used = drop_constant(inputs, "PairwiseCoRegularizedSpectral", stacklevel=2)
                bases, history = self._alternate([self._similarities(sources[p], p) for p in used])
                found = dict(zip(used, bases, strict=True))
                U = [found.get(p, torch.zeros_like(bases[0])) for p in range(len(sources))]
                rows = torch.cat([torch.nn.functional.normalize(u, dim=1) for u in U], dim=1)
            state = read_random_state(self.random_state)
            means = KMeans(int(self.n_clusters), n_init=int(self.n_init), random_state=state)
            self.labels_ = means.fit(rows.cpu().numpy()).labels_
            self.embeddings_, self.embedding_ = [as_given(u, sources[0]) for u in U], as_given(rows, sources[0])
            self.history_, self.objective_ = np.array(history), history[-1]
            self.fit_info_ = run_environment(sources[0].data)
        if not self.converged_:
            warnings.warn(
                f"PairwiseCoRegularizedSpectral stopped at max_iter={self.max_iter} before its objective settled to "
                f"tol={self.tol}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _similarities(self, inputs: Inputs, p: int) -> Tensor:
        """Compute `D^-1/2 K D^-1/2`; rows without any similarity stay zero."""
        try:
            K = fix_kernel(self.kernel, inputs.given_samples(), sigma=self.sigma, degree=self.degree).gram()[0]
            if float(K.min()) < 0:
                raise ValueError(f"kernel={self.kernel!r}: {int((K < 0).sum())} similarities are negative; use 'rbf'")
        except ValueError as error:
            raise ValueError(f"view {p}: {error}") from error
        K = K / (float(K.max()) or 1.0)
        root = K.sum(1).sqrt()
        root = torch.where(root > 0, 1 / root.clamp(min=torch.finfo(K.dtype).tiny), 0)
        return root[:, None] * K * root

    def _alternate(self, L: list[Tensor]) -> tuple[list[Tensor], list[float]]:
        """Find the U_p; return them, and the objective at the start and after every round."""
        C, lam = int(self.n_clusters), float(self.lam)
        U = [_top_eigenvectors(M, C) for M in L]
        history, self.n_iter_, self.converged_ = [_agreement(L, U, lam)], 0, lam == 0 or len(L) == 1
        while not self.converged_ and self.n_iter_ < self.max_iter:
            for p, M in enumerate(L):
                others = torch.cat(U[:p] + U[p + 1 :], dim=1)
                U[p] = _top_eigenvectors(M + lam * others @ others.mT, C)
            history.append(_agreement(L, U, lam))
            self.n_iter_ += 1
            self.converged_ = history[-1] - history[-2] <= self.tol * abs(history[-1])
        return U, history

    def _check_parameters(self) -> None:
        for name in ("n_clusters", "max_iter", "n_init"):
            whole(name, getattr(self, name))
        nonnegative("lam", self.lam)
        nonnegative("tol", self.tol)
        check_kernel(self.kernel, self.sigma, self.degree)


def _top_eigenvectors(M: Tensor, C: int) -> Tensor:
    """Return the eigenvectors of the C largest eigenvalues, largest first."""
    return torch.linalg.eigh(M)[1][:, -C:].flip(1)


def _agreement(L: list[Tensor], U: list[Tensor], lam: float) -> float:
    """Compute the objective that is maximised."""
    own = sum(float((u * (M @ u)).sum()) for u, M in zip(U, L, strict=True))
    return own + lam * sum(float((U[p].mT @ U[q]).square().sum()) for p in range(len(U)) for q in range(p))
