"""Nonnegative matrix factorization `X ~ V U'`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor

from ...core import Run
from ...core.arrays import Array
from ...core.data.base import filled_share
from ...core.factors import column_sums, normalize_columns
from ...core.solve.history.checkpoint import Checkpoint
from ...core.solve.nnls import divergence_coefficients
from ...core.solve.run import run
from ...core.terms.fit import sketch_term
from ..shared.base import Factorization, cp_model, mode_names
from ..shared.bases import KnownBases
from ..shared.constraints import constrain, constrained_coefficients
from ..shared.fitting import Learnt, Model
from ..shared.hidden import HiddenEntries, Missing
from ..shared.inputs import Inputs, place_factor
from ..shared.minibatch import MiniBatches
from ..shared.parameters import Loss, Ridge, ShrunkCoefficients, Solver, beta_of, nonnegative, one_of, whole
from ..shared.solvers import fit_term, unsupervised_method, unsupervised_rule

LENGTHS: dict[str | None, Callable[[list[Tensor]], list[Tensor]]] = {
    "l2": partial(normalize_columns, dead=0.0),
    "l1": partial(normalize_columns, norms_of=column_sums, dead=0.0),
    None: lambda factors: factors,
}

MOSTLY_ZERO = 0.1  # share of nonzero entries below which a product with the data costs no more than a HALS sweep


@dataclass(kw_only=True, eq=False, repr=False)
class NMF(MiniBatches, KnownBases, HiddenEntries, Factorization):
    """Nonnegative matrix factorization: `X (n x m) ~ V U'` with V (n x k) and U (m x k) nonnegative.

    Minimises `||X - V U'||^2` (Lee and Seung 2001), the generalised Kullback-Leibler divergence, or any beta-divergence
    (Fevotte and Idier 2011); the objective carries no 1/2.

    Parameters
    ----------
    n_components : int
        Rank k; may exceed both dimensions.
    loss : {"frobenius", "kullback-leibler", "kl", "itakura-saito"} or float
        A number is the beta of a beta-divergence; 2 is "frobenius", 1 "kullback-leibler" (or "kl"), 0 "itakura-saito".
        beta <= 0 needs data without zeros.
    solver : {"auto", "multiplicative", "mu", "hals", "projected"}
        "auto" extrapolates. Frobenius: HALS with restarts (Ang and Gillis 2019), 6 sweeps for one product with the
        data, 5 for tensors, 4 for a matrix with more than nine zeros in ten, however it is stored: measured, these take
        the least time. Other losses: multiplicative with Nesterov's weights (Hien, Leplat and Gillis 2024), about half
        the iterations; proved for 1 <= beta <= 2; under Kullback-Leibler steps are 1.3 times as long as in the proof,
        which saves a fifth of them. The objective can rise for an iteration;
        what is recorded and published is a pair of nonnegative factors and its objective, never an extrapolated point.
        The others are plain and monotone: "hals" (one sweep per product; Cichocki and Phan 2009), "multiplicative"
        (= "mu"; zeros are absorbing) and "projected". Losses other than Frobenius take "auto" and "multiplicative".
    init : {"auto", "random", "nndsvda"} or tuple (V, U)
        "auto": nonnegative double SVD with its zeros filled when k <= min(n, m), else random with the data's mean.
        Arrays are copied and used as given: their zeros stay zeros under "multiplicative".
    n_init : int
        Restarts, run as one batch with a stop each; run 0 starts from `init`, the others at random; the best is kept.
    max_iter : int
        Iterations at most; 0 publishes the start. A fit that has not settled by then warns (ConvergenceWarning).
    tol : float
        Stop when the objective fell by no more than tol times itself over 10 iterations, without a rise: neither a
        constant under the data nor the size of the start decides. With the default most fits end within 0.1 % of what
        a long run reaches. Nearly exact fits stop at changes below 1e-13 of `||X||^2` (float32: 1e-9). 0 runs exactly
        `max_iter` iterations, without ConvergenceWarning, and records every one (of losses other than Frobenius every
        tenth: an objective of theirs costs a pass over the data; verbose=2 records all).
    transform_method : {"nnls", "pinv", "ridge"}
        How `transform` computes coefficients: exact nonnegative least squares (for other losses: the divergence
        itself), or least squares of any sign, by the pseudo-inverse of the bases or shrunk (see `ridge`). It is read
        when `transform` is called; `embedding_` stays the fitted V >= 0.
    transform_tol, transform_max_iter : float, int
        Of `transform` for other losses, which takes steps: a row stops when they change none of its coefficients by
        more than `transform_tol` times the largest; all stop at `transform_max_iter`. Newton's steps under
        "kullback-leibler" for dense samples, of which about six are needed; else multiplicative ones, ten between two
        looks: on counts of 5000 words 1e-6 left all rows within 4e-4 of the minimiser, in units of the largest
        coefficient, and 1e-4, in half the time, within 2e-3. `fit_transform` starts from `embedding_`.
    random_state : int, RandomState, Generator or None
        Draws one seed per restart. None draws from numpy's global generator; with a seed no global one is touched.
    device : str or torch.device
        "auto": a tensor's own device, else CUDA if present, else the CPU.
    dtype : {"auto", "float32", "float64"}
        "auto": that of the data.
    callback : callable, list of them or None
        Called with a `nnfactor.core.Progress` every 10 iterations; a true answer stops the fit. `nnfactor.callbacks`
        has a progress bar and a log.
    verbose : int
        1 prints a line every 10 iterations, 2 also records every iteration.
    keep_embeddings : bool
        Whether `restarts_` also holds the sample factor of every restart, often the largest of all results.
    normalize : {"l2", "l1"} or None
        The gauge of what is published: bases of Euclidean length one ("l2"), or that sum to one ("l1": signatures and
        topics are distributions, coefficients are counts), their lengths in V; components by falling energy
        `||v_j|| ||u_j||`. The fit is the same. Without it lengths are arbitrary, up to thousandfold apart, and
        distances between rows of `embedding_` mean nothing. None leaves lengths and order as the solver left them, and
        so does a subclass with a term that penalises lengths. `partial_fit` keeps the order of its components.
    batch_size : int or None
        None: all samples in every iteration. A number: `fit` visits mini-batches of at most so many samples, and
        `max_iter` counts epochs. A visit solves the coefficients of the batch, then improves the bases on sums over all
        samples, each as last visited: the objective of all samples never rises, and a start in `init` is never made
        worse. It stops when an epoch lowered that objective by no more than tol / 10 of itself. Keeps one number for
        each batch, feature and component: take batches of several times k samples. For the losses "frobenius" and
        "kullback-leibler".
    forgetting : float
        For `partial_fit` only: sums over the samples before a batch are multiplied by (n_before / n_after) **
        forgetting: early batches count less, for their coefficients were solved with poor bases (Mairal et al. 2010).
        0 forgets nothing; larger values follow a changing stream sooner. 2: one pass comes within a few per cent of a
        full fit, on sparse counts in batches of 20 too, where 4 is 2 % higher. Under "kullback-leibler" twice this
        exponent says how a count is split between the components, and half of it how often a feature comes: that is
        known exactly, and rare words would otherwise be lost.
    missing : {"nan", "unstored"} or None
        What is missing: "nan" entries that are NaN, "unstored" what a sparse `X` does not store, as of ratings, beside
        NaN. None: NaN are refused, and what is not stored is 0. The mask of a masked array always hides, and `fit`,
        `transform` and `partial_fit` take `weights`. Hidden entries have no influence, and `loss_` and
        `reconstruction_err_` count observed ones, by their weights. Where few entries are hidden sums are corrected;
        else the model completes the data in every sweep (expectation-maximisation with the momentum of "auto"); where
        most are, every row and column is solved with a Gram matrix of its own.
    ridge : float >= 0 or "cv"
        Strength r of `transform_method="ridge"`: with the bases at unit length and singular values s_j, a coefficient
        takes s_j / (s_j^2 + (r s_max)^2) for the 1 / s_j of "pinv". Bases that are nearly dependent then do not spoil
        distances: 0.1 raised 1-NN on faces by up to 18 points. Coefficients are those of the published bases. "cv":
        the r in 1e-4 to 1 of least generalised cross-validation error over the samples of `fit` (after `partial_fit`
        of the last batch), which knows no labels; it is best for reconstruction, and small where data have no noise.

    penalties : dict of lists, optional
        By factor ("V", "U1"): penalties of `nnfactor.penalties`, such as `{"V": [L1(0.1)], "U1": [Smooth(2.0)]}`, added
        to the loss. Columns of factors without any have length one at most, in place of the gauge: otherwise a penalty
        would vanish as its factor shrinks. `transform` keeps L1 and L2 on "V", and leaves others out.
    fixed : dict of arrays, optional
        By factor: entries that are known, NaN where they are free, as `{"U1": spectra}`. Fewer columns than components
        are the first ones, and the others are free. Known entries come back bit for bit.
    bounds : dict of pairs, optional
        By factor: lower and upper bound of its entries, None for 0 and infinity.
    simplex : str or list of str, optional
        Factors whose rows sum to one, exactly: "V" for abundances. `transform` is then fully constrained least squares.
    terms : list of `nnfactor.core.Term`, or function, optional
        Terms of your own, of factors in the unit of the run (`X` over the power of two that is 1 for usual data). A
        function is given the shapes by factor. Restarts, `transform` (without them) and batches work as ever.
    alpha_W, alpha_H, l1_ratio : float, float or "same", float
        Regularisation as in scikit-learn's `NMF`, for matrices: `alpha_W n_features` times `l1_ratio ||V||_1` and
        `(1 - l1_ratio) / 2 ||V||^2`, and the same of the bases with `alpha_H n_samples`, where the loss counts half.
    sketch : bool
        For many restarts or ranks on a large dense matrix, Frobenius: iterate to the usual stop on a sketch of k + 20
        random directions first, which all of them share (Halko, Martinsson and Tropp 2011), then go on with the data to
        the usual stop. `n_iter_` and `history_` are of the data alone. Without effect where a sketch would save less
        than nine tenths of the products or holds less than half of the energy. False: restarts end where they would
        from their own starts.

    Attributes
    ----------
    embedding_ : (n_samples, k), the fitted V
    factors_ : list with U (m, k); components_ : (k, m), its transpose
    loss_ : float
        The objective, summed from the residual in float64.
    reconstruction_err_ : float
        `||X - V U'||`, the Frobenius norm whatever the loss.
    n_iter_, converged_ : int, bool
    history_ : dict
        Equal-length arrays "iteration", "objective", "seconds"; entry 0 is the start.
    restarts_ : dict
        With `n_init > 1`, factors as published: "loss" and "n_iter" (n_init,), "factors" [(n_init, m, k)], and on
        request "embeddings" (n_init, n_samples, k).
    fit_info_ : dict with device, dtype, seeds and versions
    ridge_ : float, the strength that was fitted, with `transform_method="ridge"`
    n_steps_, n_samples_seen_ : int, with mini-batches: batches visited, samples they came from
    moments_ : dict
        After `partial_fit`: the sums that stand for the stream, float64, of data divided by "scale".
    stream_ : dict
        After `partial_fit` over epochs: "n_epochs" and the "position" in the next one, "n_batches", "held_out" and
        "seed". `history_` then has "iteration" (epochs), "seconds" and "held_out", a mean loss.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NMF
    >>> X = np.outer([1., 2., 3.], [4., 0., 5., 6.])
    >>> model = NMF(n_components=1, random_state=0).fit(X)
    >>> float(round(model.reconstruction_err_, 6))
    0.0
    >>> model.components_.shape
    (1, 4)
    >>> stream = NMF(n_components=1, random_state=0)
    >>> for batch in (X[:2], X[2:], X):
    ...     stream = stream.partial_fit(batch)
    >>> stream.n_steps_, stream.n_samples_seen_, bool(abs(X - stream.transform(X) @ stream.components_).max() < 1e-6)
    (3, 6, True)
    """

    loss: Loss = "frobenius"
    solver: Solver = "auto"
    transform_method: ShrunkCoefficients = "nnls"
    keep_embeddings: bool = False
    transform_tol: float = 1e-6
    transform_max_iter: int = 1000
    normalize: Literal["l2", "l1"] | None = "l2"
    ridge: Ridge = 0.1
    missing: Missing = None
    penalties: Mapping[str, Any] | None = None
    fixed: Mapping[str, Any] | None = None
    bounds: Mapping[str, tuple[float | None, float | None]] | None = None
    simplex: str | Sequence[str] | None = None
    terms: Any = None
    alpha_W: float = 0.0
    alpha_H: float | Literal["same"] = "same"
    l1_ratio: float = 0.0
    sketch: bool = False
    _beta: float = field(init=False)

    _sharded = "split"

    def fit_transform(self, X: Any, y: Any = None, *, weights: Any = None, **kept: Any) -> Array:
        """Fit (`kept`: with which checkpoint), then compute coefficients as `transform` does.

        Those that are iterated start from `embedding_`.
        """
        return self.fit(X, y, weights=weights, **kept)._transform(X, weights, start=self.embedding_)

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        return {"_beta": beta_of(self.loss)}

    def _run(
        self, model: Model, learnt: Learnt, start: dict[str, Tensor], seeds: list[int], checkpoint: Checkpoint | None
    ) -> Run:
        if self.sketch and self.batch_size is None:
            terms = [sketch_term(term, model.rank, seeds[0]) for term in model.terms]
            if any(new is not old for new, old in zip(terms, model.terms, strict=True)):
                begin = partial(run, max_iter=self.max_iter, tol=self.tol, name="sketch", warn=False)
                start = begin(terms, model.rules, start, method=model.method).factors
        return super()._run(model, learnt, start, seeds, checkpoint)

    def _coefficients(self, inputs: Inputs, start: Any = None) -> Tensor:
        data, bases = inputs.data, self._bases(inputs.data)
        if (V := constrained_coefficients(self, data, bases, inputs.scale)) is not None:
            return V * inputs.scale
        if self._beta == 2 or self.transform_method != "nnls":
            return super()._coefficients(inputs)
        tol, most = float(self.transform_tol), int(self.transform_max_iter)
        begin = None if start is None else place_factor(start, data) / inputs.scale
        return divergence_coefficients(data, bases, self._beta, begin, tol, most) * inputs.scale

    def _check_parameters(self) -> None:
        super()._check_parameters()
        nonnegative("transform_tol", self.transform_tol)
        whole("transform_max_iter", self.transform_max_iter)
        one_of("normalize", self.normalize, tuple(LENGTHS))

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        data, beta = inputs.data, learnt["_beta"]
        mostly_zero = (self.solver, beta, data.order) == ("auto", 2, 2) and filled_share(data) < MOSTLY_ZERO
        rule = unsupervised_rule(self.solver, beta, data.order, mostly_zero)
        V, *bases = names = mode_names(data)
        rules, method = dict.fromkeys([*bases, V], rule), unsupervised_method(self.solver, beta)
        term = fit_term(data, names, beta, rule, int(self.n_components))
        gauge = self.normalize if self.max_iter else None  # without iterations the start is published as it is
        shown = {"normalize": LENGTHS[gauge], "ordered": gauge is not None}
        plain = cp_model(inputs, self.n_components, [term], rules, method, beta, **shown)
        return constrain(self, plain, beta)
