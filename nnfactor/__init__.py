"""Nonnegative factorization of matrices, tensors and views, with graphs and labels, on CPU and CUDA."""

from . import core, graphs, kernels, metrics, models
from .models import *  # noqa: F403

__version__ = "0.1.0"

__all__ = ["core", "graphs", "kernels", "metrics", *models.__all__]
