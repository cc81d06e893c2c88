"""Nonnegative factorization of matrices, tensors and views, with graphs and labels, on CPU and CUDA.

Docstrings cite papers by author and year; README, "Papers by key", has the titles.
"""

from . import core, graphs, kernels, metrics, models, penalties
from .core.version import VERSION as __version__
from .io.model_files import load
from .models import *  # noqa: F403
from .models.shared.batch import batch_fit
from .selection import Consensus, RankSelection, consensus, select_rank

__all__ = [
    "Consensus",
    "RankSelection",
    "__version__",
    "batch_fit",
    "consensus",
    "core",
    "graphs",
    "kernels",
    "load",
    "metrics",
    "penalties",
    "select_rank",
    *models.__all__,
]
