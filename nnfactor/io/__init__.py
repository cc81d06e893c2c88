"""Files: data, labels, tables of results, and models.

Readers of data need no torch; `load` and `save`, which do, are imported when they are asked for (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING, Any

from .anndata_objects import fit_anndata, store_anndata, write_h5ad_results
from .blocks import open_data, read_blocks
from .data_files import read_data
from .label_files import read_labels
from .table import Table
from .write_tables import write_table
from .xarray_objects import to_xarray

if TYPE_CHECKING:
    from .model_files import load, save

__all__ = [
    "Table",
    "fit_anndata",
    "load",
    "open_data",
    "read_blocks",
    "read_data",
    "read_labels",
    "save",
    "store_anndata",
    "to_xarray",
    "write_h5ad_results",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name in ("load", "save"):
        return getattr(importlib.import_module(f"{__name__}.model_files"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
