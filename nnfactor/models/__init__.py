"""Estimators: one file per paper or method, thin on top of the core."""

from .baselines import LNMF, ConstrainedNMF
from .dpca import DPCA
from .graph_nmf import GraphNMF
from .kernel_nmf import KernelNMF, PolynomialNMF
from .mfa import MFA, SMFA
from .multiview import CoTraining, PairwiseCoRegularizedSpectral
from .n2s2l import N2S2L
from .nge import NDTF, NGE, MarginalFisher
from .nmf import NMF
from .ntf import NTF
from .propagation import HarmonicFunction, LocalGlobalConsistency
from .semi_nmf import SemiNMF
from .srlsc import SRC, SRLSC, LapRLSC
from .sulf import SULF

__all__ = [
    "DPCA",
    "LNMF",
    "MFA",
    "N2S2L",
    "NDTF",
    "NGE",
    "NMF",
    "NTF",
    "SMFA",
    "SRC",
    "SRLSC",
    "SULF",
    "CoTraining",
    "ConstrainedNMF",
    "GraphNMF",
    "HarmonicFunction",
    "KernelNMF",
    "LapRLSC",
    "LocalGlobalConsistency",
    "MarginalFisher",
    "PairwiseCoRegularizedSpectral",
    "PolynomialNMF",
    "SemiNMF",
]
