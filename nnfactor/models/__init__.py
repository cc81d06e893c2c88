"""Estimators: one file per paper or method, thin on top of the core."""

from .n2s2l import N2S2L
from .nge import NDTF, NGE, MarginalFisher
from .nmf import NMF
from .ntf import NTF

__all__ = ["N2S2L", "NDTF", "NGE", "NMF", "NTF", "MarginalFisher"]
