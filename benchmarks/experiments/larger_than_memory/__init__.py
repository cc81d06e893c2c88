"""Data on disk that are larger than what a fit may hold."""
