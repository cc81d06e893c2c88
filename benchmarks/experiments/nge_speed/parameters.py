"""What a comparison of NGE solvers can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...data.problems import PROBLEMS
from ...harness.words import check_names, check_positive

LABELS = {
    "printed": "multiplicative, as printed",
    "multiplicative": "multiplicative, exact basis rule",
    "inverses": "M-matrix, k inverses (reconstructed)",
    "cholesky": "M-matrix, batched Cholesky",
    "tight": "M-matrix, CG to a tolerance",
    "cg": "M-matrix, 4 CG steps (default)",
    "sweeps5": "M-matrix, 5 Jacobi sweeps",
    "sweeps20": "M-matrix, 20 Jacobi sweeps",
    "hals": "HALS on all factors",
    "projected": "projected gradient on all factors",
    "auto": "auto: HALS bases, V by CG then HALS, momentum",
}


BARS = {  # largest ratios that a config may ask for
    "products": "multiplicative iteration / its six dense products",
    "cg_iteration": "M-matrix by CG / multiplicative iteration (both exact basis rule)",
    "cg_time": "M-matrix by CG, exact multiplicative bases / printed",
    "auto_time": "auto / printed",
}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems : names in `problems.PROBLEMS`
        Those read from a folder are skipped, with a reason, when none is given.
    alphas : weights of the graphs
    orders : 2 (images as vectors), 3 (as matrices)
    iterations : int
        Of every method but the dense M-matrix solvers.
    solved_iterations : int
        Of those: they are timed and checked on so few, and share the curve of tightly solved CG.
    methods : names in `LABELS`
    n_neighbors, n_pairs : the marginal Fisher graphs; no n_neighbors means min(n_c - 1, 3)
    tight_tol : relative residual of "tight" in the run's precision
    stretch : iterations timed at a time, after the first ten
    memory : whether to measure peak memory
    """

    BARS: ClassVar[tuple[str, ...]] = tuple(BARS)
    SOLVED: ClassVar[tuple[str, ...]] = ("inverses", "cholesky")

    problems: tuple[str, ...]
    alphas: tuple[float, ...] = (100.0,)
    orders: tuple[int, ...] = (2,)
    iterations: int = 100
    solved_iterations: int = 3
    methods: tuple[str, ...] = tuple(LABELS)
    n_neighbors: int | None = None
    n_pairs: int = 20
    tight_tol: float = 1e-5
    stretch: int = 5
    memory: bool = True

    def __post_init__(self) -> None:
        check_names("problem", self.problems, PROBLEMS)
        check_names("method", self.methods, LABELS)
        if set(self.orders) - {2, 3}:
            raise ValueError(f"orders may be 2 (vectors) and 3 (images as matrices), got {list(self.orders)}")
        check_positive(self, "iterations", "solved_iterations", "stretch")
        if not (self.problems and self.alphas and self.orders and self.methods):
            raise ValueError("problems, alphas, orders and methods must not be empty")
