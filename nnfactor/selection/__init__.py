"""How many components: held-out entries, stability of restarts, core consistency."""

from .rank import RankSelection, select_rank

__all__ = ["RankSelection", "select_rank"]
