"""Estimators: one file per paper or method, thin on top of the core."""

from .nge import NDTF, NGE, MarginalFisher
from .nmf import NMF
from .ntf import NTF

__all__ = ["NDTF", "NGE", "NMF", "NTF", "MarginalFisher"]
