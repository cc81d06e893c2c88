"""Laplacian regularised least squares (Belkin, Niyogi and Sindhwani 2006)."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ...core import Graph
from ..shared.inputs import Inputs
from ..shared.parameters import Device, DType, whole
from .base import Points, graph_of
from .srlsc import KernelLeastSquares


@dataclass(kw_only=True, eq=False, repr=False)
class LapRLSC(KernelLeastSquares):
    """Laplacian regularised least squares classification: B = (J K + CA I + CI L K)^-1 Y (Belkin et al. 2006).

    L is the Laplacian of the neighbour graph. Fan et al. 2011 compare with it; their Eq. 2 is
    2 f'Lf, here L and CI stand as printed.

    Parameters
    ----------
    CA, CI, sigma, normalize, device, dtype
        As for `SRLSC`. With `normalize` the graph is of the unit-length samples too.
    graph, n_neighbors
        As for `HarmonicFunction`, but the links of "knn" weigh 1.

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
    sigma: float = 0.5
    graph: Any = "knn"
    n_neighbors: int = 7
    normalize: bool = True
    device: Device = "auto"
    dtype: DType = "auto"
    graph_: Graph = field(init=False)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        whole("n_neighbors", self.n_neighbors)

    def _smooth(self, inputs: Inputs, points: Points, K: Tensor) -> Tensor:
        self.graph_ = graph_of(self.graph, points, self.n_neighbors)
        return self.graph_.degree(K) * K - self.graph_.product(K)
