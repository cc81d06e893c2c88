"""What a comparison with other packages can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...harness.words import check_names
from .problems import FROBENIUS, KL, NTF, PROBLEMS, RESTARTS, SPARSE

LABELS = {
    "ours": "nnfactor, default",
    "ours_hals": "nnfactor, plain HALS",
    "ours_mu": "nnfactor, plain multiplicative",
    "sklearn_cd": "scikit-learn cd",
    "sklearn_mu": "scikit-learn mu",
    "torchnmf": "torchnmf",
    "tensorly_hals": "TensorLy HALS",
    "tensorly_mu": "TensorLy multiplicative",
    "nnfac": "nn-fac",
}


JUDGED = {  # group -> the rivals that its bars speak about; the first one ends a common error, the fastest one counts
    FROBENIUS: ("sklearn_cd", "sklearn_mu", "tensorly_hals", "torchnmf", "nnfac"),
    KL: ("sklearn_mu", "torchnmf", "nnfac"),
    NTF: ("tensorly_hals", "nnfac"),
}

NAMED = {  # group -> the package that most people use, and its methods: a race of its own beside that against all
    FROBENIUS: ("scikit-learn", ("sklearn_cd", "sklearn_mu")),
    KL: ("scikit-learn mu", ("sklearn_mu",)),
    NTF: ("TensorLy HALS", ("tensorly_hals",)),
}

BARS = {  # what a config may ask for: speed-ups at least, ratios of costs at most
    "nmf_mean": "NMF against the fastest rival, and against scikit-learn: geometric mean of the problems' medians",
    "nmf_each": "the same, problem by problem",
    "ntf_mean": "nonnegative CP against the fastest rival, and against TensorLy HALS: geometric mean",
    "ntf_each": "the same, problem by problem",
    **{name: f"{spec.title} against its fastest rival" for name, spec in PROBLEMS.items() if spec.group == KL},
    "restarts_loop": "a batch of restarts against a loop of scikit-learn's",
    "restarts_own": "the same against a loop of our own",
    "sweep": "a multiplicative sweep of NTF over its two products",
    "sparse_mu": "a multiplicative iteration on sparse data over its products and Grams",
    "sparse_default": "the same for the default solver",
    "sparse_memory": "peak memory on sparse data over data and factors",
}


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    problems, restarts, sparse : names in `peers_problems`
        Those read from a folder are skipped, with a reason, when none is given; stand-ins when the folder is there.
    starts : of the default solver and of the rivals that bars speak about
    other_starts : of all others
    factors : of the worse of the two last errors
    seconds : of one run of a method, as far as the climb goes
    max_iter, settle, growth : see `peers_race.Limits`
    n_restarts : how many problems one batch holds
    memory : whether to measure peak memory
    """

    BARS: ClassVar[tuple[str, ...]] = tuple(BARS)

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
        check_names("problem", self.problems, PROBLEMS)
        check_names("restart", self.restarts, RESTARTS)
        check_names("sparse problem", self.sparse, SPARSE)
        check_names("method", self.methods, LABELS)
        if "ours" not in self.methods:
            raise ValueError("methods must name 'ours': everything is measured against it")
        if not self.factors or min(self.factors) <= 1:
            raise ValueError(f"factors must be above 1, got {list(self.factors)}")
        if min(self.starts, self.other_starts, self.max_iter, self.n_restarts) < 1 or self.growth <= 1:
            raise ValueError("starts, other_starts, max_iter and n_restarts must be at least 1, growth above 1")
