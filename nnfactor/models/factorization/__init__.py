"""Factorizations: one method a file."""
