"""What multi-view methods are compared with in paper 001: co-training and co-regularized spectral clustering.

Blum and Mitchell (1998), "Combining labeled and unlabeled data with co-training"; Kumar, Rai and Daume (2011),
"Co-regularized multi-view spectral clustering". All work is in float64.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..kernels import check_kernel, fix_kernel
from .checks import nonnegative, whole
from .labels import class_codes
from .reading import PickledOnCPU, Source, ran_with
from .ridge import Ridge, times
from .semisupervised import margins
from .undo import all_or_nothing
from .view_sources import read_views


class CoTraining(PickledOnCPU, ClassifierMixin, BaseEstimator):
    """Co-training: classifiers of different views teach each other (Blum and Mitchell 1998).

    In every round each view's classifier, ridge regression on one-hot labels, labels for every class its `n_per_class`
    surest unlabelled samples, and the other views learn from them. Predictions are those of the summed scores.

    Parameters
    ----------
    n_rounds : int >= 0
        Rounds of teaching; 30 as in the 1998 paper. It ends earlier when no view has anything left to teach. 0, or one
        view alone: ridge classification.
    n_per_class : int
        Samples that a view labels per class and round: those with the largest score for the class among those that it
        gives to the class. The 1998 paper takes 1 and 3 for its two classes.
    alpha : float > 0
        Ridge, (1/l) ||X_l W + b - Y||^2 + alpha ||W||^2, on views divided by the root of their mean squared distance to
        the mean: free of units, scales of the views and number of samples. 0.001 did best on handwritten digits.
    device : "auto", "cpu", "cuda" or "cuda:i"; dtype : "auto", "float32" or "float64"
        As for `DPCA`; results are float32 if every view is.

    Attributes
    ----------
    classes_ : array (n_classes,)
    coef_ : list of (n_features of the view, n_classes); intercept_ : list of (n_classes,)
        For the data as given.
    label_distributions_ : (n_samples, n_classes)
        As `predict_proba`; one-hot where a label was given.
    transduction_ : array (n_samples,)
        A class for every sample of `fit`, the given one where there was one.
    taught_ : list of integer arrays (n_samples,)
        What every view was trained with at last: codes into `classes_`, -1 for nothing.
    n_iter_ : int; n_features_in_ : list of int; fit_info_ : dict

    Notes
    -----
    A view chooses among the samples that it has no label for and has not taught. All choose before any learns, so the
    order of the views has no influence; where two views teach a third differently the larger score counts, of equals
    the smaller class. A label once taught stays. With a single class every sample belongs to it.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import CoTraining
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0, 1], 50)
    >>> views = [rng.normal(size=(100, 4)) + 3 * truth[:, None] for _ in range(2)]
    >>> y = np.where(np.arange(100) % 50 < 2, truth, -1)     # two labels per class
    >>> bool((CoTraining().fit(views, y).transduction_ == truth).mean() > 0.95)
    True
    """

    def __init__(
        self,
        *,
        n_rounds: int = 30,
        n_per_class: int = 1,
        alpha: float = 0.001,
        device: Any = "auto",
        dtype: Any = "auto",
    ) -> None:
        self.n_rounds = n_rounds
        self.n_per_class = n_per_class
        self.alpha = alpha
        self.device = device
        self.dtype = dtype

    def fit(self, X: Any, y: Any) -> Self:
        """Train all views.

        Parameters
        ----------
        X : list of arrays, tensors or scipy sparse matrices (n_samples, n_features of the view), or one of them
            Any number of views of the same samples, any sign; never changed.
        y : array (n_samples,)
            Labels; -1 and NaN among numbers, None, NaN, -1 and "-1" among strings and objects are unlabelled.

        Raises
        ------
        ValueError
            Views with different numbers of samples, bad data (the message names the view), no label, bad parameters.
        """
        whole("n_rounds", self.n_rounds, least=0)
        whole("n_per_class", self.n_per_class)
        nonnegative("alpha", self.alpha)
        if self.alpha == 0:
            raise ValueError("alpha must be > 0, got 0; with more features than samples ridge needs it, try 1e-6")
        if y is None:
            raise ValueError("CoTraining requires y to be passed, but the target y is None")
        with all_or_nothing(self):
            sources = read_views(self, X, reset=True, signed=True)
            codes, classes = class_codes(y, sources[0].data.shape[0], stacklevel=3)
            if not len(classes):
                raise ValueError(f"y has no label: all {len(codes)} samples are unlabelled; CoTraining needs one")
            with torch.no_grad():
                ridges = [Ridge.of(s, float(self.alpha)) for s in sources]
                self.taught_, self.n_iter_ = self._teach(ridges, codes, len(classes))
                fits = [ridge.fit(known, len(classes)) for ridge, known in zip(ridges, self.taught_, strict=True)]
                scores = sum(ridge.scores(*fit) for ridge, fit in zip(ridges, fits, strict=True))
                own = [ridge.own(*fit, s.scale) for ridge, fit, s in zip(ridges, fits, sources, strict=True)]
            self.classes_ = classes
            self.coef_, self.intercept_ = ([_given(sources, F) for F in part] for part in zip(*own, strict=True))
            scores = _distribution(np.asarray(scores))
            scores[codes >= 0] = np.eye(len(classes))[codes[codes >= 0]]
            self.label_distributions_ = _given(sources, torch.from_numpy(scores))
            self.transduction_ = classes[scores.argmax(1)]
            self.fit_info_ = ran_with(sources[0].data)
        return self

    def decision_function(self, X: Any) -> Any:
        """Summed scores of the views, `(n_samples, n_classes)`; each view's sum to 1 over the classes.

        For two classes the difference (n_samples,), > 0 for the second.
        """
        sources, scores = self._scores(X)
        return _given(sources, margins(torch.from_numpy(scores)))

    def predict_proba(self, X: Any) -> Any:
        """Scores clipped at 0, rows to sum 1: an order of belief, not calibrated probabilities."""
        sources, scores = self._scores(X)
        return _given(sources, torch.from_numpy(_distribution(scores)))

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest summed score for every sample; of equals the first."""
        scores = self._scores(X)[1]
        return self.classes_[scores.argmax(1)]

    def _scores(self, X: Any) -> tuple[list[Source], np.ndarray]:
        check_is_fitted(self)
        sources, total = read_views(self, X, reset=False, signed=True), np.zeros(())
        for source, W, b in zip(sources, self.coef_, self.intercept_, strict=True):
            W, b = (torch.as_tensor(F).to(source.data.device, torch.float64) for F in (W, b))
            total = total + (times(source.points64(), W * source.scale) + b).cpu().numpy()
        return sources, total

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _teach(self, ridges: list[Ridge], codes: np.ndarray, n_classes: int) -> tuple[list[np.ndarray], int]:
        """What every view knows at the end, and the number of rounds."""
        labels = [codes.copy() for _ in ridges]
        taught = [np.zeros(len(codes), dtype=bool) for _ in ridges]
        rounds = int(self.n_rounds) if len(ridges) > 1 else 0
        for done in range(rounds):
            lessons = []
            for ridge, known, told in zip(ridges, labels, taught, strict=True):
                scores = ridge.scores(*ridge.fit(known, n_classes))
                lessons.append(_surest(scores, (known < 0) & ~told, int(self.n_per_class)))
                told |= lessons[-1][0] >= 0
            if not any((told >= 0).any() for told, _ in lessons):
                return labels, done
            for p, known in enumerate(labels):
                _learn(known, lessons[:p] + lessons[p + 1 :])
        return labels, rounds


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
        Weight of the agreement; L_p has eigenvalues of at most 1, so it has no unit. 0.05, within the 0.01 to 0.1 that
        the paper tries; 0 treats every view by itself, and can be better: the later eigenvalues of a wide Gaussian are
        near 0.01, so that agreement soon outweighs them.
    kernel : "rbf", "poly", "linear", "precomputed" or callable
        Similarities K_p >= 0, see `kernels.fix_kernel`. "rbf": exp(-||x - y||^2 / (2 sigma^2)), as in the paper.
        "linear" on rows of unit length is the cosine, for counts of words. "precomputed": the views are the K_p.
    sigma : "median" or float
        "median": the median distance within the view, as in the paper; it follows the unit of the data.
    degree : int
        Of "poly".
    max_iter, tol : int, float
        Rounds end when the objective gains less than tol of itself: 10 to 20 of them with 1e-4; more gain little.
    n_init : int
        Starts of k-means; 20, for a single one depends on luck.
    random_state : int, RandomState or None
        Of k-means, the only random part.
    device : "auto", "cpu", "cuda" or "cuda:i"; dtype : "auto", "float32" or "float64"
        As for `DPCA`; results are float32 if every view is.

    Attributes
    ----------
    labels_ : integer array (n_samples,)
    embeddings_ : list of (n_samples, n_clusters)
        U_p, orthonormal columns.
    embedding_ : (n_samples, n_views n_clusters)
        What k-means saw: rows of each U_p at unit length (or zero), side by side.
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

    def __init__(
        self,
        n_clusters: int,
        *,
        lam: float = 0.05,
        kernel: Any = "rbf",
        sigma: float | str = "median",
        degree: int = 2,
        max_iter: int = 100,
        tol: float = 1e-4,
        n_init: int = 20,
        random_state: Any = None,
        device: Any = "auto",
        dtype: Any = "auto",
    ) -> None:
        self.n_clusters = n_clusters
        self.lam = lam
        self.kernel = kernel
        self.sigma = sigma
        self.degree = degree
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

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
        with all_or_nothing(self):
            sources = read_views(self, X, reset=True, signed=True)
            n = sources[0].data.shape[0]
            if self.n_clusters > n:
                raise ValueError(f"n_clusters={self.n_clusters} needs as many samples, X has {n}")
            with torch.no_grad():
                L = [self._similarities(source, p) for p, source in enumerate(sources)]
                U, history = self._alternate(L)
                rows = torch.cat([torch.nn.functional.normalize(u, dim=1) for u in U], dim=1)
            means = KMeans(int(self.n_clusters), n_init=int(self.n_init), random_state=self.random_state)
            self.labels_ = means.fit(rows.cpu().numpy()).labels_
            self.embeddings_, self.embedding_ = [_given(sources, u) for u in U], _given(sources, rows)
            self.history_, self.objective_ = np.array(history), history[-1]
            self.fit_info_ = ran_with(sources[0].data)
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

    def _similarities(self, source: Source, p: int) -> Tensor:
        """`D^-1/2 K D^-1/2`; rows without any similarity stay zero."""
        try:
            K = fix_kernel(self.kernel, source.X, sigma=self.sigma, degree=self.degree).gram()[0]
            if float(K.min()) < 0:
                raise ValueError(f"kernel={self.kernel!r}: {int((K < 0).sum())} similarities are negative; use 'rbf'")
        except ValueError as error:
            raise ValueError(f"view {p}: {error}") from error
        K = K / (float(K.max()) or 1.0)
        root = K.sum(1).sqrt()
        root = torch.where(root > 0, 1 / root.clamp(min=torch.finfo(K.dtype).tiny), 0)
        return root[:, None] * K * root

    def _alternate(self, L: list[Tensor]) -> tuple[list[Tensor], list[float]]:
        """The U_p, and the objective at the start and after every round."""
        C, lam = int(self.n_clusters), float(self.lam)
        U = [_leading(M, C) for M in L]
        history, self.n_iter_, self.converged_ = [_agreement(L, U, lam)], 0, lam == 0 or len(L) == 1
        while not self.converged_ and self.n_iter_ < self.max_iter:
            for p, M in enumerate(L):
                others = torch.cat(U[:p] + U[p + 1 :], dim=1)
                U[p] = _leading(M + lam * others @ others.mT, C)
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


