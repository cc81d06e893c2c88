"""Nonnegative factorization of matrices, tensors and views, with graphs and labels, on CPU and CUDA."""

from . import core, graphs, kernels, metrics, models
from .batch import batch_fit
from .models import *  # noqa: F403

__version__ = "0.1.0"

__all__ = ["batch_fit", "core", "graphs", "kernels", "metrics", *models.__all__]
