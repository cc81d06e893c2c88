"""NMF, KL-NMF, nonnegative CP and restarts against scikit-learn, TensorLy and torchnmf: time to common errors.

Every method starts from the same arrays and climbs a ladder of iteration counts; per start, the targets are 1.02, 1.005
and 1.001 times the worse of the errors that our default and the rival end with after long runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...harness.kinds import Context
from ...harness.results import Report
from .problems import PROBLEMS, RESTARTS, SPARSE, check_name

LABELS = {
    "ours": "nnfactor, default",
    "ours_hals": "nnfactor, plain HALS",
    "ours_mu": "nnfactor, plain multiplicative",
    "sklearn_cd": "scikit-learn cd",
    "sklearn_mu": "scikit-learn mu",
    "torchnmf": "torchnmf",
    "tensorly_hals": "TensorLy HALS",
    "tensorly_mu": "TensorLy multiplicative",
}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, restarts, sparse : names in `peers_problems`
        Those read from a folder are skipped, with a reason, when none is given; stand-ins when the folder is there.
    starts : of the default solver and of the rival that a bar names
    other_starts : of all others
    factors : of the worse of the two last errors
    seconds : measured time of a method from one start, all its calls together
    max_iter, settle, growth : see `peers_race.Limits`
    n_restarts : how many problems one batch holds
    memory : whether to measure peak memory
    """

    problems: tuple[str, ...]
    restarts: tuple[str, ...] = ()
    sparse: tuple[str, ...] = ()
    starts: int = 5
    other_starts: int = 1
    methods: tuple[str, ...] = tuple(LABELS)
    factors: tuple[float, ...] = (1.02, 1.005, 1.001)
    seconds: float = 4.0
    max_iter: int = 3000
    settle: float = 1e-4
    growth: float = 1.4
    n_restarts: int = 50
    memory: bool = True

    def __post_init__(self) -> None:
        for field, known in (("problems", PROBLEMS), ("restarts", RESTARTS), ("sparse", SPARSE)):
            for name in getattr(self, field):
                check_name(name, known, field)
        for name in self.methods:
            check_name(name, dict.fromkeys(LABELS), "methods")
        if "ours" not in self.methods:
            raise ValueError("methods must name 'ours': everything is measured against it")
        if not self.factors or min(self.factors) <= 1:
            raise ValueError(f"factors must be above 1, got {list(self.factors)}")
        if min(self.starts, self.other_starts, self.max_iter, self.n_restarts) < 1 or self.growth <= 1:
            raise ValueError("starts, other_starts, max_iter and n_restarts must be at least 1, growth above 1")


@dataclass(frozen=True)
class Everything:
    """All that was measured."""

    outcomes: list[Any]
    sweeps: list[Any]
    restarts: list[Any]
    sparse: list[Any]
    rates: Any
    skipped: dict[str, str]


def run(parameters: Parameters, context: Context) -> Report:
    """Every problem, one after the other."""
    from .report import report
    from .runs import everything

    return report(parameters, everything(parameters, context), context)
