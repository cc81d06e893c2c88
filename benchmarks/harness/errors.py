"""What a person can mend: reported in one line, without a traceback."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A run that cannot start or go on, and why."""


class ConfigError(BenchmarkError):
    """A configuration that says something the program does not understand."""


class MissingData(BenchmarkError):
    """A data file that is absent or not what it should be."""


class AbsentData(MissingData):
    """A data set that is not there: its problem is skipped, with this as the reason."""
