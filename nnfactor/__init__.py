"""Nonnegative factorization of matrices, tensors and views, with graphs and labels, on CPU and CUDA."""

from . import core, graphs
from .models import N2S2L, NDTF, NGE, NMF, NTF, MarginalFisher

__version__ = "0.1.0"

__all__ = ["N2S2L", "NDTF", "NGE", "NMF", "NTF", "MarginalFisher", "core", "graphs"]
