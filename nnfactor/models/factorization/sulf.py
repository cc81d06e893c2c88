"""Semi-supervised unified latent factors of several views (Jiang et al. 2014).

Jiang, Liu, Li and Lu (2014), "Semi-supervised unified latent factor learning with multi-view data". Its printed
rule of V lacks a term, which is added here (`v_rule`).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import L2, L21, Fit, Rule, Run, Term, multiplicative, run
from ...core.arrays import Array
from ...core.factors import as_factor, multiply_transposed
from ...core.labels import to_host
from ...core.precision import strict_precision
from ...core.rules.closed_form import least_squares, simplex, unconstrained
from ...core.solve.nnls import coefficients_from
from ...core.solve.view_init import start_views
from ...core.terms.multiview import Labels, SemiFit, Views
from ..shared.base import Factorization, limits_of
from ..shared.fitting import Learnt, Model
from ..shared.hidden import HiddenEntries, Missing
from ..shared.inputs import Inputs, given_array, place_factor, read_coefficients
from ..shared.labels import LabelledScore, encode_classes
from ..shared.parameters import Coefficients, lists_restarts, nonnegative, one_of, positive
from ..shared.scikit_learn import ClassifierMixin
from ..shared.views import (
    View,
    are_learned,
    complain_of_weights,
    constant_views,
    given_views,
    mean_energy,
    measure_residuals,
    normal_equations,
    read_views,
    scale_weight,
    view_scales,
    view_weights,
)
from .semi_nmf import check_exponent
from .sulf_labels import LabelledModel, classify_samples, predict_classes


@dataclass(kw_only=True, eq=False, repr=False)
class SULF(LabelledScore, ClassifierMixin, HiddenEntries, Factorization):  # type: ignore[misc]
    """Semi-supervised unified latent factors: views `X^p (n x m_p) ~ V U^p'` share V >= 0; W tells classes from it.

    Minimises (Jiang et al. 2014, Eq. 11), with weights pi on the simplex and Y one-hot labels,

        sum_p pi_p ||X^p - V U^p'||^2 + lam ||pi||^2 + beta ||V_l W - Y||^2 + gamma sum_j sqrt(||w_j||^2 + eps)

    One iteration: W by stacked least squares, all U^p, V (labelled and unlabelled rows together), pi exactly. No step
    raises the objective.

    Parameters
    ----------
    n_components : int
        Rank k.
    beta : float >= 0
        Weight of the labels. The paper's 1e8 made accuracy collapse in our measurements. 0 drops both label terms, and
        there is no W. With classifier="ridge" values from 0.001 to 100 classify alike.
    gamma : float >= 0
        Weight of W's row sparsity. Its term tends to zero by itself: (V c, U / c, W / c) keeps the other terms.
    lam : "auto" or float >= 0
        Smooths the view weights; 0 puts everything on the best view. It stands against c_p = ||X^p - V U^p'||^2, sums
        over all n samples: every view has weight once 2 lam > P max c - sum c; far below, only the easiest to fit has.
        "auto": n / 2, or half the mean squared norm of views that are not scaled, which keeps all views in use.
    exponent : float in (0, 1]
        Of the ratio in V's rule. 1 is faster than the paper's 0.5; both are monotone.
    eps : float > 0
        Smooths the row lengths of W.
    view_weights : "learned", "equal" or array (n_views,)
        A given array is divided by its sum. A view of weight 0 still fits its basis. Learned weights prefer what is
        easy to fit, and a warning tells when they end on one view: often one that k components fit exactly, with at
        most k features or with repeated columns. A view whose samples are all equal gets no weight, with a warning.
    scale_views : bool
        Divide view p by `||X^p|| / sqrt(n)`, so that a sample's mean energy is 1 in every view: beta and lam then
        do not depend on units, and no view is lost because its numbers are small. Factors stay in the units of the
        data (`X^p ~ V U^p'`); the objective is that of the scaled views.
    v_rule : {"corrected", "printed"}
        "printed" are the paper's Eqs. 22-26, which lack the term `beta V_l W W'`: the objective rises, and V_l grows
        without bound from beta = 100 on. For study only.
    signed : {"refuse", "semi"}
        "semi" lets views with negative entries in: their U^p are unconstrained, as in Semi-NMF.
    init : {"auto", "random", "nndsvda"} or tuple (V, U1, ..., UP)
        "auto": nonnegative double SVD of the views side by side, its zeros filled, when k <= min(n, sum of m_p), else
        random. Arrays are copied and used as given; an optional last one holds the first view weights (default 1/P).
    start : {"one_stage", "two_stage"}
        "one_stage": labels from the first iteration, as in the paper. "two_stage": first up to 200 iterations without
        labels and with the view weights of the start. Of no effect without labels, with arrays as `init` and with
        max_iter=0. `n_iter_` and `history_` are of what follows; a callback is told of both, counted from 0 each.
    classifier : {"ridge", "coef"}
        What tells classes. "ridge": ridge regression on coefficients that are computed without labels (`transform`), of
        the labelled samples. "coef": the paper's V W. See Notes for figures.
    alpha : "cv" or float > 0
        Strength of that ridge, for coefficients of a mean squared length of 1 (bases at unit length). "cv": the one of
        0.001 to 100 with the least squared error of labelled samples that are left out one by one.
    coef_init : array (k, n_classes) or None
        W to start from. None: least squares with the penalty `gamma ||W||^2`.
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; the last half per cent is slow and changes no class. 0: exactly `max_iter`
    transform_method : {"nnls", "pinv"}, how V of samples is computed: exact nonnegative least squares, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the views, float64 if they differ
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration
    missing : {"nan", "unstored"} or None
        What is missing, as for `NMF`; a sample may lack whole views. For listed views `weights` of `fit` and
        `transform` are a list of arrays or None. A view is scaled by what is observed of it.

    Attributes
    ----------
    embedding_ : (n_samples, k)
        V, which knows the labels; `transform` does not.
    factors_ : list of (m_p, k); components_ : (k, m), for one view only
    coef_ : (k, n_classes)
        W, any sign; absent without labels or with beta = 0.
    view_weights_ : (n_views,); view_scales_ : (n_views,), what views were divided by (1 without scaling)
    classes_ : array; transduction_ : (n_samples,)
        Given labels, and what `predict` says elsewhere (with classifier="coef" the largest entry of `V W`). A sample
        that no label reaches (a zero row) is marked as unlabelled: -1 among numbers, "-1" among strings, None among
        objects.
    label_distributions_ : (n_samples, n_classes)
        Nearest distribution to each row of scores, one-hot where a label was given, zero where no label reaches.
    ridge_coef_ : (k, n_classes); ridge_intercept_ : (n_classes,); alpha_ : float, lam_ : float
        Of classifier="ridge", of `transform`'s coefficients as they are; and the strength and the lam that were used.
    loss_ : float
        The objective above, from the residuals in float64; `lam ||pi||^2` counts for fixed weights too.
    reconstruction_err_ : float
        `sqrt(sum_p ||X^p - V U^p'||^2)` in the units of the data; view_errors_ : (n_views,), relative to `||X^p||`.
    n_features_in_ : int, or a list of int if a list was given
    n_iter_, converged_, history_, fit_info_, restarts_
        As for `NMF`; `restarts_` also holds "view_weights".

    Notes
    -----
    `X` is a list of views (n_samples, m_p) of the same samples in the same order, each an array, tensor, DataFrame or
    scipy sparse matrix; or one of them, which is one view. `y` marks unlabelled samples by -1 and NaN among numbers, by
    None, NaN, -1, "-1" and "" among text and objects; without any label the label terms are absent, and `predict`
    refuses. `transform` takes the same views. FloatingPointError: v_rule="printed" diverged, or weights are far off.

    The paper's values: beta=1e8, gamma=100, lam=1000, exponent=0.5, v_rule="printed", scale_views=False,
    classifier="coef". Its variants: SULF1 is beta=0 and ridge regression on `embedding_`, SULF2 one view, SULF3
    view_weights="equal".

    Why not V W: labels move their rows of V until W fits them exactly, and W then says little of other rows. 10 % of
    the labels, k = 50, three splits, on digits (mfeat) / images (MSRC-v1) / documents (Reuters, five languages), %
    right of the others: 95.5 / 82.4 / 65.6; start="two_stage" 95.8 / 83.1 / 65.1; NMF of all views and the same ridge
    95.7 / 81.1 / 65.0; classifier="coef" 88.4 / 68.3 / 46.5; with lam=1 too (one or two views), 73.9 / 54.0 / 45.1.
    So labels hardly improve the bases; it helps to classify by what was computed without them.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import SULF
    >>> rng = np.random.default_rng(0)
    >>> truth = np.arange(30) % 2
    >>> V = np.eye(2)[truth] + 0.1 * rng.random((30, 2))
    >>> views = [V @ rng.random((2, 5)), 1000 * V @ rng.random((2, 8))]
    >>> y = np.where(np.arange(30) < 6, truth, -1)          # -1: unlabelled
    >>> model = SULF(n_components=2, tol=1e-3, random_state=0).fit(views, y)
    >>> bool((model.predict(views) == truth).all()), model.view_weights_.shape
    (True, (2,))
    """

    tol: float = 1e-4
    beta: float = 1.0
    gamma: float = 0.01
    lam: float | Literal["auto"] = "auto"
    exponent: float = 1.0
    eps: float = 1e-10
    view_weights: Any = "learned"
    scale_views: bool = True
    v_rule: Literal["corrected", "printed"] = "corrected"
    signed: Literal["refuse", "semi"] = "refuse"
    coef_init: Any = None
    transform_method: Coefficients = "nnls"
    start: Literal["one_stage", "two_stage"] = "one_stage"
    classifier: Literal["ridge", "coef"] = "ridge"
    alpha: float | Literal["cv"] = "cv"
    missing: Missing = None
    view_weights_: np.ndarray = field(init=False)
    view_scales_: np.ndarray = field(init=False)
    view_errors_: np.ndarray = field(init=False)
    lam_: float = field(init=False)
    coef_: Array = field(init=False)
    ridge_coef_: Array = field(init=False)
    ridge_intercept_: Array = field(init=False)
    alpha_: float = field(init=False)
    classes_: np.ndarray = field(init=False)
    transduction_: Array = field(init=False)
    label_distributions_: Array = field(init=False)
    _sizes: np.ndarray = field(init=False)
    _constant: tuple[int, ...] = field(init=False)
    _views: list[View] | None = field(init=False)

    _listed_views = True
    _sharded = "gathered"
    _weights = ("beta", "gamma", "lam")

    def inverse_transform(self, V: Any) -> Any:
        """Return the views `V U^p'` that `V (n_samples, n_components)` stands for: a list, if `fit` took one."""
        check_is_fitted(self)
        rows = read_coefficients(V, self._n_features_out)
        with strict_precision(rows.device):
            views = [multiply_transposed(rows.to(U.dtype), U) for U in (place_factor(F, rows) for F in self.factors_)]
        given: list[Any] = views if isinstance(V, Tensor) else [X.numpy() for X in views]
        return given[0] if self._views is None else given

    def predict(self, X: Any) -> Array:
        """Return the class of every sample (n_samples,); one without any coefficient is unlabelled.

        The largest entry of `transform(X) @ ridge_coef_ + ridge_intercept_`, as for the unlabelled samples of `fit`.
        With classifier="coef" that of `transform(X) @ coef_`: expect less than on the samples of `fit`.

        Raises
        ------
        ValueError
            The model has no W: it was fitted without labels, or with beta = 0.
        """
        check_is_fitted(self)
        if not hasattr(self, "coef_"):
            why = "beta=0 leaves the labels out" if len(self.classes_) else "it was fitted without any label"
            raise ValueError(f"SULF cannot predict: {why}. Fit with labels and beta > 0, or classify transform(X)")
        return predict_classes(self, self.transform(X))

    def to_cp(self) -> Any:
        """As for `NMF`, with one view (else ValueError)."""
        if (n := len(getattr(self, "factors_", ()))) > 1:
            raise ValueError(f"{n} views are not one tensor; use embedding_ and factors_")
        return super().to_cp()

    @property
    def _signed(self) -> bool:
        return self.signed == "semi"

    def _read(self, X: Any, reset: bool, weights: Any = None) -> Inputs:
        return read_views(self, X, reset=reset, signed=self._signed, weights=weights)

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        """Classes and one-hot labels; the scales of the views and the unit of the objective."""
        data, views = inputs.data, inputs.views
        codes, classes = encode_classes(y, data.shape[0], stacklevel=6)
        scales, sizes, unit = view_scales(views, bool(self.scale_views))
        one_hot = np.eye(len(classes))[codes] if len(classes) else np.zeros((len(codes), 0))
        constant = constant_views(inputs)
        return {
            "classes_": classes,
            "codes": codes,
            "known": codes >= 0,
            "targets": torch.from_numpy(one_hot).to(data.device, data.dtype),
            "view_scales_": sizes if self.scale_views else np.ones(len(views)),
            "sizes": sizes,
            "scales": tuple(scales),
            "unit": unit,
            "constant": tuple(constant),
            "mean_energy": mean_energy(views, scales, constant),
        }

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        data, k, unit = [view.data for view in inputs.views], int(self.n_components), learnt["unit"]
        weight_of = lambda name: scale_weight(name, getattr(self, name), unit, data[0].dtype)
        lam = learnt["mean_energy"] / 2 if self.lam == "auto" else weight_of("lam")
        bases = [f"U{p + 1}" for p in range(len(data))]
        free = [X.smallest() < 0 for X in data]
        fits = [(SemiFit if f else Fit)(X, ("V", U)) for X, U, f in zip(data, bases, free, strict=True)]
        views = Views(
            tuple(fits), scales=learnt["scales"], excluded=learnt["constant"] if are_learned(self.view_weights) else ()
        )
        terms: list[Term] = [views, L2("pi", lam)]
        # updates in the order of Algorithm 1: W (Eq. 15), all U^p (19), V (26 and 27), pi (28)
        rules: dict[str, Rule] = {U: unconstrained if f else multiplicative for U, f in zip(bases, free, strict=True)}
        rules["V"] = partial(multiplicative, power=float(self.exponent))
        if self.beta > 0 and len(learnt["classes_"]):
            printed = self.v_rule == "printed"
            terms.append(Labels(learnt["targets"], learnt["known"], weight=weight_of("beta"), printed=printed))
            if self.gamma > 0:
                terms.append(L21("W", weight_of("gamma"), float(self.eps)))
            rules = {"W": least_squares, **rules}
        if are_learned(self.view_weights):
            rules["pi"] = simplex
        shapes = {"V": (data[0].shape[0], k), **{U: (X.shape[1], k) for U, X in zip(bases, data, strict=True)}}
        scales = (1.0, *(view.scale for view in inputs.views))
        # W is not unique with zero columns of V
        fixed: dict[str, Any] = {"shares_scales": False, "padded": False}
        staged = "W" in rules and self.start == "two_stage" and isinstance(self.init, str) and self.max_iter > 0
        return LabelledModel(terms, rules, shapes, data, scales, unit, **fixed, staged=staged)

    def _start(self, inputs: Inputs, model: Model, seeds: list[int], restart: int) -> dict[str, Tensor]:
        """V, U1, ..., the view weights pi and, where there are labels, W."""
        excluded = cast(Views, model.terms[0]).excluded
        weights = [float(p not in excluded) for p in range(len(model.data))] if excluded else self.view_weights
        pi = view_weights(weights, model.data[0], len(model.data))
        if restart or isinstance(self.init, str):
            factors = super()._start(inputs, model, seeds, restart)
        else:
            arrays, given = given_views(self.init, model)
            factors = dict(zip(model.names, arrays, strict=True))
            pi = given if "pi" in model.rules and given is not None else pi
        factors["pi"] = pi
        if "W" in model.rules:
            W = factors["W"] = cast(LabelledModel, model).first_coefficients(factors)
            if not restart and self.coef_init is not None:
                factors["W"] = as_factor(given_array("coef_init", self.coef_init, tuple(W.shape), W, free=True))
        return factors

    def _draw(self, model: Model, seed: int, svd: bool) -> list[Tensor]:
        views = cast(Views, model.terms[0])
        scales = [0.0 if p in views.excluded else s for p, s in enumerate(views.scales)]
        return start_views(cast(Any, model.data), scales, model.rank, seed, svd)

    def _run(self, model: Model, learnt: Learnt, start: dict[str, Tensor], seeds: list[int], checkpoint: Any) -> Run:
        if (staged := cast(LabelledModel, model)).staged:
            limits, keep = limits_of(self, checkpoint), self.coef_init is not None
            start, stopped = staged.run_without_labels(start, limits, keep_coefficients=keep)
            if stopped:
                return run(model.terms, model.rules, start, **(limits | {"max_iter": 0}))
        try:
            return super()._run(model, learnt, start, seeds, checkpoint)
        except FloatingPointError as error:
            if self.v_rule != "printed":
                raise
            raise FloatingPointError(f"{error}. {self._remedy}") from None

    @property
    def _remedy(self) -> str:
        if self.v_rule != "printed":
            return super()._remedy
        why = "v_rule='printed' is Jiang et al. 2014, Eqs. 22-26, which lack beta V_l W W' and diverge"
        return f"{why}; use v_rule='corrected', or fewer iterations"

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        factors = {name: F[run.best] for name, F in run.factors.items()}
        found |= {
            "view_weights_": to_host(factors["pi"][0]),
            "_sizes": learnt["sizes"].copy(),
            "_constant": learnt["constant"],
            "lam_": learnt["mean_energy"] / 2 * model.unit if self.lam == "auto" else float(self.lam),
        }
        if "W" in factors:
            found |= classify_samples(self, inputs, learnt, factors, found)
        if lists_restarts(self):
            found["restarts_"]["view_weights"] = to_host(run.factors["pi"][:, 0])
        found["converged_"] &= not self._rises(found["history_"])
        return found

    def _errors(self, inputs: Inputs, model: Model, factors: list[Tensor]) -> dict[str, Any]:
        total, relative = measure_residuals(model, factors)
        return {"reconstruction_err_": total, "view_errors_": relative}

    def _coefficients(self, inputs: Inputs) -> Tensor:  # labels have no part in it
        G, B = normal_equations(inputs, self.factors_, self._sizes, self.view_weights_)
        return coefficients_from(G, B, self.transform_method)

    def _vanished(self) -> bool:
        alive = [bool((self.embedding_ != 0).any() and (U != 0).any()) for U in self.factors_]
        return any(error > 0 and not some for error, some in zip(self.view_errors_, alive, strict=True))

    def _rises(self, history: dict[str, Any]) -> bool:
        last = history["objective"][-2:]
        return self.v_rule == "printed" and bool(last[-1] > last[0])

    def _complaints(self) -> list[str]:
        if self._rises(self.history_):
            return ["has v_rule='printed', and its objective rises to the end; use v_rule='corrected'"]
        of_weights = complain_of_weights(self.view_weights_, self._constant, are_learned(self.view_weights), self.lam_)
        return super()._complaints() + of_weights

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in self._weights:
            if name != "lam" or self.lam != "auto":
                nonnegative(name, getattr(self, name), note=', or "auto"' if name == "lam" else "")
        one_of("start", self.start, ("one_stage", "two_stage"))
        one_of("classifier", self.classifier, ("ridge", "coef"))
        if self.alpha != "cv":
            positive("alpha", self.alpha, also='"cv" or ')
        positive("eps", self.eps)
        check_exponent(self.exponent)
        one_of("v_rule", self.v_rule, ("corrected", "printed"))
        one_of("signed", self.signed, ("refuse", "semi"))
        one_of("scale_views", self.scale_views, (True, False))
        if isinstance(self.view_weights, str):
            one_of("view_weights", self.view_weights, ("learned", "equal"), "an array of numbers >= 0")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False  # SULF1 has no labels
        tags.classifier_tags.poor_score = True  # in the plane: V of a new sample, found without labels, is not unique
        return tags
