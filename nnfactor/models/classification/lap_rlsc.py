"""Laplacian regularised least squares (Belkin, Niyogi and Sindhwani 2006)."""

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from ...core import Graph
from ..shared.inputs import Inputs
from ..shared.parameters import Device, DType, one_of, whole
from .base import Points, graph_of, invert_degrees
from .srlsc import SIGMA, KernelLeastSquares


@dataclass(kw_only=True, eq=False, repr=False)
class LapRLSC(KernelLeastSquares):
    """Laplacian regularised least squares classification: B = (J K + CA I + CI L K)^-1 Y (Belkin et al. 2006).

    L is the Laplacian of the neighbour graph. Fan et al. 2011 compare with it; their Eq. 2 is
    2 f'Lf, here L and CI stand as printed.

    Parameters
    ----------
    CA, CI, sigma, gamma, normalize, device, dtype
        As for `SRLSC`. With `normalize` the graph is of the unit-length samples too.
    graph, n_neighbors
        As for `HarmonicFunction`, but the links of "knn" weigh 1.
    laplacian : {"unnormalized", "normalized"}
        D - S, or I - D^-1/2 S D^-1/2, whose size does not depend on the number of neighbours: with 7 of them the first
        is about 9 times as large, so that the same CI means more smoothing. A sample without neighbours has a row of
        zeros in both.

    Attributes
    ----------
    classes_, transduction_, label_distributions_, scores_, dual_coef_, n_features_in_, feature_names_in_, fit_info_
        As for `SRLSC`.
    graph_ : Graph

    Examples
    --------
    >>> from nnfactor import LapRLSC
    >>> X = [[1.0, 0.0], [0.9, 0.1], [0.8, 0.1], [0.0, 1.0], [0.1, 0.9]]
    >>> model = LapRLSC(n_neighbors=1).fit(X, ["a", None, None, "b", None])
    >>> model.transduction_.tolist(), model.predict([[0.2, 0.7]]).tolist()
    (['a', 'a', 'a', 'b', 'b'], ['b'])
    """

    CA: float = 0.005
    CI: float = 0.01
    sigma: float | None = SIGMA
    graph: Any = "knn"
    n_neighbors: int = 7
    normalize: bool = True
    device: Device = "auto"
    dtype: DType = "auto"
    gamma: float | None = None
    laplacian: Literal["unnormalized", "normalized"] = "unnormalized"
    graph_: Graph = field(init=False)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        whole("n_neighbors", self.n_neighbors)
        one_of("laplacian", self.laplacian, ("unnormalized", "normalized"))

    def _smooth(self, inputs: Inputs, points: Points, K: Tensor) -> Tensor:
        self.graph_ = graph_of(self.graph, points, self.n_neighbors)
        degree = self.graph_.degree(K)
        if self.laplacian == "unnormalized":
            return degree * K - self.graph_.product(K)
        root = invert_degrees(self.graph_, K)
        return (degree > 0) * K - root * self.graph_.product(root * K)
