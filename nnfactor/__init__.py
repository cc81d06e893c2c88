"""Nonnegative factorization of matrices, tensors and views, with graphs and labels, on CPU and CUDA.

Docstrings cite papers by author and year; README, "Papers by key", has the titles.
"""

from . import core, graphs, kernels, metrics, models
from .models import *  # noqa: F403
from .models.shared.batch import batch_fit

__version__ = "0.1.0"

__all__ = ["batch_fit", "core", "graphs", "kernels", "metrics", *models.__all__]
