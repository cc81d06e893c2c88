"""Nonnegative factorization of matrices, tensors and views, with graphs and labels, on CPU and CUDA.

Docstrings cite papers by author and year; docs/bibliography.md has the titles.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import VERSION as __version__

if TYPE_CHECKING:
    from . import callbacks, core, graphs, io, kernels, metrics, models, penalties
    from .core.data.chunked.storage import Chunked
    from .io.model_files import load
    from .models import *  # noqa: F403
    from .models.shared.batch import batch_fit
    from .selection import Consensus, RankSelection, consensus, select_rank

MODELS = (
    "CoTraining",
    "ConstrainedNMF",
    "Coupled",
    "DPCA",
    "GraphNMF",
    "HarmonicFunction",
    "KernelNMF",
    "LNMF",
    "LabelledOnly",
    "LapRLSC",
    "LocalGlobalConsistency",
    "MFA",
    "MarginalFisher",
    "N2S2L",
    "NDTF",
    "NGE",
    "NMF",
    "NTD",
    "NTF",
    "PARAFAC2",
    "PairwiseCoRegularizedSpectral",
    "PolynomialNMF",
    "SMFA",
    "SRC",
    "SRLSC",
    "SULF",
    "SemiNMF",
    "nnls",
)

# Where each name comes from. A name is imported when it is first used: torch takes longer to import than `nnfactor
# --help` may take to answer.
PLACES = {
    **dict.fromkeys(("callbacks", "core", "graphs", "io", "kernels", "metrics", "models", "penalties")),
    **dict.fromkeys(MODELS, ".models"),
    **dict.fromkeys(("Consensus", "RankSelection", "consensus", "select_rank"), ".selection"),
    "Chunked": ".core.data.chunked.storage",
    "batch_fit": ".models.shared.batch",
    "load": ".io.model_files",
}

__all__ = [
    "Chunked",
    "Consensus",
    "RankSelection",
    "__version__",
    "batch_fit",
    "callbacks",
    "consensus",
    "core",
    "graphs",
    "io",
    "kernels",
    "load",
    "metrics",
    "models",
    "penalties",
    "select_rank",
    *MODELS,
]

if not TYPE_CHECKING:  # type checkers would believe every name

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        place = PLACES[name]
        value = import_module(f".{name}", __name__) if place is None else getattr(import_module(place, __name__), name)
        globals()[name] = value  # the next use does not come here
        return value

    def __dir__() -> list[str]:
        """List the public names, also those that were not used yet."""
        return sorted({*globals(), *__all__})
