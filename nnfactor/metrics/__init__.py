"""Quality of clusterings and factors, distance from a stationary point, and agreement of components."""

from .components import (
    core_consistency,
    degeneracy_score,
    factor_match_score,
    percentage_variation,
    split_half_similarity,
)
from .quality import clustering_accuracy, hoyer_sparsity, kkt_residual, normalized_mutual_information

__all__ = [
    "clustering_accuracy",
    "core_consistency",
    "degeneracy_score",
    "factor_match_score",
    "hoyer_sparsity",
    "kkt_residual",
    "normalized_mutual_information",
    "percentage_variation",
    "split_half_similarity",
]
