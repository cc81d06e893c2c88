"""Nonnegative factorization of matrices, tensors and views, with graphs and labels, on CPU and CUDA.

Docstrings call five papers by number:

000  Wang, Yan, Zhang and Zhang (2009), "Non-negative semi-supervised learning"
001  Jiang, Liu, Li and Lu (2014), "Semi-supervised unified latent factor learning with multi-view data"
002  Wang, Song, Yan, Zhang and Zhang (2009), "Multiplicative nonnegative graph embedding"
003  Fan, Gu, Qiao and Zhang (2011), "Sparse regularization for semi-supervised classification"
004  Zhang and Liu (2009), "An efficient nonnegative matrix factorization approach in flexible kernel space", and
     Sun and Zhang (2009), "A new discriminant principal component analysis method with partial supervision"
"""

from . import core, graphs, kernels, metrics, models
from .models import *  # noqa: F403
from .models.shared.batch import batch_fit

__version__ = "0.1.0"

__all__ = ["batch_fit", "core", "graphs", "kernels", "metrics", *models.__all__]
