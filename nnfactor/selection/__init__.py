"""How many components, and which of them are found again: held-out entries, stability of restarts, consensus."""

from .consensus import Consensus, consensus
from .rank import RankSelection, select_rank

__all__ = ["Consensus", "RankSelection", "consensus", "select_rank"]
