"""Estimators: one file per paper or method, thin on top of the core."""

from .baselines import LNMF, ConstrainedNMF, GraphNMF
from .dpca import DPCA
from .kernel_nmf import KernelNMF, PolynomialNMF
from .mfa import MFA, SMFA
from .n2s2l import N2S2L
from .nge import NDTF, NGE, MarginalFisher
from .nmf import NMF
from .ntf import NTF

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
    "ConstrainedNMF",
    "GraphNMF",
    "KernelNMF",
    "MarginalFisher",
    "PolynomialNMF",
]
