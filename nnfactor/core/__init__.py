"""The public core: compose terms and rules into models of your own. Pure torch; every call takes a batch.

Data and graphs become `terms`; a term yields the `Block` that one factor sees; a rule improves the factor on it;
`step` is one sweep, `run` decides when to stop.
"""

from . import init, ops
from .block import Block, Quad
from .data import Data, Dense, Sparse, SparseTensor
from .extrapolate import accelerated, extrapolated
from .intake import as_data
from .links import Links, as_links
from .rules import Rule, composed, hals, m_matrix, multiplicative, projected
from .solve import Progress, Run, iterate, run, step, take
from .terms import L1, L2, L21, BetaFit, Fit, Graph, Term, objective, see

__all__ = [
    "L1",
    "L2",
    "L21",
    "BetaFit",
    "Block",
    "Data",
    "Dense",
    "Fit",
    "Graph",
    "Links",
    "Progress",
    "Quad",
    "Rule",
    "Run",
    "Sparse",
    "SparseTensor",
    "Term",
    "accelerated",
    "as_data",
    "as_links",
    "composed",
    "extrapolated",
    "hals",
    "init",
    "iterate",
    "m_matrix",
    "multiplicative",
    "objective",
    "ops",
    "projected",
    "run",
    "see",
    "step",
    "take",
]
