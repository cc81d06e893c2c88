"""The command `nnfactor`: fit, transform, select-rank, consensus, combine, plot, info, export.

torch is imported when a verb needs it, not for help or for a command line that is wrong.
"""

from .main import main

__all__ = ["main"]