def _surest(scores: np.ndarray, open_: np.ndarray, n_per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """A lesson: classes (-1: none) and scores, for the surest open samples of every class."""
    best, top = scores.argmax(1), scores.max(1)
    classes = np.full(len(best), -1)
    for c in range(scores.shape[1]):
        mine = np.flatnonzero(open_ & (best == c))
        classes[mine[np.argsort(-top[mine], kind="stable")[:n_per_class]]] = c
    return classes, top


def _learn(known: np.ndarray, lessons: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Fill what is unknown with the surest lesson, of equals with the smaller class."""
    classes, scores = (np.stack(part) for part in zip(*lessons, strict=True)) if lessons else (known[None], known[None])
    scores = np.where(classes >= 0, scores, -np.inf)
    tied = (scores == scores.max(0)) & (classes >= 0)
    answer = np.where(tied, classes, np.iinfo(classes.dtype).max).min(0)
    new = (known < 0) & tied.any(0)
    known[new] = answer[new]


def _distribution(scores: np.ndarray) -> np.ndarray:
    """Rows sum to the number of views before, so the largest is positive."""
    scores = np.maximum(scores, 0)
    return scores / scores.sum(1, keepdims=True)


def _leading(M: Tensor, C: int) -> Tensor:
    return torch.linalg.eigh(M)[1][:, -C:].flip(1)


def _agreement(L: list[Tensor], U: list[Tensor], lam: float) -> float:
    own = sum(float((u * (M @ u)).sum()) for u, M in zip(U, L, strict=True))
    return own + lam * sum(float((U[p].mT @ U[q]).square().sum()) for p in range(len(U)) for q in range(p))


def _given(sources: list[Source], F: Tensor) -> Any:
    """A result in the kind, on the device and in the dtype of the views."""
    return sources[0].give(F.to(sources[0].data.device, sources[0].data.dtype))
