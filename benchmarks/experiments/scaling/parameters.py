"""What a scaling run can be asked for."""

from __future__ import annotations

from dataclasses import dataclass

from ...harness.words import check_names, check_positive

LABELS = {
    "samples": "samples N",
    "features": "features",
    "rank": "components k",
    "order": "order of the tensor, the number of entries fixed",
    "restarts": "restarts in one batch",
    "nonzeros": "stored entries of sparse data",
    "edges": "links of the graphs (NGE)",
}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    vary : names in `LABELS`
    solvers : solvers of `NMF`; graphs are taken with the solvers of `NGE` of the same name, where it has them
    points : how many sizes, each twice the one before (orders: 2, 3, ...)
    samples, features, n_components : int
        Where the sizes start; every other size stays there.
    iterations : per timed call
    repeats : timed calls per point, in turn over all points; medians count
    """

    vary: tuple[str, ...] = tuple(LABELS)
    solvers: tuple[str, ...] = ("auto", "multiplicative")
    points: int = 5
    samples: int = 400
    features: int = 200
    n_components: int = 10
    iterations: int = 10
    repeats: int = 7

    def __post_init__(self) -> None:
        check_names("size", self.vary, LABELS)
        check_names("solver", self.solvers, ("auto", "multiplicative", "hals", "projected"))
        check_positive(self, "samples", "features", "n_components", "iterations", "repeats")
        if self.points < 2:
            raise ValueError(f"points must be at least 2, got {self.points}")
