"""The public core: compose terms and rules into models of your own. Pure torch; every call takes a batch.

Data and graphs become `terms`; a term gives each factor a `Block` of coefficients; a rule improves the factor with it;
`step` is one sweep, `run` decides when to stop.
"""

from . import factors
from .block import Block, Quad
from .data.as_data import as_data
from .data.base import Data
from .data.chunked.storage import Chunked
from .data.dense import Dense
from .data.distributed.sharded import Sharded
from .data.sparse import Sparse
from .data.sparse_tensor import SparseTensor
from .graph.graph import Graph, as_graph
from .precision import tf32_first
from .rules.base import Rule, compose
from .rules.hals import hals
from .rules.m_matrix import m_matrix
from .rules.multiplicative import multiplicative
from .rules.projected_gradient import projected_gradient
from .solve import init
from .solve.momentum.extrapolation import bmme, her
from .solve.run import Progress, Run, iterate, run, step, take
from .terms.base import Term, Weight, block_of, objective
from .terms.beta import BetaFit
from .terms.fit import Fit
from .terms.laplacian import Laplacian
from .terms.penalties import L1, L2, L21

__all__ = [
    "L1", "L2", "L21", "BetaFit", "Block", "Chunked", "Data", "Dense", "Fit", "Graph", "Laplacian", "Progress",
    "Quad", "Rule", "Run", "Sharded", "Sparse", "SparseTensor", "Term", "Weight", "as_data", "as_graph", "block_of",
    "bmme", "compose", "factors", "hals", "her", "init", "iterate", "m_matrix", "multiplicative", "objective",
    "projected_gradient", "run", "step", "take", "tf32_first",
]  # fmt: skip
