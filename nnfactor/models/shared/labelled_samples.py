"""Classify new samples by the labelled ones of a fit: nearest neighbour or class mean of their coefficients."""

from typing import Any, Literal

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core.arrays import Array
from ...core.factors import divide
from ...core.graph.distances import find_centre, squared_distances
from ...core.precision import strict_precision
from ...core.solve.nnls import nnls, weighted_coefficients
from ...core.solve.ridge import Projection, project
from .bases import ridge_strength
from .inputs import Inputs, place_factor
from .labels import LabelledScore, decode_labels, place_labels

Classifier = Literal["nearest_neighbor", "nearest_centroid"]
Metric = Literal["euclidean", "cosine"]
Compared = Literal["discriminative", "all"]

CHUNK = 1 << 22  # distances held at once


class LabelledSamples(LabelledScore):
    """Mixin of factorizations that classify: `predict` and `score` by coefficients of the labelled training samples.

    Labels move the rows of `embedding_`, so that no new sample lies among them. The labelled samples are therefore
    solved as `transform` solves new ones. A fit keeps their projection on the bases, one product with the data, from
    which the coefficients of every `transform_method` follow when they are asked for; the samples are not kept.
    """

    classifier: Classifier
    metric: Metric
    coefficients: Compared
    classes_: np.ndarray
    n_discriminative_: int
    _labelled: dict[str, Any]  # codes (n_l,), the four tensors of their `Projection`, features once computed

    def predict(self: Any, X: Any) -> Array:
        """Predict the class of every sample by the labelled samples of `fit`; never "unlabelled".

        Compared are coefficients of `transform`, with those of the nearest labelled sample or the mean of a class, as
        `coefficients`, `classifier`, `metric` and `transform_method` say when this is called.

        Parameters
        ----------
        X : (n_samples, n_features), or samples as in `fit`

        Returns
        -------
        (n_samples,) of `classes_`, as a tensor for a tensor X if labels are numbers

        Raises
        ------
        NotFittedError
            No labelled sample is known: `fit` had no labels, `components_` were set, or `partial_fit` moved the bases.
        """
        check_is_fitted(self)
        if not vars(self).get("_labelled"):
            raise NotFittedError(
                f"this {type(self).__name__} knows no labelled samples on its bases: its fit had no labels, or "
                "partial_fit or components_ changed the bases since. Call fit(X, y) with labels, or train a classifier "
                "on transform(X)"
            )
        inputs = self._read(X, reset=False)
        with strict_precision(inputs.data.device):
            points, codes = self._labelled_points(inputs.data.device)
            V = self._coefficients(inputs)[:, : points.shape[1]]
            codes = codes[_find_nearest(V, points, self.metric).cpu().numpy()]
        labels = decode_labels(codes, self.classes_)
        return place_labels(labels, inputs.data.device if inputs.as_torch else None)

    def _coefficient_key(self: Any) -> tuple[str, float]:
        """Say which coefficients are compared: a method and the strength of its ridge."""
        return self.transform_method, ridge_strength(self) if self.transform_method == "ridge" else 0.0

    def _labelled_points(self: Any, device: torch.device) -> tuple[Tensor, np.ndarray]:
        """Return points of the classes `(p, q)`, float64, and their codes: all labelled samples, or one for a class."""
        kept, key = self._labelled, self._coefficient_key()
        if key not in kept["features"]:
            if "along" not in kept:
                raise ValueError(
                    "samples with hidden or weighted entries were solved in fit, for other coefficients than "
                    f"transform_method={self.transform_method!r}, ridge={key[1]:g}; fit again"
                )
            # kept where no attribute changes: a loop over single samples would else solve all of them every time
            projection = Projection(*(kept[name].to(device) for name in ("along", "values", "directions", "lengths")))
            kept["features"] = {key: _solve(projection, *key)}
        q = self.n_discriminative_ if self.coefficients == "discriminative" else 0
        V, codes = kept["features"][key].to(device)[:, : q or None], kept["codes"]
        if self.classifier == "nearest_neighbor":
            return V, codes
        if self.metric == "cosine":
            V = _unit_rows(V)
        present = np.unique(codes)
        return torch.stack([V[torch.from_numpy(codes == c).to(device)].mean(0) for c in present]), present


def keep_labelled(
    inputs: Inputs, codes: np.ndarray | None, factors: list[Any], key: tuple[str, float]
) -> dict[str, Any]:
    """Keep what coefficients of the labelled samples (codes >= 0) on fitted bases come from; nothing without labels.

    Where every sample has weights of its own there is no projection that all methods share: those of `key`, a method
    and its ridge, are solved now.
    """
    if codes is None or not (codes >= 0).any():
        return {}
    data, bases = inputs.data, [place_factor(F, inputs.data) for F in factors]
    if data.weighted:
        rows = data.take(torch.from_numpy(np.flatnonzero(codes >= 0)).to(data.device))
        return {"codes": codes[codes >= 0], "features": {key: weighted_coefficients(rows, bases, *key) * inputs.scale}}
    projection = project(data, bases)
    along = projection.along[torch.from_numpy(codes >= 0).to(projection.along.device)] * inputs.scale
    more = {name: getattr(projection, name) for name in ("values", "directions", "lengths")}
    return {"codes": codes[codes >= 0], "along": along, **more, "features": {}}


def _solve(projection: Projection, method: str, ridge: float) -> Tensor:
    """Compute the coefficients that `transform` gives the projected samples."""
    return projection.coefficients(ridge) if method != "nnls" else nnls(*projection.products()) / projection.lengths


def _find_nearest(V: Tensor, points: Tensor, metric: str) -> Tensor:
    """Find the nearest point for every row, the first of equals; by cosine, a zero row is as far from all."""
    if metric == "cosine":
        V, points = _unit_rows(V), _unit_rows(points)
    peak = points.abs().max()  # squares of large numbers overflow
    V, points = (divide(F, peak.expand_as(F)) for F in (V, points))
    centre = find_centre(points)
    parts = V.split(max(1, CHUNK // len(points)))
    return torch.cat([squared_distances(part, points, centre).argmin(1) for part in parts])


def _unit_rows(F: Tensor) -> Tensor:
    peak = F.abs().amax(1, keepdim=True).expand_as(F)
    F = divide(F, peak)
    return divide(F, torch.linalg.vector_norm(F, dim=1, keepdim=True).expand_as(F))
