"""Restarts of fits that are computed apart: by workers, or by processes."""
