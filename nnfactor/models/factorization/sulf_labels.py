"""What SULF does with labels around its iteration: a stage without them before, classes of all samples after it.

Labels move their rows of V until W fits these rows, and then V W tells little of other samples. Coefficients that are
computed without labels, those of labelled samples too, are alike for all: a ridge regression on them classifies.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core import L2, L21, block_of, run
from ...core.factors import divide, square_norms
from ...core.labels import to_host
from ...core.rules.closed_form import least_squares
from ...core.solve.nnls import coefficients_from
from ...core.terms.multiview import Labels, Views
from ..classification.ridge import fit_coefficients
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs
from ..shared.labels import decide, decode_labels, nearest_distribution, place_labels
from ..shared.views import lengths_of_views, normal_equations

FIRST = 200  # iterations without labels at most: a number of their own, so that a warm start goes on as one fit would


@dataclass(frozen=True)
class LabelledModel(Model):
    """A model of views and perhaps labels, and whether a stage without the labels comes first."""

    staged: bool = False

    @property
    def key(self) -> Hashable:
        """No batch holds models with and without the first stage."""
        return super().key, self.staged

    @property
    def views(self) -> Views:
        """The term of the views."""
        return next(term for term in self.terms if isinstance(term, Views))

    def first_coefficients(self, factors: dict[str, Tensor]) -> Tensor:
        """W at the start: least squares with the penalty `gamma ||W||^2`."""
        labels = next(t for t in self.terms if isinstance(t, Labels))
        V = factors["V"]
        zero = V.new_zeros(*V.shape[:-2], self.rank, labels.targets.shape[1])
        ridge = [L2("W", t.weight) for t in self.terms if isinstance(t, L21)]
        return least_squares(zero, block_of([labels, *ridge], {**factors, "W": zero}, "W"))

    def run_without_labels(
        self, start: dict[str, Tensor], limits: dict[str, Any], keep_coefficients: bool
    ) -> tuple[dict[str, Tensor], bool]:
        """Run the views alone, at the weights of the start; return a new start, and whether the callback stopped."""
        rules = {name: rule for name, rule in self.rules.items() if name not in ("W", "pi")}
        state = {name: start[name] for name in (*self.names, "pi")}
        more = {"max_iter": FIRST, "name": f"{limits['name']} without labels"}
        reached = run([self.views], rules, state, method=self.method, **{**limits, **more})
        begin = {**start, **self._balance(reached.factors)}
        if not keep_coefficients:
            begin["W"] = self.first_coefficients(begin)
        return begin, reached.stopped

    def _balance(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rescale components, at the same model: bases of one length over weighted views, V of mean squared length 1.

        Nothing fixes lengths without labels, and the weights beta and gamma would mean anything.
        """
        V, pi, names = factors["V"], factors["pi"].double(), self.names[1:]
        weights = pi * pi.new_tensor(self.views.scales)
        squares = [weights[..., p : p + 1] * square_norms(factors[U].double()) for p, U in enumerate(names)]
        length = reduce(torch.add, squares).sqrt()
        size = ((V.double() * length).square().sum((-2, -1), keepdim=True) / V.shape[-2]).sqrt()
        stretch = torch.where((size > 0) & (length > 0), divide(length, size.expand_as(length)), 1)
        shrink = (1 / stretch).to(V.dtype)
        return {"V": V * stretch.to(V.dtype), **{U: factors[U] * shrink for U in names}}


def classify_samples(
    estimator: Any, inputs: Inputs, learnt: Learnt, factors: dict[str, Tensor], found: dict[str, Any]
) -> dict[str, Any]:
    """Publish W, the ridge regression and the classes of all training samples; given labels stay."""
    V, W, codes = factors["V"], factors["W"], learnt["codes"]
    known = torch.from_numpy(learnt["known"]).to(V.device)
    shown: dict[str, Any] = {"coef_": inputs.to_caller(W)}
    if estimator.classifier == "ridge":
        G, B = normal_equations(inputs, found["factors_"], found["_sizes"], found["view_weights_"])
        blind = coefficients_from(G, B, estimator.transform_method)
        lengths = lengths_of_views(found["factors_"], found["_sizes"], found["view_weights_"], blind)
        coef, intercept, shown["alpha_"] = _fit_ridge(blind, lengths, learnt["targets"], known, estimator.alpha)
        shown |= {"ridge_coef_": inputs.to_caller(coef), "ridge_intercept_": inputs.to_caller(intercept)}
        scores = _score(blind, coef, intercept)
    else:
        alive = V.amax(1, keepdim=True) > torch.finfo(V.dtype).eps ** 2 * V.max()  # rules only come near zero rows
        scores = torch.where(alive, V.double() @ W.double(), 0)
    shares = torch.where(known[:, None], learnt["targets"].double(), nearest_distribution(scores))
    decided = np.where(codes >= 0, codes, decide(to_host(scores)))
    cut = inputs.data.sums.cut
    labels = decode_labels(cut(decided[:, None])[:, 0], learnt["classes_"])
    return shown | {
        "label_distributions_": inputs.to_caller(cut(shares)),
        "transduction_": place_labels(labels, inputs.data.device if inputs.as_torch else None),
    }


def predict_classes(estimator: Any, V: Any) -> Any:
    """Decide the classes of coefficients that `transform` gave."""
    on_host = lambda F: torch.from_numpy(np.array(to_host(F), dtype=np.float64))  # a copy: some cannot be written to
    if hasattr(estimator, "ridge_coef_"):
        scores = _score(*map(on_host, (V, estimator.ridge_coef_, estimator.ridge_intercept_)))
    else:
        scores = on_host(V) @ on_host(estimator.coef_)
    labels = decode_labels(decide(scores.numpy()), estimator.classes_)
    return place_labels(labels, V.device if isinstance(V, Tensor) else None)


def _fit_ridge(V: Tensor, lengths: Tensor, targets: Tensor, known: Tensor, alpha: Any) -> tuple[Tensor, Tensor, float]:
    """Fit to the rows `known (n,)` of V `(n, k)`; `lengths (k,)` of the bases make the columns of V comparable."""
    scale = lengths / (float((V * lengths).square().sum() / len(V)) ** 0.5 or 1.0)
    given = None if isinstance(alpha, str) else float(alpha)
    W, intercept, strength = fit_coefficients(V[known] * scale, targets[known].double(), given)
    return scale[:, None] * W, intercept, strength


def _score(V: Tensor, coef: Tensor, intercept: Tensor) -> Tensor:
    """Score samples `(n, C)`: zero for one without any coefficient, of which nothing is known."""
    return torch.where((V != 0).any(1, keepdim=True), V @ coef + intercept, 0)
