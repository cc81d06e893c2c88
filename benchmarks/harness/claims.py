"""What a config says about its results: what the paper prints, what should hold, and which tables a page shows.

A *setting* names a row of the paper's table: a problem, or `problem/variation`. Settings are picked by patterns as for
file names (`orl_*`), and averaged where a pattern has several. A *column* is

* "chosen": at the parameters that cross-validation on the training data chose, split by split;
* "best": at the parameters with the best mean on the test data, the papers' "best over parameters";
* "paper": what the paper prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

COLUMNS = ("chosen", "best", "paper")


@dataclass(frozen=True)
class Paper:
    """A printed table.

    Attributes
    ----------
    source : str
        "Zhang and Liu 2009, Tables 1 and 2".
    values : setting -> method -> [mean] or [mean, standard deviation]
    metric : column of the rows that it is about
    """

    source: str
    values: dict[str, dict[str, tuple[float, ...]]] = field(default_factory=dict)
    metric: str = "accuracy"


@dataclass(frozen=True)
class Try:
    """Another way to measure a claim. What it does not name is as in the claim.

    Attributes
    ----------
    text : str
        What differs.
    methods, ahead_of, settings, by, column, metric : as in `Claim`
    equal : bool
        Whether this measures what the paper says as well as the claim's own way: then the claim holds if this does.
        Never for column "best", which is chosen on test data.
    """

    text: str
    methods: tuple[str, ...] = ()
    ahead_of: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    by: str = ""
    column: str = ""
    metric: str = ""
    equal: bool = False

    def __post_init__(self) -> None:
        if self.equal and self.column == "best":
            raise ValueError(f"tried {self.text!r}: column 'best' is chosen on test data, so equal must be false")


@dataclass(frozen=True)
class Claim:
    """Something that should hold: `methods` ahead of others, or close to the paper, or above a number.

    Attributes
    ----------
    text : str
    methods : every one of them must pass
    ahead_of : methods that have to be below
    within : points that `methods` may be away from the paper's, below it
    at_least : what `methods` must reach; with `smaller`, what they may reach at most
    settings : patterns
    by : "average" of the settings, in "every" one, in "most"
    column : "chosen" or "best"
    origin : "paper" (what it says) or "target" (a bar that we set ourselves)
    metric : column of the rows
    smaller : whether smaller is better
    tried : other ways to measure it; a claim of a paper that is not met needs two (`prose.find_faults`)
    """

    text: str
    methods: tuple[str, ...]
    ahead_of: tuple[str, ...] = ()
    within: float | None = None
    at_least: float | None = None
    settings: tuple[str, ...] = ("*",)
    by: str = "average"
    column: str = "chosen"
    origin: str = "paper"
    metric: str = "accuracy"
    smaller: bool = False
    tried: tuple[Try, ...] = ()

    def __post_init__(self) -> None:
        if self.by not in ("average", "every", "most"):
            raise ValueError(f"by must be 'average', 'every' or 'most', got {self.by!r}")
        if self.column not in COLUMNS[:2]:
            raise ValueError(f"column must be 'chosen' or 'best', got {self.column!r}")
        if self.origin not in ("paper", "target"):
            raise ValueError(f"origin must be 'paper' or 'target', got {self.origin!r}")
        if not self.ahead_of and self.within is None and self.at_least is None:
            raise ValueError("a claim needs ahead_of, within or at_least")
        list(self.variations())  # a try has to be a claim as well

    def variations(self) -> Iterator[tuple[Try, Claim]]:
        """Give every try and the claim as it measures it."""
        for other in self.tried:
            names = ("methods", "ahead_of", "settings", "by", "column", "metric")
            changes = {name: getattr(other, name) for name in names if getattr(other, name)}
            yield other, replace(self, text=other.text, tried=(), **changes)


@dataclass(frozen=True)
class PageTable:
    """A table of the experiment's page in `docs/findings`.

    Attributes
    ----------
    settings : patterns, each a row, averaged where a pattern has several settings; none: every setting, and the average
    methods : columns; none: all
    columns : what a row shows, each on a line of its own
    metric : column of the rows
    values : names of numbers that the study computes itself, shown instead of scores
    kind, show : rows of another kind, as they are, and the numbers of them that are shown
    """

    settings: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("chosen",)
    metric: str = "accuracy"
    values: tuple[str, ...] = ()
    kind: str = "score"
    show: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if set(self.columns) - set(COLUMNS):
            raise ValueError(f"columns may be 'chosen', 'best' and 'paper', got {list(self.columns)}")
