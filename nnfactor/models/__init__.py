"""Estimators: one file per paper or method, thin on top of the core."""

from ..core.graph.graph import Graph as _Graph
from ..core.solve.ridge import Projection as _Projection
from ..io.model_files import register as _register
from ..kernels import Kernel as _Kernel
from ..penalties import L1, L2, L21, Orthogonal, Smooth
from .classification.co_regularized_spectral import PairwiseCoRegularizedSpectral
from .classification.co_training import CoTraining
from .classification.label_propagation import HarmonicFunction, LocalGlobalConsistency
from .classification.labelled_only import LabelledOnly
from .classification.lap_rlsc import LapRLSC
from .classification.src import SRC
from .classification.srlsc import SRLSC
from .factorization.constrained_nmf import ConstrainedNMF
from .factorization.graph_nmf import GraphNMF
from .factorization.kernel_nmf import KernelNMF
from .factorization.local_nmf import LNMF
from .factorization.n2s2l import N2S2L
from .factorization.nge import NDTF, NGE, MarginalFisher
from .factorization.nmf import NMF
from .factorization.nnls import nnls
from .factorization.polynomial_nmf import PolynomialNMF
from .factorization.semi_nmf import SemiNMF
from .factorization.sulf import SULF
from .multiway.coupled import Coupled
from .multiway.ntd import NTD
from .multiway.ntf import NTF
from .multiway.parafac2 import PARAFAC2
from .projection.dpca import DPCA
from .projection.mfa import MFA, SMFA
from .shared.views import View as _View

__all__ = [
    "DPCA",
    "LNMF",
    "MFA",
    "N2S2L",
    "NDTF",
    "NGE",
    "NMF",
    "NTD",
    "NTF",
    "PARAFAC2",
    "SMFA",
    "SRC",
    "SRLSC",
    "SULF",
    "CoTraining",
    "ConstrainedNMF",
    "Coupled",
    "GraphNMF",
    "HarmonicFunction",
    "KernelNMF",
    "LabelledOnly",
    "LapRLSC",
    "LocalGlobalConsistency",
    "MarginalFisher",
    "PairwiseCoRegularizedSpectral",
    "PolynomialNMF",
    "SemiNMF",
    "nnls",
]

_PUBLIC = [value for value in (globals()[name] for name in __all__) if isinstance(value, type)]
_register(*_PUBLIC, _Graph, _Kernel, _Projection, _View, L1, L2, L21, Orthogonal, Smooth)
