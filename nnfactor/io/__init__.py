"""Files: data and models."""

from .data_files import Table, read_data
from .model_files import load, save

__all__ = ["Table", "load", "read_data", "save"]
